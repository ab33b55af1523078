"""Reader of the `quantization_config` of a ``config.json``: which weights it makes how narrow.

Lists of modules left out of quantisation are matched against the module names of the known
families, so that a name, glob or regex that hits only part of a group is refused, not guessed.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from specmodel.base.errors import InputError

_KEY = "quantization_config"
_METHODS = ("fp8", "mxfp4", "awq", "gptq", "modelopt", "compressed-tensors")
_IGNORED_KEYS = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules")
_SUSPECT_KEY = re.compile(
    r"lm_head|embed|sparsity|transform|quantized_layers|to_quantize|override|mixed|extra_config"
)
_TENSOR_DTYPES = {
    ("float", 8): "fp8",
    ("float", 4): "fp4",
    ("int", 8): "int8",
    ("int", 4): "int4",
}
_MODELOPT_DTYPES = {"FP8": "fp8", "NVFP4": "fp4"}

_ANY = "4242"  # a layer and an expert that only a pattern for all of them matches
_PREFIXES = ("", "model.", "language_model.model.", "model.language_model.")
_BLOCKS = ("mlp", "block_sparse_moe", "feed_forward")
_FFN = ("gate_proj", "up_proj", "down_proj")


def _modules(block: str, *names: str) -> tuple[str, ...]:
    return tuple(f"layers.{_ANY}.{block}.{name}" for name in names)


_GROUPS: dict[str, tuple[tuple[str, ...], ...]] = {
    "attention": (
        _modules("self_attn", "q_proj", "k_proj", "v_proj", "o_proj"),
        _modules("self_attn", "q_proj", "k_proj", "v_proj", "out_proj"),
        _modules("self_attn", "q_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"),
        _modules("self_attn", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"),
    ),
    "experts": tuple(
        _modules(f"{block}.experts{number}", *names)
        for block in _BLOCKS
        for number, names in (
            (f".{_ANY}", _FFN),
            (f".{_ANY}", ("w1", "w2", "w3")),
            ("", ("gate_up_proj", "down_proj")),
        )
    ),
    "shared experts": tuple(
        _modules(f"{block}.{shared}", *_FFN)
        for block in _BLOCKS
        for shared in ("shared_experts", "shared_expert")
    ),
    "dense layers": (
        *(_modules(block, *_FFN) for block in _BLOCKS),
        (f"layers.{_ANY}.fc1", f"layers.{_ANY}.fc2"),
    ),
    "LM head": (("lm_head",),),
}
"""Names that the families give to the modules of a group, one tuple for each way of naming it."""

_REGEX_SIGNS = re.compile(r"[\\()\[\]^$+|]")
_OUTSIDE = re.compile(r"\b(vision\w*|visual|audio\w*|multi_modal_projector|mtp\w*)\b")
_UNQUANTISED = re.compile(
    r"\b(embed_tokens|router|(shared_expert_)?gate|\w*norm|e_score_correction_bias"
    r"|vision\w*|visual|audio\w*|multi_modal_projector|mtp\w*|eh_proj|shared_head)\b"
)


Layer = Mapping[str, Any]
"""A layer: its `mixer` and `feed_forward`, as fields of records, either may be missing."""


def checkpoint_dtypes(
    config: Mapping[str, Any],
    argument: str,
    dtype: str,
    layers: Sequence[Layer],
    *,
    beside: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the dtypes of a checkpoint: those of an `Architecture`, and those of single layers.

    Parameters
    ----------
    config
        Content of a ``config.json``, that of a language model in a wrapper taken out of it.
    argument
        Name that an error should carry.
    dtype
        Dtype of what is not quantised.
    layers
        Each layer by itself, in order.
    beside
        Content of the ``hf_quant_config.json`` beside it, if there is one.

    Returns
    -------
    tuple
        Fields of an `Architecture`, and the layers with the dtypes of their own that they have.

    Raises
    ------
    InputError
        If a record of quantisation is not understood, or two of them disagree.
    """
    grouped = [{"count": 1, **layer} for layer in layers]
    if config.get(_KEY):
        return quantised_dtypes(config, argument, dtype, grouped), [dict(one) for one in layers]
    plain = dict.fromkeys(("weight_dtype", "activation_dtype", "kv_dtype"), dtype)
    return plain, [dict(one) for one in layers]


def quantised_dtypes(
    config: Mapping[str, Any], argument: str, dtype: str, layers: Sequence[Mapping[str, Any]]
) -> dict[str, str | None]:
    """Return the dtype fields of an `Architecture` that a quantised checkpoint has.

    Activations take the dtype of the routed experts' arithmetic, where most of it is. Shared
    experts and dense layers count with attention where that is left out of quantisation.

    Parameters
    ----------
    config
        Content of a ``config.json`` with a `quantization_config`.
    argument
        Name that an error should carry.
    dtype
        Dtype of what is not quantised: embedding, LM head and router, at least.
    layers
        Groups of layers, as `Architecture` has them.

    Returns
    -------
    dict
        `weight_dtype`, `expert_dtype`, `embedding_dtype`, `activation_dtype` and `kv_dtype`.

    Raises
    ------
    InputError
        If the method is unknown, or what it quantises cannot be said with these fields.

    Examples
    --------
    >>> config = {"quantization_config": {"quant_method": "awq", "bits": 4}}
    >>> layers = [{"count": 32, "feed_forward": {"kind": "dense"}}]
    >>> quantised_dtypes(config, "config", "bf16", layers)["weight_dtype"]
    'int4'
    """
    reader = _Reader(config[_KEY], argument, dtype, _layers_by_group(layers))
    method = reader.method()
    weight, activation = reader.narrow_dtypes(method)
    expert = weight
    kept = reader.kept_groups(method)
    if method == "mxfp4" or "attention" in kept:
        if not reader.layers["experts"] or "experts" in kept:
            raise reader.fault(None, "a quantisation of attention, or of routed experts")
        weight = dtype
    elif "experts" in kept:
        expert = activation = dtype
    elif kept - {"LM head"}:
        names = " and ".join(sorted(kept - {"LM head"}))
        raise reader.fault(None, f"the {names} quantised as attention is")
    return {
        "weight_dtype": weight,
        "expert_dtype": expert if expert != weight else None,
        "embedding_dtype": dtype if dtype != weight else None,
        "activation_dtype": activation,
        "kv_dtype": reader.kv_dtype(),
    }


def _layers_by_group(layers: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many layers have each group of modules; the LM head counts as one."""
    counts = {"attention": 0, "experts": 0, "shared experts": 0, "dense layers": 0, "LM head": 1}
    for group in layers:
        block = group["feed_forward"]
        counts["attention"] += group["count"]
        counts["dense layers" if block["kind"] == "dense" else "experts"] += group["count"]
        if block.get("num_shared_experts"):
            counts["shared experts"] += group["count"]
    return counts


class _Reader:
    """A `quantization_config`, the dtype of what it leaves out, and layers by group of modules."""

    def __init__(self, config: Any, argument: str, dtype: str, layers: dict[str, int]) -> None:
        self.argument, self.dtype, self.layers = argument, dtype, layers
        if not isinstance(config, dict):
            raise InputError(f"{argument} {_KEY}", config, "an object")
        self.config: dict[str, Any] = config

    def fault(self, key: str | None, expected: str, value: object = None) -> InputError:
        name = f"{self.argument} {_KEY}" + (f".{key}" if key else "")
        if value is None:
            value = self.config.get(key) if key else self.config
        return InputError(name, value, expected)

    def one_of(self, key: str, known: Collection[str]) -> str:
        value = self.config.get(key)
        if not isinstance(value, str) or value not in known:
            raise self.fault(key, f"one of: {', '.join(known)}")
        return value

    def method(self) -> str:
        method = self.one_of("quant_method", _METHODS)
        for key, value in self.config.items():
            is_dense = isinstance(value, dict) and value.get("format") == "dense"
            if _SUSPECT_KEY.search(key) and value and not is_dense:
                raise self.fault(key, "no such key, as what it changes is not known here")
        return method

    def narrow_dtypes(self, method: str) -> tuple[str, str]:
        """Return the dtypes of quantised weights and of the activations they meet."""
        if method == "fp8":
            if self.config.get("activation_scheme", "dynamic") not in ("dynamic", "static"):
                raise self.fault("activation_scheme", "dynamic or static")
            return "fp8", "fp8"
        if method == "mxfp4":
            return "mxfp4", self.dtype
        if method in ("awq", "gptq"):
            bits = self.config.get("bits")
            if type(bits) is not int or bits not in (4, 8):
                raise self.fault("bits", "4 or 8")
            return f"int{bits}", self.dtype
        if method == "modelopt":
            dtype = _MODELOPT_DTYPES[self.one_of("quant_algo", _MODELOPT_DTYPES)]
            return dtype, dtype
        pairs = set()
        for name, group in self.config_groups().items():
            weights, inputs = (
                f"config_groups.{name}.{n}" for n in ("weights", "input_activations")
            )
            activation = self.tensor_dtype(inputs, group.get("input_activations"), self.dtype)
            pairs.add((self.tensor_dtype(weights, group.get("weights")), activation))
        if len(pairs) > 1:
            raise self.fault("config_groups", "the same weights and input_activations in each")
        return pairs.pop()

    def config_groups(self) -> dict[str, dict[str, Any]]:
        groups = self.config.get("config_groups")
        if not isinstance(groups, dict) or not groups:
            raise self.fault("config_groups", "an object of groups")
        for name, group in groups.items():
            if not isinstance(group, dict) or not isinstance(group.get("targets"), list):
                raise self.fault(f"config_groups.{name}", "an object with targets, a list", group)
        return groups

    def tensor_dtype(self, key: str, spec: Any, missing: str | None = None) -> str:
        if spec is None and missing:
            return missing
        form = [spec.get("type"), spec.get("num_bits")] if isinstance(spec, dict) else []
        dtype = next((name for known, name in _TENSOR_DTYPES.items() if [*known] == form), None)
        if dtype is None:
            raise self.fault(key, "num_bits 4 or 8 of type float or int", spec)
        is_mx = dtype == "fp4" and spec.get("group_size") == 32 and missing is None
        return "mxfp4" if is_mx else dtype

    def kv_dtype(self) -> str:
        key = "kv_cache_quant_algo"
        if self.config.get(key) is not None:
            return _MODELOPT_DTYPES[self.one_of(key, _MODELOPT_DTYPES)]
        scheme = self.config.get("kv_cache_scheme")
        return self.tensor_dtype("kv_cache_scheme", scheme, missing=self.dtype)

    def kept_groups(self, method: str) -> set[str]:
        """Return the groups of modules that keep the dtype of the checkpoint."""
        kept = set()
        for key in _IGNORED_KEYS:
            entries = self.config.get(key) or []
            if not isinstance(entries, list):
                raise self.fault(key, "a list of names")
            kept |= self.groups(key, entries)
        if method == "gptq" and self.config.get("dynamic"):
            rules = self.config["dynamic"]
            if not isinstance(rules, dict) or not all(rule.startswith("-:") for rule in rules):
                raise self.fault(
                    "dynamic", "only rules that start with -:, which leave modules out"
                )
            kept |= self.groups("dynamic", ["re:" + rule.removeprefix("-:") for rule in rules])
        return kept | self.not_targeted(kept) if method == "compressed-tensors" else kept

    def not_targeted(self, kept: set[str]) -> set[str]:
        """Return the groups of modules that no `config_groups` of compressed-tensors targets."""
        targets = [target for group in self.config_groups().values() for target in group["targets"]]
        rest: set[str] = set()
        if "Linear" not in targets:
            present = {group for group, count in self.layers.items() if count}
            rest = present - self.groups("config_groups.targets", targets)
        if "LM head" not in kept | rest:
            raise self.fault("ignore", "lm_head in it: a quantised LM head is not known here")
        return rest

    def groups(self, key: str, entries: list[Any]) -> set[str]:
        """Return the groups that entries name, attention and experts wholly or not at all."""
        found = self.modules_named(key, entries)
        named = {
            group
            for group, namings in _GROUPS.items()
            if self.layers[group] and any(not found.keys().isdisjoint(n) for n in namings)
        }
        for group in ("attention", "experts"):
            count = self.layers[group]
            whole = {m for m, which in found.items() if -1 in which or len(which) >= count}
            if group in named and not any(map(whole.issuperset, _GROUPS[group])):
                raise self.fault(key, f"all modules of the {group} in every layer, or none")
        return named

    def modules_named(self, key: str, entries: list[Any]) -> dict[str, set[int]]:
        """Return the modules that entries name, and in which layers, -1 for all."""
        found: dict[str, set[int]] = {}
        for entry, numbers in self.by_layer(key, entries).items():
            hits = self.modules_of(key, entry)
            if not hits and not _UNQUANTISED.search(entry):
                expected = f"{', '.join(self.layers)}, embedding, router, norms or vision"
                raise self.fault(key, expected, entry)
            for module in hits:
                found.setdefault(module, set()).update(numbers)
        return found

    def by_layer(self, key: str, entries: list[Any]) -> dict[str, set[int]]:
        """Return entries with any layer in place of theirs, and the layers named, -1 for all."""
        numbers: dict[str, set[int]] = {}
        for entry in entries:
            if not isinstance(entry, str):
                raise self.fault(key, "names of modules", entry)
            if not _is_regex(entry) and _OUTSIDE.search(entry):
                continue
            match = re.search(r"\blayers\\?\.(\d{1,7})(?=\\?\.|$)", entry)
            if match is None:
                numbers.setdefault(entry, set()).add(-1)
            elif int(match[1]) < self.layers["attention"]:
                general = entry[: match.start(1)] + _ANY + entry[match.end(1) :]
                numbers.setdefault(general, set()).add(int(match[1]))
        return numbers

    def modules_of(self, key: str, entry: str) -> set[str]:
        """Return the modules that an entry matches: a name also those below it."""
        if _is_regex(entry):
            text = f"(?:{entry.removeprefix('re:')}).*"
        else:
            name = re.sub(r"^.*?(?=\blayers\.)", "", entry)
            glob = re.escape(name).replace(r"\*", ".*").replace(r"\?", ".")
            text = rf"(?:.*\.)?{glob}(?:\..*)?"
        try:
            pattern = re.compile(text)
        except (re.error, RecursionError, OverflowError):
            raise self.fault(key, "a well-formed regex", entry) from None
        modules = {m for namings in _GROUPS.values() for naming in namings for m in naming}
        return {m for m in modules if any(pattern.fullmatch(prefix + m) for prefix in _PREFIXES)}


def _is_regex(entry: str) -> bool:
    return entry.startswith("re:") or bool(_REGEX_SIGNS.search(entry))
