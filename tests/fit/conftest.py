"""Files for commands and readers of measured engines."""

import json

import pandas as pd
import pytest


@pytest.fixture
def table(tmp_path):
    """Write rows as a table and return its path."""

    def write(*rows):
        path = tmp_path / "rows.csv"
        pd.DataFrame(rows).to_csv(path, index=False)
        return path

    return write


@pytest.fixture
def file(tmp_path):
    """Write a text, bytes, or values as lines of JSON, and return the path."""

    def write(*content, name="mine.txt"):
        path, first = tmp_path / name, content[0]
        if not isinstance(first, bytes | str):
            first = "\n".join(map(json.dumps, content))
        path.write_bytes(first.encode() if isinstance(first, str) else first)
        return path

    return write
