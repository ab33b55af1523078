"""How sure a gain is: intervals and chances at points of a prediction, and the words for them."""

import json
import re
import shlex
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from rows import each_row

from specmodel import Acceptance, load_engine, predict
from specmodel.cli.commands import carry_out
from specmodel.prediction import intervals
from specmodel.prediction.gains import gains_at, peak_at

POINT = {
    "target": "qwen3-30b-a3b",
    "drafter": "eagle3",
    "hardware": "h100_sxm",
    "engine": "vllm",
    "draft_length": 3,
    "acceptance": 0.6,
}


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


@pytest.mark.parametrize("acceptance", [
    Acceptance(acceptance_by_position=[0.7, 0.6, 0.5]),
    Acceptance(tokens_per_step=2.4, measured_draft_length=3),
    Acceptance(acceptance_rate=[0.4, 0.6, 0.8]),
])  # fmt: skip
def test_a_point_is_found_in_any_form_of_acceptance(acceptance):
    p = predicted(acceptance=acceptance)
    for row in p.rows():
        (gain,) = gains_at(p, [row])
        assert gain.low < row["speedup"] < gain.high


def with_known_host(name="vllm", spread=0.1):
    """An engine of one host whose only error is a factor on its steps."""
    engine = load_engine(name)
    known = {"spread": spread, "varied": [], "covariance": [], "outside_spread": 0.0}
    known |= {"left_out_error": {}}
    return replace(engine, fit=replace(engine.fit, **known))


def with_exact_kernels(p):
    """A prediction whose kernels have no errors."""
    deployment = p.deployment
    exact = {
        kind: {d: replace(fit, shape_spread=0.0, row_spread=0.0) for d, fit in fits.items()}
        for kind, fits in deployment.kernels.fits.items()
    }
    kernels = replace(deployment.kernels, fits=exact)
    return replace(
        p, evaluation=replace(p.evaluation, deployment=replace(deployment, kernels=kernels))
    )


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

    Ends are those of 400 draws, beside another 150: four standard errors of both.
    """
    spread, draws, curve = 0.5, 150, {"batch_size": np.arange(1, 129)}
    engine, known = load_engine("vllm"), with_known_host()
    varied = {"varied": ["host_speed"], "covariance": [[spread**2]]}
    p = predicted(engine=replace(engine, fit=replace(known.fit, **varied)), **curve)
    low, high = peak_at(with_exact_kernels(p), p.rows())
    assert low < p.speedup.argmax() + 1 < high
    speeds = engine.host_speed * np.exp(spread * np.random.default_rng(1).standard_normal(draws))
    peaks = np.array([
        predicted(engine=replace(engine, host_speed=speed), **curve).speedup.argmax() + 1
        for speed in speeds
    ])  # fmt: skip
    error = 4 * np.sqrt(0.1 * 0.9 * (1 / 400 + 1 / draws))
    for below, reached in ((peaks < low, peaks <= low), (peaks > high, peaks >= high)):
        assert below.mean() <= 0.1 + error
        assert reached.mean() >= 0.1 - error


def test_without_an_error_of_a_point_the_peak_has_one_place():
    """A factor that all batch sizes share moves no peak."""
    asked = {"batch_size": range(1, 129), "popularity": "equal"}
    p = with_exact_kernels(predicted(engine=with_known_host(spread=0.3), **asked))
    assert peak_at(p, p.rows()) == (p.speedup.argmax() + 1,) * 2


def test_only_recurrent_models_on_a_host_that_is_not_known_have_a_further_spread():
    recurrent, other = predicted(target="qwen3.6-35b-a3b").deployment, predicted().deployment
    assert intervals.spread_of_step(recurrent) > recurrent.engine.fit.spread
    assert intervals.spread_of_step(other) == other.engine.fit.spread
    own = predicted(target="qwen3.6-35b-a3b", engine=with_known_host()).deployment
    assert intervals.spread_of_step(own) == own.engine.fit.spread


def test_what_no_model_sees_slows_its_share_of_steps_by_an_exponential_law(monkeypatch):
    """Alone: a gain of x is lost with the chance times exp(-ln(x) / the cost)."""
    monkeypatch.setattr(intervals, "UNSEEN_CHANCE", 0.5)
    engine = with_known_host(spread=0.0)
    engine = replace(engine, fit=replace(engine.fit, left_out_error={"host": 0.1}))
    p = predicted(engine=engine, popularity="equal")
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


DENSE, MIXED = (
    {"target": "qwen3.8-27b", "batch_size": [1, 4]},
    {"target": "qwen3.5-397b", "weight_dtype": "nvfp4"},
)
SGLANG = {"engine": "sglang", "batch_size": 1}


@each_row(
    ("asked", "kind"),
    [
        (DENSE | {"hardware": "rtx_3090", "weight_dtype": "q4_k"}, "other_engine"),
        (DENSE | {"hardware": "rtx_4090", "weight_dtype": "IQ4_NL"}, "other_engine"),
        (DENSE | {"hardware": "rtx_5090", "kv_dtype": "q8_0"}, "other_engine"),
        (DENSE | {"hardware": "strix_halo", "weight_dtype": "int4_g32"}, "other_engine"),
        (DENSE | {"hardware": "strix_halo", "weight_dtype": "bf16"}, ""),
        (DENSE | {"hardware": "rtx_3090", "weight_dtype": "int4_g32"}, ""),
        (DENSE | {"hardware": "rtx_3090", "weight_dtype": "q4_k", "engine": "vllm"}, ""),
        (
            MIXED | SGLANG | {"hardware": "4xrtx_pro_6000", "context_length": 16_384},
            "sglang_triton",
        ),
        (MIXED | SGLANG | {"hardware": "4xrtx_pro_6000", "context_length": 512}, ""),
        (
            DENSE | SGLANG | {"hardware": "rtx_5090", "context_length": [512, 32_768]},
            "sglang_triton",
        ),
        (DENSE | SGLANG | {"hardware": "h100_sxm", "context_length": 32_768}, ""),
        (DENSE | {"hardware": "rtx_pro_6000", "context_length": 32_768, "batch_size": 1}, ""),
        (
            SGLANG | {"target": "gemma-4-31b", "hardware": "h100", "context_length": 32_768},
            "sglang_",
        ),
        (SGLANG | {"target": "gemma-4-31b", "hardware": "b200", "context_length": 32_768}, ""),
    ],
)
def test_of_an_engine_that_is_not_modelled_no_answer_is_sure(asked, kind):
    """One note says so; no interval stands beside it, and no claim on published cases."""
    p = predict(**asked, acceptance=0.8)
    told = [note for note in p.notes if note.kind in ("other_engine", "sglang_triton")]
    assert [note.kind[: len(kind)] for note in told] == [kind] * bool(kind)
    views = [p.report(), *(str(p.view(name)) for name in ("peak", "lengths", "break-even"))]
    answers = [" ".join(text.split()) for text in (*views, json.dumps(p.to_dict()))]
    assert all(str(told[0]).split(":")[0] in text for text in answers if told)
    sure = [bool(re.search(r"\bsurely\b|published cases|speedup_low", text)) for text in answers]
    assert any(sure) != bool(kind)
    assert ("Turn it on" in views[0], "may pay:" in views[0]) == (not kind, bool(kind))


@pytest.mark.parametrize("command", [
    "load {} --request-rate 0.1 --requests 20 --prompt-length 500 --output-length 20",
    "sensitivity {} --samples 64",
    "compare {} --batch-size 1",
    "predict {} --interval --verbose --batch-size 1,4",
])  # fmt: skip
def test_each_command_says_that_llama_cpp_is_not_modelled(command, capsys):
    where = "qwen3.8-27b rtx_3090 --weight-dtype q4_0 --acceptance-rate 0.7"
    assert carry_out(shlex.split(command.format(where))) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "llama.cpp, if it runs, is not modelled" in told
    assert "22.1, 16.5 and 26.4 tokens/s with MTP" in told
    assert not re.search(r"\bsurely\b|published cases|of hosts left out", told)


@pytest.mark.parametrize(("rate", "size", "words"), [
    (0.1, "4", "Speculation does not pay: "),
    (0.5, "4", "Speculation may pay or not: "),
    (0.9, "4,8", "Speculation pays: "),
    (0.5, "1:64:x4", "Speculation pays at batch sizes 16-64; best "),
])  # fmt: skip
def test_a_gain_is_called_one_where_its_interval_is_above_1(rate, size, words, capsys):
    line = "predict --target qwen3-30b-a3b --drafter eagle3 --hardware h100_sxm --engine vllm"
    line += f" --draft-length 3 --acceptance-rate {rate} --batch-size {size}"
    assert carry_out(shlex.split(line)) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert words in told
    assert ("chance of a gain" in told) == ("or not: " in words)
    assert re.search(r"\(80 % interval [\d.]+ to [\d.]+", told)
