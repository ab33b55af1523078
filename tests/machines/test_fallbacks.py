"""Whose fit is taken where a stack lacks one."""

import math

import pytest
from msgspec.structs import replace
from rows import each_listed

from specmodel import deploy, load_hardware
from specmodel.core.base.notes import Note
from specmodel.core.machines import FittedStack, Kernels, choose_kernels, load_typical
from specmodel.core.machines.fallbacks import Ranking, Rankings, load_rankings, stack_kernels

FIT = replace(load_typical().gemm["bf16"], shape_spread=0.03, arithmetic_dtype="fp8")


def stack(**gemm: float) -> FittedStack:
    """A stack with fits of GEMM of the dtypes named, each with a mean error."""
    fits = {dtype: replace(FIT, mean_error=error) for dtype, error in gemm.items()}
    return FittedStack(version="1", source="made up", date="2026-11-22", gemm=fits)


OWN, TYPICAL = stack(bf16=0.05, fp8=0.05), stack(bf16=0.1, fp8_block=0.1, fp4=0.1)
OTHERS = {"a": stack(bf16=0.01, fp8=0.01, fp8_block=0.3), "b": stack(fp8_block=0.2)}


def filled(*order: str, own: FittedStack = OWN, others: dict[str, FittedStack] = OTHERS) -> Kernels:
    """The kernels of a stack where GEMMs fall back to candidates in this order."""
    numbers = dict.fromkeys(order, 0.04)
    ranking = Ranking(order=list(order), error=numbers, spread=numbers, num_tables=9)
    rankings = Rankings(source="made up", date="2026-11-22", kinds={"gemm": ranking})
    return stack_kernels("mine", own, others, typical=TYPICAL, rankings=rankings)


def test_the_best_of_other_stacks_is_taken_and_nothing_that_was_fitted_is_replaced():
    kernels = filled("other_stack", "typical", "own")
    assert kernels.borrowed == {("gemm", "fp8_block"): "b", ("gemm", "fp4"): "typical"}
    assert kernels.fits["gemm"]["fp8"] == OWN.gemm["fp8"]
    assert kernels.fits["gemm"]["bf16"] == OWN.gemm["bf16"]
    assert kernels.record is OWN
    fit = kernels.fits["gemm"]["fp8_block"]  # with the spread of tables left out
    assert (fit.shape_spread, fit.mean_error) == (pytest.approx(math.hypot(0.03, 0.04)), 0.2)


def test_the_order_of_the_ranking_decides():
    kernels = filled("typical", "other_stack", "own")
    assert kernels.borrowed["gemm", "fp8_block"] == "typical"
    assert kernels.fits["gemm"]["fp8_block"].mean_error == 0.1
    kernels = filled("own", "other_stack", "typical")
    assert not kernels.borrowed
    assert kernels.fits["gemm"] == OWN.gemm
    assert kernels.place("gemm", "fp8_block", "fp8") == ("gemm", "fp8")


def test_of_a_kind_that_no_stack_of_the_gpu_has_all_is_typical():
    kernels = filled("other_stack", "typical", "own", own=replace(OWN, gemm={}), others={})
    assert not kernels.borrowed
    assert kernels.typical == ("gemm",)
    assert kernels.fits["gemm"] == TYPICAL.gemm


def test_the_rankings_that_ship_put_the_smaller_error_first():
    kinds = load_rankings().kinds
    assert {"experts", "gemm", "attention", "latent_attention"} <= set(kinds)
    for ranking in kinds.values():
        errors = [ranking.error[name] for name in ranking.order]
        assert (errors, set(ranking.spread)) == (sorted(errors), set(ranking.order))


def test_assumptions_name_what_is_borrowed():
    where = {"target": "minimax-m2.5", "drafter": "ngram", "hardware": "h200_sxm"}
    _, assumed = deploy(**where, tensor_parallel=4, stack="vllm")
    taken = choose_kernels(load_hardware("h200_sxm"), "vllm").borrowed["gemm", "fp8_block"]
    assert assumed["gemm_fp8_block"] == Note("borrowed", {"of": taken})
    _, assumed = deploy(**where, tensor_parallel=4, stack="sglang")
    assert "gemm_fp8_block" not in assumed


@each_listed
def test_kernels_of_a_dtype_that_nobody_timed_have_wider_errors(kind, stored, is_other):
    kernels = choose_kernels(load_hardware("h200_sxm"), "vllm")
    fit, own = kernels.fit(kind, stored), kernels.fits[kind][kernels.place(kind, stored)[1]]
    left_out = load_rankings().kinds[kind]
    more = left_out.spread["own"] if is_other else 0.0
    assert fit.shape_spread == pytest.approx(math.hypot(own.shape_spread, more))
    assert fit.mean_error == max(own.mean_error, left_out.error["own"] if is_other else 0.0)
