"""Dataclasses that take a third of the time to define, as a first answer defines a hundred.

Python's decorator compiles six methods of a frozen class, which was a quarter of a first answer;
this one compiles `__init__` alone. Fields are Python's, and so is what type checkers see.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        *, frozen: bool = False, eq: bool = True, repr: bool = True, kw_only: bool = False
    ) -> Callable[[type], type]:
        """Return a decorator that makes a class a dataclass, as Python's with these settings."""

        def made(cls: type) -> type:
            _find_fields(cls, kw_only=kw_only)
            methods: dict[str, Any] = {"__init__": _init(cls)}
            if frozen:
                cls.__dataclass_params__.frozen = True
                methods |= {"__setattr__": _refuse, "__delattr__": _refuse}
            if repr:
                methods["__repr__"] = _repr
            if eq:
                methods |= _comparing(cls, is_hashed=frozen)
            own = {name for name, value in vars(cls).items() if value is not None}
            for name, method in methods.items():
                if name not in own:
                    setattr(cls, name, method)
            return cls

        return made


def _find_fields(cls: Any, *, kw_only: bool) -> None:
    """Find the fields of a class as Python does, without methods."""
    bases = [vars(base) for base in cls.__mro__[1:]]
    above = [base["__dataclass_params__"] for base in bases if "__dataclass_params__" in base]
    frozen = [params.frozen for params in above]
    for params in above:  # Python has none but frozen classes inherit frozen ones
        params.frozen = False
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
    for params, was in zip(above, frozen, strict=True):
        params.frozen = was


def _init(cls: Any) -> Callable[..., None]:
    """Return the ``__init__`` of a class, which sets the fields of a new record."""
    known: dict[str, Any] = {}
    by_place: list[str] = []
    by_name: list[str] = []
    lines: list[str] = []
    for field in dataclasses.fields(cls):
        name = given = value = field.name
        if field.default is not dataclasses.MISSING:
            known[f"_{name}"], given = field.default, f"{name}=_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            known[f"_{name}"], given = field.default_factory, f"{name}=_{name}"
            value = f"_{name}() if {name} is _{name} else {name}"
        (by_name if field.kw_only else by_place).append(given)
        lines.append(f"_own[{name!r}] = {value}")
    taken = ["self", *by_place, *(["*", *by_name] if by_name else [])]
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    body = "\n ".join(["_own = self.__dict__", *lines])
    # of names of fields alone, as Python's own decorator does
    exec(f"def __init__({', '.join(taken)}):\n {body}", known)
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {field.name: field.type for field in dataclasses.fields(cls)}
    made.__annotations__["return"] = None
    return made


def _comparing(cls: Any, *, is_hashed: bool) -> dict[str, Any]:
    """Return ``__eq__``, which compares fields, and ``__hash__``, None unless `is_hashed`."""
    fields = [field for field in dataclasses.fields(cls) if field.compare]
    compared = attrgetter("__class__", *(field.name for field in fields))
    hashed = attrgetter("__class__", *(f.name for f in fields if f.hash is not False))

    def equal(self: Any, other: object) -> Any:
        if type(other) is not type(self):
            return NotImplemented
        return compared(self) == compared(other)

    def number(self: Any) -> int:
        return hash(hashed(self))

    return {"__eq__": equal, "__hash__": number if is_hashed else None}


def _repr(self: Any) -> str:
    shown = (field.name for field in dataclasses.fields(self) if field.repr)
    told = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({told})"


def _refuse(self: Any, name: str, *_: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r} of a record")
