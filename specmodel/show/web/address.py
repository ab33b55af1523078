"""Read the fields of an address: as arguments of `predict`, a command, or Python."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.base.errors import InputError, given, nearest
from specmodel.core.base.naming import counted, is_id, known_name
from specmodel.core.base.ranges import whole_of
from specmodel.core.base.records import is_path
from specmodel.core.base.units import parse_seconds
from specmodel.core.cost.where import looked_up
from specmodel.core.drafters.by_name import list_drafters
from specmodel.core.drafters.measured_heads import NAMES as TYPICAL
from specmodel.core.drafters.tasks import MIXTURE, TASKS
from specmodel.core.machines.engine import list_engines
from specmodel.core.machines.hardware import list_hardware
from specmodel.core.models.architecture import list_architectures
from specmodel.core.prediction.case import DEFAULT_BATCH_SIZES

RATE = "rate"
"""Value of the field acceptance for a rate that the user chooses."""
SECOND = "other_"
"""Prefix of the fields of a second setting; missing fields are as in the first setting."""
_OF_SECOND = ("target", "hardware", "num_gpus", "drafter", "engine")
START = {"target": "qwen3.5-397b-a17b", "hardware": "h200_sxm"}
"""Default values of fields."""

_NAMES: dict[str, Callable[[], list[str]]] = {
    "target": list_architectures,
    "hardware": list_hardware,
    "drafter": lambda: [*list_drafters(), *list_architectures()],
    "engine": list_engines,
    "acceptance": lambda: [*TYPICAL, RATE],
    "task": lambda: [*TASKS, MIXTURE],
    "view": lambda: ["schedule"],
}
"""Functions that list the shipped names of a field."""
_OF_CASE = (
    *(*_OF_SECOND, "acceptance", "acceptance_rate", "task"),
    *("draft_length", "context_length", "prompt_length", "output_length", "graph_limit"),
)
FIELDS = (*_OF_CASE, *(SECOND + n for n in _OF_SECOND), "tpot_target", "batch_size", "view")
"""All fields that an address may have."""
_LONGEST = 200
"""Largest length of a field [-]."""


def choices() -> dict[str, list[str]]:
    """Return the shipped names by field; an address accepts no path."""
    return {name: names() for name, names in _NAMES.items()}


class Address(Struct, frozen=True, kw_only=True):
    """The fields of an address, and the question that they ask.

    Parameters
    ----------
    fields
        Fields by name, without empty ones.
    own
        Files that the command line named. An address may name no other file.
    """

    fields: Mapping[str, str]
    own: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash(self.query())

    def checked(self) -> Address:
        """Return the address with defaults for missing fields; refuse unusable fields."""
        for name in self.fields:
            if name not in FIELDS:
                raise InputError("address", name, f"fields such as {nearest(name, FIELDS)}")
            self.read(name)
        return replace(self, fields={**START, **self.fields})

    def read(self, name: str) -> Any:
        """Return the value of a field; None for a missing field."""
        text, own = self.fields.get(name), name.removeprefix(SECOND)
        if text is None or (text in self.own and own in START):
            return text
        if len(text) > _LONGEST:
            raise InputError(own, f"{text[:_LONGEST]}...", f"at most {_LONGEST} characters")
        return _READERS.get(own, _whole)(own, text)

    def arguments(self, *, is_second: bool = False) -> dict[str, Any]:
        """Return the arguments of `predict` for the first setting, or for the second."""
        found = {name: self.read(name) for name in _OF_CASE}
        if is_second:
            own = {name: self.read(SECOND + name) for name in _OF_SECOND}
            if own["hardware"]:  # another GPU may need another number of GPUs
                found["num_gpus"] = None
            found |= given(own, own)
        count, name = counted(found["hardware"])
        found |= {"num_gpus": count, "hardware": name} if count else {}
        found["acceptance" if found["acceptance"] == RATE else "acceptance_rate"] = None
        if found["acceptance_rate"] is not None:
            found["task"] = None
        return given(found, found)

    @property
    def has_second(self) -> bool:
        """Whether the address has a second setting."""
        return any(SECOND + name in self.fields for name in _OF_SECOND)

    @property
    def points(self) -> dict[str, Any]:
        """Argument batch_size: the default sizes and the clicked one; {} if it is one of them."""
        sizes = {*DEFAULT_BATCH_SIZES, self.read("batch_size") or 1}
        return {"batch_size": sorted(sizes)} if len(sizes) > len(DEFAULT_BATCH_SIZES) else {}

    @property
    def within(self) -> dict[str, Any]:
        """Argument tpot_target of the verdict, if the address has one [s]."""
        time = self.read("tpot_target")
        return {} if time is None else {"tpot_target": time}

    def without(self, *names: str) -> Address:
        """Return the address without the fields `names`."""
        left = {name: text for name, text in self.fields.items() if name not in names}
        return replace(self, fields=left)

    def query(self, **changes: str) -> str:
        """Return the query string of the address, with `changes` of fields."""
        fields = {**self.fields, **changes}
        return urlencode({name: text for name, text in fields.items() if text})


def _named(argument: str, text: str) -> str:
    """Return the shipped name that a text stands for; an InputError for a path."""
    name = looked_up(argument, text, [])
    _, path = counted(name) if argument == "hardware" else (None, name)
    if is_path(path, argument) and (os.path.lexists(path) or not is_id(path)):
        expected = "a name; to use a file, start the page with it: specmodel explore FILE GPU"
        raise InputError(argument, text, expected)
    return name


def _known(argument: str, text: str) -> str:
    known = _NAMES[argument]()
    found = known_name(text, known, argument)
    if found is None:
        raise InputError(argument, text, f"one of {nearest(text, known)}")
    return found


def _rate(argument: str, text: str) -> float:
    try:
        return float(text.encode("ascii"))
    except ValueError:
        raise InputError(argument, text, "a number from 0 to 1") from None


def _whole(argument: str, text: str) -> int:
    whole = whole_of(text)
    if whole is None or (whole == 0 and argument in ("num_gpus", "batch_size")):
        raise InputError(argument, text, "a whole number")
    return whole


_READERS: dict[str, Callable[[str, str], Any]] = {
    **dict.fromkeys(_NAMES, _known),
    **dict.fromkeys(("target", "hardware", "drafter"), _named),
    "acceptance_rate": _rate,
    "tpot_target": parse_seconds,
}
"""Readers of fields; other fields are whole numbers."""


def command_of(arguments: Mapping[str, Any]) -> str:
    """Return the command line for the arguments of `predict`."""
    words, told = _apart(arguments)
    if "tpot_target" in told:
        told["tpot_target"] = f"{1000 * told['tpot_target']:.12g}ms"
    for option, value in told.items():
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        words += [f"--{option.replace('_', '-')}", text]
    return shlex.join(["specmodel", "predict", *words])


def python_of(arguments: Mapping[str, Any], how: Mapping[str, Any]) -> str:
    """Return Python code for the arguments of `predict`; `how` are settings of the view."""
    words, told = _apart(arguments)
    typed = ", ".join([*map(repr, words), *(f"{name}={value!r}" for name, value in told.items())])
    view = f".view({', '.join(f'{name}={value!r}' for name, value in how.items())})" if how else ""
    return f"import specmodel\n\nprint(specmodel.predict({typed}){view})"


def _apart(arguments: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Return model and GPUs as words, and the other arguments."""
    told = dict(arguments)
    target, gpus, count = told.pop("target"), told.pop("hardware"), told.pop("num_gpus", None)
    return [target, gpus if count is None else f"{count}x{gpus}"], told
