"""Engines and hosts fitted to runs: planted ones, the shipped ones, and a user's own files."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from printed import refused
from rows import cases, each_listed

import engines
from published.population import VARIED, fit_population
from specmodel import Acceptance, EngineProfile, load_engine, predict
from specmodel.calibrate.fit import EngineUpdate, update_engine
from specmodel.calibrate.fit.measured import (
    judge_serving,
    read_benchmarks,
    read_serving,
    served_runs,
)
from specmodel.calibrate.fit.measured.judge import host_speeds
from specmodel.calibrate.fit.measured.tables import Served
from specmodel.calibrate.fit.steps import RUN_SPREAD, VERIFY_SPREAD, measured_steps
from specmodel.calibrate.fit.update import HOST_SPREAD
from specmodel.core.prediction.intervals import DEPLOYMENT_SPREAD

ROOT = Path(__file__).parents[2]
PAIRS = ROOT / "calibration" / "tables" / "engine_pairs.csv"
FILES = ROOT / "tests" / "data" / "benchmarks"
ENGINES = ("sglang", "sglang-v1", "tensorrt-llm", "vllm")
SPECFORGE: dict[str, Any] = {
    "target": "qwen3-30b-a3b", "drafter": "eagle3", "hardware": "h100_sxm", "tensor_parallel": 2,
}  # fmt: skip


def row(engine: EngineProfile | str, batch: float, length: int, **changes: Any) -> Served:
    """Return a run of Qwen3-30B-A3B whose measured value is not known yet."""
    width, points = changes.pop("tree_width", 1), {"batch_size": batch, "draft_length": length}
    values: dict[str, Any] = {
        "labels": {"model": "qwen3-30b-a3b"},
        "deployment": {**SPECFORGE, "engine": engine, "tree_width": width},
        "points": points | {"context_length": 1000, "verify_tokens": length + 1},
        "tokens_per_step": 1.0 + 0.4 * length,
        "quantity": "step_time",
    }
    return Served(row="a", **({"measured": 1.0} | values | changes))


def timed(runs: list[Served], engine: EngineProfile, factors: Any = 1.0) -> list[Served]:
    """Return runs that take what an engine makes of them, times factors."""
    times = measured_steps(runs).predicted(engine.overheads) * factors
    return [replace(run, measured=time) for run, time in zip(runs, times.tolist(), strict=True)]


def runs_of(engine: EngineProfile, noise: np.random.Generator | None = None) -> list[Served]:
    """Return runs as an engine would make them."""
    runs = [row("sglang-v1", batch, length) for batch in (1, 8, 32) for length in (0, 2, 5)]
    runs += [row("sglang-v1", 8, 5, tree_width=4)]
    draws = 0 if noise is None else noise.standard_normal(len(runs))
    return timed(runs, engine, np.exp(RUN_SPREAD * draws))


def of_known_host(slower, *, quantity="step_time", batches=(64, 128, 256), **deployment):
    """Runs whose steps with a draft take so many times as long as the profile of their host has."""
    known = {"fit.varied": ["host_speed"], "fit.covariance": [[1e-4]]}
    base = load_engine("vllm").with_changes("engine", known)
    lengths = (0, 3) if quantity == "step_time" else (3,)
    runs = [row(base, b, n, quantity=quantity) for b in batches for n in lengths]
    runs = [replace(run, deployment={**run.deployment, **deployment}) for run in runs]
    drafted = slower if quantity == "step_time" else 1 / slower
    factors = [drafted if run.points["draft_length"] else 1.0 for run in runs]
    return timed(runs, base, np.array(factors)), base


def missed_speedups(found: EngineUpdate) -> np.ndarray:
    """Logarithms of predicted over measured speedups of runs that go plain, drafting, plain, ..."""
    logs = np.log(found.predicted / found.measured)
    return np.asarray(logs[0::2] - logs[1::2])


@cases("quantity", "step_time", "speedup")
@cases("slower low high", (1.08, 0, 0), (2.0, 0.38, 1.15), (0.5, -0.55, -0.3))
def test_what_no_overhead_explains_is_said_and_widens_intervals(quantity, slower, low, high):
    """Steps with a draft take twice or half as long, on a host that is known not to be why."""
    runs, base = of_known_host(slower, quantity=quantity)
    found = update_engine(runs, base, date="2026-11-23")
    assert low <= found.excess_speedup <= high
    missed = np.log(found.predicted / found.measured)
    if quantity == "step_time":
        missed = missed_speedups(found)
    expected = max(np.sqrt(np.mean(missed**2)), np.hypot(0.06, 0.05))
    assert found.profile.fit.spread == pytest.approx(expected, rel=1e-3)
    if high:
        assert np.expm1(missed.mean()) == pytest.approx(found.excess_speedup)


def test_the_target_that_is_worst_off_is_told() -> None:
    """Errors of two targets that cancel are not none."""
    slow, base = of_known_host(2.0)
    fast, _ = of_known_host(0.6, target="qwen3-235b-a22b", tensor_parallel=8)
    found = update_engine(slow + fast, base, date="2026-11-23")
    missed = missed_speedups(found)
    assert found.excess_speedup == pytest.approx(np.expm1(missed[:3].mean()))
    assert missed[:3].mean() > 0.4
    assert missed[3:].mean() < -0.2


def of_two_knowns() -> EngineProfile:
    """An engine whose host, and time for each request, are known within a percent and a tenth."""
    names = ["host_speed", "reject_time_per_request"]
    known = {"fit.varied": names, "fit.covariance": [[1e-4, 0.0], [0.0, 1e-2]]}
    return load_engine("vllm").with_changes("engine", known)


@cases("times", 1.0, 20.0)
def test_a_time_per_request_that_no_known_host_takes_is_found(times: float) -> None:
    """Loads that were not fitted are met, of smaller and of larger batches."""
    base = of_two_knowns()
    planted = times * base.reject_time_per_request
    engine = base.with_changes("engine", {"reject_time_per_request": planted})

    def steps(*batches: int) -> list[Served]:
        runs = [row(base, batch, length) for batch in batches for length in (0, 1, 3)]
        return timed(runs, engine)

    found = update_engine(steps(16, 64), base, date="2026-11-23")
    assert found.is_unlike_known == (times > 1)
    assert found.excess_speedup == 0
    assert found.profile.reject_time_per_request == pytest.approx(planted, rel=0.05)
    others = steps(2, 256)
    met = measured_steps(others).predicted(found.profile.overheads)
    np.testing.assert_allclose(met, [run.measured for run in others], rtol=0.05)


def test_runs_count_by_how_far_their_repeats_differ() -> None:
    """A run twice as long as it should be moves nothing if its repeats differ as much."""
    runs, base = of_known_host(1.0)
    alike = update_engine(runs, base, date="2026-11-24")
    noisy = replace(runs[2], measured=1.4 * runs[2].measured)
    errors = {}
    for noise in (0.0, 0.6):
        changed = [*runs[:2], replace(noisy, noise=noise), *runs[3:]]
        found = update_engine(changed, base, date="2026-11-24")
        errors[noise] = np.abs(np.log(found.predicted / alike.predicted)).max()
        assert found.profile.fit is not None
        spread = found.profile.fit.spread
    assert errors[0.6] < 0.003 < 0.01 < errors[0.0]
    assert spread == pytest.approx(np.hypot(0.06, 0.05), rel=0.02)  # as if it were not there


def with_plain_runs(rows: list[Served]) -> list[Served]:
    """Published pairs as a user's files have them: plain steps and steps with a draft."""
    found = []
    for run in rows:
        if run.plain_step is not None and run.quantity == "speedup":
            points = {**run.points, "draft_length": 0, "verify_tokens": 1}
            own = {"quantity": "step_time", "deployment": {**run.deployment, "tree_width": 1}}
            plain = replace(run, points=points, tokens_per_step=1.0, measured=run.plain_step, **own)
            step = run.tokens_per_step * run.plain_step / run.measured
            found += [plain, replace(run, quantity="step_time", measured=step)]
        else:
            found.append(run)
    return found


def published(host: str) -> list[Served]:
    rows = [run for run in read_serving(PAIRS).rows if run.labels["host"] == host]
    return with_plain_runs([run for run in rows if run.deployment["engine"] in ENGINES])


def engine_of(rows: list[Served]) -> EngineProfile:
    return load_engine(str(rows[-1].deployment["engine"]))


@pytest.mark.slow
def test_no_fit_to_a_published_host_is_doubted() -> None:
    """By all of its rows, those of each target, and two of them; but for two whose rows differ.

    Cells of one differ among themselves by a fifth, rows of the other are read off figures; the
    grid has steps that no graph of their size holds.
    """
    doubted = set()
    hosts = dict.fromkeys(run.labels["host"] for run in read_serving(PAIRS).rows)
    for host in hosts.keys() - {"sna-gb200"}:
        rows = published(host)
        for target in {str(run.deployment["target"]) for run in rows}:
            own_rows = [run for run in rows if run.deployment["target"] == target]
            for few in (rows, own_rows, own_rows[:2]):
                found = update_engine(few, engine_of(few), date="2026-11-24")
                assert few is not rows or not found.is_unlike_known, host
                if found.fit_warnings:
                    doubted.add(host)
    assert doubted <= {"specforge-339", "vllm-peagle20b"}


@each_listed
def test_what_no_known_host_takes_is_doubted(host, faster, changes, found, is_refused):
    """Nothing is faster than its kernels; a server may be slower than all that are known."""
    rows = []
    for run in published(host):
        deployment = dict(run.deployment) | changes
        if changes:
            del deployment["stack"]
        slower = run.measured / (faster if run.quantity == "step_time" else 1.0)
        rows.append(replace(run, measured=slower, deployment=deployment))
    update = update_engine(rows, engine_of(rows), date="2026-11-24")
    first = update.fit_warnings[0]
    assert found in first.found
    assert (first.is_refused, first.is_slow) == (is_refused, not is_refused)


def test_a_run_that_no_fit_meets_is_refused() -> None:
    """One of three plain runs took 2.5 times as long as the others of its kind."""
    runs, base = of_known_host(1.0)
    runs[2] = replace(runs[2], row="slow.json", measured=2.5 * runs[2].measured)
    runs[3] = replace(runs[3], row="slow.json")  # as a row that holds both runs
    first = update_engine(runs, base, date="2026-11-24").fit_warnings[0]
    assert re.match(r"slow\.json: -5\d% off after the fit", first.found)
    assert first.is_refused
    assert first.is_slow


@pytest.mark.slow
def test_two_runs_of_a_known_host_are_doubted_in_one_of_twenty() -> None:
    """The sum of their squares is of two normal numbers, with errors of kernels among them."""
    generator, base = np.random.default_rng(11), load_engine("vllm")
    assert base.fit is not None
    runs = [row(base, 16, length) for length in (0, 3)]
    names, size = base.fit.varied, len(base.fit.varied)
    root = np.linalg.cholesky(np.array(base.fit.covariance) + 1e-6 * np.eye(size))
    doubted, draws = 0, 100
    for _ in range(draws):
        logs = dict(zip(names, root @ generator.normal(size=size), strict=True))
        logs["host_speed"] = generator.normal(0, HOST_SPREAD)
        logs["gpu_time_factor"] = generator.normal(0, DEPLOYMENT_SPREAD)
        values = {name: getattr(base, name) * np.exp(log) for name, log in logs.items()}
        true = replace(base.overheads, **values)
        kernels = np.exp(generator.normal(0, VERIFY_SPREAD))
        times = measured_steps(runs).predicted(true, kernels)
        times = times * np.exp(generator.normal(0, RUN_SPREAD, 2))
        own = [replace(run, measured=float(t)) for run, t in zip(runs, times, strict=True)]
        update = update_engine(own, base, date="2026-11-26")
        doubted += any(not told.is_refused for told in update.fit_warnings)
    expected = 0.05
    assert abs(doubted / draws - expected) < 4 * (expected * (1 - expected) / draws) ** 0.5


def test_the_posterior_of_one_unknown_is_that_of_a_fine_grid() -> None:
    """Bayes' rule by brute force, where only the speed of the host is unknown."""
    base = load_engine("sglang-v1")
    assert base.fit is not None
    alone = {"fit.varied": ["host_speed"], "fit.covariance": [[0.49]]}
    base = base.with_changes("engine", alone)
    runs = runs_of(base.with_changes("engine", {"host_speed": 0.4}))
    found = update_engine(runs, base, date="2026-11-22")
    moved = {item.name: item for item in found.moved}["host_speed"]

    steps, x = measured_steps(runs), np.linspace(-2.5, 2.5, 201)
    drafted = steps.step.drafts
    density = []
    for log_speed in x:
        overheads = replace(base.overheads, host_speed=float(np.exp(log_speed)))
        # the two factors of the deployment are normal and nearly add to errors: integrated out
        missed = np.log(steps.predicted(overheads) / steps.measured)
        slopes = np.array([
            np.log(steps.predicted(replace(overheads, gpu_time_factor=1.001))) * 1e3
            - np.log(steps.predicted(overheads)) * 1e3,
            np.log(steps.predicted(overheads, np.where(drafted, 1.001, 1.0))) * 1e3
            - np.log(steps.predicted(overheads)) * 1e3,
        ])  # fmt: skip
        spread = np.diag([0.088**2, 0.05**2])
        covariance = RUN_SPREAD**2 * np.eye(missed.size) + slopes.T @ spread @ slopes
        fits = missed @ np.linalg.solve(covariance, missed) + np.linalg.slogdet(covariance)[1]
        density.append(-0.5 * (fits + log_speed**2 / 0.49))
    weight = np.exp(np.array(density) - max(density))
    weight /= weight.sum()
    mean = weight @ x
    spread_of = np.sqrt(weight @ (x - mean) ** 2)
    assert np.log(moved.after) == pytest.approx(mean, abs=0.1 * spread_of + 0.02)
    assert moved.spread_after == pytest.approx(spread_of, rel=0.15)


@pytest.mark.slow
@cases("own", ("sglang", "sglang-v1", "tensorrt-llm"), ("vllm",))
def test_shipped_engines_are_what_the_fit_to_published_runs_gives(own: tuple[str, ...]) -> None:
    table = engines.runs(engines.TABLE)
    found = engines.fit(engines.rows_for(own[0], table.rows))
    for name in own:
        shipped, record = load_engine(name), found.fit_record(name)
        for overhead, seconds in found.overheads(name).items():
            assert getattr(shipped, overhead) == pytest.approx(seconds, rel=0.03)
        assert shipped.fit is not None
        np.testing.assert_allclose(shipped.fit.covariance, record["covariance"], atol=0.02)
        assert shipped.fit.mean_error == pytest.approx(found.error_of(name), abs=0.003)


def test_a_slow_host_is_told_by_two_of_its_own_files() -> None:
    """One plain and one speculative run of SpecForge's host; the other seven are predicted."""
    plain = read_benchmarks([FILES / "specforge_plain.jsonl"])
    drafted = read_benchmarks([FILES / "specforge_eagle3.jsonl"])
    runs = [plain[0], drafted[0]]
    found = update_engine(
        served_runs(runs, {**SPECFORGE, "engine": "sglang-v1"}), load_engine("sglang-v1"),
        date="2026-11-22",
    )  # fmt: skip
    speed = {item.name: item for item in found.moved}["host_speed"]
    assert speed.after < 0.75
    base = {run.concurrency: run for run in plain}
    errors, signs = [], []
    for run in drafted[1:]:
        measured = run.tokens_per_step * base[run.concurrency].value / run.value
        p = predict(
            **SPECFORGE, engine=found.profile, batch_size=round(run.batch_size),
            draft_length=run.draft_length, verify_tokens=run.verify_tokens, tree_width=run.topk,
            context_length=356, acceptance=Acceptance(tokens_per_step=run.tokens_per_step),
        )  # fmt: skip
        errors.append(abs(float(p.speedup) / measured - 1))
        signs.append((float(p.speedup) > 1) == (measured > 1))
    assert len(errors) == 7
    assert np.mean(errors) <= 0.12
    assert all(signs)


def test_other_units_and_engines_without_times_are_refused() -> None:
    plain, (slow, fast) = row("vllm", 1, 0, measured=5e-3), (8.0, 1e-7)
    for message, runs, engine in (
        (r"step_time of row a.*milliseconds", [plain, row("vllm", 1, 3, measured=slow)], "vllm"),
        (r"step_time of row a.*milliseconds", [plain, row("vllm", 1, 3, measured=fast)], "vllm"),
        ("engine: got 'ideal'; expected an engine with host times", [row("ideal", 1, 3)], "ideal"),
        ("runs: got '0 runs'", [], "vllm"),
    ):
        refused(message, update_engine, runs, load_engine(engine), date="2026-11-22")


@pytest.mark.slow
def test_hosts_at_their_own_speed_are_met() -> None:
    assert (host_speeds(read_serving(PAIRS).rows)["mean_error"] <= 0.13).all()


def test_the_speed_of_a_planted_host_is_found() -> None:
    base = load_engine("sglang-v1")
    runs = runs_of(base.with_changes("engine", {"host_speed": 0.5}))
    labels = {"model": "qwen3-30b-a3b", "host": "slow"}
    (slow,) = host_speeds([replace(run, labels=labels) for run in runs]).to_dict("records")
    assert slow["host_speed"] == pytest.approx(0.5, rel=0.012)  # the grid's steps
    assert slow["mean_error"] < 0.01


@pytest.mark.slow
def test_a_planted_host_is_found_and_its_intervals_hold() -> None:
    """Hosts are drawn from the shipped spreads; the posterior holds them as often as it says."""
    base = load_engine("sglang-v1")
    assert base.fit is not None
    names, scores = base.fit.varied, []
    generator = np.random.default_rng(19)
    root = np.linalg.cholesky(np.array(base.fit.covariance))
    for _ in range(20):
        planted = np.exp(root @ generator.standard_normal(len(names)))
        values = {
            n: getattr(base, n) * factor for n, factor in zip(names, planted.tolist(), strict=True)
        }
        engine = base.with_changes("engine", values)
        found = update_engine(runs_of(engine, generator), base, date="2026-11-22")
        moved = {item.name: item for item in found.moved}
        item = moved["host_speed"]
        scores.append(np.log(item.after / values["host_speed"]) / item.spread_after)
        assert item.spread_after < item.spread_before
        np.testing.assert_allclose(found.predicted, found.measured, rtol=4 * RUN_SPREAD)
        assert found.excess_speedup == 0
    assert np.mean(np.abs(scores) < 1.2816) >= 0.6  # 80 % of 20, within 2.2 deviations
    assert abs(np.mean(scores)) < 0.5


def test_planted_engines_and_hosts_are_found_together() -> None:
    speeds, rows, hosts = {"slow": 0.4, "mean": 1.0, "fast": 2.5}, [], []
    base = load_engine("sglang-v1")
    for host, speed in speeds.items():
        own = runs_of(base.with_changes("engine", {"host_speed": speed}))
        rows += own
        hosts += [host] * len(own)
    found = fit_population(rows, ["sglang-v1"] * len(rows), hosts)
    ratios = found.host_speed / np.array([*speeds.values()])
    # hosts are expected to be alike, which draws those far from the mean a little towards it
    np.testing.assert_allclose(ratios / ratios[1], 1.0, rtol=0.2)
    assert found.error_of("sglang-v1") < 0.01
    seconds = np.array([*found.overheads("sglang-v1").values()]) / ratios.mean()
    planted = [getattr(base, name) for name in VARIED]
    assert seconds[:3].sum() == pytest.approx(sum(planted[:3]), rel=0.3)


def test_intervals_of_an_engine_hold_what_it_misses_other_loads_by() -> None:
    """All steps with a draft take 1.4 times as long: 80 % intervals of loads not fitted say so."""
    fitted, base = of_known_host(1.4)
    found = update_engine(fitted, base, date="2026-11-23").profile
    others, _ = of_known_host(1.4, batches=(48, 96, 192))
    assert found.fit is not None
    for plain, drafted in zip(others[0::2], others[1::2], strict=True):
        speedup = drafted.tokens_per_step * plain.measured / drafted.measured
        p = predict(
            **{**drafted.deployment, "engine": found}, **drafted.points, interval=True,
            acceptance=Acceptance(tokens_per_step=drafted.tokens_per_step),
        )  # fmt: skip
        assert p.intervals["speedup"].low < speedup < p.intervals["speedup"].high


@pytest.mark.slow
def test_published_steps_and_speedups_are_met() -> None:
    """The engines' own hosts, all at the speed of the mean host."""
    judged, refused = judge_serving(read_serving(PAIRS))
    assert not refused
    error = judged["error"].abs().groupby(judged["host"])
    assert error.mean()["vllm-32628h"] <= 0.06
    assert error.mean()["trt-blog1"] <= 0.05
    few = judged.query("host == 'vllm-peagle20b' and batch_size < 16")
    assert len(few) == 10
    assert few["error"].abs().mean() <= 0.13
    assert 0.75 <= judged["measured"].between(judged["low"], judged["high"]).mean() <= 0.97


def test_specbundle_is_met_by_one_profile_at_the_speed_of_its_host() -> None:
    table = read_serving(PAIRS)
    rows = [
        replace(run, deployment={**run.deployment, "host_speed": 2.48})
        for run in table.rows
        if run.labels["host"] == "specbundle"
    ]
    judged, _ = judge_serving(replace(table, rows=tuple(rows)))
    assert len(judged) == 20
    assert judged["error"].abs().mean() <= 0.05
