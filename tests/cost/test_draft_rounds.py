"""Rounds of block drafters against measured ones; nothing was fitted to them."""

import numpy as np
import pytest
from published_tables import read_table
from rows import cases

from specmodel import deploy, load_engine
from specmodel.core.cost import step_times

CAPTURED = load_engine("vllm").with_changes("engine", {"graph_limit": 4096})  # as was measured
ROWS = read_table("draft_rounds.csv")


def round_of(row, drafter="dspark"):
    deployment, _ = deploy(
        target=row["target"], hardware=row["hardware"], stack=row["stack"],
        tensor_parallel=int(row["tensor_parallel"]), drafter=drafter, engine=CAPTURED,
    )  # fmt: skip
    length = float(row["draft_length"])
    return step_times(
        deployment, batch_size=float(row["batch_size"]), draft_length=length,
        verify_tokens=length + 1, context_length=1024.0,
    )  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['target']} {row['batch_size']}")
def test_a_round_takes_what_was_measured(row):
    predicted = float(round_of(row).draft_time)
    assert predicted == pytest.approx(float(row["draft_time"]), rel=float(row["max_error"]))


def test_rounds_of_one_curve_are_met_on_average():
    """DeepSeek-V4-Flash on four B300, batch sizes 1 to 256, over which a round grows six-fold."""
    rows = [row for row in ROWS if row["target"] == "deepseek-v4-flash"]
    measured = np.array([float(row["draft_time"]) for row in rows])
    predicted = np.array([float(round_of(row).draft_time) for row in rows])
    assert np.abs(predicted / measured - 1).mean() < 0.2
    growth = predicted[-1] / predicted[0], measured[-1] / measured[0]
    assert growth[0] == pytest.approx(growth[1], rel=0.3)


@cases("hardware measured", ("h100_sxm", 0.320e-3), ("h100_sxm", 0.349e-3), ("h200_sxm", 0.205e-3))
def test_steps_of_a_markov_head_take_what_was_measured(hardware, measured):
    """All seven of GLM-5.2's in pegainfer, with graphs and without (issue 582), and in 615."""
    row = {"target": "glm-5.2", "stack": "vllm", "tensor_parallel": 1, "hardware": hardware}
    steps = round_of(row | {"draft_length": 7, "batch_size": 1}).draft_passes[2]
    assert steps.passes.name == "Markov step"
    assert float(steps.passes.count * steps.each.total_time) == pytest.approx(measured, rel=0.25)
