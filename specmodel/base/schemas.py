"""Schemas of records: what pydantic's core is told of a dataclass, to check tables of users' files.

Types are strict, keys known, and numbers no larger than `LARGEST_NUMBER`. Other bounds are settings
of a type, as ``Annotated[int, Setting(ge=1)]``.
"""

from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

Schema = dict[str, Any]


class Setting:
    """Mark of a type in `Annotated`: settings of the schema of what files have there."""

    def __init__(self, **settings: object) -> None:
        self.settings = settings


BY_KIND = Setting(type="tagged-union", discriminator="kind")
"""Mark of a union of records, of which a table of a file names one by its field `kind`."""


class Kinds:
    """Mark of a base of records, of which a table names one by its field `kind`.

    `found` returns the union of these, when files are first checked: until then no kind is imported
    that is not asked for.
    """

    def __init__(self, found: Callable[[], Any]) -> None:
        self.found = found


FROM_LIST = Setting(strict=False)
"""Mark of a tuple, which files have as a list."""


def one_of(words: Iterable[str]) -> Setting:
    """Return the mark of a text that is one of some words."""
    return Setting(type="literal", expected=list(words))


Size = Annotated[int, Setting(ge=1, le=10**7)]
Count = Annotated[int, Setting(ge=0, le=10**7)]
Spread = Annotated[float, Setting(ge=0, le=10)]

LEAST = 1e-4
"""Least factor, share or number that something is divided by: less is no machine's and nobody's,
and a quotient may be beyond all numbers [-]."""
Portion = Annotated[float, Setting(ge=LEAST, le=1)]
"""A share that something is divided by."""

Day = Annotated[str, Setting(pattern=r"^\d{4}-\d{2}-\d{2}$")]
"""A day as 2026-11-21."""

_CONFIG = {"strict": True, "allow_inf_nan": False, "extra_fields_behavior": "forbid"}


def schema_of(kind: Any) -> Schema:
    """Return the pydantic-core schema that checks values of a type."""
    origin, inner = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _of_record(kind)
    if kind in (int, float):
        from specmodel.base.units import LARGEST_NUMBER  # with NumPy, which records need not

        most = int(LARGEST_NUMBER)
        return {"type": kind.__name__, "ge": -most, "le": most}
    if origin is None:
        return {"type": kind.__name__}  # bool or str
    if origin is Annotated and isinstance(inner[1], Kinds):
        return schema_of(Annotated[inner[1].found(), BY_KIND])
    if origin is Annotated:
        told = [mark.settings for mark in inner[1:]]
        settings = (schema_of(inner[0]), *told)
        return {name: value for each in settings for name, value in each.items()}
    if origin is Literal:
        return {"type": "literal", "expected": list(inner)}
    if origin in (Union, UnionType):
        return _of_union([one for one in inner if one is not type(None)], len(inner))
    if origin is list:
        return {"type": "list", "items_schema": schema_of(inner[0])}
    if origin is tuple:
        of_items = [schema_of(one) for one in inner if one is not ...]
        more = {"variadic_item_index": 0} if ... in inner else {}
        return {"type": "tuple", "items_schema": of_items, **more}
    keys, values = map(schema_of, inner)
    return {"type": "dict", "keys_schema": keys, "values_schema": values}


def _of_union(some: list[Any], num_types: int) -> Schema:
    """Return the schema of a type or None, or of kinds of records, which are told by name."""
    if len(some) < num_types:
        return {"type": "nullable", "schema": schema_of(reduce(or_, some))}
    return {"type": "union", "choices": {one.kind: schema_of(one) for one in some}}


def _of_record(cls: Any) -> Schema:
    """Return the schema of a table, which checks across fields as the record does."""
    listed = [
        {"type": "dataclass-field", "name": field.name, "kw_only": True, "schema": _of_field(field)}
        for field in fields(cls)
    ]
    return {
        "type": "dataclass",
        "cls": cls,
        "fields": [field.name for field in fields(cls)],
        "schema": {"type": "dataclass-args", "dataclass_name": cls.__name__, "fields": listed},
        "post_init": hasattr(cls, "__post_init__"),
        "strict": False,  # a table will do for a record
        "config": _CONFIG,
    }


def _of_field(field: Field[Any]) -> Schema:
    schema = schema_of(field.type)
    if field.default_factory is not MISSING:
        return {"type": "default", "schema": schema, "default_factory": field.default_factory}
    if field.default is not MISSING:
        return {"type": "default", "schema": schema, "default": field.default}
    return schema
