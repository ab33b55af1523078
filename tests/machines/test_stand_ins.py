"""Whose fit stands in where a stack lacks one."""

import math
from dataclasses import replace

import pytest
from rows import each_row

from specmodel.cost.deploying import deploy
from specmodel.machines.hardware import choose_kernels, list_hardware, load_hardware
from specmodel.machines.kernels import FittedStack, KernelFit
from specmodel.machines.stand_ins import (
    Ranking,
    StandIns,
    load_stand_ins,
    taken_fit,
    with_stand_ins,
    words_of,
)

FIT = {
    "launch_time": 5e-6,
    "memory_efficiency": 0.8,
    "sharpness": 4.0,
    "arithmetic_dtype": "fp8",
    "num_points": 10,
    "num_judged": 10,
    "is_held_out": True,
    "mean_error": 0.1,
    "median_error": 0.1,
    "percentile_90_error": 0.2,
    "shape_spread": 0.03,
    "row_spread": 0.1,
    "varied": [],
    "covariance": [],
}


def stack(**gemm: float) -> FittedStack:
    """A stack with fits of GEMM of the dtypes named, each with a mean error."""
    fits = {dtype: KernelFit(**(FIT | {"mean_error": error})) for dtype, error in gemm.items()}
    return FittedStack(version="1", source="made up", date="2026-11-22", gemm=fits)


def rule(*order: str) -> StandIns:
    numbers = dict.fromkeys(order, 0.04)
    ranking = Ranking(order=list(order), error=numbers, spread=numbers, num_tables=9)
    return StandIns(source="made up", date="2026-11-22", kinds={"gemm": ranking})


OWN, TYPICAL = stack(bf16=0.05, fp8=0.05), stack(bf16=0.1, fp8_block=0.1, fp4=0.1)
OTHERS = {"a": stack(bf16=0.01, fp8=0.01, fp8_block=0.3), "b": stack(fp8_block=0.2)}


def test_the_best_of_other_stacks_stands_in_and_nothing_that_was_fitted_is_replaced():
    filled, said = with_stand_ins(OWN, OTHERS, TYPICAL, rule("other_stack", "typical", "own"))
    assert {place: one.name for place, one in said.items()} == {
        ("gemm", "fp8_block"): "b",
        ("gemm", "fp4"): "typical",
    }
    assert filled.gemm["fp8"] == OWN.gemm["fp8"]
    assert filled.gemm["bf16"] == OWN.gemm["bf16"]


def test_what_stands_in_has_the_spread_of_tables_left_out():
    filled, _ = with_stand_ins(OWN, OTHERS, TYPICAL, rule("other_stack", "typical", "own"))
    assert filled.gemm["fp8_block"].shape_spread == pytest.approx(math.hypot(0.03, 0.04))
    assert filled.gemm["fp8_block"].mean_error == 0.2


def test_the_order_of_the_rule_decides():
    filled, said = with_stand_ins(OWN, OTHERS, TYPICAL, rule("typical", "other_stack", "own"))
    assert said["gemm", "fp8_block"].candidate == "typical"
    assert filled.gemm["fp8_block"].mean_error == 0.1
    filled, said = with_stand_ins(OWN, OTHERS, TYPICAL, rule("own", "other_stack", "typical"))
    assert not said
    assert filled == OWN
    assert filled.place("gemm", "fp8_block", "fp8") == ("gemm", "fp8")


def test_a_kind_that_no_stack_of_the_gpu_has_is_left_alone():
    bare = replace(OWN, gemm={})
    filled, said = with_stand_ins(bare, {}, TYPICAL, rule("other_stack", "typical", "own"))
    assert (filled, said) == (bare, {})


def test_the_rule_that_ships_puts_the_smaller_error_first():
    kinds = load_stand_ins().kinds
    assert {"experts", "gemm", "attention", "latent_attention"} <= set(kinds)
    for ranking in kinds.values():
        errors = [ranking.error[name] for name in ranking.order]
        assert errors == sorted(errors)
        assert set(ranking.spread) == set(ranking.order)


def test_assumptions_name_what_stands_in():
    where = {"target": "minimax-m2.5", "drafter": "ngram", "hardware": "h200_sxm"}
    _, assumed = deploy(**where, tensor_parallel=4, stack="vllm")
    taken = choose_kernels(load_hardware("h200_sxm"), "vllm").stand_ins["gemm", "fp8_block"]
    assert assumed["gemm_fp8_block"] == words_of(taken)
    _, assumed = deploy(**where, tensor_parallel=4, stack="sglang")
    assert "gemm_fp8_block" not in assumed


@each_row("name", list_hardware())
def test_intervals_are_as_wide_or_wider_where_a_fit_stands_in(name):
    hardware = load_hardware(name)
    for stack_name in hardware.fitted:
        kernels = choose_kernels(hardware, stack_name)
        for kind, dtype in kernels.stand_ins:
            fit = getattr(kernels.record, kind)[dtype]
            assert fit.shape_spread >= min(load_stand_ins().kinds[kind].spread.values())
            assert dtype not in getattr(hardware.fitted[stack_name], kind)


@pytest.mark.parametrize(
    ("kind", "stored", "is_other"),
    [("attention", "bf16", False), ("attention", "fp4", True), ("attention", "fp8", False),
     ("experts", "int8", True), ("gemm", "fp16", False)],
)  # fmt: skip
def test_kernels_of_a_dtype_that_nobody_timed_have_wider_errors(kind, stored, is_other):
    kernels = choose_kernels(load_hardware("h200_sxm"), "vllm")
    fit, own = taken_fit(kernels, kind, stored), kernels.record.fit(kind, stored)
    left_out = load_stand_ins().kinds[kind]
    more = left_out.spread["own"] if is_other else 0.0
    assert fit.shape_spread == pytest.approx(math.hypot(own.shape_spread, more))
    assert fit.mean_error == max(own.mean_error, left_out.error["own"] if is_other else 0.0)
