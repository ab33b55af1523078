"""Offline batches of a published grid: how much requests differ, and the effect on speedups."""

import numpy as np
import pandas as pd
import pytest

from drains import BY_REQUEST, OUTPUT, batches, differing
from engines import DIP, GRID, TABLE
from specmodel.core.algebra.acceptance import Acceptance
from specmodel.simulate.accepted import spread_survival, survival

CELLS = {"batch_size_or_concurrency": "batch", "context_length": "context"}
CELLS |= {"tensor_parallel": "tp", "base_step_ms": "base_tpot"}
HELD = 512
"""Tokens of the largest CUDA graph of vLLM 0.24."""


@pytest.fixture(scope="module")
def grid():
    """Return the grid, with tokens per second; the context identifies the data set."""
    table = pd.read_csv(TABLE).rename(columns=CELLS)
    table = table[table["host"] == GRID]
    plain = 1e3 * table["batch"] / table["base_tpot"]
    speeds = {"base_tok_s": plain, "spec_tok_s": plain * table["speedup"]}
    return table.assign(dataset=table["context"], **speeds)


def test_requests_differ_as_those_of_another_model_and_benchmark(grid):
    for length, measured in differing(grid).items():
        tokens = grid.loc[grid["draft_length"] == length, "tokens_per_step"].mean()
        rate = Acceptance(tokens_per_step=tokens, measured_draft_length=length).rate()
        chances = survival(Acceptance(acceptance_rate=rate), length)
        steps = 1 / (1 + spread_survival(chances[None], BY_REQUEST)[:, 0, length].sum(axis=-1))
        emitted = 1 + np.arange(length + 1)
        odds = -np.diff([1.0, *chances[length], 0.0])
        noise = (odds @ emitted**2 / tokens - tokens) / OUTPUT
        expected = np.hypot(steps.std() / steps.mean(), np.sqrt(noise))
        assert measured == pytest.approx(expected, rel=0.3), length


def test_gains_of_long_drafts_are_met_as_those_of_short_ones(grid):
    """If all requests were alike, speedups with five drafted tokens would be 4 % too high."""
    is_held = grid["batch"] * grid["verify_tokens"] <= HELD
    for length in (1, 5):
        rows = grid[is_held & (grid["batch"] != DIP) & (grid["draft_length"] == length)]
        assert batches(rows)["gain_error"].mean() == pytest.approx(0, abs=0.045), length
