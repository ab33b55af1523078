"""Kinds of kernels: whose fits and errors stand in where a stack has none of a kind."""

import numpy as np
import pytest
from msgspec.structs import replace
from rows import each_row

from specmodel import Acceptance, deploy, list_architectures, load_architecture, load_hardware
from specmodel.core.cost import pass_work
from specmodel.core.cost.kinds import kernels_of
from specmodel.core.layers import sequence_group
from specmodel.core.layers.kinds import KINDS
from specmodel.core.machines import FittedStack
from specmodel.core.machines.fallbacks import stack_kernels
from specmodel.core.machines.kernels import DATA_SHEET_KERNELS
from specmodel.core.prediction import intervals
from specmodel.core.prediction.evaluate import evaluate

FIT = replace(
    load_hardware("h200_sxm").fitted["vllm"].gemm["bf16"],
    **dict.fromkeys(("mean_error", "shape_spread", "row_spread"), 0.1), varied=[], covariance=[],
    at_bound=[], memory_efficiency=0.8,
)  # fmt: skip


def stack(**kinds):
    """A stack with one fit of each kind, of which some numbers are given."""
    dtypes = {kind: "fp32" if kind == "recurrence" else "bf16" for kind in kinds}
    fits = {k: {dtypes[k]: replace(FIT, **changes)} for k, changes in kinds.items()}
    return FittedStack(version="1", source="made up", date="2026-11-22", **fits)


def deployed(record, target="deepseek-v3"):
    deployment = deploy(target=target, hardware="h200_sxm", drafter="mtp", tensor_parallel=8)[0]
    kernels = deployment.kernels
    if record:
        every = {k: {"bf16": FIT} for k in ("experts", "gemm", "elementwise")}
        kernels = stack_kernels("made", replace(record, **every))
    return replace(deployment, kernels=kernels)


def test_latent_attention_takes_the_attention_of_its_stack_and_then_its_own():
    record = stack(attention={"memory_efficiency": 0.5})
    kernels = stack_kernels("made", record)
    assert kernels.place("latent_attention", "bf16", "bf16") == ("attention", "bf16")
    assert kernels.parameters("latent_attention", "bf16").memory_efficiency == 0.5
    assert kernels.kind_of_errors("latent_attention") == "attention"
    own = stack(attention={"memory_efficiency": 0.5}, latent_attention={"memory_efficiency": 0.7})
    kernels = stack_kernels("made", own)
    assert kernels.place("latent_attention", "fp8", "bf16") == ("latent_attention", "bf16")
    assert kernels.parameters("latent_attention", "bf16").memory_efficiency == 0.7
    assert kernels.kind_of_errors("latent_attention") == "latent_attention"


def test_a_recurrence_without_any_fit_streams_as_a_matrix_does():
    own = stack(gemm={"memory_efficiency": 0.6})
    kernels = stack_kernels("made", own, typical=stack(gemm={}))
    assert kernels.parameters("recurrence", "fp32", "bf16").memory_efficiency == 0.6
    assert kernels.kind_of_errors("recurrence") == "gemm"
    typical = stack(gemm={}, recurrence={"memory_efficiency": 0.9})
    kernels = stack_kernels("made", own, typical=typical)
    assert kernels.parameters("recurrence", "fp32", "bf16").memory_efficiency == 0.9
    assert kernels.parameters("recurrence", "bf16", "bf16").memory_efficiency == 0.9
    assert "recurrence" in kernels.typical
    assert "gemm" not in kernels.typical


def test_data_sheets_have_kinds_of_their_own_and_no_fits():
    kernels = DATA_SHEET_KERNELS
    assert kernels.kind_of_errors("latent_attention") == "latent_attention"
    assert kernels.kind_of_errors("elementwise") == "gemm"
    assert kernels.place("latent_attention", "bf16") is None


def ends(deployment):
    point = {"batch_size": 16.0, "draft_length": 2.0, "verify_tokens": 3.0, "context_length": 9e4}
    points, rate = {n: np.asarray(v) for n, v in point.items()}, Acceptance(acceptance_rate=0.5)
    evaluation = evaluate(deployment, points, rate)
    drawn = intervals.central_intervals(evaluation, np.random.default_rng(0))
    return float(drawn["verify_time"].low), float(drawn["verify_time"].high)


def test_intervals_know_the_errors_of_latent_attention():
    """The wider they are the wider the interval; while attention stands in, its errors hold."""
    exact, wide = {"shape_spread": 0.0, "row_spread": 0.0}, {"shape_spread": 0.5, "row_spread": 0.0}
    low, high = ends(deployed(stack(attention=exact, latent_attention=wide)))
    same = ends(deployed(stack(attention=wide, latent_attention=wide)))
    assert (low, high) == same
    least, most = ends(deployed(stack(attention=wide, latent_attention=exact)))
    assert high - low > 1.5 * (most - least)
    as_attention = ends(deployed(stack(attention=wide)))
    assert as_attention[1] - as_attention[0] == pytest.approx(high - low, rel=0.2)


def test_assumptions_say_what_stands_in_and_bounds_of_kinds_that_run():
    from specmodel.core.cost.assumptions import assumed_of_kernels as assumed

    bound = {"at_bound": ["memory_efficiency"], "varied": ["memory_efficiency"]}
    bound |= {"covariance": [[0.01]]}
    found = assumed(deployed(stack(attention=bound)))
    assert found["latent_attention"].values == {"taken": "attention", "is_typical": False}
    assert found["fits_at_bound"].values["fits"] == [("attention", "memory_efficiency", 0.8)]
    found = assumed(deployed(stack(attention=bound, latent_attention={})))
    assert "latent_attention" not in found
    assert "fits_at_bound" not in found


@each_row("name", list_architectures())
def test_kinds_that_a_model_runs_are_those_of_its_passes(name):
    model = load_architecture(name)
    work = pass_work(model, sequence_group(batch_size=2, context_length=9.0))
    assert set(kernels_of(model)) == {part.kind for part in work.components.values()}


def test_nobody_timed_state_spaces_so_that_recurrences_stand_in_with_larger_errors():
    record = stack(gemm={}, recurrence={"memory_efficiency": 0.7, "mean_error": 0.02})
    kernels = stack_kernels("made", record)
    assert kernels.place("state_space", "bf16", "bf16") == ("recurrence", "fp32")
    assert kernels.parameters("state_space", "fp32", "bf16").memory_efficiency == 0.7
    assert kernels.kind_of_errors("state_space") == "state_space"
    fit, same = (kernels.fit(kind, "fp32") for kind in ("state_space", "recurrence"))
    error, of_shape, of_row = KINDS["state_space"].untimed
    assert (fit.mean_error, fit.shape_spread) == (error, pytest.approx(np.hypot(0.1, of_shape)))
    assert fit.row_spread == pytest.approx(np.hypot(0.1, of_row))
    assert (same.mean_error, same.shape_spread) == (0.02, 0.1)
    own = stack_kernels("made", stack(recurrence={}, state_space={"mean_error": 0.03}))
    assert own.fit("state_space", "bf16").mean_error == 0.03
