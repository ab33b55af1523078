"""Kernels of a stack by kind: what the table of kinds lacks, and what nobody fitted."""

import numpy as np
import pytest
from msgspec.structs import replace
from one_by_one import pass_time
from printed import refused

from specmodel import load_hardware
from specmodel.core.layers import PassWork, Work, kinds
from specmodel.core.machines import choose_kernels, load_typical
from specmodel.core.machines.fallbacks import stack_kernels
from specmodel.core.machines.kernels import DATA_SHEET_KERNELS

H200 = load_hardware("h200_sxm")


@pytest.mark.parametrize("stack", ["vllm", "typical", "datasheet"])
def test_a_kind_that_the_table_has_not_is_refused_in_one_line(stack):
    kernels = choose_kernels(H200, stack)
    expected = r"^kind: got 'lattention'; expected a kind of kernels from \S+\.toml, .*"
    for look_up in (kernels.parameters, kernels.arithmetic):
        refused(expected + "latent_attention", look_up, "lattention", "bf16", "bf16")
    work = PassWork({"part": Work(flop=1e9, kernels=1, kind="lattention")}, np.zeros(()))
    refused(expected, pass_time, work, H200, kernels)
    if kernels.record:
        refused(expected, kernels.place, "lattention", "bf16")


def with_row(monkeypatch, **fields):
    """Add a kind of kernels that no stack has fits of."""
    row = kinds.KernelKind(name="made_up_attention", **fields)
    monkeypatch.setitem(kinds.KINDS, row.name, row)
    return row.name


def test_a_kind_without_fit_and_fallback_is_refused_in_one_line(monkeypatch):
    kind = with_row(monkeypatch)
    expected = r"^kind: got 'made_up_attention'; expected a kind that is fitted for {}: "
    expected += r"give it a fallback in specmodel/core/layers/data/kinds\.toml, or fit it$"
    for stack in ("vllm", "typical"):
        look_up = choose_kernels(H200, stack).parameters
        refused(expected.format(stack), look_up, kind, "bf16", "bf16")
    parameters = DATA_SHEET_KERNELS.parameters(kind, "bf16", "bf16")
    assert parameters == DATA_SHEET_KERNELS.parameters("gemm", "bf16", "bf16")


def test_a_kind_of_the_table_takes_the_fits_of_its_fallback(monkeypatch):
    kind = with_row(monkeypatch, fallback="latent_attention")
    kernels = choose_kernels(H200, "vllm")
    assert kernels.place(kind, "fp8", "bf16") == kernels.place("latent_attention", "fp8", "bf16")
    taken = kernels.fit("latent_attention", "fp8", "bf16")
    assert kernels.fit(kind, "fp8", "bf16") is taken
    assert kernels.kind_of_errors(kind) == kernels.kind_of_errors("latent_attention")


def test_prompts_with_a_cache_of_8_bits_compute_as_those_of_16_that_were_fitted():
    typical = load_typical()
    of_16_bits = {"bf16": typical.prompt_attention["bf16"]}
    kernels = stack_kernels("mine", replace(typical, prompt_attention=of_16_bits))
    assert kernels.arithmetic("prompt_attention", "fp8", "fp8") == "bf16"
    assert kernels.arithmetic("attention", "fp8", "fp8") == "fp8"


def test_the_table_is_closed():
    """What a kind falls back to has a row and fits of its own, and no kind falls back to itself.

    Messages run at the speed of the link, whatever was fitted.
    """
    sheet = DATA_SHEET_KERNELS.parameters("message", "bf16")
    assert choose_kernels(H200, "vllm").parameters("message", "bf16", "bf16") is sheet
    for row in kinds.KINDS.values():
        assert {row.fallback, row.errors_of} <= {"", *kinds.FITTED_KINDS}
        chain = [row.name]
        while fallback := kinds.KINDS[chain[-1]].fallback:
            assert fallback not in chain
            chain.append(fallback)
        assert row.follows or not row.fallback
        if row.errors_of:
            assert row.errors_of in kinds.MAIN_KINDS
