"""Result files of GuideLLM and AIPerf, recorded with a stand-in server: what is read of them."""

import json
from pathlib import Path

import numpy as np
import pytest
from engine_modules import own_source
from printed import refused
from rows import each_listed

from specmodel.calibrate.fit.measured import read_benchmarks

DATA = Path(__file__).parents[1] / "data" / "benchmarks"
TOOLS = ("guidellm", "aiperf")
OF_DRAFTS = "benchmarks.0.requests.successful.0.response_metrics.speculative_decoding"


def values(tool, kind="eagle3"):
    return json.loads((DATA / f"{tool}_{kind}.json").read_text())


def only(path):
    (run,) = read_benchmarks([path])
    return run


@pytest.fixture
def file(tmp_path):
    """Write a result, with what a path in it leads to changed; None leaves the last key out."""

    def write(tool, path="", value=None, kind="eagle3"):
        result = values(tool, kind)
        *outer, last = path.split(".")
        place = result
        for key in outer:
            place = place[int(key) if isinstance(place, list) else key]
        place.pop(last, None) if value is None else place.update({last: value})
        mine = tmp_path / "mine.json"
        mine.write_text(json.dumps(result))
        return mine

    return write


@pytest.mark.parametrize("tool", TOOLS)
def test_a_plain_run_has_the_means_of_its_requests(tool):
    run, found = only(DATA / f"{tool}_plain.json"), values(tool, "plain")
    assert (run.quantity, run.model, run.concurrency) == ("step_time", "openai/gpt-oss-120b", 2)
    assert not run.is_speculative
    assert not run.may_draft
    assert (run.prompt_length, run.output_length) == pytest.approx((120, 48))
    if tool == "guidellm":
        (found,) = found["benchmarks"]
        requests = found["requests"]["successful"]
        tpots = [request["inter_token_latency_ms"] for request in requests]
        duration = found["duration"]
    else:
        tpots = [found["decode_duration"]["avg"] / 47]
        duration = found["benchmark_duration"]["avg"]
    assert run.value == pytest.approx(np.mean(tpots) / 1e3, rel=1e-4)
    decoding = 12 * 47 * run.value / duration  # Little's law
    assert run.batch_size == pytest.approx(1 + decoding / 2, rel=5e-3)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_run_with_speculation_has_what_the_server_counted(tool):
    run, found = only(DATA / f"{tool}_eagle3.json"), values(tool)
    assert (run.draft_length, run.topk, run.verify_tokens) == (3, 1, 4)
    if tool == "guidellm":
        requests = found["benchmarks"][0]["requests"]["successful"]
        told = [request["response_metrics"]["speculative_decoding"] for request in requests]
        steps = np.sum([one["acceptance_histogram"] for one in told], axis=0)
        event = run.tokens_per_event * run.value / run.tokens_per_step
    else:
        steps = np.array([*found["pooled_spec_decode_acceptance_histogram"].values()])
        event = found["inter_chunk_latency"]["avg"] / 1e3
    mean = (steps * [1, 2, 3, 4]).sum() / steps.sum()
    assert run.tokens_per_step == pytest.approx(mean, rel=1e-4)
    assert run.value == pytest.approx(event, rel=0.04)  # the last step of a request is cut
    rates = run.acceptance_by_position
    assert rates[0] == pytest.approx(steps[1:].sum() / steps.sum())
    assert 1 + np.cumprod(rates).sum() == pytest.approx(mean)


@each_listed
def test_without_counts_of_the_server_events_tell_that_it_drafted(tool, path, file):
    run = only(file(tool, path))
    assert not run.is_speculative
    assert run.may_draft
    assert run.drafting(3).tokens_per_step == pytest.approx(2.43, rel=0.02)


def test_each_benchmark_of_a_report_of_guidellm_is_a_run(file):
    both = [values("guidellm", kind)["benchmarks"][0] for kind in ("plain", "eagle3")]
    path = file("guidellm", "benchmarks", both)
    assert [run.source for run in read_benchmarks([path])] == [f"{path} entry 1", f"{path} entry 2"]
    strategy = {"type_": "constant", "rate": 4.0, "max_concurrency": 512}
    run = only(file("guidellm", "benchmarks.0.config.strategy", strategy))
    assert run.concurrency is None


@each_listed
def test_a_result_that_cannot_be_says_so_in_one_line(tool, path, value, message, file):
    mine = file(tool, path, value)
    said = refused(message, read_benchmarks, [mine])
    assert "mine.json" in said


@pytest.mark.engine
def test_keys_are_those_that_guidellm_writes():
    metrics = own_source("guidellm", "guidellm/benchmark/schemas/metrics.py")
    (found,) = values("guidellm")["benchmarks"]
    assert all(f"    {name}: " in metrics for name in found["metrics"])
    assert "    response_metrics: " in own_source("guidellm", "guidellm/schemas/base/response.py")
    strategies = own_source("guidellm", "guidellm/scheduler/strategies.py")
    assert all(f"    {name}: " in strategies for name in ("max_concurrency", "rate"))


@pytest.mark.engine
def test_keys_are_those_that_aiperf_writes():
    models = own_source("aiperf", "aiperf/common/models/export_models.py")
    drafts = own_source("aiperf", "aiperf/metrics/types/spec_decode_metrics.py")
    named = {name for name in values("aiperf") if f"    {name}: " in models}
    named |= {name for name in values("aiperf") if f'tag = "{name}"' in drafts}
    assert {"request_count", "total_isl", "total_osl", "output_token_throughput"} <= named
    assert {"inter_token_latency", "inter_chunk_latency", "input_config"} <= named
    assert {"pooled_spec_decode_acceptance_histogram", "total_draft_tokens"} <= named
    assert {"total_spec_decode_steps", "spec_decode_token_weighted_acceptance_length"} <= named
