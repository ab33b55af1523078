"""Profiles of engines as `engines.py` writes them."""

import pytest
from msgspec.structs import asdict

import engines
from specmodel import load_engine


@pytest.mark.parametrize("name", engines.ENGINES)
def test_what_no_run_tells_is_written_as_it_ships(name: str) -> None:
    """Only seconds and the record of the fit differ, which a fit gives."""
    shipped = load_engine(name)
    given = {field: getattr(shipped, field) for field in asdict(shipped.overheads)}
    own = engines._bare(name).with_changes("engine", given)
    assert asdict(own) | {"fit": shipped.fit} == asdict(shipped)
