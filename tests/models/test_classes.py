"""Our dataclasses are Python's: the same fields, records and refusals, defined in less time."""

import copy
import dataclasses
import inspect
import pickle

import pytest

from specmodel.base import classes
from specmodel.prediction.case import Deployment


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


SETTINGS = [
    {"frozen": frozen, "kw_only": kw_only, "eq": eq}
    for frozen in (False, True)
    for kw_only in (False, True)
    for eq in (False, True)
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_records_are_as_those_of_python(settings):
    theirs, ours = made(dataclasses.dataclass, **settings), made(classes.dataclass, **settings)
    for python, own in zip(theirs, ours, strict=True):
        told = [
            (f.name, f.type, f.default, f.kw_only, f.compare) for f in dataclasses.fields(python)
        ]
        assert told == [
            (f.name, f.type, f.default, f.kw_only, f.compare) for f in dataclasses.fields(own)
        ]
        assert python.__match_args__ == own.__match_args__
        parameters = [inspect.signature(each).parameters for each in (python, own)]
        assert [*parameters[0]] == [*parameters[1]]
        kinds = [[p.kind for p in each.values()] for each in parameters]
        assert kinds[0] == kinds[1]
        found = [
            (repr(record), record == each(size=3), record == each(size=4), record == 3)
            for each in (python, own)
            for record in [each(size=3)]
        ]
        assert found[0] == found[1]
        assert (python.__hash__ is None) == (own.__hash__ is None)
        with pytest.raises(TypeError):
            own()
        with pytest.raises(AssertionError):
            own(size=-1)
    _, own = ours
    assert own(size=1).names is not own(size=1).names
    changed = dataclasses.replace(own(size=1, share=0.2), size=2)
    assert (changed.size, changed.share) == (2, 0.2)
    assert copy.copy(changed).__dict__ == changed.__dict__
    if settings["eq"] and settings["frozen"]:
        assert hash(own(size=1, known=(1,))) == hash(own(size=1))
        assert hash(own(size=1, hidden=(1,))) != hash(own(size=1))


def test_a_frozen_record_refuses_changes():
    _, frozen = made(classes.dataclass, frozen=True)
    record = frozen(1)
    for act in (
        lambda: setattr(record, "size", 2),
        lambda: setattr(record, "new", 2),
        lambda: delattr(record, "size"),
    ):
        with pytest.raises(dataclasses.FrozenInstanceError):
            act()
    assert record == frozen(1)


def test_records_of_the_library_are_such_and_can_be_pickled():
    import specmodel

    deployment, _ = specmodel.deploy(target="mixtral-8x7b", hardware="h100_sxm", drafter="ngram")
    assert dataclasses.is_dataclass(Deployment)
    assert pickle.loads(pickle.dumps(deployment)).target == deployment.target
    assert Deployment.__setattr__ is classes._refuse
