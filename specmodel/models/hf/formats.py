"""Methods of quantisation that checkpoints of several tools follow, and what a record says.

Each method has a reader, which returns a `Recipe`: what engines make of that record. A key that is
not known here is refused by name.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from specmodel.base.errors import InputError
from specmodel.models.hf.keys import table


class Format(NamedTuple):
    """Dtypes of weights, and of the activations that they meet."""

    weights: str
    activations: str


Targets = tuple[tuple[str, list[Any], Format], ...]


class Recipe(Struct, frozen=True):
    """What a record of quantisation says: which matrices get which formats."""

    every: Format | None = None
    """Of each linear layer that no other field names; None leaves those in 16 bits."""
    experts: Format | None = None
    """Of routed experts, where it is another."""
    targets: Targets = ()
    """Lists of modules with a format of their own: key of the list, names, format."""
    kept: Mapping[str, Any] = field(default_factory=dict)
    """Lists of modules that are not quantised, by key."""
    has_head: bool = False
    """Whether `every` holds for the LM head too."""
    needs_head: bool = False
    """Whether the record must say by name what becomes of the LM head."""
    embedding_dtype: str | None = None
    """Of the embedding; None where it is not quantised."""
    kv_dtype: str | None = None
    """Of the KV cache; None where the record does not say."""


KEPT_KEYS = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules")
"""Keys of lists of modules that are not quantised."""

MOE_ALGO = "moe_quant_algo"
"""Key of an algorithm for experts alone, beside another method for the rest: DeepSeek-V4."""

MIXED = "MIXED_PRECISION"
"""Name of the algorithm of records in which each layer has its own."""


class Source:
    """A record of quantisation, and how errors name it."""

    def __init__(self, config: Any, name: str, dtype: str) -> None:
        if not isinstance(config, dict):
            raise InputError(name, config, "an object")
        self.config: dict[str, Any] = config
        self.name, self.dtype = name, dtype

    def key(self, key: str) -> str:
        """Return the full name of a key, for errors."""
        return f"{self.name}.{key}"

    def fault(self, key: str, expected: str, value: object = None) -> InputError:
        """Return the InputError for a key, with `value` or by default the key's own value."""
        return InputError(self.key(key), self.config.get(key) if value is None else value, expected)

    def one_of(self, key: str, known: Collection[str], value: object = None) -> str:
        """Return the value of a key, in whatever case, if it is one of those known."""
        value = self.config.get(key) if value is None else value
        for name in known:
            if isinstance(value, str) and value.upper() == name.upper():
                return name
        raise self.fault(key, f"one of: {', '.join(known)}", value)

    def lists(self, *keys: str) -> dict[str, Any]:
        """Return the lists under some keys that are not empty, by the full names of the keys."""
        found = {self.key(key): self.config[key] for key in keys if self.config.get(key)}
        return {key: value for key, value in found.items() if value}

    def of_groups(
        self, key: str, kind: tuple[str, Any], group: Any, zero_points: bool, needed: bool = True
    ) -> str:
        """Return the dtype of elements of `kind` (type, bits), `group` of which share a scale."""
        if type(kind[1]) is not int or kind[1] not in (4, 8):
            raise self.fault("bits", "4 or 8", kind[1])
        known: dict[str, str] = table("quantisation")["dtypes"][" ".join(map(str, kind))]
        if group is None and not needed:
            return known["all"]
        if type(group) is not int or str(group) not in known:
            sizes = " or ".join(size for size in known if size != "all")
            raise self.fault(key, f"{sizes} elements that share a scale", group)
        if not zero_points or kind != ("int", 4):
            return known[str(group)]
        if group != 128:
            expected = "128, as the zero points of other groups are not known here"
            raise self.fault(key, expected, group)
        return "int4"

    def refuse(self, *keys: str) -> None:
        """Refuse keys whose effect is not known, unless their value is empty or dense."""
        for key in keys:
            value = self.config.get(key)
            is_dense = isinstance(value, dict) and value.get("format") == "dense"
            if value and not is_dense:
                raise self.fault(key, "no such key, as its effect is not known here")


def by_name(
    source: Source,
    key: str,
    forms: Mapping[str, Format | None],
    every: Format | None = None,
    experts: Format | None = None,
) -> Recipe:
    """Return a recipe from the format of each named module, None for one that is not quantised."""
    listed: dict[Format | None, list[str]] = {}
    for name, form in forms.items():
        listed.setdefault(form, []).append(name)
    kept = source.lists(*KEPT_KEYS)
    kept |= {source.key(key): listed[None]} if None in listed else {}
    targets = tuple((source.key(key), names, form) for form, names in listed.items() if form)
    return Recipe(every, experts, targets, kept)


def weights_alone(source: Source, has_zero_points: bool) -> Format:
    """Return the format of integer weights in groups with activations of 16 bits."""
    source.refuse("quantized_layers")
    bits = source.config.get("bits", source.config.get("w_bit"))
    group = source.config.get("group_size", source.config.get("q_group_size", 128))
    weights = source.of_groups("group_size", ("int", bits), group, has_zero_points)
    return Format(weights, source.dtype)


_OF_MXFP8 = [1, 32]
"""Elements that share a scale in MXFP8, as transformers 5 writes it."""


def fp8(source: Source) -> Recipe:
    """FP8 as DeepSeek and Qwen ship it: every linear layer but the LM head.

    With `MOE_ALGO`, what else ModelOpt writes is of routed experts alone, as vLLM 0.33 reads it
    (``models/deepseek_v4/quant_config.py``).
    """
    if source.config.get(MOE_ALGO) is None:
        source.refuse("quant_algo", "quantized_layers", "config_groups")
    if source.config.get("activation_scheme", "dynamic") not in ("dynamic", "static"):
        raise source.fault("activation_scheme", "dynamic or static")
    block = source.config.get("weight_block_size")
    if block is not None and block not in ([128, 128], [32, 32], _OF_MXFP8):
        raise source.fault("weight_block_size", "[128, 128] or [32, 32], or [1, 32] for MXFP8")
    if block == _OF_MXFP8 and source.config.get("scale_fmt") != "ue8m0":
        raise source.fault("scale_fmt", "ue8m0, with blocks of [1, 32]")
    dtype = "mxfp8" if block == _OF_MXFP8 else "fp8_block" if block else "fp8"
    every = Format(dtype, "fp8")
    if source.config.get(MOE_ALGO) is not None:
        source.one_of(MOE_ALGO, ("NVFP4",))
        return Recipe(every, _algorithm(source, "group_size", source.config, "NVFP4"))
    return Recipe(every, kept=source.lists(*KEPT_KEYS))


def mxfp4(source: Source) -> Recipe:
    """MXFP4 as gpt-oss ships it: routed experts alone."""
    return Recipe(experts=Format("mxfp4", source.dtype), kept=source.lists(*KEPT_KEYS))


def mxfp8(source: Source) -> Recipe:
    """MXFP8 as MiniMax ships it: as ModelOpt's, every linear layer and the LM head."""
    if source.config.get("weight_block_size") not in (None, _OF_MXFP8):
        raise source.fault("weight_block_size", "[1, 32]")
    return Recipe(Format("mxfp8", "fp8"), kept=source.lists(*KEPT_KEYS), has_head=True)


def wna16(source: Source) -> Recipe:
    """Read moe_wna16, vLLM's name: the integers of GPTQ, which says `sym`, or of AWQ."""
    return gptq(source) if "sym" in source.config else awq(source)


def awq(source: Source) -> Recipe:
    """AWQ: every linear layer but the LM head."""
    every = weights_alone(source, bool(source.config.get("zero_point", True)))
    return Recipe(every, kept=source.lists(*KEPT_KEYS))


def gptq(source: Source) -> Recipe:
    """GPTQ; kernels drop the zero points of symmetric checkpoints."""
    kept = source.lists(*KEPT_KEYS)
    rules = source.config.get("dynamic")
    if rules:
        if not isinstance(rules, dict) or not all(rule.startswith("-:") for rule in rules):
            raise source.fault("dynamic", "only rules that start with -:, which leave modules out")
        kept[source.key("dynamic")] = ["re:" + rule.removeprefix("-:") for rule in rules]
    return Recipe(weights_alone(source, not source.config.get("sym", False)), kept=kept)


def modelopt(source: Source) -> Recipe:
    """ModelOpt, in either file: every linear layer and the LM head, or those listed."""
    algo = source.one_of("quant_algo", (*table("quantisation")["modelopt"], MIXED))
    kept = source.lists("ignore") or source.lists("exclude_modules", "ignored_layers")
    kv_dtype = _modelopt_kv(source)
    listed = source.config.get("quantized_layers")
    if algo != MIXED:
        source.refuse("quantized_layers")
        every = _algorithm(source, "group_size", source.config, algo)
        return Recipe(every, kept=kept, has_head=True, kv_dtype=kv_dtype)
    if not isinstance(listed, dict) or not listed:
        expected = f"the layers of each format, as quant_algo is {algo}"
        raise source.fault("quantized_layers", expected)
    forms = {}
    for name, spec in listed.items():
        key = f"quantized_layers.{name}"
        if not isinstance(spec, dict):
            raise source.fault(key, "an object with quant_algo", spec)
        own = source.one_of(key, table("quantisation")["modelopt"], spec.get("quant_algo", "none"))
        forms[name] = _algorithm(source, f"{key}.group_size", spec, own)
    return replace(by_name(source, "quantized_layers", forms), kept=kept, kv_dtype=kv_dtype)


def _algorithm(source: Source, key: str, spec: Mapping[str, Any], algo: str) -> Format:
    """Return the format of an algorithm of ModelOpt."""
    weights, activations = table("quantisation")["modelopt"][algo]
    if weights == "int4":
        own = Source({"bits": 4, **spec}, source.name, source.dtype)
        weights = weights_alone(own, bool(spec.get("has_zero_point", False))).weights
    elif weights == "fp4" and (group := spec.get("group_size")) not in (None, 16):
        raise source.fault(key, "16 elements in NVFP4", group)
    return Format(weights, activations or source.dtype)


def _modelopt_kv(source: Source) -> str | None:
    """Return the dtype of the KV cache by either key of ModelOpt, None if neither is there."""
    scheme = source.config.get("kv_cache_scheme")
    if isinstance(scheme, dict):
        return _tensor_dtype(source, "kv_cache_scheme", scheme)
    key = "kv_cache_quant_algo" if scheme is None else "kv_cache_scheme"
    if source.config.get(key) is None:
        return source.dtype if key in source.config else None
    known: dict[str, str] = table("quantisation")["modelopt_kv"]
    return known[source.one_of(key, known)]


def compressed(source: Source) -> Recipe:
    """compressed-tensors: groups of modules, each with a format; the LM head if it is named."""
    groups = source.config.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise source.fault("config_groups", "an object of groups")
    every: Format | None = None
    targets = []
    for name, group in groups.items():
        key = f"config_groups.{name}"
        if not isinstance(group, dict) or not isinstance(group.get("targets"), list):
            raise source.fault(key, "an object with targets, a list", group)
        form = Format(
            _tensor_dtype(source, f"{key}.weights", group.get("weights")),
            _activation_dtype(source, f"{key}.input_activations", group.get("input_activations")),
        )
        if "Linear" not in group["targets"]:
            targets.append((source.key(f"{key}.targets"), group["targets"], form))
        elif every is not None and form != every:
            raise source.fault("config_groups", "one format for what is Linear")
        else:
            every = form
    kept = source.lists("ignore")
    scheme = source.config.get("kv_cache_scheme")
    kv_dtype = None if scheme is None else _tensor_dtype(source, "kv_cache_scheme", scheme)
    of_all = every is not None
    return Recipe(every, targets=tuple(targets), kept=kept, kv_dtype=kv_dtype, needs_head=of_all)


def _tensor_dtype(source: Source, key: str, spec: Any) -> str:
    """Return the dtype of weights or of a cache that an object of compressed-tensors describes."""
    form: dict[str, Any] = spec if isinstance(spec, dict) else {}
    kind = form.get("type", ""), form.get("num_bits")
    if " ".join(map(str, kind)) not in table("quantisation")["dtypes"]:
        raise source.fault(key, "num_bits 4 or 8 of type float or int", spec)
    group, strategy = form.get("group_size"), form.get("strategy")
    is_alone = kind == ("int", 4) and strategy == "channel"
    group, has_zero_points = None if is_alone else group, not form.get("symmetric", True)
    found = source.of_groups(f"{key}.group_size", kind, group, has_zero_points, is_alone)
    return "fp8_block" if kind == ("float", 8) and strategy == "block" else found


def _activation_dtype(source: Source, key: str, spec: Any) -> str:
    """Return the dtype of activations, whichever share a scale."""
    if spec is None:
        return source.dtype
    form = {**spec, "group_size": None, "strategy": None} if isinstance(spec, dict) else spec
    return _tensor_dtype(source, key, form)


def quark(source: Source) -> Recipe:
    """Quark, as AMD ships MXFP4 and FP8: one format for all linear layers but those excluded."""
    source.refuse("layer_quant_config", "layer_type_quant_config", "kv_cache_quant_config")
    export = source.config.get("export")
    if isinstance(export, dict) and export.get("kv_cache_group"):
        raise source.fault("export.kv_cache_group", "no names", export["kv_cache_group"])
    whole = source.config.get("global_quant_config")
    if not isinstance(whole, dict):
        raise source.fault("global_quant_config", "an object")
    weights = _quark_dtype(source, "global_quant_config.weight", whole.get("weight"))
    inputs = whole.get("input_tensors")
    activations = source.dtype
    if inputs is not None:
        stored = _quark_dtype(source, "global_quant_config.input_tensors", inputs)
        activations = stored.removeprefix("mx")  # however many share a scale
    every = Format(weights, activations)
    return Recipe(every, kept=source.lists("exclude"), needs_head=True)


def _quark_dtype(source: Source, key: str, spec: Any) -> str:
    """Return the dtype of one format, or of the last of several stages, which is what is stored."""
    spec = spec[-1] if isinstance(spec, list) and spec else spec
    name = spec.get("dtype") if isinstance(spec, dict) else None
    known = table("quantisation")["quark"]
    if not isinstance(name, str) or name not in known:
        raise source.fault(f"{key}.dtype", f"one of: {', '.join(known)}", name or spec)
    group = spec.get("group_size")
    if name == "fp4" and group != 32:
        raise source.fault(f"{key}.group_size", "32 elements", group)
    return source.of_groups(f"{key}.group_size", tuple(known[name]), group, False, False)
