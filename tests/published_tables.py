"""Published tables with which tests compare."""

import csv
from pathlib import Path

DATA = Path(__file__).parent / "data"


def read_table(name: str) -> list[dict[str, str]]:
    """Return the rows of a published table, whose comment lines give its source."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))
