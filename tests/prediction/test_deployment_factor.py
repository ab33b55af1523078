"""The factor that all passes of a deployment share: closed forms, by hand, synthetic engines."""

import numpy as np
import pytest
from msgspec.structs import replace
from rows import cases
from scipy import stats

from specmodel import Acceptance, deploy, load_engine
from specmodel.core.cost import step_times
from specmodel.core.cost.latency import KernelErrors
from specmodel.core.prediction import COLUMNS, intervals
from specmodel.core.prediction.columns import LOAD_COLUMNS
from specmodel.core.prediction.evaluate import evaluate

POINTS = {"draft_length": 3.0, "verify_tokens": 4.0, "context_length": 2048.0}
POINTS = {n: np.asarray(v) for n, v in ({"batch_size": [1.0, 8.0, 64.0]} | POINTS).items()}
LOAD = {"prompt_length": np.asarray(8000.0), "output_length": np.asarray(1000.0)}
WHERE = {"target": "qwen3-30b-a3b", "hardware": "h100_sxm", "drafter": "eagle3"}
WHERE |= {"engine": "ideal", "popularity": "equal", "routing_correlation": 0.2}
RATE = Acceptance(acceptance_rate=0.7)
RATIOS = ("target_efficiency", "speedup", "relative_step_time")
Z = stats.norm.ppf(0.9)


def deployed(**changes):
    return deploy(**(WHERE | changes))[0]


def exact(deployment):
    """Return it with kernels whose times are known."""
    known, fits = {"shape_spread": 0.0, "row_spread": 0.0}, {}
    for kind, own in deployment.kernels.fits.items():
        fits[kind] = {dtype: replace(fit, **known) for dtype, fit in own.items()}
    kernels = replace(deployment.kernels, fits=fits)
    return replace(deployment, kernels=kernels)


def drawn(deployment, *, points=POINTS | LOAD, spread=None):
    columns = (*COLUMNS, *LOAD_COLUMNS) if "prompt_length" in points else COLUMNS
    asked = evaluate(deployment, points, RATE), np.random.default_rng(5), columns
    return intervals.central_intervals(*asked, deployment_spread=spread)


A100 = "a100_pcie_80gb"


@cases("hardware cut spread", (A100, 4, 0.32), (A100, 1, 0.0), ("l40s", 4, 0.0))
def test_messages_that_others_stand_in_for_have_a_factor(hardware, cut, spread):
    """Nobody timed all-reduces on an A100 without NVLink; those of vLLM on L40S were."""
    where = {"hardware": hardware, "tensor_parallel": cut, "engine": "vllm", "drafter": None}
    deployment = replace(exact(deployed(**where)), engine=load_engine("ideal"))
    times = step_times(deployment, **POINTS | {"draft_length": 0, "verify_tokens": 1}).forward
    sent = times.components["all_reduce"].link_time if cut > 1 else 0.0
    assert deployment.message_spread == spread
    found = drawn(deployment, points=POINTS, spread=0.0)["forward_time"]
    for end, z in ((found.low, -Z), (found.high, Z)):
        known = times.total_time + sent * np.expm1(z * spread)
        np.testing.assert_allclose(end, known, rtol=0.02)


@pytest.mark.parametrize("spread", [None, 0.05, 0.4])
def test_with_exact_kernels_times_take_the_deciles_of_the_factor(spread):
    """All of an idle host is the GPU's: every time is exp(z s) of the predicted, loaded or not."""
    deployment = exact(deployed(tensor_parallel=2))
    found = drawn(deployment, spread=spread)
    told = evaluate(deployment, POINTS | LOAD, RATE)
    s = intervals.DEPLOYMENT_SPREAD if spread is None else spread
    for name in ("tpot", "forward_time", "verify_time", "draft_time", "step_time", "prefill_time"):
        (value,) = (c.of(told) for c in (*COLUMNS, *LOAD_COLUMNS) if c.name == name)
        low, high = np.log(found[name].low / value), np.log(found[name].high / value)
        assert low == pytest.approx(-Z * s, rel=0.01)
        assert high == pytest.approx(Z * s, rel=0.01)
    for name in RATIOS:
        assert found[name].low == pytest.approx(found[name].high, rel=1e-9)


def test_host_time_is_not_drawn_and_leaves_ratios_a_part_of_the_factor():
    """A step of f g + h over a decode step of f p, at both deciles of f."""
    deployment = exact(deployed(drafter="ngram"))
    drafter = replace(deployment.drafter, lookup_time=2e-3, proposal_rate=1.0)
    deployment = replace(deployment, drafter=drafter)
    points = POINTS | {"batch_size": np.asarray(1.0)}
    found, told = drawn(deployment, points=points, spread=0.2), evaluate(deployment, points, RATE)
    assert told.times.draft_time == pytest.approx(2e-3)
    assert found["draft_time"].low == found["draft_time"].high == told.times.draft_time
    for name, sign in (("low", -1), ("high", 1)):
        f = np.exp(sign * Z * 0.2)
        step = f * told.verify_time + 2e-3
        assert getattr(found["step_time"], name) == pytest.approx(step, rel=3e-3)
        speedup = told.tokens_per_step * f * told.forward_time / step
        assert getattr(found["speedup"], name) == pytest.approx(speedup, rel=3e-3)


def test_messages_share_it_and_errors_of_kernels_stay_theirs():
    deployment = deployed(tensor_parallel=4, drafter="ngram")
    plain = step_times(deployment, **POINTS)
    gemm = {"gemm": np.asarray(1.5)}
    errors = KernelErrors(gemm, gemm, gemm, deployment=2.0)
    slower = step_times(deployment, **POINTS, errors=errors)
    parts = slower.forward.components
    assert any((part.link_time > 0).all() for part in parts.values())
    for name, part in plain.forward.components.items():
        factor = 3.0 if plain.forward.kinds[name] == "gemm" else 2.0
        assert parts[name].link_time == pytest.approx(2 * part.link_time)
        assert parts[name].busy_time == pytest.approx(factor * part.busy_time)


def test_a_fitted_engine_has_no_factor_beside_its_own():
    where = {"target": "qwen2-57b-a14b", "drafter": "qwen2-0.5b", "hardware": "a800_sxm_80gb"}
    deployment = deployed(**where, tensor_parallel=2, engine="vllm-moesd-2025")
    assert intervals.spread_of_deployment(deployment) == 0
    assert intervals.spread_of_deployment(deployed()) == intervals.DEPLOYMENT_SPREAD > 0
    default, none = (drawn(deployment, points=POINTS, spread=spread) for spread in (None, 0.0))
    for name, span in default.items():
        assert (span.low == none[name].low).all()
        assert (span.high == none[name].high).all()
