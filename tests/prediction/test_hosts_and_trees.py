"""The speed of the host and the width of trees as arguments, right and wrong."""

from pathlib import Path

import numpy as np
import pytest
from printed import refused

from specmodel import Acceptance, deploy, load_engine, predict
from specmodel.core.base.notes import Note
from specmodel.core.machines.engine import ON_HOST

WHERE = {"target": "mixtral-8x7b", "hardware": "h200_sxm"}
POINT = {"drafter": "eagle3", "draft_length": 3, "batch_size": [1, 16]}
TOKENS = Acceptance(tokens_per_step=2.0)


def predicted(**changes):
    return predict(**WHERE | POINT | {"engine": "vllm", "acceptance": TOKENS} | changes)


@pytest.mark.parametrize("engine", ["vllm", "sglang-v1", "vllm-moesd-2025"])
def test_a_faster_host_takes_its_seconds_the_fewer_times(engine):
    seconds = load_engine(engine)
    halved = seconds.with_changes("engine", {name: getattr(seconds, name) / 2 for name in ON_HOST})
    fast, known = predicted(engine=engine, host_speed=2), predicted(engine=halved)
    np.testing.assert_allclose(fast.step_time, known.step_time, rtol=1e-12)
    assert (fast.step_time < predicted(engine=engine).step_time).all()
    same = predicted(engine=engine, host_speed=1)
    np.testing.assert_array_equal(same.step_time, predicted(engine=engine).step_time)


def test_a_host_that_is_given_is_known():
    """Of published hosts' mean, which is said, intervals hold the spread between hosts."""
    assumed = predicted(interval=True, batch_size=256)
    given = predicted(host_speed=1, interval=True, batch_size=256)
    assert assumed.assumptions["host_speed"] == Note("mean_host", {"speed": 1})
    assert "host_speed" not in given.assumptions
    assert "host_speed" not in predicted(engine="ideal").assumptions
    assert "host_speed" not in predicted(engine="vllm-moesd-2025").assumptions
    unknown, known = (p.intervals["step_time"] for p in (assumed, given))
    assert (known.high - known.low < unknown.high - unknown.low).all()


def test_a_speed_that_decides_nothing_is_refused():
    expected = r"^host_speed: got 2\.0; expected an engine with host overheads.*; ideal has none$"
    refused(expected, predicted, engine="ideal", host_speed=2)
    own = load_engine("ideal").with_changes("engine", {"pass_time": 1e-3})
    assert (predicted(engine=own, host_speed=2).tpot < predicted(engine=own).tpot).all()


def test_acceptance_of_chains_says_nothing_of_trees():
    for form in ("acceptance_rate", "accepted_fraction"):
        chains = {"tree_width": 4, "acceptance": Acceptance(**{form: 0.6})}
        refused("^tree_width: got 4; expected 1 .* tokens_per_step", predicted, **chains)


def test_nothing_runs_beside_the_host_where_it_computes_itself():
    profile = Path(__file__).parents[2] / "calibration/results/intel_xeon_2_threads/cpu.toml"
    own = {"target": "qwen2-57b-a14b", "engine": "vllm"}
    assert deploy(**own, hardware="h200_sxm")[0].engine.hides_host == "all"
    deployment, _ = deploy(**own, hardware=profile)
    assert deployment.engine.hides_host == "none"
    assert deployment.engine.pass_time == load_engine("vllm").pass_time
