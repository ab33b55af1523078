"""Which method of quantisation a record follows; the method of AutoRound.

As vLLM 0.33 reads it (``model_executor/layers/quantization``).
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from specmodel.models.hf.formats import (
    KEPT_KEYS,
    MOE_ALGO,
    Format,
    Recipe,
    Source,
    awq,
    compressed,
    fp8,
    gptq,
    modelopt,
    mxfp4,
    mxfp8,
    quark,
    weights_alone,
    wna16,
)

_SUSPECT_KEY = re.compile(
    r"lm_head|embed|sparsity|transform|to_quantize|override|mixed|extra_config|moe_quant"
)
"""Keys that change what is quantised, and that no reader of a method knows but those below."""

_OWN_KEYS = {"auto-round": "extra_config|block_name_to_quantize"}
"""Regexes of such keys that the reader of a method knows."""

_OTHER_NAMES = {
    "auto_awq": "awq",
    "awq_marlin": "awq",
    "auto_gptq": "gptq",
    "gptq_marlin": "gptq",
    "gpt_oss_mxfp4": "mxfp4",
    "fbgemm_fp8": "fp8",
    "inc": "auto-round",
}
"""What engines call some methods."""

_BLOCKS = re.compile(r"(?:\w+\.)*layers")
_SEARCHED = re.compile(r"[*+?^$()\[\]{}|\\]")
"""Signs by which AutoRound takes a name for a regex, which it looks for anywhere."""


def read_recipe(source: Source, expert_dtype: object = None) -> Recipe:
    """Return the recipe of a record; `expert_dtype` is what stands outside of it about experts."""
    method, given = _method(source), _dtype_of_experts(source, expert_dtype)
    if given is not None and method != "fp8":
        raise source.fault("expert_dtype", f"none, as with {method} it is not known here", given)
    own = MOE_ALGO if method == "fp8" and given is not None else _OWN_KEYS.get(method, "")
    suspect = (key for key in map(str, source.config) if _SUSPECT_KEY.search(key))
    source.refuse(*(key for key in suspect if not re.fullmatch(own, key)))
    recipe = _METHODS[method](source)
    return recipe if given is None else _with_experts(recipe, source, given)


def _method(source: Source) -> str:
    """Return the method of a record, by the name that its reader has here."""
    method = source.config.get("quant_method")
    if method is None and source.config.get("quant_algo") is not None:
        method = "modelopt"  # as ModelOpt 0.31 left it out
    if isinstance(method, str) and method.startswith("modelopt_"):
        method = "modelopt"  # the engine's name for one of its algorithms
    method = _OTHER_NAMES.get(method, method) if isinstance(method, str) else method
    if not isinstance(method, str) or method not in _METHODS:
        expected = f"one of: {', '.join(_METHODS)}; others are told by --weight-dtype"
        raise source.fault("quant_method", expected)
    return method


def _dtype_of_experts(source: Source, expert_dtype: object) -> object:
    """Return the dtype of routed experts, given in the record or outside of it."""
    inner = source.config.get("expert_dtype")
    if None not in (inner, expert_dtype) and inner != expert_dtype:
        raise source.fault("expert_dtype", f"the same as expert_dtype = {expert_dtype!r} outside")
    return inner if inner is not None else expert_dtype


def _with_experts(recipe: Recipe, source: Source, given: object) -> Recipe:
    """Return a recipe whose routed experts have a dtype that is given."""
    if source.one_of("expert_dtype", ("fp4", "fp8"), given) == "fp8" or recipe.experts:
        return recipe
    return Recipe(recipe.every, Format("mxfp4", "fp8"), kept=recipe.kept)


def auto_round(source: Source) -> Recipe:
    """AutoRound: every linear layer but the LM head, and modules with bits of their own."""
    key = "block_name_to_quantize"
    blocks = source.config.get(key) or source.config.get("to_quant_block_names") or []
    blocks = blocks.split(",") if isinstance(blocks, str) else blocks
    if not isinstance(blocks, list) or not all(_BLOCKS.fullmatch(str(name)) for name in blocks):
        raise source.fault(key, "names that end on layers, as parts of these are not known here")
    own = source.config.get("extra_config") or {}
    if not isinstance(own, dict):
        raise source.fault("extra_config", "an object of modules")
    by_format: dict[Format | None, list[str]] = {}
    for name, spec in own.items():
        if not isinstance(spec, dict):
            raise source.fault(f"extra_config.{name}", "an object with bits", spec)
        bits = spec.get("bits", source.config.get("bits"))
        is_kept = type(bits) is int and bits >= 16
        entry = f"re:.*(?:{name})" if _SEARCHED.search(name) else name
        form = None if is_kept else _rounded(source, {**source.config, **spec})
        by_format.setdefault(form, []).append(entry)
    kept, key = source.lists(*KEPT_KEYS), source.key("extra_config")
    if None in by_format:
        kept[key] = by_format.pop(None)
    targets = tuple((key, names, form) for form, names in by_format.items() if form)
    return Recipe(_rounded(source, source.config), targets=targets, kept=kept)


def _rounded(source: Source, spec: Mapping[str, Any]) -> Format:
    """Return the format of AutoRound's integers, or of its other types of data."""
    name = str(spec.get("data_type", "int"))
    bits, group = spec.get("bits"), spec.get("group_size")
    if name == "int":
        own = Source(dict(spec), source.name, source.dtype)
        return weights_alone(own, has_zero_points=not spec.get("sym", True))
    if "mx_fp" in name and (bits, group) in ((4, 32), (8, 32)):
        return Format("mxfp4", "fp4") if bits == 4 else Format("mxfp8", "fp8")
    if name in ("fp", "fp8") and (bits, group) == (8, [128, 128]):
        return Format("fp8_block", "fp8")
    expected = "int; or mx_fp of 4 or 8 bits in groups of 32; or fp of 8 bits in [128, 128]"
    raise source.fault("data_type", expected, f"{name} of {bits} bits in groups of {group}")


_METHODS: dict[str, Callable[[Source], Recipe]] = {
    "fp8": fp8,
    "mxfp4": mxfp4,
    "awq": awq,
    "gptq": gptq,
    "moe_wna16": wna16,
    "mxfp8": mxfp8,
    "modelopt": modelopt,
    "compressed-tensors": compressed,
    "quark": quark,
    "auto-round": auto_round,
}
"""Readers of records by `quant_method`."""
