"""The spread of the error of deployments is found in tables of engines with a known spread."""

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace

import interval_judge
from specmodel.calibrate.fit.measured import judge_serving, read_serving
from specmodel.core.prediction import intervals
from spread import coverage_left_out, fit_spread, least_spreads, ratios_of_passes, without_engine

ROW = {"dtype": "bf16", "system": "h100_sxm", "backend": "trtllm", "gpus": 8, "isl": 1024}
ROW |= {"osl": 512, "clean": True, "mtp": "off", "measured_tpot_ms": 20.0}
MODELS = ("Llama-3.1-70B", "Qwen3-32B", "gpt-oss-120b")


@pytest.fixture
def made(tmp_path):
    """Return a table of engines whose times are predictions times factors of a known spread."""

    def write(spread, count):
        path = tmp_path / "rows.csv"
        own = [(i, MODELS[i % len(MODELS)], 1 + i // 3 % 20) for i in range(count)]
        rows = [ROW | {"row": i, "model": model, "concurrency": n} for i, model, n in own]
        pd.DataFrame(rows).to_csv(path, index=False)
        judged, _ = judge_serving(without_engine(read_serving(str(path))))
        told = dict(zip(judged["row"], judged["predicted"], strict=True))
        factors = np.exp(spread * np.random.default_rng(2).standard_normal(count))
        for row, factor in zip(rows, factors, strict=True):
            row["measured_tpot_ms"] = 1e3 * told[str(row["row"])] * factor
        pd.DataFrame(rows).to_csv(path, index=False)
        return without_engine(read_serving(str(path)))

    return write


@pytest.mark.slow
def test_a_spread_that_engines_were_made_with_is_found(made, monkeypatch):
    """Kernels also have errors, so the squares of both spreads add up."""
    rows = least_spreads(made(0.3, 600))
    least = rows["least_spread"].to_numpy()
    found = fit_spread(least)
    assert 0.2 < found < 0.3
    held = judge_at(made(0.3, 600), found, monkeypatch)
    assert held == pytest.approx(0.8, abs=0.005)
    left_out = coverage_left_out(rows)
    assert set(left_out["model"]) == set(rows["model"])
    pooled = np.average(left_out["coverage"], weights=left_out["rows"])
    assert pooled == pytest.approx(0.8, abs=0.03)


def judge_at(table, spread, monkeypatch):
    """Return the share of rows inside the intervals of `fit check` with a spread."""
    monkeypatch.setattr(intervals, "DEPLOYMENT_SPREAD", spread)
    judged, _ = judge_serving(table)
    return judged["measured"].between(judged["low"], judged["high"]).mean()


def test_rows_that_kernels_cover_need_none_and_far_ones_no_spread_covers(made):
    table = made(0.0, 6)
    assert (least_spreads(table)["least_spread"] == 0).all()
    far = [replace(row, measured=50 * row.measured) for row in table.rows]
    assert np.isinf(least_spreads(replace(table, rows=far))["least_spread"]).all()


def test_the_spread_is_the_least_with_the_share_inside():
    least = np.array([0.4, 0.0, 0.1, 0.2, 0.3])
    assert (fit_spread(least), fit_spread(least, share=0.2)) == (0.3, 0.0)
    rows = pd.DataFrame({"model": ["a", "a", "b", "b", "b"], "least_spread": least})
    found = coverage_left_out(rows).set_index("model")
    assert (found.loc["a"].tolist(), found.loc["b"].tolist()) == ([2, 0.3, 0.5], [3, 0.4, 1.0])


def test_ratios_compare_rows_of_one_deployment_with_as_many_requests(made):
    """Of 1 to 20 requests, 10, 5 and 2 have a row with 2, 4 and 8 times as many, for each model."""
    table = made(0.1, 60)
    judged, _ = judge_serving(table)
    found = ratios_of_passes(judged, table)
    counts = found.groupby(["model", "tokens"]).size()
    each = {2: 10, 4: 5, 8: 2}
    assert counts.to_dict() == {(m, q): n for m in {*judged["model"]} for q, n in each.items()}
    errors = np.log(judged["predicted"] / judged["measured"])
    by_batch = errors.groupby([judged["model"], judged["batch_size"]])
    of_batch = {key: part.iloc[0] for key, part in by_batch}
    model = judged["model"].iloc[0]
    eight = found[(found["model"] == model) & (found["tokens"] == 8)]["log_error"]
    expected = [of_batch[model, b] - of_batch[model, 8 * b] for b in (1, 2)]
    assert eight.tolist() == pytest.approx(expected, abs=1e-12)
    assert (found["low"] < 0).all()
    assert (found["high"] >= 0).all()


def test_a_law_that_errors_of_hosts_were_made_with_is_found():
    """0.5 of the host's variance, 0.1 more for recurrent models, one in ten slower by 0.8."""
    random, count = np.random.default_rng(0), 8000
    of_host, others = random.uniform(0.01, 0.09, (2, count))
    is_recurrent = random.random(count) < 0.5
    spread = np.sqrt(0.25 * of_host + 0.1 * others + np.where(is_recurrent, 0.01, 0.0))
    unseen = (random.random(count) < 0.1) * random.exponential(0.8, count)
    errors = interval_judge.Errors(
        host=np.arange(count) // 40, is_recurrent=is_recurrent,
        log_error=spread * random.standard_normal(count) - unseen, of_host=of_host,
        others=0.1 * others,
    )  # fmt: skip
    assert errors.law() == pytest.approx([0.5, 0.1, 0.1, 0.8], rel=0.15)
