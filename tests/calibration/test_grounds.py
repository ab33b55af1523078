"""The table of grounds: known spreads are found, and hosts have equal weights."""

import numpy as np
import pandas as pd
import pytest

from specmodel.core.prediction.ground import Cell

grounds = pytest.importorskip("grounds")

CELL = Cell("short", "NVIDIA", "head", "HBM", "vllm")


def rows_of(spread, count=4000, known=0.0, **labels):
    """Return speedups predicted as 1 with log-normal errors, a part of which intervals cover."""
    measured = np.exp(spread * np.random.default_rng(1).standard_normal(count))
    ends = {"low": np.exp(-1.2816 * known), "high": np.exp(1.2816 * known)}
    numbers = {"row": range(count), "measured": measured, "predicted": 1.0, **ends}
    return pd.DataFrame(numbers).assign(**({"host": "one", "cell": [CELL] * count} | labels))


@pytest.mark.parametrize("known", [0.0, 0.1])
def test_the_spread_is_what_intervals_lack(known):
    """The interval score is smallest at the quantiles of the whole spread."""
    own = grounds.grounds_of(rows_of(0.25, known=known))[-1]
    assert (own.cell, np.hypot(own.spread, known)) == (CELL, pytest.approx(0.25, abs=0.012))


def test_hosts_weigh_alike_in_each_of_their_cells():
    """Hosts with 20 and 2,000 runs have equal weight in the spread, in whatever cell they are."""
    few, many = rows_of(0.5, 20, host="few"), rows_of(0.1, 2000, host="many")
    apart = few.assign(cell=[CELL._replace(drafter="look-up")] * 20)
    tables = [pd.concat([own, many], ignore_index=True) for own in (few, apart)]
    one, two = ({each.cell: each for each in grounds.grounds_of(table)} for table in tables)
    assert (one[CELL].rows, one[CELL].hosts) == (2020, 2)
    assert one[CELL].spread == two[Cell()].spread > 0.2
    assert two[CELL].spread == pytest.approx(0.1, abs=0.012)
