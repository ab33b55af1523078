"""Find the dtypes of a quantised checkpoint from one or two quantisation records.

The first record is `quantization_config` in ``config.json``. ModelOpt writes the second,
``hf_quant_config.json``, and later versions write both. Two records must agree. Only the KV cache
may differ: if ``config.json`` does not give its dtype, vLLM 0.33 and this library use 16 bits, and
SGLang 0.5.23 uses the other file.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from specmodel.core.base.errors import InputError
from specmodel.core.layers.work import wider_dtype
from specmodel.core.models.hf.formats import MIXED, MOE_ALGO, Format, Recipe, read_recipe
from specmodel.core.models.hf.keys import table
from specmodel.core.models.hf.modules import Modules, Named, Part

BESIDE = "hf_quant_config.json"
"""File that ModelOpt writes in the folder of the configuration."""

_KEY = "quantization_config"
_Value = TypeVar("_Value")

Layer = Mapping[str, Any]
"""A layer: the fields of its `mixer` and its `feed_forward`; either may be missing."""


def checkpoint_dtypes(
    config: Mapping[str, Any],
    argument: str,
    dtype: str,
    layers: Sequence[Layer],
    *,
    beside: Mapping[str, Any] | None = None,
    has_tied_embeddings: bool = False,
    splits_layers: bool = False,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the dtypes of a checkpoint: fields of an `Architecture`, and layers with their dtypes.

    `config` is the configuration of the language model, `dtype` is used for all that is not
    quantised, `layers` has one mapping for each layer, and `beside` is the content of
    ``hf_quant_config.json``. A tied LM head is not quantised. With `splits_layers`, lists of
    modules are refused.

    `activation_dtype` is the dtype of arithmetic in routed experts, or in dense blocks if no layer
    routes, because most arithmetic is there. Wider weights are multiplied in their own dtype. If
    the arithmetic of mixers is narrower, their activations get their own dtype.
    """
    records = _records(config, argument, beside)
    if not records:
        if config.get("expert_dtype") is not None:
            expected = f"This key needs {_KEY}, which is missing."
            raise InputError(f"{argument} expert_dtype", config["expert_dtype"], expected)
        fields = dict.fromkeys(("weight_dtype", "activation_dtype", "kv_dtype"), dtype)
        return fields, [dict(layer) for layer in layers]
    has_mtp = any(config.get(key) for key in table("key_names")["mtp_counts"])
    has_head, given = not has_tied_embeddings, config.get("expert_dtype")
    modules = Modules(layers, has_head=has_head, has_mtp=has_mtp, splits_layers=splits_layers)
    own, *others = (
        _Checkpoint(read_recipe(record, name, given), name, dtype, modules)
        for name, record in records
    )
    for other in others:
        _check_agreement(own, other)
        if other.fields["kv_dtype"] != own.fields["kv_dtype"]:
            own.fields["other_kv_dtype"] = other.fields["kv_dtype"]
    return own.fields, own.layers


def _records(
    config: Mapping[str, Any], argument: str, beside: Mapping[str, Any] | None
) -> list[tuple[str, Any]]:
    """Return the quantisation records, each with its name for errors.

    If the first record has an algorithm for experts only, the second adds nothing and is skipped.
    """
    own, other = config.get(_KEY), None if beside is None else beside.get("quantization")
    name = f"{argument.rpartition(' ')[0]} {BESIDE} quantization".lstrip()
    records = [(f"{argument} {_KEY}", own)] if own else []
    if beside is None:
        return records
    if not isinstance(other, dict):
        raise InputError(name, other, "an object with quant_algo, as ModelOpt writes it")
    if "NVFP4" in str(other.get("quant_algo")) and "exclude_modules" not in other:
        expected = "Engines need it for NVFP4. To predict without it, add `weight_dtype='nvfp4'`."
        raise InputError(f"{name}.exclude_modules", None, expected)
    if isinstance(own, dict) and own.get("quant_algo") == MIXED:
        listed = {"quantized_layers": other.get("quantized_layers")}
        records = [(f"{argument} {_KEY}", listed | own)]
    is_alone = isinstance(own, dict) and own.get(MOE_ALGO) is not None
    return records if is_alone else [*records, (name, {"quant_method": "modelopt", **other})]


def _check_agreement(own: "_Checkpoint", other: "_Checkpoint") -> None:
    """Refuse two records that give different dtypes to the same part."""
    others = _dtypes(other)
    for field, value in _dtypes(own).items():
        is_silent = field == "kv_dtype" and own.recipe.kv_dtype is None
        if value != others[field] and not is_silent:
            expected = f"{others[field]}, as in {BESIDE}"
            raise InputError(own.name, f"{field} {value}", expected)


def _dtypes(found: "_Checkpoint") -> dict[str, Any]:
    """Return the dtypes of the model and of each layer."""
    fields = ("mixer_dtype", "output_dtype", "ffn_dtype")
    layers = enumerate(found.layers)
    own = {f"{name} of layer {i}": layer.get(name) for i, layer in layers for name in fields}
    return found.fields | own


class _Checkpoint:
    """The dtypes of all matrices according to one record: `fields` of the model, and `layers`."""

    def __init__(self, recipe: Recipe, name: str, dtype: str, modules: Modules) -> None:
        self.recipe, self.modules, self.name, self.dtype = recipe, modules, name, dtype
        self.plain = Format(dtype, dtype)
        self.kept = [Named(modules, key, entries) for key, entries in recipe.kept.items()]
        self.targets: list[tuple[Named, Format]] = [
            (Named(modules, key, entries), form) for key, entries, form in recipe.targets
        ]
        groups = enumerate(modules.groups)
        formats = [{group: self._format(i, group) for group in own} for i, own in groups]
        if all(form == self.plain for by_group in formats for form in by_group.values()):
            parts = f"routed {Part.EXPERTS} or {Part.DENSE}"
            expected = f"quantised weights in {Part.MIXER} or {parts}"
            raise InputError(self.name, "nothing quantised", expected)
        experts = self._experts(formats)
        blocks = _of_groups(formats, Part.SHARED, Part.DENSE)
        of_blocks = _most_common(form.weights for form in blocks)
        of_mixers = _most_common(form.weights for form in _of_groups(formats, Part.MIXER))
        mixed = of_mixers or self.dtype
        weight = of_blocks or of_mixers or (experts or self.plain).weights
        outer = self.recipe.embedding_dtype or self.dtype
        of_mtp = self.recipe.every or any(named.has_mtp for named, _ in self.targets)
        leaves_mtp = any(named.has_mtp for named in self.kept) or not of_mtp
        self.fields = {
            "weight_dtype": weight,
            "attention_dtype": _unless(weight, mixed),
            "expert_dtype": _unless(weight, experts.weights) if experts else None,
            "embedding_dtype": self.recipe.embedding_dtype or _unless(weight, self.dtype),
            "head_dtype": _unless(outer, self._head()) if self.modules.has_head else None,
            "mtp_dtype": self.dtype if self.modules.has_mtp and leaves_mtp else None,
            **self._activations(formats, experts, mixed),
            "kv_dtype": self.recipe.kv_dtype or self.dtype,
        }
        self.layers = [
            dict(layer) | _of_layer(own, mixed, weight)
            for layer, own in zip(self.modules.layers, formats, strict=True)
        ]

    def _activations(
        self, formats: list[dict[str, Format]], experts: Format | None, mixed: str
    ) -> dict[str, str | None]:
        """Return the dtype of most activations, and the dtype inside mixers if it differs."""
        of_most = experts or _most_common(_of_groups(formats, Part.DENSE)) or self.plain
        mixed_with = _most_common(_of_groups(formats, Part.MIXER)) or of_most
        narrow = wider_dtype(mixed_with.activations, mixed)
        is_own = narrow != wider_dtype(of_most.activations, mixed)
        return {
            "activation_dtype": of_most.activations,
            "attention_activation_dtype": mixed_with.activations if is_own else None,
        }

    def _format(self, number: int, group: str) -> Format:
        """Return the format of a group of matrices of a layer, with both dtypes filled in."""
        if any(named.covers(number, group) for named in self.kept):
            return self.plain
        listed = {form for named, form in self.targets if named.covers(number, group)}
        if len(listed) > 1:
            raise InputError(self.name, f"layer {number}", f"one format for the {group} of a layer")
        usual = self.recipe.experts if group == Part.EXPERTS else None
        form = listed.pop() if listed else usual or self.recipe.every or self.plain
        return Format(*(dtype or self.dtype for dtype in form))

    def _experts(self, formats: list[dict[str, Format]]) -> Format | None:
        found = _of_groups(formats, Part.EXPERTS)
        if len(set(found)) > 1:
            raise InputError(self.name, "experts that differ", "the same format for all experts")
        return found[0] if found else None

    def _head(self) -> str:
        """Return the dtype of the LM head."""
        if any(named.has_head for named in self.kept):
            return self.dtype
        listed = [form for named, form in self.targets if named.has_head]
        if listed:
            return listed[0].weights
        if self.recipe.has_head and self.recipe.every:
            return self.recipe.every.weights
        if self.recipe.needs_head:
            expected = f"the {Part.HEAD} in the list of modules that are not quantised"
            raise InputError(self.name, "no lm_head in it", expected)
        return self.dtype


def _of_layer(formats: Mapping[str, Format], mixed: str, weight: str) -> dict[str, str]:
    """Return the dtypes of a layer that differ from the model's, by field.

    The model's dtypes are `mixed` for mixers and `weight` for feed-forward blocks.
    """
    mixer, output = formats.get(Part.MIXER), formats.get(Part.OUTPUT)
    parts = (
        ("mixer_dtype", mixer, mixed),
        ("output_dtype", mixer and output, mixer and mixer.weights),
        ("ffn_dtype", formats.get(Part.DENSE) or formats.get(Part.SHARED), weight),
    )
    return {field: form.weights for field, form, usual in parts if form and form.weights != usual}


def _of_groups(formats: Sequence[Mapping[str, Format]], *groups: str) -> list[Format]:
    """Return the formats of some groups of matrices, in all layers that have these groups."""
    return [by_group[group] for by_group in formats for group in groups if group in by_group]


def _unless(usual: str, dtype: str) -> str | None:
    """Return `dtype`, None if it equals `usual`."""
    return None if dtype == usual else dtype


def _most_common(values: Iterable[_Value]) -> _Value | None:
    """Return the most frequent value, the first of several; None without values."""
    return next((value for value, _ in Counter(values).most_common(1)), None)
