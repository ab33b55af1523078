"""Tables that commands and readers of measured engines are given."""

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
