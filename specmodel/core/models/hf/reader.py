"""Read and check the values of a ``config.json`` by key; refuse unknown keys."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self

from specmodel.core.base.errors import InputError, nearest
from specmodel.core.base.ranges import whole_of
from specmodel.core.models.hf.family import Family, families
from specmodel.core.models.hf.keys import harmless_keys, other_names, table

Fields = dict[str, Any]
"""Fields of an `Architecture`, of a layer, or of a part of a layer."""

Layers = Sequence[Fields | None]
"""Fields of the same part in each layer, None for layers without this part."""

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}

_MAX_SIZE = 10**7
_MAX_CONTEXT = 10**8
_MOST = dict.fromkeys(("num_hidden_layers", "num_layers"), 10_000)
"""Largest valid number of layers, by key [-]."""

_NO_KEYS = ("kind", "index_dtype")
"""Columns of ``size_keys.toml`` that contain a fixed value instead of a key."""

_OF_SHAPES = re.compile(
    "att|block|conv|dim|embed|expert|gat|head|kernel|layer|moe|num|proj|rank|select|size|state|vocab"
    "|width|window"
)
"""Parts of key names that suggest that the key describes the shape of a layer."""

_NO_FAMILY = Family(name="none")
"""Family of readers for draft heads and for nested objects, which are no models."""


class Reader:
    """Reads the values of a configuration by key, and remembers which keys were read."""

    def __init__(self, config: Any, argument: str, family: Family = _NO_FAMILY) -> None:
        if not isinstance(config, Mapping):
            raise InputError(argument, config, "an object")
        self.config: Mapping[str, Any] = config
        self.argument, self.family = argument, family
        self.trailing = 0
        """Number of MTP modules that lists of layers may describe after the layers [-]."""
        self.cast: list[str] = []
        """Note about a stored dtype that engines convert before they run the model."""
        self._known = {"quantization_config", "expert_dtype"}

    def fault(self, key: str, expected: str) -> InputError:
        """Return an error that names a key and its value. The caller raises it."""
        own, names = self.family.other_names.get(key), self._names(key)
        given = next((n for n in names if self.config.get(n) is not None), key)
        name = key if key in self.config else given
        shown = name if name in self.config or not own else f"{key} or {own}"
        return InputError(f"{self.argument} {shown}", self.config.get(name), expected)

    def need(self, is_valid: object, key: str, expected: str) -> None:
        """Raise the error about a key unless its value is valid."""
        if not is_valid:
            raise self.fault(key, expected)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key under any of its names. All given values must agree."""
        names = self._names(key)
        self._known.update(names)
        given = [name for name in names if self.config.get(name) is not None]
        for name in given[1:]:
            value = self.config[given[0]]
            same = f"the same as {given[0]} = {value!r}, another name for it"
            self.need(self.config[name] == value, name, same)
        return self.config[given[0]] if given else self.config.get(key, default)

    def _names(self, key: str) -> tuple[str, ...]:
        """Return a key, then the name that the family has for it, then its other names."""
        own = (self.family.other_names[key],) if key in self.family.other_names else ()
        return (key, *own, *other_names().get(key, ()))

    def pass_over(self, *keys: str) -> None:
        """Mark keys as known that have no effect in this configuration."""
        self._known.update(keys)

    def nested(self, key: str) -> Self | None:
        """Return a reader of the object under a key, None if the key is missing."""
        value = self.get(key)
        return None if value is None else type(self)(value, f"{self.argument} {key}")

    def inner(self, place: str, value: Any) -> Self:
        """Return a reader of an object nested at `place`, of the same family."""
        return type(self)(value, f"{self.argument} {place}", self.family)

    def find_family(self) -> None:
        """Find the row of the model's family. Its names of keys apply from then on."""
        model_type = self.config.get("model_type")
        name = model_type.removesuffix("_text") if isinstance(model_type, str) else None
        for kind, refused in table("other_model_types")["refused"].items():
            expected = f"The {kind} of this family are not modelled. Use a model of another family."
            self.need(name not in refused, "model_type", expected)
        row = families().get(name or "")
        if row is None:
            near = nearest(str(model_type or ""), families())
            expected = f"a known family such as {near}, or an architecture as TOML"
            raise self.fault("model_type", expected)
        self.family = row
        pairs = {key: self.config.get(key) for key in row.firsts}
        firsts = {key: n[0] for key, n in pairs.items() if isinstance(n, list) and len(n) == 2}
        self.config = {**self.config, **firsts}

    def pass_over_others(self, groups: Iterable[str]) -> list[str]:
        """Return the unknown keys of a draft head; refuse keys that may change a shape.

        A key whose value is a flag or a text may change a shape only if its name suggests it.
        """
        known = self._known.union(harmless_keys(groups))
        others = [
            key
            for key, value in self.config.items()
            if value and key not in known and isinstance(value, bool | str)
            if not _OF_SHAPES.search(key)
        ]
        self.refuse_other_keys(others, groups)
        return [*self.cast, *others]

    def refuse_other_keys(self, harmless: Iterable[str] = (), groups: Iterable[str] = ()) -> None:
        """Refuse a key that has a value, was not read, and is not known to be harmless."""
        known = self._known.union(harmless_keys(groups), harmless)
        for key, value in self.config.items():
            if value and key not in known:
                from difflib import get_close_matches  # only an error needs it

                file, _, place = self.argument.partition(" ")[2].partition(" ")
                kind = self.config.get("model_type") or place or "this part"
                close = get_close_matches(key, known, n=1, cutoff=0.85)
                meant = f", or perhaps {close[0]} is meant" if close else ""
                unknown = (
                    f"{file or 'it'} has a key specmodel does not know for {kind}: {key}{meant}"
                )
                remedy = f"If it does not change tensor shapes, add `ignore_keys=[{key!r}]`"
                raise self.fault(key, f"no such key: {unknown}. {remedy}")

    def refuse_unknown(self, known: Collection[str], expected: str) -> None:
        """Refuse the first key that has a value and is not in `known`."""
        for key, value in self.config.items():
            self.need(not value or key in known, key, expected)

    def whole(
        self, key: str, default: int | None = None, *, minimum: int = 1, most: int | None = None
    ) -> int:
        """Return a whole number, or the default if the key is missing or null."""
        value, most = self.get(key), most or _MOST.get(key, _MAX_SIZE)
        if value is None and default is not None:
            return default
        if type(value) is not int or not minimum <= value <= most:
            raise self.fault(key, f"a whole number from {minimum} to {most}")
        return value

    def number(self, key: str, most: float) -> Any:
        """Return a number above 0, None if the key is missing or null."""
        value = self.get(key)
        is_number = value is None or (type(value) in (int, float) and 0 < value <= most)
        self.need(is_number, key, f"a number above 0, up to {most}")
        return value

    def only(self, key: str, known: Sequence[Any], expected: str) -> None:
        """Refuse a value that is not in `known`. The key may be missing."""
        value = self.get(key)
        alike = [each for each in known if isinstance(each, bool) == isinstance(value, bool)]
        self.need(value in (None, *alike), key, expected)

    def longest_context(self) -> int | None:
        """Return the maximum context length with RoPE scaling, None if no key gives it [token].

        In most files with scaling, ``max_position_embeddings`` is already the scaled length.
        """
        given = [self.get("rope_scaling"), self.get("rope_parameters")]
        rope = next((each for each in given if isinstance(each, dict)), {})
        positions, factor = self.get("max_position_embeddings"), rope.get("factor")
        first = rope.get("original_max_position_embeddings") or positions
        stretched = first * factor if _is_number(first) and _is_number(factor) else 0
        return round(max(positions, stretched)) if _is_number(positions) else None

    def sizes(self, row: str) -> Fields:
        """Return the fields of a part of a model, read as a row of ``size_keys.toml`` says."""
        fields: Fields = {}
        for field, key in table("size_keys")[row].items():
            if field in _NO_KEYS or isinstance(key, bool):
                fields[field] = key
            else:
                name, minimum, *usual = (key, 1) if isinstance(key, str) else key
                fields[field] = self.whole(name, *usual, minimum=minimum)
        return fields

    def whole_in_all(self, key: str, *, minimum: int = 1) -> int:
        """Return a whole number that is given once, or once per layer with equal values."""
        value = self.get(key)
        if not isinstance(value, list):
            return self.whole(key, minimum=minimum)
        num_layers = self.whole("num_hidden_layers")
        number: int = next(iter(value), 0)
        are_same = value == [number] * num_layers and type(number) is int and number >= minimum
        self.need(are_same, key, f"a whole number, or {num_layers} that are the same")
        return number

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false, or the default if the key is missing or null."""
        value = self.get(key)
        self.need(isinstance(value, bool | None), key, "true or false")
        return default if value is None else value

    def by_name(self, key: str, known: Sequence[str]) -> str:
        """Return the known name that equals the value, whatever its case."""
        names = {name.upper(): name for name in known}
        value = str(self.get(key)).upper()
        self.need(value in names, key, " or ".join(known))
        return names[value]

    def layer_numbers(
        self, key: str, first: int = 0, num_layers: int | None = None
    ) -> set[int] | None:
        """Return the layer numbers in a list, counted from 0; None if the key is missing.

        The list itself counts layers from `first`.
        """
        listed = self.get(key)
        if listed is None:
            return None
        are_numbers = isinstance(listed, list) and all(type(i) is int for i in listed)
        self.need(are_numbers, key, "a list of layer numbers")
        last = (num_layers or self.whole("num_hidden_layers")) - 1 + first
        in_range = all(first <= i <= last for i in listed)
        self.need(in_range, key, f"numbers of layers from {first} to {last}")
        return {i - first for i in listed}

    def overrides(
        self, layers: Collection[int], known: Collection[str], kind: str
    ) -> dict[str, int]:
        """Return the sizes in `per_layer_config`, which must be the same for all `layers`."""
        own = self.nested("per_layer_config")
        if own is None:
            return {}
        first: Any = next(iter(own.config.values()), {})
        by_layer = {whole_of(key): one for key, one in own.config.items()}
        are_alike = by_layer == dict.fromkeys(layers, first)
        are_sizes = are_alike and isinstance(first, dict) and set(first) <= set(known)
        expected = f"the same head sizes for all {kind} layers, and no other layers"
        self.need(are_sizes, "per_layer_config", expected)
        return dict(first)

    def by_layer(self, key: str, num_layers: int, known: Sequence[int | str]) -> list[Any]:
        """Return the value of each layer; if the list is missing, the first of `known` for all."""
        listed, kind = self.get(key), type(known[0])
        if listed is None:
            return [known[0]] * num_layers
        listed = [*listed] if isinstance(listed, str) else listed  # of letters
        each = " or ".join(map(str, known))
        self.need(isinstance(listed, list), key, f"{num_layers} entries, each {each}")
        if len(listed) == num_layers + self.trailing:
            listed = listed[:num_layers]
        for i, value in enumerate(listed):
            if type(value) is not kind or value not in known:
                expected = f"{each} for each of {num_layers} layers; layer {i} is wrong"
                raise InputError(f"{self.argument} {key}", value, expected)
        if len(listed) != num_layers:
            expected = f"num_hidden_layers = {num_layers} entries, each {each}"
            raise InputError(f"{self.argument} {key}", f"{len(listed)} entries", expected)
        return listed

    def flagged_layers(
        self, key: str, num_layers: int, known: Sequence[int] = (0, 1)
    ) -> set[int] | None:
        """Return the numbers of the layers that a list marks with 1, None without a list."""
        if self.get(key) is None:
            return None
        return {i for i, flag in enumerate(self.by_layer(key, num_layers, known)) if flag}

    def check_divides(self, key: str, divisor: int, name: str, number: int) -> None:
        """Refuse `divisor`, the value of a key, unless it divides `number`, which is `name`."""
        self.need(not number % divisor, key, f"a divisor of {name} = {number}")

    def dtype(self, *, keeps_fp32: bool = False) -> str:
        """Return the dtype of all that is not quantised, bf16 if no key gives it.

        By default, engines convert weights that are stored in fp32: vLLM 0.33 to bf16, and SGLang
        0.5.23 to fp16, which has the same size.
        """
        stored = self.known_dtype("dtype") or "bf16"
        is_cast = stored == "fp32" and not keeps_fp32
        self.cast = ["dtype float32 (run in bf16, as engines do)"] if is_cast else []
        return "bf16" if is_cast else stored

    def known_dtype(self, key: str) -> str | None:
        """Return the dtype under a key, by the name used here; None if the key is missing."""
        value = self.get(key)
        is_known = isinstance(value, str | None) and value in (None, *_DTYPES)
        self.need(is_known, key, f"one of: {', '.join(_DTYPES)}")
        return None if value is None else _DTYPES[value]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 1 <= value <= _MAX_CONTEXT


HEADS = ("num_attention_heads", "num_key_value_heads", "head_dim")


def grouped_heads(
    reader: Reader, prefix: str = "", usual: Mapping[str, int | None] | None = None
) -> Fields:
    """Return the fields of grouped attention; keys have a prefix, `usual` has the defaults."""
    known = usual or {}
    heads, kv_heads, width = (reader.whole(f"{prefix}{key}", known.get(key)) for key in HEADS)
    return {"kind": "attention", "num_heads": heads, "num_kv_heads": kv_heads, "head_dim": width}
