"""Read the quantisation record of a checkpoint, by the method of the tool that wrote it.

The reader of a method returns a `Recipe`: the formats that engines give to the matrices. An unknown
key that may change a format is refused. vLLM 0.33 reads the same records, except those of MLX
(``model_executor/layers/quantization``).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from specmodel.core.base.errors import InputError, nearest
from specmodel.core.models.hf.keys import table
from specmodel.core.models.hf.reader import Reader


class Format(NamedTuple):
    """Dtypes of weights and of activations that meet them; "" for the model's dtype."""

    weights: str = ""
    activations: str = ""


class Recipe(Struct, frozen=True):
    """The formats of matrices that a quantisation record describes."""

    every: Format | None = None
    """Format of linear layers that no other field names; None if they stay in 16 bits."""
    experts: Format | None = None
    """Format of routed experts, None if it is that of other linear layers."""
    targets: tuple[tuple[str, list[Any], Format], ...] = ()
    """Lists of modules with another format: key of the list, names, format."""
    kept: dict[str, Any] = field(default_factory=dict)
    """Lists of modules that are not quantised, by key."""
    has_head: bool = False
    """Whether `every` includes the LM head."""
    needs_head: bool = False
    """Whether the record must name the LM head, either as quantised or as not quantised."""
    embedding_dtype: str | None = None
    """Dtype of the embedding; None if it is not quantised."""
    kv_dtype: str | None = None
    """Dtype of the KV cache, "" for the model's; None if the record does not give it."""


MOE_ALGO = "moe_quant_algo"
"""Key of an algorithm for experts only, if another method covers the rest: DeepSeek-V4."""

MIXED = "MIXED_PRECISION"
"""Name of the algorithm in records that give each layer its own algorithm."""

_SUSPECT_KEY = re.compile(
    r"lm_head|embed|sparsity|transform|to_quantize|override|mixed|extra_config|moe_quant"
)
"""Keys that change which matrices are quantised, and that only the reader of one method knows."""


def read_recipe(record: Any, name: str, expert_dtype: object = None) -> Recipe:
    """Return the recipe of a record; `expert_dtype` is the value of this key outside the record."""
    reader, key = Reader(record, name), "expert_dtype"
    if expert_dtype is not None:
        reader.only(key, (expert_dtype,), f"the same as {expert_dtype!r} outside this record")
        reader.config = {**reader.config, key: expert_dtype}
    method, has_experts = _method(reader), reader.get(key) is not None
    expected = f"no such key with quant_method {method}"
    reader.need(method == "fp8" or not has_experts, key, expected)
    own = MOE_ALGO if has_experts else table("quantisation")["own_keys"].get(method, "")
    suspect = (key for key in map(str, reader.config) if _SUSPECT_KEY.search(key))
    _refuse(reader, *(key for key in suspect if not re.fullmatch(own, key)))
    recipe, keys = _METHODS[method](reader), table("quantisation")["kept_keys"]
    row = MOE_ALGO if reader.config.get(MOE_ALGO) else method
    recipe = replace(recipe, kept=_kept(reader, *keys.get(row, keys["usual"])) | recipe.kept)
    if not has_experts or reader.by_name(key, ("fp4", "fp8")) == "fp8":
        return recipe
    return recipe if recipe.experts else replace(recipe, experts=Format("mxfp4", "fp8"))


def _method(reader: Reader) -> str:
    """Return the method of a record, by its name in `_METHODS`."""
    method = reader.get("quant_method")
    if method is None and reader.get("quant_algo") is not None:
        method = "modelopt"  # ModelOpt 0.31 did not write the key
    if method is None and {"bits", "group_size"} <= reader.config.keys():
        method = "mlx"
    if isinstance(method, str) and method.startswith("modelopt_"):
        method = "modelopt"  # the engine's name for one of its algorithms
    found = table("quantisation")["other_names"].get(str(method), str(method))
    reader.need(found in _METHODS, "quant_method", f"one of: {', '.join(_METHODS)}")
    return str(found)


def _refuse(reader: Reader, *keys: str) -> None:
    """Refuse keys whose effect is not known, unless their value is empty or dense."""
    for key in keys:
        value = reader.get(key)
        is_empty = not value or (isinstance(value, dict) and value.get("format") == "dense")
        reader.need(is_empty, key, "no such key, as specmodel does not know its effect")


def _dtype(reader: Reader, key: str, kind: str, group: Any = None, end: str = "") -> str:
    """Return the dtype of elements of a kind, such as int 4; `group` elements share a scale."""
    text = f"{kind}{'' if group is None else f' in {group}'}{end}"
    known: dict[str, str] = table("quantisation")["dtypes"]
    if text not in known:
        like = [name for name in known if name.split()[0] == kind.split()[0]]
        expected = f"one of: {', '.join(like)}" if like else nearest(text, known)
        raise InputError(f"{reader.argument} {key}", text, expected)
    return known[text]


def _integers(reader: Reader, has_zero_points: bool) -> str:
    """Return the dtype of integer weights that share scales in groups."""
    bits = reader.get("bits", reader.get("w_bit"))
    group = reader.get("group_size", reader.get("q_group_size", 128))
    end = " with zero points" if has_zero_points else ""
    return _dtype(reader, "bits and group_size", f"int {bits}", group, end)


def _kept(reader: Reader, *keys: str) -> dict[str, Any]:
    """Return the lists under some keys by the full names of the keys, without empty lists."""
    return {f"{reader.argument} {key}": reader.get(key) for key in keys if reader.get(key)}


def _by_name(
    reader: Reader, key: str, forms: Mapping[str, Format | None], every: Format | None = None
) -> Recipe:
    """Return a recipe from the format of each named module, None if it is not quantised."""
    listed: dict[Format | None, list[str]] = {}
    for name, form in forms.items():
        listed.setdefault(form, []).append(name)
    name = f"{reader.argument} {key}"
    kept = {name: listed[None]} if None in listed else {}
    targets = tuple((name, names, form) for form, names in listed.items() if form)
    return Recipe(every, targets=targets, kept=kept)


def _inner(reader: Reader, key: str) -> Iterable[tuple[str, Reader]]:
    """Yield the name and a reader of each object inside the object under a key."""
    objects = reader.inner(key, reader.get(key) or {}).config
    for name in objects:
        yield name, reader.inner(f"{key}.{name}", objects[name])


def _fp8(reader: Reader) -> Recipe:
    """Read FP8 of DeepSeek and Qwen: every linear layer except the LM head.

    With `MOE_ALGO`, ModelOpt's other keys describe only the routed experts, as in vLLM 0.33
    (``models/deepseek_v4/quant_config.py``).
    """
    has_algorithm = reader.get(MOE_ALGO) is not None
    if not has_algorithm:
        _refuse(reader, "quant_algo", "quantized_layers", "config_groups")
    reader.only("activation_scheme", ("dynamic", "static"), "dynamic or static")
    weights = _dtype(reader, "weight_block_size", "float 8", reader.get("weight_block_size"))
    if weights == "mxfp8":
        reader.by_name("scale_fmt", ("ue8m0",))
    experts = _algorithm(reader, MOE_ALGO, ["NVFP4"]) if has_algorithm else None
    return Recipe(Format(weights, "fp8"), experts)


def _mxfp4(reader: Reader) -> Recipe:
    """Read MXFP4 of gpt-oss: only routed experts."""
    return Recipe(experts=Format("mxfp4"))


def _mxfp8(reader: Reader) -> Recipe:
    """Read MXFP8 of MiniMax: every linear layer and the LM head, as in ModelOpt's."""
    reader.only("weight_block_size", ([1, 32],), "[1, 32]")
    return Recipe(Format("mxfp8", "fp8"), has_head=True)


def _gptq(reader: Reader) -> Recipe:
    """Read GPTQ, AWQ and moe_wna16 (vLLM's name for both): every linear layer except the LM head.

    GPTQ has the key `sym`; kernels ignore the zero points of its symmetric checkpoints.
    """
    _refuse(reader, "quantized_layers")
    kept, rules = dict[str, Any](), reader.nested("dynamic")
    if rules:
        are_known = all(rule.startswith("-:") for rule in rules.config)
        expected = "only rules that start with -:, which leave modules out"
        reader.need(are_known, "dynamic", expected)
        kept[rules.argument] = ["re:" + rule.removeprefix("-:") for rule in rules.config]
    has_zero_points = not reader.get("sym", not reader.get("zero_point", True))
    return Recipe(Format(_integers(reader, has_zero_points)), kept=kept)


def _modelopt(reader: Reader) -> Recipe:
    """Read ModelOpt, in either file: every linear layer and the LM head, or listed layers."""
    known, key = table("quantisation")["modelopt"], "quantized_layers"
    is_mixed = reader.by_name("quant_algo", (*known, MIXED)) == MIXED
    kept = _kept(reader, "ignore") or _kept(reader, "exclude_modules", "ignored_layers")
    kv_dtype = _modelopt_kv(reader)
    if not is_mixed:
        _refuse(reader, key)
        every = _algorithm(reader, "quant_algo", known)
        return Recipe(every, kept=kept, has_head=True, kv_dtype=kv_dtype)
    forms = {name: _algorithm(own, "quant_algo", known) for name, own in _inner(reader, key)}
    reader.need(forms, key, f"the layers of each format, as quant_algo is {MIXED}")
    return replace(_by_name(reader, key, forms), kept=kept, kv_dtype=kv_dtype)


def _algorithm(reader: Reader, key: str, names: Iterable[str]) -> Format:
    """Return the format of an algorithm of ModelOpt, one of `names`."""
    weights, activations = table("quantisation")["modelopt"][reader.by_name(key, tuple(names))]
    if weights == "int4":
        reader.config = {"bits": 4, **reader.config}
        weights = _integers(reader, bool(reader.get("has_zero_point", False)))
    elif weights == "fp4":
        reader.only("group_size", (16,), "16 elements in NVFP4")
    return Format(weights, activations)


def _modelopt_kv(reader: Reader) -> str | None:
    """Return the dtype of the KV cache by either key of ModelOpt, None if both are missing."""
    scheme = reader.get("kv_cache_scheme")
    if isinstance(scheme, dict):
        return _tensor_dtype(reader.nested("kv_cache_scheme"))
    key = "kv_cache_quant_algo" if scheme is None else "kv_cache_scheme"
    if reader.get(key) is None:
        return "" if key in reader.config else None
    known: dict[str, str] = table("quantisation")["modelopt_kv"]
    return known[reader.by_name(key, tuple(known))]


def _compressed(reader: Reader) -> Recipe:
    """Read compressed-tensors: a format for each group of modules; the LM head if it is named."""
    every, targets = set[Format](), []
    for _, group in _inner(reader, "config_groups"):
        names = group.get("targets")
        group.need(isinstance(names, list), "targets", "a list")
        weights = _tensor_dtype(group.inner("weights", group.get("weights")))
        inputs = group.nested("input_activations")
        form = Format(weights, _tensor_dtype(inputs, is_weight=False))
        if "Linear" in names:
            every.add(form)
        else:
            targets.append((f"{group.argument} targets", names, form))
    is_known = len(every) < 2 and (every or targets)
    reader.need(is_known, "config_groups", "an object of groups, with one format for Linear")
    scheme = reader.nested("kv_cache_scheme")
    kv_dtype = _tensor_dtype(scheme) if scheme else None
    found = Recipe(next(iter(every), None), targets=tuple(targets), kv_dtype=kv_dtype)
    return replace(found, needs_head=bool(every))


def _tensor_dtype(reader: Reader | None, *, is_weight: bool = True) -> str:
    """Return the dtype that an object describes, "" without one; only weights have groups."""
    if reader is None:
        return ""
    kind, group, end = f"{reader.get('type')} {reader.get('num_bits')}", None, ""
    if is_weight:
        if is_block := reader.get("strategy") == "block":
            reader.only("block_structure", ([128, 128],), "[128, 128]")
        group = [128, 128] if is_block else reader.get("group_size")
        end = "" if reader.get("symmetric", True) else " with zero points"
    return _dtype(reader, "type, num_bits and group_size", kind, group, end)


def _quark(reader: Reader) -> Recipe:
    """Read Quark, AMD's MXFP4 and FP8: one format for all linear layers that are not excluded."""
    _refuse(reader, "layer_quant_config", "layer_type_quant_config", "kv_cache_quant_config")
    export = reader.nested("export")
    if export:
        export.only("kv_cache_group", ([],), "no names")
    whole = reader.inner("global_quant_config", reader.get("global_quant_config"))
    weights = _quark_dtype(whole, "weight")
    has_inputs = whole.get("input_tensors") is not None
    activations = _quark_dtype(whole, "input_tensors").removeprefix("mx") if has_inputs else ""
    return Recipe(Format(weights, activations), needs_head=True)


def _quark_dtype(reader: Reader, key: str) -> str:
    """Return the stored dtype: that of one format, or of the last of several stages."""
    stages = reader.get(key)
    spec = reader.inner(key, stages[-1] if isinstance(stages, list) and stages else stages)
    known = table("quantisation")["quark"]
    return _dtype(spec, "dtype", known[spec.by_name("dtype", tuple(known))], spec.get("group_size"))


_BLOCKS = re.compile(r"(?:\w+\.)*layers")
_SEARCHED = re.compile(r"[*+?^$()\[\]{}|\\]")
"""Characters that make a name a regex for AutoRound, which may match anywhere."""


def _auto_round(reader: Reader) -> Recipe:
    """Read AutoRound: every linear layer except the LM head, and modules with other bits."""
    key = "block_name_to_quantize"
    blocks = reader.get(key) or reader.get("to_quant_block_names") or []
    blocks = blocks.split(",") if isinstance(blocks, str) else blocks
    are_whole = isinstance(blocks, list) and all(_BLOCKS.fullmatch(str(name)) for name in blocks)
    expected = "names that end on layers, as parts of these are not known here"
    reader.need(are_whole, key, expected)
    forms: dict[str, Format | None] = {}
    for name, own in _inner(reader, "extra_config"):
        own.config = {**reader.config, **own.config}
        bits = own.get("bits")
        entry = f"re:.*(?:{name})" if _SEARCHED.search(name) else name
        forms[entry] = None if type(bits) is int and bits >= 16 else _rounded(own)
    return _by_name(reader, "extra_config", forms, _rounded(reader))


def _rounded(reader: Reader) -> Format:
    """Return the format of an AutoRound record by its `data_type`: int, mx_fp or fp."""
    name = str(reader.get("data_type", "int"))
    if name == "int":
        return Format(_integers(reader, has_zero_points=not reader.get("sym", True)))
    kind = f"{'mx_fp' if 'mx_fp' in name else name} {reader.get('bits')}"
    weights = _dtype(reader, "data_type", kind, reader.get("group_size"))
    return Format(weights, weights.removeprefix("mx").removesuffix("_block"))


def _fp_quant(reader: Reader) -> Recipe:
    """Read FP-Quant: every linear layer except routed experts and the LM head."""
    _refuse(reader, "store_master_weights", "pseudoquantization")
    weights = table("quantisation")["fp_quant"]
    every = Format(weights[reader.by_name("forward_dtype", tuple(weights))], "fp4")
    return Recipe(every, Format())


_INT4 = "Int4WeightOnlyConfig"


def _torchao(reader: Reader) -> Recipe:
    """Read torchao: every or named linear layers; experts only if named, never the LM head."""
    types = reader.nested("quant_type")
    form = types.nested("default") if types and types.config.keys() == {"default"} else None
    if form is None:
        raise reader.fault("quant_type", "an object with only default, as torchao 0.10 writes it")
    data = form.inner("_data", form.get("_data"))
    named = data.nested("fqn_to_config") or data.nested("module_fqn_to_config")
    if named is None:
        return Recipe(_of_class(form), Format())
    own = {name: named.nested(name) for name in named.config}
    forms = {name: _of_class(each) if each else None for name, each in own.items()}
    every = forms.pop("_default", None)
    return replace(_by_name(reader, "quant_type", forms, every), experts=Format())


def _of_class(reader: Reader) -> Format:
    """Return the format of a class of torchao."""
    data, known = reader.inner("_data", reader.get("_data")), table("quantisation")["torchao"]
    kind = reader.by_name("_type", (_INT4, *known))
    if kind == _INT4:
        return Format(_dtype(data, "group_size", "affine 4", data.get("group_size", 128)))
    form, shared = Format(*known[kind]), data.get("granularity")
    parts = shared if isinstance(shared, list) else [shared]
    kinds = {str(part.get("_type")) for part in parts if isinstance(part, dict)}
    sizes = [part["_data"] for part in parts if isinstance(part, dict) and part.get("_data")]
    if form.weights == "fp8" and kinds == {"PerBlock"} and {"block_size": [128, 128]} in sizes:
        return Format("fp8_block", "fp8")
    is_known = kinds <= {"PerRow", "PerTensor"} and not data.get("group_size")
    data.need(is_known, "granularity", "scales by row or tensor, or by 128 x 128")
    return form


_MLX_KEYS = ("bits", "group_size", "mode", "quant_method", "linear_class")


def _mlx(reader: Reader) -> Recipe:
    """Read MLX: every linear layer, LM head and embedding; keys name modules that differ."""
    forms: dict[str, Format | None] = {}
    for name, spec in reader.config.items():
        if spec is False or isinstance(spec, dict):
            own = reader.inner(name, {**reader.config, **spec}) if spec else None
            form = _of_mode(own) if own else None
            forms[name.replace("switch_mlp", "experts.*")] = form
        elif name not in _MLX_KEYS and spec is not True and spec is not None:
            raise reader.fault(name, "false or an object, as for a module")
    every = _of_mode(reader)
    embeddings = [form for name, form in forms.items() if name.split(".")[-1] == "embed_tokens"]
    outer = (embeddings or [every])[0]
    found = _by_name(reader, "modules", forms, every)
    return replace(found, has_head=True, embedding_dtype=outer.weights if outer else None)


def _of_mode(reader: Reader) -> Format:
    """Return the format of MLX's affine integers, or of another of its modes."""
    kind = f"{reader.get('mode', 'affine')} {reader.get('bits')}"
    return Format(_dtype(reader, "mode", kind, reader.get("group_size")))


_METHODS: dict[str, Callable[[Reader], Recipe]] = {
    "fp8": _fp8,
    "mxfp4": _mxfp4,
    "awq": _gptq,
    "gptq": _gptq,
    "moe_wna16": _gptq,
    "mxfp8": _mxfp8,
    "modelopt": _modelopt,
    "compressed-tensors": _compressed,
    "quark": _quark,
    "auto-round": _auto_round,
    "fp_quant": _fp_quant,
    "torchao": _torchao,
    "mlx": _mlx,
}
"""Readers of records, by `quant_method`."""
