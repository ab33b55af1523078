"""Shared by all tests: published tables, and random operating points for property tests."""

import csv
from pathlib import Path

from hypothesis import settings

DATA = Path(__file__).parent / "data"

settings.register_profile("specmodel", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("specmodel")


def read_table(name: str) -> list[dict[str, str]]:
    """Rows of a published table; comment lines give its source."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))
