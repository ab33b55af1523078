"""Fits of all-reduces: planted values are found, and published times that were left out agree."""

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace
from printed import refused
from rows import cases, each_row, slow

from links import with_all_reduces
from published import datasets
from published.all_reduces import PARAMETERS, errors_of, fit_all_reduces
from specmodel import list_hardware, load_hardware
from specmodel.core.algebra.collectives import AllReduceParameters, all_reduce_time
from specmodel.core.base import as_table
from specmodel.core.machines.hardware import Link
from specmodel.core.machines.profiles import hardware_text

PLANTED = AllReduceParameters(
    one_shot_latency=3e-6, one_shot_hop_latency=2e-7, one_shot_efficiency=0.6,
    two_shot_latency=2e-5, two_shot_hop_latency=1e-6, two_shot_efficiency=0.75, contention=0.3,
)  # fmt: skip
RATE = 4.5e11
LINKS: dict[str, Link] = {n: h.link for n in list_hardware() if (h := load_hardware(n)).link}


def planted(exponents=range(11, 29)):
    num_gpus, size = (x.ravel() for x in np.meshgrid([2, 4, 8], [2.0**k for k in exponents]))
    latency = all_reduce_time(size, num_gpus, RATE, PLANTED)
    return pd.DataFrame({"num_gpus": num_gpus, "message_bytes": size, "latency": latency})


def test_planted_all_reduces_are_found():
    fitting = fit_all_reduces(planted(), RATE)
    for name in PARAMETERS:
        found = getattr(fitting.parameters, name)
        assert found == pytest.approx(getattr(PLANTED, name), rel=2e-3), name
    assert np.abs(fitting.left_out).max() < 0.02


def test_a_table_that_does_not_do_is_refused_in_one_line():
    refused("message_bytes", fit_all_reduces, planted(exponents=range(11, 18)), RATE)
    for named, value in (("num_gpus", 1), ("latency", 0.0)):
        refused(named, fit_all_reduces, planted().assign(**{named: value}), RATE)


@each_row("name", LINKS)
def test_every_link_ships_with_all_reduces_for_any_stack(name):
    link = LINKS[name]
    if link.kind == "network":  # nobody timed one: all-reduces are rings over it
        assert not link.all_reduce
        return
    assert link.taken_all_reduce("an engine of next year") == "typical"
    assert link.taken_all_reduce(None) == "typical"
    for stack, fit in link.all_reduce.items():
        assert link.taken_all_reduce(stack) == stack
        assert max(fit.one_shot_efficiency, fit.two_shot_efficiency) <= 1.0
        assert fit.source


def test_a_profile_with_impossible_all_reduces_is_refused():
    wrong = {"one_shot_latency": -1e-6, "two_shot_efficiency": 0.0, "contention": -0.1, "hop": 1.0}
    for name, value in wrong.items():
        fit = as_table(LINKS["b200"].all_reduce["trtllm"]) | {name: value}
        changes = {"link.all_reduce": {"trtllm": fit}}
        refused(name, load_hardware("b200").with_changes, "hardware", changes)


def test_all_reduces_are_written_behind_the_link_and_nothing_else_moves():
    text = hardware_text("b200")
    fits = LINKS["b200"].all_reduce
    assert with_all_reduces(text, fits) == text
    without = with_all_reduces(text, {})
    assert "all_reduce" not in without
    assert {*without.splitlines()} < {*text.splitlines()}
    assert with_all_reduces(without, fits) == text
    refused("link", with_all_reduces, without.replace("[link]", '["link"]'), fits)


MOST = {("gb200", "vllm"): 0.22, ("l40s", "trtllm"): 0.18, ("l40s", "sglang"): 0.15}
"""Largest mean errors of sizes left out [-]: two GB200 are slower than four under vLLM, and what
joins L40S is not one bus."""
NEAR = {("l40s", "vllm"): 0.2}
"""How near errors are to those of the profile, where it is not 2 % [-]: on an EPYC this fit
comes out with a median of 0.060, with the same code, where the profile has 0.071."""
FITTED = [(n, s) for n, link in LINKS.items() for s in link.all_reduce if s != "typical"]


@pytest.mark.dataset
@cases("name stack", ("b200", "vllm"), *slow(*(row for row in FITTED if row != ("b200", "vllm"))))
def test_published_all_reduces_of_sizes_left_out_are_met(name, stack):
    """Every third size is left out, 2 KB to 256 MB on 2 to 8 GPUs: median error 10 %, L40S 12 %."""
    rows, link = published(name, stack), LINKS[name]
    fitting = fit_all_reduces(rows, link.peak_bytes_per_s)
    error = np.abs(fitting.left_out)
    assert np.median(error) <= (0.12 if name == "l40s" else 0.10)
    assert error.mean() <= MOST.get((name, stack), 0.12)
    fit = link.all_reduce[stack]
    found, near = (error.mean(), np.median(error)), NEAR.get((name, stack), 0.02)
    assert (fit.mean_error, fit.median_error) == pytest.approx(found, rel=near)
    shipped = errors_of(rows, link.peak_bytes_per_s, fit.parameters)
    ring = replace(link, all_reduce={}).all_reduce_parameters(stack)
    as_ring = errors_of(rows, link.peak_bytes_per_s, ring)
    assert np.abs(shipped).mean() < 0.95 * np.abs(as_ring).mean()


@pytest.mark.dataset
@cases("name", "a100_sxm_80gb", *slow("h100_sxm", "h200_sxm", "b200", "rtx_pro_6000"))
def test_rings_give_published_all_reduces_back_roughly(name):
    """With the link's peak, predictions are too short by 20 to 40 % in the median."""
    tables = datasets.list_tables().query("operation == 'comm' and framework == 'trtllm'")
    version = tables[tables["hardware"] == name]["version"].max()
    rows, link = datasets.read_timings("comm", name, "trtllm", version), LINKS[name]
    rows = rows[rows["num_gpus"].between(2, 8) & rows["message_bytes"].between(2**11, 2**25)]
    hops = 2 * (rows["num_gpus"] - 1)
    sent = hops / rows["num_gpus"] * rows["message_bytes"] / link.peak_bytes_per_s
    fixed = link.collective_latency + hops * link.hop_latency
    error = (fixed + sent / link.efficiency) / rows["latency"] - 1
    assert error.abs().mean() <= (0.25 if name == "a100_sxm_80gb" else 0.16)
    assert abs(error.median()) <= 0.15
    assert ((fixed + sent) / rows["latency"] - 1).abs().mean() > 1.4 * error.abs().mean()


@pytest.mark.dataset
def test_four_megabytes_on_eight_b200_take_what_was_published():
    """39 us, where rings by one efficiency take 25; 256 MB, which no pass sends, 0.72 for 1.25 ms.

    Of such sizes NCCL changes its protocol: 128 MB take 1.4 times as long as 64, 256 MB 1.8 times.
    """
    rows = published("b200", "trtllm").set_index(["num_gpus", "message_bytes"])["latency"]
    link = LINKS["b200"]
    parameters = link.all_reduce_parameters("trtllm")
    for size, most in ((2**22, 0.1), (2**28, 0.15)):
        seconds = float(all_reduce_time(size, 8, link.peak_bytes_per_s, parameters))
        assert seconds == pytest.approx(rows[8, size], rel=most)


def published(name, stack):
    version = LINKS[name].all_reduce[stack].version
    rows = datasets.read_timings("comm", name, stack, version)
    most = 4 if name == "gb300" else 8  # eight GB300 are of two nodes
    within = rows["num_gpus"].between(2, most) & rows["message_bytes"].between(2**11, 2**28)
    return rows[within].reset_index(drop=True)


@pytest.mark.dataset
@pytest.mark.parametrize("name", ["a100_sxm_80gb", *slow("h100_sxm", "h200_sxm", "b200", "b300")])
def test_published_all_reduces_of_four_gpus_follow_from_two_and_eight(name):
    for stack in ("trtllm", "vllm", "sglang"):
        rows, rate = published(name, stack), LINKS[name].peak_bytes_per_s
        is_four = rows["num_gpus"] == 4
        fitting = fit_all_reduces(rows[~is_four], rate)
        error = errors_of(rows[is_four], rate, fitting.parameters)
        assert np.median(np.abs(error)) <= 0.10
