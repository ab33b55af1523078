"""Which method of quantisation a record follows; methods of AutoRound, FP-Quant, torchao and MLX.

As vLLM 0.33 reads the first three (``model_executor/layers/quantization``). It serves no MLX.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from specmodel.models.hf import formats
from specmodel.models.hf.formats import (
    KEPT_KEYS,
    MOE_ALGO,
    Format,
    Recipe,
    Source,
    by_name,
    weights_alone,
)
from specmodel.models.hf.keys import table

_SUSPECT_KEY = re.compile(
    r"lm_head|embed|sparsity|transform|to_quantize|override|mixed|extra_config|moe_quant"
)
"""Keys that change what is quantised, and that no reader of a method knows but its own."""

_BLOCKS = re.compile(r"(?:\w+\.)*layers")
_SEARCHED = re.compile(r"[*+?^$()\[\]{}|\\]")
"""Signs by which AutoRound takes a name for a regex, which it looks for anywhere."""

_INT4 = "Int4WeightOnlyConfig"
_BY_NAME = ("FqnToConfig", "ModuleFqnToConfig")
_MLX_KEYS = ("bits", "group_size", "mode", "quant_method", "linear_class")


def read_recipe(source: Source, expert_dtype: object = None) -> Recipe:
    """Return the recipe of a quantisation record; `expert_dtype` is that key outside the record."""
    method, given = _method(source), source.config.get("expert_dtype")
    if None not in (given, expert_dtype) and given != expert_dtype:
        raise source.fault("expert_dtype", f"the same as {expert_dtype!r} beside this record")
    given = expert_dtype if given is None else given
    if given is not None and method != "fp8":
        raise source.fault("expert_dtype", f"no such key with quant_method {method}", given)
    own = table("quantisation")["own_keys"].get(method, "")
    own = MOE_ALGO if method == "fp8" and given is not None else own
    suspect = (key for key in map(str, source.config) if _SUSPECT_KEY.search(key))
    source.refuse(*(key for key in suspect if not re.fullmatch(own, key)))
    recipe = _METHODS[method](source)
    if given is None or source.one_of("expert_dtype", ("fp4", "fp8"), given) == "fp8":
        return recipe
    return recipe if recipe.experts else replace(recipe, experts=Format("mxfp4", "fp8"))


def _method(source: Source) -> str:
    """Return the method of a record, by the name that its reader has here."""
    method = source.config.get("quant_method")
    if method is None and source.config.get("quant_algo") is not None:
        method = "modelopt"  # as ModelOpt 0.31 left it out
    if method is None and {"bits", "group_size"} <= source.config.keys():
        method = "mlx"
    if isinstance(method, str) and method.startswith("modelopt_"):
        method = "modelopt"  # the engine's name for one of its algorithms
    if isinstance(method, str):
        method = table("quantisation")["other_names"].get(method, method)
    if not isinstance(method, str) or method not in _METHODS:
        raise source.fault("quant_method", f"one of: {', '.join(_METHODS)}")
    return method


def auto_round(source: Source) -> Recipe:
    """AutoRound: every linear layer but the LM head, and modules with bits of their own."""
    key = "block_name_to_quantize"
    blocks = source.config.get(key) or source.config.get("to_quant_block_names") or []
    blocks = blocks.split(",") if isinstance(blocks, str) else blocks
    if not isinstance(blocks, list) or not all(_BLOCKS.fullmatch(str(name)) for name in blocks):
        raise source.fault(key, "names that end on layers, as parts of these are not known here")
    own, forms = source.config.get("extra_config") or {}, dict[str, Format | None]()
    if not isinstance(own, dict):
        raise source.fault("extra_config", "an object of modules")
    for name, spec in own.items():
        if not isinstance(spec, dict):
            raise source.fault(f"extra_config.{name}", "an object with bits", spec)
        bits = spec.get("bits", source.config.get("bits"))
        is_kept = type(bits) is int and bits >= 16
        entry = f"re:.*(?:{name})" if _SEARCHED.search(name) else name
        forms[entry] = None if is_kept else _rounded(source, {**source.config, **spec})
    return by_name(source, "extra_config", forms, _rounded(source, source.config))


def _rounded(source: Source, spec: Mapping[str, Any]) -> Format:
    """Return the format of an AutoRound record by its `data_type`: int, mx_fp or fp."""
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


def fp_quant(source: Source) -> Recipe:
    """FP-Quant: every linear layer, not the routed experts and not the LM head."""
    source.refuse("store_master_weights", "pseudoquantization")
    weights = table("quantisation")["fp_quant"]
    name = source.one_of("forward_dtype", weights)
    plain = Format(source.dtype, source.dtype)
    return Recipe(Format(weights[name], "fp4"), experts=plain, kept=source.lists(*KEPT_KEYS))


def torchao(source: Source) -> Recipe:
    """torchao: every linear layer, or those named; not the LM head, experts only if named."""
    types = source.config.get("quant_type")
    if not isinstance(types, dict) or types.keys() != {"default"}:
        raise source.fault("quant_type", "an object with default alone, as torchao 0.10 writes it")
    form = types["default"]
    kind, data = _class_of(source, "quant_type.default", form)
    named: dict[str, Any] = {}
    if kind in _BY_NAME:
        named = data.get("fqn_to_config") or data.get("module_fqn_to_config") or {}
        if not isinstance(named, dict):
            raise source.fault("quant_type.default", "an object of modules", named)
        form = named.get("_default")
    forms = {n: own and _of_class(source, n, own) for n, own in named.items() if n != "_default"}
    every = form and _of_class(source, "quant_type.default", form)
    return by_name(source, "quant_type", forms, every, Format(source.dtype, source.dtype))


def _class_of(source: Source, key: str, spec: Any) -> tuple[str, dict[str, Any]]:
    """Return the name of a class of torchao, and its arguments."""
    form = spec if isinstance(spec, dict) else {}
    kind, data = form.get("_type"), form.get("_data")
    if not isinstance(kind, str) or not isinstance(data, dict):
        raise source.fault(key, "an object with _type and _data", spec)
    return kind, data


def _of_class(source: Source, key: str, spec: Any) -> Format:
    """Return the format that a class of torchao makes."""
    kind, data = _class_of(source, key, spec)
    if kind == _INT4:
        size = data.get("group_size", 128)
        weights = source.of_groups(f"{key}.group_size", ("biased int", 4), size, False)
        return Format(weights, source.dtype)
    known = table("quantisation")["torchao"]
    if kind not in known:
        raise source.fault(f"{key}._type", f"one of: {_INT4}, {', '.join(known)}", kind)
    weights, activations = known[kind]
    shared = data.get("granularity")
    parts = shared if isinstance(shared, list) else [shared]
    kinds = {str(part.get("_type")) for part in parts if isinstance(part, dict)}
    sizes = [part["_data"] for part in parts if isinstance(part, dict) and part.get("_data")]
    if weights == "fp8" and kinds == {"PerBlock"} and {"block_size": [128, 128]} in sizes:
        return Format("fp8_block", "fp8")
    if data.get("group_size") or not kinds <= {"PerRow", "PerTensor"}:
        raise source.fault(f"{key}.granularity", "scales by row or tensor, or by 128 x 128", shared)
    return Format(weights, activations or source.dtype)


def mlx(source: Source) -> Recipe:
    """MLX: every linear layer, the LM head and the embedding; keys name modules that differ."""
    forms: dict[str, Format | None] = {}
    for name, spec in source.config.items():
        if spec is False or isinstance(spec, dict):
            entry = name.replace("switch_mlp", "experts.*")
            forms[entry] = _of_mode(source, name, source.config | spec) if spec else None
        elif name not in _MLX_KEYS and spec is not True and spec is not None:
            raise source.fault(name, "false or an object, as of a module")
    every = _of_mode(source, "group_size", source.config)
    embeddings = [name for name in forms if name.split(".")[-1] == "embed_tokens"]
    embedding = forms[embeddings[0]] if embeddings else every
    outer = embedding.weights if embedding else None
    found = by_name(source, "modules", forms, every)
    return replace(found, has_head=True, embedding_dtype=outer)


def _of_mode(source: Source, key: str, spec: Mapping[str, Any]) -> Format:
    """Return the format of MLX's affine integers, or of one of its other modes."""
    bits, group, mode = spec.get("bits"), spec.get("group_size"), spec.get("mode", "affine")
    if mode == "affine":
        weights = source.of_groups(key, ("biased int", bits), group, False)
        return Format(weights, source.dtype)
    for name, (width, size, weights) in table("quantisation")["mlx_modes"].items():
        if (mode, bits, group) == (name, width, size):
            return Format(weights, source.dtype)
    expected = "affine, or mxfp4, mxfp8 or nvfp4 with their own bits and groups"
    raise source.fault("mode", expected, f"{mode} of {bits} bits in groups of {group}")


_METHODS: dict[str, Callable[[Source], Recipe]] = {
    "fp8": formats.fp8,
    "mxfp4": formats.mxfp4,
    "awq": formats.awq,
    "gptq": formats.gptq,
    "moe_wna16": formats.wna16,
    "mxfp8": formats.mxfp8,
    "modelopt": formats.modelopt,
    "compressed-tensors": formats.compressed,
    "quark": formats.quark,
    "auto-round": auto_round,
    "fp_quant": fp_quant,
    "torchao": torchao,
    "mlx": mlx,
}
"""Readers of records by `quant_method`."""
