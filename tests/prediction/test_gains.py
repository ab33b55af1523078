"""How sure a gain is: intervals and chances at points of a prediction, and the words for them."""

from statistics import NormalDist

import numpy as np
import pytest
from msgspec.structs import replace
from test_deployment_factor import exact

from specmodel import Acceptance, load_engine, predict
from specmodel.core.algebra.speculation import expected_tokens_per_step
from specmodel.core.prediction import intervals
from specmodel.core.prediction.gains import gains_at, peak_at, sources_at

POINT = {"target": "qwen3-30b-a3b", "drafter": "eagle3", "hardware": "h100_sxm"}
POINT |= {"engine": "vllm", "draft_length": 3, "acceptance": 0.6}

KNOWN_ROUTING = {"popularity": "equal", "routing_correlation": 0.2}


def predicted(**changes):
    return predict(**(POINT | {"batch_size": [1, 4, 64]} | changes))


def test_some_points_have_the_ends_and_the_chance_of_all():
    whole = predicted(interval=True)
    frame = whole.to_frame()
    found = gains_at(whole, whole.rows())
    for name in ("low", "high", "chance"):
        np.testing.assert_allclose([getattr(g, name) for g in found], frame[f"speedup_{name}"])
    assert list(frame) == list(whole.units())
    assert (frame["speedup_chance"].between(0, 1)).all()


BY_POSITION = {"acceptance_by_position": [0.7, 0.6, 0.5]}
MEASURED = {"tokens_per_step": 2.4, "measured_draft_length": 3}


@pytest.mark.parametrize("form", [BY_POSITION, MEASURED, {"acceptance_rate": [0.4, 0.6, 0.8]}])
def test_a_point_is_found_in_any_form_of_acceptance(form):
    p = predicted(acceptance=Acceptance(**form))
    for row in p.rows():
        (gain,) = gains_at(p, [row])
        assert gain.low < row["speedup"] < gain.high


def with_known_host(name="vllm", spread=0.1):
    """An engine of one host whose only error is a factor on its steps."""
    engine = load_engine(name)
    known = {"spread": spread, "varied": [], "covariance": []}
    known |= {"left_out_error": {}}
    return replace(engine, fit=replace(engine.fit, **known))


def with_exact_kernels(p):
    """A prediction whose kernels have no errors."""
    return replace(p, evaluation=replace(p.evaluation, deployment=exact(p.deployment)))


def test_the_chance_is_that_of_the_law_that_is_drawn():
    """A step with a log-normal error of s: Phi(ln(speedup) / s), to what 400 draws tell."""
    p = predicted(engine=with_known_host(), acceptance=[0.45, 0.5, 0.6])
    spread, rows = 0.1, p.rows()
    assert intervals.spread_of_step(p.deployment) == spread
    for gain, row in zip(gains_at(with_exact_kernels(p), rows), rows, strict=True):
        expected = NormalDist().cdf(np.log(row["speedup"]) / spread)
        assert gain.chance == pytest.approx(expected, abs=0.06)
        assert np.log(gain.high / row["speedup"]) == pytest.approx(1.2816 * spread, rel=0.15)


def test_the_peak_lies_where_a_direct_monte_carlo_of_the_law_has_it():
    """The speed of the host as only error, log-normal: of each draw a prediction of its own.

    Ends are those of 400 draws, beside another 90: four standard errors of both.
    """
    spread, draws, curve = 0.5, 90, {"batch_size": np.arange(1, 129)}
    engine, known = load_engine("vllm"), with_known_host()
    varied = {"varied": ["host_speed"], "covariance": [[spread**2]]}
    p = predicted(engine=replace(engine, fit=replace(known.fit, **varied)), **curve)
    low, high = peak_at(with_exact_kernels(p), p.rows())
    assert low < p.speedup.argmax() + 1 < high
    speeds = engine.host_speed * np.exp(spread * np.random.default_rng(1).standard_normal(draws))
    engines = [replace(engine, host_speed=speed) for speed in speeds]
    peaks = np.array([predicted(engine=own, **curve).speedup.argmax() + 1 for own in engines])
    error = 4 * np.sqrt(0.1 * 0.9 * (1 / 400 + 1 / draws))
    for below, reached in ((peaks < low, peaks <= low), (peaks > high, peaks >= high)):
        assert below.mean() <= 0.1 + error
        assert reached.mean() >= 0.1 - error


def test_without_an_error_of_a_point_the_peak_has_one_place():
    """A factor that all batch sizes share moves no peak."""
    asked = {"batch_size": range(1, 129), **KNOWN_ROUTING}
    p = with_exact_kernels(predicted(engine=with_known_host(spread=0.3), **asked))
    assert peak_at(p, p.rows()) == (p.speedup.argmax() + 1,) * 2


def test_only_recurrent_models_on_a_host_that_is_not_known_have_a_further_spread():
    recurrent, other = predicted(target="qwen3.6-35b-a3b").deployment, predicted().deployment
    assert intervals.spread_of_step(recurrent) > recurrent.engine.fit.spread
    assert intervals.spread_of_step(other) == other.engine.fit.spread
    own = predicted(target="qwen3.6-35b-a3b", engine=with_known_host()).deployment
    assert intervals.spread_of_step(own) == own.engine.fit.spread


def test_sources_of_an_interval_share_the_variance_of_the_law_that_is_drawn():
    """Of a factor on steps and an acceptance rate, independent: by the square of their spreads."""
    spread, of_rate = 0.1, 0.05
    acceptance = Acceptance(acceptance_rate=0.6, spread=of_rate)
    found = predicted(engine=with_known_host(), acceptance=acceptance, **KNOWN_ROUTING)
    p = with_exact_kernels(found)
    rows = p.rows()
    slope = np.log(expected_tokens_per_step(0.605, 3) / expected_tokens_per_step(0.595, 3)) / 0.01
    expected = (slope * of_rate) ** 2 / ((slope * of_rate) ** 2 + spread**2)
    for row in rows:
        shares = sources_at(p, row)
        assert sum(shares.values()) == pytest.approx(1)
        assert shares["acceptance"] == pytest.approx(expected, abs=0.06)
        assert shares["kernels"] == pytest.approx(0, abs=0.01)
    exact = with_exact_kernels(predicted(engine=with_known_host(), **KNOWN_ROUTING))
    assert sources_at(exact, exact.rows()[0])["host"] == pytest.approx(1, abs=1e-6)
    assert sources_at(predicted(engine="ideal"), rows[0]) == {}


@pytest.mark.parametrize(("target", "deviation"), [("gpt-oss-20b", 0.04), ("olmoe-1b-7b", 0.09)])
def test_the_routing_that_is_assumed_is_the_only_error_of_exact_kernels(target, deviation):
    """Ends are those of predictions with the correlation at its deciles."""
    engine = replace(with_known_host(), fit=replace(with_known_host().fit, spread=0.0))
    p = predicted(target=target, engine=engine, popularity="equal")
    own, rows = p.deployment.routing_correlation, p.rows()
    asked = {"target": target, "engine": engine, "popularity": "equal"}
    sides = [own + side * 1.2816 * deviation for side in (-1, 1)]
    ends = [predicted(**asked, routing_correlation=c).speedup for c in sides]
    assert sources_at(with_exact_kernels(p), rows[0])["routing"] > 0.99
    for gain, low, high in zip(gains_at(with_exact_kernels(p), rows), *ends, strict=True):
        assert np.log([gain.low, gain.high]) == pytest.approx(np.log([low, high]), abs=0.005)


def test_what_no_model_sees_slows_its_share_of_steps_by_an_exponential_law(monkeypatch):
    """Alone: a gain of x is lost with the chance times exp(-ln(x) / the cost)."""
    monkeypatch.setattr(intervals, "UNSEEN_CHANCE", 0.5)
    engine = with_known_host(spread=0.0)
    engine = replace(engine, fit=replace(engine.fit, left_out_error={"host": 0.1}))
    p = predicted(engine=engine, **KNOWN_ROUTING)
    rows = p.rows()
    for gain, row in zip(gains_at(with_exact_kernels(p), rows), rows, strict=True):
        if row["speedup"] > 1:
            lost = 0.5 * row["speedup"] ** (-1 / intervals.UNSEEN_COST)
            assert gain.chance == pytest.approx(1 - lost, abs=0.005)
            assert gain.high == pytest.approx(row["speedup"])


@pytest.mark.parametrize("changes", [{"engine": "ideal"}, {"stack": "datasheet"}])
def test_without_known_errors_nothing_is_told(changes):
    p = predicted(**changes)
    assert gains_at(p, p.rows()) == [None, None, None]
    assert peak_at(p, p.rows()) == (None, None)
