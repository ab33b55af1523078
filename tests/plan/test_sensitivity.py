"""Sensitivities, compared with `predict` with changed records, closed forms and SciPy."""

import numpy as np
import pytest
from msgspec.structs import replace
from printed import refused
from rows import each_listed, each_row, faults, slow
from scipy import stats

from specmodel import Acceptance, deploy, load_engine, ngram_drafter, predict
from specmodel.core.algebra.acceptance import ACCEPTANCE_SPREAD
from specmodel.core.base import as_table
from specmodel.core.prediction import intervals
from specmodel.plan.sensitivity import (
    OUTPUTS,
    OperatingPoint,
    Range,
    calibrated_ranges,
    elasticities,
    evaluate,
    list_inputs,
    sobol,
    sobol_indices,
    tornado,
    uncertain_ranges,
    varying_outputs,
)

MOESD = "vllm-moesd-2025"
WHERE = {"hardware": "h200_sxm", "engine": "ideal"}
ENGINE = load_engine(MOESD).with_changes(
    "engine", {"kernel_time": 1e-6, "pass_time": 2e-4, "draft_pass_time": 1e-4, "reject_time": 1e-4}
)
CASES = {
    "head": WHERE | {"target": "qwen3-30b-a3b", "drafter": "eagle", "engine": MOESD},
    "model": {
        "target": "qwen2-57b-a14b", "drafter": "qwen2-0.5b", "hardware": "a800_sxm_80gb",
        "engine": ENGINE, "stack": "sglang", "tensor_parallel": 2,
    },
    "look-up": WHERE
    | {"target": "mixtral-8x7b", "drafter": ngram_drafter(lookup_time=1e-4, proposal_rate=0.4)}
    | {"hardware": "h100_sxm", "weight_dtype": "fp8", "activation_dtype": "fp8"}
    | {"tensor_parallel": 4},
    "nodes": WHERE
    | {"target": "deepseek-v3", "drafter": "mtp", "hardware": "h100_sxm"}
    | {"expert_parallel": 16, "kv_dtype": "fp8"},
    "parallel head": WHERE | {"target": "olmoe-1b-7b", "drafter": "parallel"},
    "dense": WHERE | {"target": "llama-3.1-8b", "drafter": "llama-3.2-1b", "hardware": "l40s"},
}  # fmt: skip
SHAPE = {"batch_size": 8, "draft_length": 3, "acceptance": 0.7, "context_length": 2048}
POINT = OperatingPoint(**SHAPE)
AXES = {"batch_size": 9.0, "context_length": 3000.0, "draft_length": 5.0}
"""Whole numbers that differ from the point's."""
OF_TIME = {"s": 1.0, "B/s": -1.0, "FLOP/s": -1.0}


def deployed(case, **changes):
    return deploy(**(CASES[case] | changes))[0]


def changed_prediction(case, name, value):
    """Predict with one argument or field of a record changed, as a user would change it."""
    given = CASES[case] | SHAPE
    if name.startswith("kernels."):
        kernels, (_, kind, dtype, parameter) = deployed(case).kernels, name.split(".")
        fits = {name: as_table(fit) for name, fit in kernels.fits[kind].items()}
        fits[dtype][parameter] = value
        given["changes"] = {f"hardware.fitted.{kernels.stack}.{kind}": fits}
    elif "." in name:
        given["changes"] = {name: value}
    elif name in ("proposal_rate", "lookup_time"):
        given["drafter"] = replace(given["drafter"], **{name: value})
    elif name == "popularity_spread":
        given["changes"] = {"target.popularity_spread": value}
    else:
        own = {"acceptance_rate": "acceptance"}.get(name, name)
        given[own] = int(value) if name in AXES else value
    return predict(**given)


@pytest.mark.parametrize("step", [4, *slow(1)])
@each_row(("start", "case"), enumerate(CASES))
def test_one_changed_input_is_a_changed_record(start, case, step):
    """Every fourth input, with other inputs in each case."""
    deployment = deployed(case)
    items = [i for i in list_inputs(deployment, POINT).values() if not i.name.endswith("error")]
    assert len(items) > 20
    base = predict(**CASES[case], **SHAPE)
    for item in items[start % step :: step]:
        value = AXES.get(item.name, 0.9 * item.value)
        if item.value == 0 and item.name.startswith("engine."):
            value = 1e-4
        ours = evaluate(deployment, POINT, {item.name: [value, item.value]})
        theirs = changed_prediction(case, item.name, value)
        for output in OUTPUTS:
            expected = [getattr(theirs, output), getattr(base, output)]
            assert ours[output] == pytest.approx(np.array(expected), rel=1e-12), item.name


def test_acceptance_in_other_forms():
    acceptance = Acceptance(tokens_per_step=1.5, measured_draft_length=3)
    point = OperatingPoint(batch_size=8, draft_length=3, acceptance=acceptance)
    deployment = deployed("look-up")
    expected = predict(**CASES["look-up"], batch_size=8, draft_length=3, acceptance=acceptance)
    assert evaluate(deployment, point, {})["speedup"] == pytest.approx(float(expected.speedup))
    assert {"acceptance_rate", "draft_length"} <= list_inputs(deployment, point).keys()


@pytest.mark.parametrize("case", ["head", "nodes", "look-up"])
def test_errors_scale_kernels_of_a_kind(case):
    """From the components of a prediction, by hand."""
    deployment, p = deployed(case), predict(**CASES[case], **SHAPE)
    is_fitted = deployment.engine.fit is not None

    def seconds(work, factor):
        stretched = (
            part.total_time + (part.total_time - part.link_time) * (factor - 1)
            if work.kinds[name] in ("gemm", "elementwise")
            else part.total_time
            for name, part in work.components.items()
        )
        return float(sum(stretched) + work.host_time)

    chance = float(p.times.speculating_chance)
    for name, factors in {
        "error": (1.2, 1.2, 1.2 if is_fitted else 1.0),
        "verify_error": (1.2**-0.5, 1.2**0.5, 1.0),
        "draft_error": (1.0, 1.0, 1.2),
    }.items():
        path = f"kernels.gemm.{name}"
        if path not in list_inputs(deployment, POINT):
            assert name == "draft_error"
            assert is_fitted or case == "look-up"
            continue
        forward = seconds(p.times.forward, factors[0])
        verify = chance * seconds(p.times.speculating, factors[1]) + (1 - chance) * forward
        parts = p.times.drafting
        drafted = sum(float(part.passes.count) * seconds(part.each, factors[2]) for part in parts)
        draft = drafted if parts else float(p.draft_time)
        ours = evaluate(deployment, POINT, {path: 1.2})
        speedup = float(p.tokens_per_step) * forward / (verify + draft + float(p.reject_time))
        assert ours["speedup"] == pytest.approx(speedup, rel=1e-12)
        assert ours["target_efficiency"] == pytest.approx(forward / verify, rel=1e-12)


def test_engine_error_is_on_the_whole_step():
    base, slower = evaluate(deployed("head"), POINT, {"engine.error": [1.0, 1.25]})["speedup"]
    assert slower == pytest.approx(base / 1.25, rel=1e-12)
    assert "engine.error" not in list_inputs(deployed("nodes"), POINT)


@each_listed
def test_hardware_inputs_are_those_that_matter(case, names):
    listed = list_inputs(deployed(case), POINT)
    found = {n.removeprefix("hardware.") for n in listed if n.startswith("hardware.")}
    assert {*names} <= found
    assert found == {*names} or case == "nodes"


@each_row("case", CASES)
def test_elasticities_obey_euler(case):
    """Speedup has no dimension: it is the same with all seconds doubled and all rates halved."""
    table = elasticities(deployed(case), POINT)
    weights = table["unit"].map(OF_TIME).fillna(0.0)
    assert (weights != 0).sum() >= 3
    for output in OUTPUTS:
        assert np.abs(weights * table[output]).max() > 1e-3
        assert (weights * table[output]).sum() == pytest.approx(0.0, abs=1e-8)


@each_row("draft_length", [1, 5])
@each_row("rate", [0.2, 0.7, 1.0])
def test_elasticity_to_acceptance(rate, draft_length):
    point = OperatingPoint(batch_size=4, draft_length=draft_length, acceptance=rate)
    table = elasticities(deployed("look-up"), point).set_index("input")
    powers = np.arange(draft_length + 1)
    proposed, slope = (rate**powers).sum(), (powers * rate**powers).sum()
    expected = 0.4 * slope / (1 + 0.4 * (proposed - 1))
    assert table.loc["acceptance_rate", "speedup"] == pytest.approx(expected, rel=1e-8)
    assert table.loc["acceptance_rate", "target_efficiency"] == 0


def test_elasticities_at_bounds_are_one_sided_and_none_at_zero():
    deployment = deployed("look-up", drafter=ngram_drafter(), routing_correlation=1.0)
    table = elasticities(deployment, POINT).set_index("input")
    for name in ("routing_correlation", "proposal_rate"):
        inside = [1 - 2e-6, 1 - 1e-6, 1.0]
        logs = np.log(evaluate(deployment, POINT, {name: inside})["speedup"])
        slope = (3 * logs[2] - 4 * logs[1] + logs[0]) / 2e-6
        assert table.loc[name, "speedup"] == pytest.approx(slope, rel=1e-4, abs=1e-8)
    assert abs(table.loc["proposal_rate", "speedup"]) > 0.1
    none = elasticities(deployed("look-up", routing_correlation=0.0), POINT)
    assert "routing_correlation" not in set(none["input"])
    assert (none["value"] > 0).all()
    assert none["speedup"].abs().is_monotonic_decreasing


@pytest.mark.parametrize(("size", "length"), [(128, 3), (512, 1), (256, 1)])
def test_elasticities_are_one_sided_where_cuda_graphs_end(size, length):
    """A verify pass of 512 tokens is the largest with a graph, as is a decode step of 512."""
    deployment, _ = deploy(target="qwen3-30b-a3b", hardware="h100_sxm", drafter="eagle3")
    point = OperatingPoint(batch_size=size, draft_length=length, acceptance=0.7)
    table = elasticities(deployment, point).set_index("input")
    below = size * np.array([1 - 1e-4, 1.0])
    for name, values in evaluate(deployment, point, {"batch_size": below}).items():
        slope = np.diff(np.log(values)) / np.diff(np.log(below))
        assert table[name]["batch_size"] == pytest.approx(slope.item(), rel=2e-3, abs=1e-4)
    assert ("draft_length" in table.index) == (size * (length + 1) != 512 or length > 1)


def test_tornado_is_predict_at_both_ends():
    deployment = deployed("head")
    given = {"acceptance_rate": (0.4, 0.8), "batch_size": (2, 64)}
    table = tornado(deployment, POINT, uncertain_ranges(deployment, POINT, given))
    swings = (table["speedup_at_high"] - table["speedup_at_low"]).abs()
    assert swings.is_monotonic_decreasing
    rows = table.set_index("input")
    out = stats.norm(0.18, 0.09).ppf([0.1, 0.9])
    for name, ends in (given | {"routing_correlation": out}).items():
        row = rows.loc[name]
        assert (row.low, row.high) == pytest.approx(ends, rel=1e-6)
        assert row.source == ("given" if name in given else "published")
        for end in ("low", "high"):
            expected = float(changed_prediction("head", name, row[end]).speedup)
            assert row[f"speedup_at_{end}"] == pytest.approx(expected, rel=1e-12)


def test_calibrated_ranges_are_the_central_80_per_cent_of_errors():
    """Parameters of kernels have no range, as the errors include their uncertainty."""
    deployment = deployed("nodes")
    found = calibrated_ranges(deployment, POINT)
    fit = intervals.fits_of_models(deployment)["gemm"]
    law = stats.lognorm(np.hypot(fit.shape_spread, fit.row_spread))
    span = found["kernels.gemm.draft_error"]
    assert span.ends == pytest.approx(law.ppf([0.1, 0.9]))
    q = np.array([0.01, 0.3, 0.5, 0.99])
    assert span.ppf(q) == pytest.approx(law.ppf(q))
    assert all(name in list_inputs(deployment, POINT) for name in found)
    assert all(name.endswith("error") for name in found)


def test_engine_ranges_are_normal_and_not_negative():
    found = calibrated_ranges(deployed("head"), POINT)
    engine = load_engine(MOESD)
    fit, seconds = engine.fit, engine.reject_time_per_token
    place = fit.varied.index("reject_time_per_token")
    law = stats.norm(seconds, seconds * np.sqrt(fit.covariance[place][place]))
    span = found["engine.reject_time_per_token"]
    assert span.ends == pytest.approx(np.maximum(law.ppf([0.1, 0.9]), 0.0))
    assert span.ppf(np.array([1e-6, 0.5])) == pytest.approx([0.0, seconds])
    assert found["engine.error"].ends == pytest.approx(stats.lognorm(fit.spread).ppf([0.1, 0.9]))
    assert not any("verify_error" in name or "draft_error" in name for name in found)


def test_deployment_error_is_on_all_passes_and_not_on_the_host():
    """A step needs f g + h, a decode step f p; without host time, ratios stay."""
    deployment = deployed("look-up")
    told = predict(**CASES["look-up"], **SHAPE)
    g, h = float(told.verify_time), float(told.draft_time)
    assert h > 0
    base, slower = evaluate(deployment, POINT, {"deployment.error": [1.0, 1.5]})["speedup"]
    assert slower / base == pytest.approx(1.5 * (g + h) / (1.5 * g + h))
    for output in OUTPUTS:
        ideal = evaluate(deployed("nodes"), POINT, {"deployment.error": [1.0, 1.5]})[output]
        assert ideal[1] == pytest.approx(ideal[0], rel=1e-12)
    assert "deployment.error" not in list_inputs(deployed("head"), POINT)
    assert "deployment.error" in calibrated_ranges(deployment, POINT)
    assert not calibrated_ranges(deployed("nodes", stack="datasheet"), POINT)


@pytest.mark.parametrize("engine", ["ideal", MOESD])
def test_factors_of_passes_correlate_as_measured_errors_do(engine):
    """Variances and covariance of the passes' factors e r^(-1/2) and e r^(1/2), in closed form."""
    deployment = deployed("head", engine=engine)
    found = calibrated_ranges(deployment, POINT)
    names = [f"kernels.attention.{name}" for name in ("error", "verify_error")]
    common, apart = (
        (np.log(found[name].ends[1]) / stats.norm.ppf(0.9)) ** 2 if name in found else 0.0
        for name in names
    )
    fit = deployment.kernels.fits["attention"]["bf16"]
    likeness = 0.5 if engine == "ideal" else 1.0
    row = fit.row_spread**2
    assert common + apart / 4 == pytest.approx(fit.shape_spread**2 + row)
    assert common - apart / 4 == pytest.approx(fit.shape_spread**2 + likeness * row)


def test_given_ranges_go_before_others_and_acceptance_always_has_one():
    bare = deployed("head", stack="datasheet", engine="ideal")
    found = uncertain_ranges(bare, POINT, {"routing_correlation": (0.1, 0.2)})
    acceptance = found.pop("acceptance_rate")
    assert acceptance.source == "tasks"
    law = stats.norm(0.7, ACCEPTANCE_SPREAD)
    assert law.cdf(acceptance.ends) == pytest.approx([0.1, 0.9])
    assert found == {"routing_correlation": Range(low=0.1, high=0.2)}
    published = {name: found.ends for name, found in uncertain_ranges(bare, POINT).items()}
    law = stats.norm(0.18, 0.09)
    assert published["routing_correlation"] == pytest.approx(law.ppf([0.1, 0.9]), rel=1e-6)
    assert published["popularity_spread"] == (0.0, 1.9)
    dense = deployed("dense", stack="datasheet")
    assert list(uncertain_ranges(dense, POINT)) == ["acceptance_rate"]


def ishigami(x):
    return np.sin(x[0]) + 7 * np.sin(x[1]) ** 2 + 0.1 * x[2] ** 4 * np.sin(x[0])


WEIGHTS = np.array([2.0, 1.0, 0.5, 0.1])


def product(x):
    return np.prod(1 + WEIGHTS[:, None] * (x - 0.5), axis=0)


def test_estimates_are_those_of_scipy():
    seen = []

    def function(x):
        seen.append(np.stack([product(x), ishigami(x)]))
        return seen[-1]

    law = [stats.norm(1, 2), stats.uniform(), stats.lognorm(0.5), stats.expon()]
    found = sobol_indices(
        function, law, samples=256, generator=np.random.default_rng(3), outputs=("a", "b")
    )
    f_A, f_B, *f_AB = seen
    theirs = stats.sobol_indices(func={"f_A": f_A, "f_B": f_B, "f_AB": np.stack(f_AB)}, n=256)
    assert found.first_order == pytest.approx(theirs.first_order, abs=1e-12)
    assert found.total == pytest.approx(theirs.total_order, abs=1e-12)


def test_intervals_are_as_wide_as_the_scatter_of_independent_samples():
    """The bootstrap's width, compared with repeated draws of independent rows."""
    law = [stats.norm(0, 1), stats.norm(0, 2)]
    n, estimates = 512, []
    generator = np.random.default_rng(0)
    for _ in range(2000):
        a, b = generator.standard_normal((2, 2, n)) * np.array([[1.0], [2.0]])
        f_A, f_B, f_AB = a.sum(axis=0), b.sum(axis=0), np.stack([b[0] + a[1], a[0] + b[1]])
        dictionary = {"f_A": f_A[None], "f_B": f_B[None], "f_AB": f_AB[:, None]}
        estimates.append(stats.sobol_indices(func=dictionary, n=n).first_order)
    low, high = np.quantile(estimates, [0.025, 0.975], axis=0)
    found = sobol_indices(
        lambda x: x.sum(axis=0), law, samples=n, generator=np.random.default_rng(1)
    )
    width = found.first_order_high[0] - found.first_order_low[0]
    assert width == pytest.approx(high - low, rel=0.1)


def test_sobol_of_a_deployment_is_that_of_a_product():
    """Speedup is tokens per step over error: shares follow from both variances, by quadrature."""
    deployment = deployed("head", engine="sglang")
    error = calibrated_ranges(deployment, POINT)["engine.error"]
    ranges = {"acceptance_rate": Range(low=0.5, high=0.8), "engine.error": error}
    settings = {"samples": 4096, "generator": np.random.default_rng(0), "outputs": ["speedup"]}
    rows = sobol(deployment, POINT, ranges, **settings).set_index("input")
    rates = np.linspace(0.5, 0.8, 20_001)
    tokens = (rates[:, None] ** np.arange(4)).sum(axis=1)
    of_tokens = tokens.var() / tokens.mean() ** 2
    of_error = np.expm1(load_engine("sglang").fit.spread ** 2)
    variance = (1 + of_tokens) * (1 + of_error) - 1
    for name, each in (("acceptance_rate", of_tokens), ("engine.error", of_error)):
        row, total = rows.loc[name], each + of_tokens * of_error
        assert row.first_order_low <= each / variance <= row.first_order_high
        assert row.total_low <= total / variance <= row.total_high
        assert row.first_order == pytest.approx(each / variance, abs=0.02)


def test_an_output_that_does_not_vary_is_named():
    deployment = deployed("head", stack="datasheet", engine="ideal")
    ranges = {"acceptance_rate": Range(low=0.5, high=0.8)}
    swings = tornado(deployment, POINT, ranges)
    assert varying_outputs(swings) == ["speedup"]
    settings = {"samples": 64, "generator": np.random.default_rng(0)}
    varies = ".*an output that varies"
    refused(f"target_efficiency{varies}", sobol, deployment, POINT, ranges, **settings)

    def one_constant(x):
        return np.stack([x[0], 0 * x[0] + 3])

    refused(f"'output 2'{varies}", sobol_indices, one_constant, [stats.uniform()], **settings)
    for samples in (32, 100, 2**17, 64.5, None):
        settings["samples"] = samples
        told = r"samples: .* power of two from 64 to 65536"
        refused(told, sobol_indices, product, [stats.uniform()] * 4, **settings)


@each_row(("ask", "given", "message"), faults("inputs"))
def test_bad_values_and_ranges(ask, given, message):
    asked = {"evaluate": evaluate, "uncertain_ranges": uncertain_ranges}[ask]
    refused(message, asked, deployed("head"), POINT, given)


@each_row(("changes", "message"), faults("points"))
def test_bad_points(changes, message):
    refused(message, lambda: evaluate(deployed("head"), OperatingPoint(**(SHAPE | changes)), {}))


def test_ranges_are_of_inputs_and_there_is_one():
    head, settings = deployed("head"), {"samples": 64, "generator": np.random.default_rng(0)}
    refused(
        r"routing_correlation: .*a single number", deployed, "head", routing_correlation=[0.1, 0.2]
    )
    for analysis, more in ((tornado, {}), (sobol, settings)):
        refused(r"^ranges: got {}; expected at least one range", analysis, head, POINT, {}, **more)
        other, told = {"batch": Range(low=1, high=2)}, r"^ranges: got 'batch'; .*such as batch_size"
        refused(told, analysis, head, POINT, other, **more)
