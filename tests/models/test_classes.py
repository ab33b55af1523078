"""Our dataclasses are Python's: the same fields, records and refusals, defined in less time."""

import copy
import dataclasses
import inspect

import pytest
from rows import each_row

from specmodel import Deployment
from specmodel.base import classes


def made(dataclass, **settings):
    """A class and one that inherits from it, by a decorator."""

    @dataclass(**settings)
    class Base:
        size: int
        share: float = 0.5

        def __post_init__(self):
            assert self.size >= 0

    @dataclass(**settings)
    class More(Base):
        names: list = dataclasses.field(default_factory=list, compare=False)
        hidden: tuple = dataclasses.field(default=(), repr=False)
        known: tuple = dataclasses.field(default=(), hash=False)

    return Base, More


def told(record_class):
    """What Python tells of a class of records, and of a record."""
    fields = [(f.name, f.type, f.default, f.kw_only) for f in dataclasses.fields(record_class)]
    parameters = inspect.signature(record_class).parameters.values()
    record = record_class(size=3)
    return (
        fields,
        record_class.__match_args__,
        [(one.name, one.kind) for one in parameters],
        repr(record),
        [record == other for other in (record_class(size=3), record_class(size=4), 3)],
        record_class.__hash__ is None,
    )


@each_row("frozen", [False, True])
@each_row("kw_only", [False, True])
@each_row("eq", [False, True])
def test_records_are_as_those_of_python(frozen, kw_only, eq):
    settings = {"frozen": frozen, "kw_only": kw_only, "eq": eq}
    theirs, ours = made(dataclasses.dataclass, **settings), made(classes.dataclass, **settings)
    assert [*map(told, ours)] == [*map(told, theirs)]
    _, own = ours
    for given, fault in (({}, TypeError), ({"size": -1}, AssertionError)):
        with pytest.raises(fault):
            own(**given)
    assert own(size=1).names is not own(size=1).names
    changed = dataclasses.replace(own(size=1, share=0.2), size=2)
    assert (changed.size, changed.share) == (2, 0.2)
    assert copy.copy(changed).__dict__ == changed.__dict__
    if frozen:
        for act in (lambda: setattr(changed, "size", 3), lambda: delattr(changed, "size")):
            with pytest.raises(dataclasses.FrozenInstanceError):
                act()
    if eq and frozen:
        assert hash(own(size=1, known=(1,))) == hash(own(size=1))
        assert hash(own(size=1, hidden=(1,))) != hash(own(size=1))


def test_records_of_the_library_are_such():
    assert dataclasses.is_dataclass(Deployment)
    assert Deployment.__setattr__ is classes._refuse
