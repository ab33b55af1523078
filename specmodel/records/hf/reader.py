"""Values of a ``config.json`` by their keys: of the right kind, and none left that matters."""

from collections.abc import Mapping, Sequence
from typing import Any

from specmodel.base.errors import InputError, nearest
from specmodel.records.hf.families import (
    ALIASES,
    FAMILIES,
    HARMLESS_KEYS,
    OTHER_KINDS,
    SUSPECT_KEY,
    Family,
)

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}

_MAX_SIZE = 10**7


class Reader:
    """Values of a configuration by their keys, which are known once they were read."""

    def __init__(self, config: Mapping[str, Any], argument: str) -> None:
        self.config, self.argument = config, argument
        self._known = {"quantization_config", *HARMLESS_KEYS}

    def fault(self, key: str, expected: str) -> InputError:
        """Return the error that names a key with its value, to be raised."""
        return InputError(f"{self.argument} {key}", self.config.get(key), expected)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value; other names of its key must agree with it."""
        value = self.config.get(key, default)
        for alias in ALIASES.get(key, ()):
            other = self.config.get(alias)
            if None not in (value, other) and other != value:
                raise self.fault(alias, f"the same as {key} = {value!r}, another name for it")
        self._known |= {key, *ALIASES.get(key, ())}
        return value

    def family(self) -> Family:
        """Return how the model's family names the parts of its shape."""
        model_type = self.config.get("model_type")
        for kind, families in OTHER_KINDS.items():
            if model_type in families:
                expected = f"a model with attention in every layer: this has {kind}, not known here"
                raise self.fault("model_type", expected)
        if not isinstance(model_type, str) or model_type not in FAMILIES:
            expected = f"one of: {nearest('', FAMILIES)}, or a TOML architecture"
            raise self.fault("model_type", expected)
        return FAMILIES[model_type]

    def refuse_other_keys(self, family: Family) -> None:
        """Refuse a key that was not read though it looks as if it changed the shape."""
        for key, value in self.config.items():
            is_other = key not in self._known and key not in family.harmless
            if is_other and value and SUSPECT_KEY.search(key):
                model_type = self.config["model_type"]
                expected = f"no such key, as its meaning in a {model_type} model is not known here"
                raise self.fault(key, expected)

    def whole(self, key: str, default: int | None = None, *, minimum: int = 1) -> int:
        """Return a whole number, or the default where the key is missing or null."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        if type(value) is not int or not minimum <= value <= _MAX_SIZE:
            raise self.fault(key, f"a whole number from {minimum} to {_MAX_SIZE}")
        return value

    def count(self, key: str) -> int:
        """Return a number of parts, where null means none but a missing key means nothing."""
        return 0 if self.get(key, "missing") is None else self.whole(key, minimum=0)

    def flag(self, key: str, default: bool) -> bool:
        """Return a truth value, or the default where the key is missing."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.fault(key, "true or false")
        return value

    def layer_numbers(self, key: str) -> set[int] | None:
        """Return listed numbers of layers, None where the key is missing or null."""
        listed = self.get(key)
        if listed is None:
            return None
        if not isinstance(listed, list) or not all(type(i) is int for i in listed):
            raise self.fault(key, "a list of layer numbers")
        return set(listed)

    def by_layer(
        self, key: str, num_layers: int, known: Sequence[int | str], hint: str = ""
    ) -> list[Any]:
        """Return a list with one of the known values for each layer, the first if it is missing."""
        listed, kind = self.get(key), type(known[0])
        if listed is None:
            return [known[0]] * num_layers
        if not (
            isinstance(listed, list)
            and len(listed) == num_layers
            and all(type(value) is kind and value in known for value in listed)
        ):
            each = " or ".join(map(str, known))
            raise self.fault(key, f"{num_layers} entries, each {each}{hint}")
        return listed

    def dtype(self) -> str:
        """Return the dtype of what is not quantised, bf16 where none is given."""
        old, new = self.get("torch_dtype"), self.get("dtype")
        if None not in (old, new) and old != new:
            raise self.fault("torch_dtype", f"the same as dtype = {new!r}")
        key, value = ("dtype", new) if old is None else ("torch_dtype", old)
        if value is None:
            return "bf16"
        if not isinstance(value, str) or value not in _DTYPES:
            raise self.fault(key, f"one of: {', '.join(_DTYPES)}")
        return _DTYPES[value]
