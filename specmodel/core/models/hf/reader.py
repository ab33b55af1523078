"""Values of a ``config.json`` by their keys, checked; keys that nobody knows are refused."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self

from specmodel.core.base.errors import InputError, nearest
from specmodel.core.base.ranges import whole_of
from specmodel.core.models.hf.family import Family, families
from specmodel.core.models.hf.keys import harmless_keys, other_names, table

Fields = dict[str, Any]
"""Fields of an `Architecture`, of a layer or of a part of one."""

Layers = Sequence[Fields | None]
"""Fields of a part of each layer, None for layers that lack it."""

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}

_MAX_SIZE = 10**7
_MAX_CONTEXT = 10**8
_MOST = dict.fromkeys(("num_hidden_layers", "num_layers"), 10_000)
"""Largest numbers of what is listed one by one."""

_NO_KEYS = ("kind", "index_dtype")
"""Columns of ``size_keys.toml`` with words that are no keys."""

_OF_SHAPES = re.compile(
    "att|block|conv|dim|embed|expert|gat|head|kernel|layer|moe|num|proj|rank|select|size|state|vocab"
    "|width|window"
)
"""Words in keys of what a layer has or how large it is."""

_NO_FAMILY = Family(name="none")
"""Of what is no model of its own, such as a draft head."""


class Reader:
    """Values of a configuration by key; each key that was asked for counts as known."""

    def __init__(self, config: Any, argument: str, family: Family = _NO_FAMILY) -> None:
        if not isinstance(config, Mapping):
            raise InputError(argument, config, "an object")
        self.config: Mapping[str, Any] = config
        self.argument, self.family = argument, family
        self.trailing = 0
        """MTP modules that lists of layers may end with [-]."""
        self.cast: list[str] = []
        """The key of a dtype in which engines run nothing, with that in which they do."""
        self._known = {"quantization_config", "expert_dtype"}

    def fault(self, key: str, expected: str) -> InputError:
        """Return the error that names a key with its value, to be raised."""
        own, names = self.family.other_names.get(key), self._names(key)
        given = next((n for n in names if self.config.get(n) is not None), key)
        name = key if key in self.config else given
        told = name if name in self.config or not own else f"{key} or {own}"
        return InputError(f"{self.argument} {told}", self.config.get(name), expected)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key under any of its names, all of which must agree."""
        names = self._names(key)
        self._known.update(names)
        given = [name for name in names if self.config.get(name) is not None]
        for name in given[1:]:
            if self.config[name] != self.config[given[0]]:
                expected = f"the same as {given[0]} = {self.config[given[0]]!r}, another name"
                raise self.fault(name, f"{expected} for it")
        return self.config[given[0]] if given else self.config.get(key, default)

    def _names(self, key: str) -> tuple[str, ...]:
        """Return a key and its other names, those of the family first."""
        own = (self.family.other_names[key],) if key in self.family.other_names else ()
        return (key, *own, *other_names().get(key, ()))

    def pass_over(self, *keys: str) -> None:
        """Mark keys as known that decide nothing in this configuration."""
        self._known.update(keys)

    def nested(self, key: str) -> Self | None:
        """Return a reader of the object under a key, None where there is none."""
        value = self.get(key)
        return None if value is None else type(self)(value, f"{self.argument} {key}")

    def inner(self, place: str, value: Any) -> Self:
        """Return a reader of an object nested at `place`, of the same family."""
        return type(self)(value, f"{self.argument} {place}", self.family)

    def is_family(self, name: str) -> bool:
        """Tell whether the model's family has this name."""
        return str(self.config.get("model_type")).removesuffix("_text") == name

    def find_family(self) -> None:
        """Find the row of the model's family, whose names of keys hold from now on."""
        model_type = self.config.get("model_type")
        name = model_type.removesuffix("_text") if isinstance(model_type, str) else None
        for kind, refused in table("other_model_types")["refused"].items():
            if name in refused:
                expected = f"another family, as specmodel does not model {kind} of this one"
                raise self.fault("model_type", expected)
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
        """Return a head's unknown keys that change no shape; refuse any that may.

        Flags and texts may by words in the key alone.
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
        """Refuse a key with a value that was neither read nor is known to be harmless."""
        known = self._known.union(harmless_keys(groups), harmless)
        for key, value in self.config.items():
            if value and key not in known:
                from difflib import get_close_matches  # where it fails alone

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
        """Refuse a key with a value that is not among `known`."""
        unknown = (key for key, value in self.config.items() if value and key not in known)
        other = next(unknown, None)
        if other:
            raise self.fault(other, expected)

    def whole(
        self, key: str, default: int | None = None, *, minimum: int = 1, most: int | None = None
    ) -> int:
        """Return a whole number, or the default where the key is missing or null."""
        value, most = self.get(key), most or _MOST.get(key, _MAX_SIZE)
        if value is None and default is not None:
            return default
        if type(value) is not int or not minimum <= value <= most:
            raise self.fault(key, f"a whole number from {minimum} to {most}")
        return value

    def number(self, key: str, most: float) -> Any:
        """Return a number above 0, None where the key is missing or null."""
        value = self.get(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not 0 < value <= most:
            raise self.fault(key, f"a number above 0, up to {most}")
        return value

    def only(self, key: str, known: Sequence[Any], expected: str) -> None:
        """Refuse a value that is not among `known`; a missing key is accepted."""
        if self.get(key) not in (None, *known):
            raise self.fault(key, expected)

    def longest_context(self) -> int | None:
        """Return the maximum context length with RoPE scaling, None if no key has it [token].

        With scaling, ``max_position_embeddings`` is mostly, but not always, the scaled length.
        """
        told = [self.get("rope_scaling"), self.get("rope_parameters")]
        rope = next((each for each in told if isinstance(each, dict)), {})
        positions, factor = self.get("max_position_embeddings"), rope.get("factor")
        first = rope.get("original_max_position_embeddings") or positions
        stretched = first * factor if _is_number(first) and _is_number(factor) else 0
        return round(max(positions, stretched)) if _is_number(positions) else None

    def sizes(self, row: str) -> Fields:
        """Return the fields of a part of a model by a row of ``size_keys.toml``."""
        fields: Fields = {}
        for field, key in table("size_keys")[row].items():
            if field in _NO_KEYS or isinstance(key, bool):
                fields[field] = key
            else:
                name, minimum, *usual = (key, 1) if isinstance(key, str) else key
                fields[field] = self.whole(name, *usual, minimum=minimum)
        return fields

    def whole_in_all(self, key: str, *, minimum: int = 1) -> int:
        """Return a whole number that is given once, or for each layer and the same in all."""
        value = self.get(key)
        if not isinstance(value, list):
            return self.whole(key, minimum=minimum)
        num_layers = self.whole("num_hidden_layers")
        number = next(iter(value), None)
        if value != [number] * num_layers or type(number) is not int or number < minimum:
            raise self.fault(key, f"a whole number, or {num_layers} that are the same")
        return number

    def flag(self, key: str, default: bool) -> bool:
        """Return a truth value, or the default where the key is missing or null."""
        value = self.get(key)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise self.fault(key, "true or false")
        return value

    def by_name(self, key: str, known: Sequence[str]) -> str:
        """Return one of the known names, in whatever case it is written."""
        value = str(self.get(key)).upper()
        found = next((name for name in known if name.upper() == value), None)
        if found is None:
            raise self.fault(key, " or ".join(known))
        return found

    def layer_numbers(
        self, key: str, first: int = 0, num_layers: int | None = None
    ) -> set[int] | None:
        """Return the layer numbers under a key, minus `first`; None if the key is missing."""
        listed = self.get(key)
        if listed is None:
            return None
        if not isinstance(listed, list) or not all(type(i) is int for i in listed):
            raise self.fault(key, "a list of layer numbers")
        last = (num_layers or self.whole("num_hidden_layers")) - 1 + first
        if not all(first <= i <= last for i in listed):
            raise self.fault(key, f"numbers of layers from {first} to {last}")
        return {i - first for i in listed}

    def overrides(
        self, layers: Collection[int], known: Collection[str], kind: str
    ) -> dict[str, int]:
        """Return the sizes that `per_layer_config` gives `layers`, which must all be alike."""
        own = self.nested("per_layer_config")
        if own is None:
            return {}
        first: Any = next(iter(own.config.values()), {})
        by_layer = {whole_of(key): one for key, one in own.config.items()}
        are_alike = by_layer == dict.fromkeys(layers, first)
        if not are_alike or not isinstance(first, dict) or not set(first) <= set(known):
            expected = f"the same head sizes for all {kind} layers, and no other layers"
            raise self.fault("per_layer_config", expected)
        return first

    def by_layer(
        self, key: str, num_layers: int, known: Sequence[int | str], hint: str = ""
    ) -> list[Any]:
        """Return one of `known` for each layer, the first of them if the list is missing."""
        listed, kind = self.get(key), type(known[0])
        if listed is None:
            return [known[0]] * num_layers
        listed = [*listed] if isinstance(listed, str) else listed  # of letters
        each = f"{' or '.join(map(str, known))}{hint}"
        if not isinstance(listed, list):
            raise self.fault(key, f"{num_layers} entries, each {each}")
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
        """Return the numbers of layers with a 1 in a list, None where there is none."""
        if self.get(key) is None:
            return None
        return {i for i, flag in enumerate(self.by_layer(key, num_layers, known)) if flag}

    def check_divides(self, key: str, divisor: int, name: str, number: int) -> None:
        """Refuse `divisor`, the value of a key, unless it divides the `number` called `name`."""
        if number % divisor:
            raise self.fault(key, f"a divisor of {name} = {number}")

    def dtype(self, *, keeps_fp32: bool = False) -> str:
        """Return the dtype of what is not quantised, bf16 where none is given.

        Engines cast what is stored in fp32 down unless they are told to keep it: vLLM 0.33 to bf16,
        SGLang 0.5.23 to fp16, which is as large.
        """
        stored = self.known_dtype("dtype") or "bf16"
        is_cast = stored == "fp32" and not keeps_fp32
        self.cast = ["dtype float32 (run in bf16, as engines do)"] if is_cast else []
        return "bf16" if is_cast else stored

    def known_dtype(self, key: str) -> str | None:
        """Return the dtype under a key by the name that it has here, None if it is missing."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or value not in _DTYPES:
            raise self.fault(key, f"one of: {', '.join(_DTYPES)}")
        return _DTYPES[value]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 1 <= value <= _MAX_CONTEXT


HEADS = ("num_attention_heads", "num_key_value_heads", "head_dim")


def grouped_heads(
    reader: Reader, prefix: str = "", usual: Mapping[str, int | None] | None = None
) -> Fields:
    """Return grouped attention by its keys after a prefix, with sizes where these are missing."""
    known = usual or {}
    heads, kv_heads, width = (reader.whole(f"{prefix}{key}", known.get(key)) for key in HEADS)
    return {"kind": "attention", "num_heads": heads, "num_kv_heads": kv_heads, "head_dim": width}
