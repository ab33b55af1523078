"""Fits of the package compared with published kernels, of fitted shapes and of others."""

import numpy as np
import pandas as pd
import pytest
from rows import slow

from published import datasets
from published.roles import cold_rows, fastest_kernels, stored_bytes
from published.tables import NORMS, STACKS, published_measurements
from specmodel import load_hardware
from specmodel.calibrate.fit import fit_kernels, predicted_time
from specmodel.calibrate.fit.timed_work import error_table, predict_measured
from specmodel.calibrate.measure import check_measurements
from specmodel.calibrate.measure.measurements import groups
from specmodel.core.layers.kinds import MAIN_KINDS
from specmodel.core.machines import choose_kernels
from specmodel.core.machines.kernels import fitted_dtype

pytestmark = pytest.mark.dataset

BALANCED = {
    "trtllm": (0.055, 0.03), "vllm": (0.07, 0.04), "sglang": (0.085, 0.06),
    ("a100_sxm_80gb", "sglang"): (0.10, 0.07), ("h200_sxm", "vllm"): (0.08, 0.055),
    ("h100_sxm", "sglang"): (0.13, 0.08), ("h200_sxm", "sglang"): (0.15, 0.09),
    ("l40s", "vllm"): (0.05, 0.03),
}  # fmt: skip
"""Largest mean and median error of balanced experts in bf16 on other shapes [-], by engine, and by
GPU and engine where it differs. On Hopper, Triton's kernels in SGLang take 1.4 times as long for
many tokens of untuned shapes."""

HELD = dict.fromkeys(("latent_attention", "recurrence"), (0.64, 0.96))
HELD["kimi_recurrence"] = (0.64, 1.0)
"""Least and most share of points not fitted that 80 % intervals hold; 0.70 and 0.90 of other kinds
[-]. Shapes of Kimi's recurrence differ by their heads alone, of which three are left out."""

HELD_APART = {
    ("h200_sxm", "vllm", "experts"): (0.66, 0.90),
    ("h200_sxm", "sglang", "experts"): (0.66, 0.90),
    **{("gb200", stack, "recurrence"): (0.64, 1.0) for stack in ("trtllm", "vllm", "sglang")},
}
"""Shares of points not fitted that 80 % intervals may hold, bf16 [-], where `HELD` does not
describe what was timed. On H200, Triton's experts of these two take
15 and 30 % longer than predicted from a thousand tokens on, shapes of it that were not fitted more
than those left out of the fit; passes of decoding hold (`FEW_TOKENS`). All engines run the same
recurrence, of which 16 shapes are judged and differ by their heads alone: on GB200, leaving out
the smallest of those fitted misses it by more than any that is judged, which are between."""

FEW_TOKENS, HELD_ON_FEW = 256, (0.75, 0.96)
"""Tokens of a pass of decoding [token], and the share of experts in them that intervals hold."""

FEW = [("a100_sxm_80gb", "sglang", "0.5.10"), ("h200_sxm", "trtllm", "1.3.0rc20")]
"""Two generations. All others are slow tests: reading a stack and its rivals takes seconds."""

GENERATIONS = ("a100_sxm_80gb", "h200_sxm", "b200", "rtx_pro_6000", "l40s")
ONE_OF_EACH = [key for key in STACKS if key[0] in GENERATIONS]
"""Each engine on each generation of GPUs."""

PER_CENT_80 = 1.2815515594


def measured(hardware, stack, version):
    """Return the measurements to which a stack of the package was fitted."""
    shipped = load_hardware(hardware).fitted[stack]
    table = check_measurements(published_measurements(hardware, stack, version))
    own = [rows for kind, dtype, rows in groups(table) if dtype in shipped.of_kind(kind)]
    return pd.concat(own)


@pytest.mark.parametrize("key", [*FEW, *slow(*((key,) for key in STACKS if key not in FEW))])
def test_a_stack_that_ships_is_as_published(key):
    """One test for all checks, because reading the tables of a stack takes seconds."""
    hardware, name, _ = key
    device, table = load_hardware(hardware), measured(*key)
    stack = device.fitted[name]
    judged = predict_measured(table, device, name)
    errors = error_table(judged).set_index(["component", "dtype", "rows"])
    recorded_errors_are_of_what_ships(table, stack, errors)
    largest = BALANCED.get((hardware, name), BALANCED[name])
    kernels_not_fitted_are_met(errors, largest)
    norms_take_as_long_as_rows_quantised(device, stack, errors)
    intervals_hold(judged, (hardware, name), stack)


def recorded_errors_are_of_what_ships(table, stack, errors):
    for kind, dtype, rows in groups(table):
        fit, row = stack.of_kind(kind)[dtype], errors.loc[kind, dtype, "all"]
        assert (fit.num_points, fit.num_judged) == ((rows["role"] == "fit").sum(), row["points"])
        for error in ("mean_error", "median_error", "percentile_90_error"):
            assert getattr(fit, error) == pytest.approx(row[error], rel=2e-3), (kind, dtype)


@pytest.mark.parametrize("key", [FEW[0], *slow((FEW[1],), (("b200", "vllm", "0.24.0"),))])
def test_the_fit_gives_what_ships(key):
    """Every kind and dtype."""
    device = load_hardware(key[0])
    for (kind, dtype), fitting in fit_kernels(measured(*key), device).items():
        shipped = device.fitted[key[1]].of_kind(kind)[dtype]
        for name in ("num_points", "sharpness", "varied"):
            assert getattr(fitting.fit, name) == getattr(shipped, name)
        assert fitting.fit.mean_error == pytest.approx(shipped.mean_error, rel=0.02)
        assert fitting.fit.row_spread == pytest.approx(shipped.row_spread, rel=0.05)


def kernels_not_fitted_are_met(errors, largest):
    mean, median = largest
    balanced = errors.loc["experts", "bf16", "balanced"]
    assert balanced["mean_error"] <= mean
    assert balanced["median_error"] <= median
    for distribution in ("power_law_1.01", "power_law_1.2"):
        skewed = errors.loc["experts", "bf16", distribution]["mean_error"]
        assert skewed <= (0.17 if mean > 0.12 else 0.12)
    assert errors.loc["gemm", "bf16", "streamed"]["median_error"] <= 0.08
    limit = 0.10 if largest == BALANCED["a100_sxm_80gb", "sglang"] else 0.08  # a generation older
    assert errors.loc["attention", "bf16", "streamed"]["median_error"] <= limit


def norms_take_as_long_as_rows_quantised(device, stack, errors):
    """The time is a launch, a walk along a row, and 3 bytes per quantised element.

    A norm with its residual addition moves 8 bytes per element of rows of the same width.
    """
    assert ("elementwise" in errors.index.get_level_values(0)) == bool(stack.elementwise)
    assert bool(stack.elementwise) == (device.name != load_hardware("a100_sxm_80gb").name)
    if not stack.elementwise:
        return
    assert errors.loc["elementwise", "bf16", "all"]["mean_error"] <= 0.13
    k, bytes_per_s = stack.elementwise["bf16"], device.memory.peak_bytes_per_s
    name = next(gpu for gpu, *_ in STACKS if load_hardware(gpu).name == device.name)
    rows = datasets.read_timings("quantize", name, *NORMS)
    rows = rows[rows["width"].between(1024, 16384) & (rows["num_tokens"] % 8 == 0)]
    rows = rows[rows["num_tokens"] <= 4096]
    moved = 3 * rows["num_tokens"] * rows["width"] / (k.activation_efficiency * bytes_per_s)
    law = k.launch_time + k.depth_time * rows["width"] + moved
    assert (law / rows["latency"] - 1).abs().mean() <= 0.13
    sizes = {"num_tokens": rows["num_tokens"] * 3 / 8, "hidden_size": rows["width"]}
    norms = rows.assign(**sizes, activation_dtype="bf16")
    predicted = predicted_time("elementwise", norms, device, k.parameters)
    np.testing.assert_allclose(predicted, law, rtol=0.05)  # but for its arithmetic and weights


def intervals_hold(judged, place, stack):
    missed = np.log(judged["latency"] / judged["predicted"])
    for kind in set(judged["component"]) & set(MAIN_KINDS):
        dtype = fitted_dtype(kind)
        fit = stack.of_kind(kind)[dtype]
        half = PER_CENT_80 * np.hypot(fit.shape_spread, fit.row_spread)
        is_kind = (judged["component"] == kind) & (judged["dtype"] == dtype)
        least, most = HELD_APART.get((*place, kind), HELD.get(kind, (0.70, 0.90)))
        assert least <= (np.abs(missed[is_kind]) <= half).mean() <= most, kind
        if kind == "experts":
            few = is_kind & (judged["tokens"] <= FEW_TOKENS)
            least, most = HELD_ON_FEW
            assert least <= (np.abs(missed[few]) <= half).mean() <= most


@pytest.mark.slow
def test_plain_and_verify_passes_err_alike_as_the_law_says():
    """For one shape, errors of experts at t and q * t tokens have the correlation q^(-1/2).

    If two errors have the spread s and their difference has the spread d, their correlation is 1 -
    (d / s)^2 / 2. Spreads are those of normal distributions with the same central 80 %.
    """
    likeness: dict[int, list[float]] = {2: [], 4: [], 8: []}
    for key in ONE_OF_EACH:
        device, table = load_hardware(key[0]), measured(*key)
        judged = predict_measured(table[table["component"] == "experts"], device, key[1])
        judged = judged[judged["dtype"] == "bf16"]
        judged["missed"] = np.log(judged["latency"] / judged["predicted"])
        spread = device.fitted[key[1]].experts["bf16"].row_spread
        names = ["shape", "expert_size", "distribution"]
        missed = judged.pivot_table(index=names, columns="num_tokens", values="missed")
        for q, found in likeness.items():
            pairs = [(t, t * q) for t in missed if t <= FEW_TOKENS and t * q in missed]
            apart = np.concatenate([(missed[b] - missed[a]).dropna() for a, b in pairs])
            half = np.subtract(*np.quantile(apart, [0.9, 0.1])) / 2
            found.append(1 - (half / PER_CENT_80 / spread) ** 2 / 2)
    for q, found in likeness.items():
        assert (len(found), np.median(found)) == (9, pytest.approx(q**-0.5, abs=0.10))


# experts of two matrices, which no fit has seen: those of Nemotron, also behind a smaller width

TWO_MATRICES_ON = ("h100_sxm", "b200", "b300", "gb200", "rtx_pro_6000")


def experts_of_two(hardware, stack):
    """Return timings of balanced experts with two matrices that were read from memory."""
    device = load_hardware(hardware)
    raw = datasets.read_timings("moe", hardware, stack, device.fitted[stack].version)
    usable = ~raw["is_gated"] & (raw["expert_parallel"] == 1) & raw["active_experts"].notna()
    usable &= (raw["num_tokens"] <= 4096) & (raw["distribution"] == "balanced")
    rows = fastest_kernels(raw[usable]).assign(num_matrices=2)
    elements = rows["active_experts"] * 2 * rows["hidden_size"] * rows["expert_size"]
    is_cold = cold_rows(stored_bytes(elements, rows["weight_dtype"]), device)
    return rows[is_cold].reset_index(drop=True)


def median_error(rows, hardware, stack):
    """Return the median error of the fit to experts with three matrices."""
    device = load_hardware(hardware)
    (dtypes,) = set(zip(rows["weight_dtype"], rows["activation_dtype"], strict=True))
    parameters = choose_kernels(device, stack).parameters("experts", *dtypes)
    times = predicted_time("experts", rows.reset_index(drop=True), device, parameters)
    return float(np.median(np.abs(times / rows["latency"].to_numpy() - 1)))


@pytest.mark.parametrize("hardware", ["h200_sxm", *slow(*TWO_MATRICES_ON)])
def test_a_fit_of_three_matrices_holds_for_two(hardware):
    """Kernels of TensorRT-LLM in 16 and 8 bits; the widths include latents of 2,048."""
    rows = experts_of_two(hardware, "trtllm")
    for dtype in ("bf16", "fp8"):
        own = rows[rows["weight_dtype"] == dtype]
        assert {2048, 8192} <= set(own["hidden_size"])
        assert len(own) > 200
        assert median_error(own, hardware, "trtllm") <= 0.07
        for _, part in own.groupby(["hidden_size", "num_experts"]):
            assert median_error(part, hardware, "trtllm") <= 0.10


@pytest.mark.parametrize("hardware", ["b200", *slow("b300", "gb200")])
def test_so_does_that_of_other_engines_on_blackwell(hardware):
    for stack in ("vllm", "sglang"):
        rows = experts_of_two(hardware, stack)
        assert median_error(rows[rows["weight_dtype"] == "bf16"], hardware, stack) <= 0.10
