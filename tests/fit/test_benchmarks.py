"""Result files of benchmarks: what runs they hold, the batch that ran, and what is refused."""

import ast
import json
from pathlib import Path

import numpy as np
import pytest
from engine_modules import own_source
from msgspec.structs import replace
from printed import refused
from rows import cases, each_listed, each_row, faults, listed, one_case

from specmodel.calibrate.fit.measured import (
    Run,
    arguments_of_runs,
    check_model,
    read_benchmarks,
    served_runs,
)
from specmodel.calibrate.fit.measured.runs import seen_batch

DATA = Path(__file__).parents[1] / "data" / "benchmarks"
PLAIN, EAGLE3, SGLANG = (
    DATA / name for name in ("vllm_plain.json", "vllm_eagle3.json", "sglang.jsonl")
)


def vllm(**changes):
    """A result of vLLM with speculation; None leaves a key out."""
    values = json.loads(EAGLE3.read_text()) | changes
    return {key: value for key, value in values.items() if value is not None}


def sglang(line=1, **changes):
    """A result of SGLang, by default with speculation."""
    return json.loads(SGLANG.read_text().splitlines()[line]) | changes


def only(path):
    (run,) = read_benchmarks([path])
    return run


# What the engines write


def test_vllm_without_speculation_is_a_plain_run():
    values, run = json.loads(PLAIN.read_text()), only(PLAIN)
    assert (run.source, run.engine, run.model) == (str(PLAIN), "vllm", "openai/gpt-oss-120b")
    assert (run.quantity, run.draft_length, run.topk, run.verify_tokens) == ("step_time", 0, 1, 1)
    assert not run.is_speculative
    lengths = zip(values["latencies"], values["ttfts"], values["output_lens"], strict=True)
    tpots = [(latency - first) / (tokens - 1) for latency, first, tokens in lengths]
    assert run.value == pytest.approx(np.mean(tpots), rel=1e-4)
    assert run.prompt_length == pytest.approx(np.mean(values["input_lens"]))
    assert run.output_length == pytest.approx(np.mean(values["output_lens"]))
    # few prompts run in a smaller batch than asked for
    decode = sum(values["latencies"]) - sum(values["ttfts"])
    assert run.batch_size == pytest.approx(1 + decode / values["duration"] / 2, rel=0.01)
    assert (run.concurrency, round(run.batch_size, 2)) == (2, 1.58)


def test_vllm_with_speculation_counts_the_token_that_the_target_adds():
    values, run = vllm(), only(EAGLE3)
    accepted = values["spec_decode_accepted_tokens"] / values["spec_decode_num_drafts"]
    assert run.tokens_per_step == pytest.approx(1 + accepted, rel=1e-6)
    assert (run.draft_length, run.topk, run.verify_tokens) == (3, 1, 4)
    # from one chunk to the next is a step
    assert run.value == pytest.approx(values["mean_itl_ms"] / 1e3, rel=0.02)


def test_sglang_tells_what_its_server_said_of_drafting():
    plain, tree = read_benchmarks([SGLANG])
    assert (plain.engine, plain.draft_length, plain.tokens_per_step) == ("sglang", 0, 1)
    assert plain.source == f"{SGLANG} line 1"
    assert plain.model == "Qwen/Qwen3-30B-A3B-Instruct-2507"
    assert (tree.draft_length, tree.topk, tree.verify_tokens) == (3, 2, 6)
    assert tree.value == pytest.approx(2.2 * 0.0041)


def test_blocks_of_sglang_are_as_long_as_what_is_verified(file):
    info = {"speculative_algorithm": "DFLASH", "speculative_num_steps": 1}
    info |= {"speculative_eagle_topk": 1, "speculative_num_draft_tokens": 8}
    run = only(file(sglang(server_info=info)))
    assert (run.draft_length, run.topk, run.verify_tokens) == (7, 1, 8)
    apart = only(file(sglang(server_info={"prefill": [{}], "decode": [info]})))
    assert apart.verify_tokens == 8


def test_a_draft_length_that_the_file_does_not_tell_is_for_the_user_to_give(file):
    run = only(file(sglang(server_info=None)))
    assert (run.draft_length, run.topk, run.verify_tokens) == (None, None, None)
    assert run.is_speculative
    assert run.tokens_per_step == 2.2
    tree = run.drafting(5, topk=4, verify_tokens=16)
    assert run.drafting(3).verify_tokens == 4
    assert (tree.draft_length, tree.topk, tree.verify_tokens) == (5, 4, 16)
    refused(r"tokens_per_step: got 2\.2; .*draft_length \+ 1 = 2", run.drafting, 1)
    refused(r"draft_length: got 2\.5", run.drafting, 2.5)
    refused("verify_tokens: got None", run.drafting, 3, topk=2)


@cases("indent as_list", (None, False), (2, False), (None, True))
def test_results_may_be_appended_or_be_a_list(tmp_path, indent, as_list):
    path, results = tmp_path / "mine", [vllm(), sglang(0)]
    texts = [json.dumps(result, indent=indent) for result in results]
    path.write_text(f"[{','.join(texts)}]" if as_list else "\n".join(texts) + "\n\n")
    first, second = read_benchmarks([path])
    assert (first.engine, second.engine) == ("vllm", "sglang")
    line = texts[0].count("\n") + 2
    assert second.source == f"{path} {'entry 2' if as_list else f'line {line}'}"


# The batch that ran


def test_a_request_sees_the_others_while_they_decode():
    """Little's law against the sweep over a closed loop's requests."""
    rng, slots, clock, spans = np.random.default_rng(7), 8, np.zeros(8), []
    for _ in range(4000):
        slot = clock.argmin()
        first, decode = rng.exponential(0.5), rng.exponential(1.0)
        spans.append((clock[slot] + first, clock[slot] + first + decode))
        clock[slot] += first + decode
    starts, ends = np.array(spans).T
    times = np.concatenate([starts, ends])
    order = times.argsort()
    batch = np.cumsum(np.repeat([1, -1], len(spans))[order])[:-1]
    spent = np.diff(times[order])
    seen = (batch**2 * spent).sum() / (batch * spent).sum()  # as averaged over requests
    mean = (ends - starts).sum() / clock.max()
    assert seen_batch(mean, slots) == pytest.approx(seen, rel=0.02)
    assert mean < 0.95 * seen


def test_a_full_batch_is_the_one_asked_for(file):
    tpot, tokens = 0.01, 501
    full = {"max_concurrency": 8, "completed": 80, "total_output_tokens": 80 * tokens}
    full |= {"mean_tpot_ms": 1e3 * tpot, "output_throughput": 8 * tokens / (tokens - 1) / tpot}
    run = only(file(vllm(**full)))
    assert run.batch_size == pytest.approx(8)
    # without a limit those who come see as many as are there, and themselves
    open_loop = only(file(vllm(**full | {"max_concurrency": None})))
    assert open_loop.batch_size == pytest.approx(1 + 8 * 79 / 80)
    assert open_loop.concurrency is None


# Tables


def test_a_row_may_hold_a_plain_and_a_speculative_run():
    runs = read_benchmarks([DATA / "pairs.csv"])
    assert [run.source.rpartition(" ")[2] for run in runs] == ["1", "1", "2", "3", "3", "4"]
    plain, chain, tree, half, ratio, alone = runs
    assert (plain.value, plain.draft_length, plain.batch_size) == (4 / 500, 0, 4)
    assert (chain.value, chain.draft_length) == (4 * 2 / 625, 3)
    assert (tree.value, tree.topk, tree.verify_tokens) == (4 * 2.5 / 550, 4, 16)
    assert (tree.prompt_length, tree.output_length, tree.model) == (512, 256, "qwen3-30b-a3b")
    assert half.value == 0.010
    assert half.batch_size == pytest.approx(1 + 13.6 * 15 / 16)
    assert (ratio.quantity, ratio.value, ratio.batch_size) == ("speedup", 1.1, 16)
    assert (alone.quantity, alone.value, alone.prompt_length) == ("speedup", 1.2, None)


@listed
@one_case("batch", "concurrency", "batch_size", "batch_size_or_concurrency")
def test_what_a_row_measured_becomes_a_step(table, row, step, batch):
    run = only(table(row | {batch: 4}))
    assert run.value == pytest.approx(step)
    assert (run.quantity, run.batch_size, run.concurrency) == ("step_time", 4, 4)
    assert run.is_speculative == ("draft_length" in row and row["draft_length"] > 0)


def test_repeats_of_a_row_tell_its_noise(table):
    """The mean range of two and three normal draws is 1.128 and 1.693 deviations."""
    row = {"step_ms": 5.0, "concurrency": 2, "step_spread": 0.1}
    for repeats, noise in ((2, 0.1 / 1.128 / 2**0.5), (3, 0.1 / 1.693 / 3**0.5), (1, 0.0)):
        assert only(table(row | {"repeats": repeats})).noise == pytest.approx(noise, rel=1e-3)
    assert only(table({"step_ms": 5.0, "concurrency": 2})).noise == 0.0


def test_tokens_per_second_and_tpot_tell_the_batch(table):
    row = {"tokens_per_s": 400.0, "tpot_ms": 10.0}
    assert only(table(row)).batch_size == pytest.approx(4)
    assert only(table(row | {"concurrency": 8})).batch_size == pytest.approx(1 + 4 * 7 / 8)
    drafting = row | {"draft_length": 3, "tokens_per_step": 2.5}
    assert only(table(drafting)).batch_size == pytest.approx(4)
    few = table(row | {"concurrency": 2})
    refused(r"row 1 tokens_per_s: .*at most 2, the concurrency", read_benchmarks, [few])
    assert only(table(row | {"step_batch": 3.5})).batch_size == 3.5


# Rows of a public benchmark as the engine's own files


def test_published_rows_read_as_files_of_their_engine():
    plain = read_benchmarks([DATA / "specforge_plain.jsonl"])
    runs = read_benchmarks([DATA / "specforge_eagle3.jsonl"])
    assert [run.concurrency for run in plain] == [1, 4]
    cells = [(3, 1, 4), (3, 3, 8), (3, 3, 4), (7, 4, 16), (6, 4, 12), (8, 8, 60)]
    cells += [(3, 1, 4), (3, 3, 8)]
    assert [(run.draft_length, run.topk, run.verify_tokens) for run in runs] == cells
    base = {run.concurrency: run.value for run in plain}
    speedups = [base[run.concurrency] * run.tokens_per_step / run.value for run in runs]
    # as published, up to the time to the first token
    published = [159.78, 172.99, 207.62, 191.9, 171.54, 177.5]
    published = [rate / 222.47 for rate in published] + [447.9 / 566.21, 426.46 / 566.21]
    assert speedups == pytest.approx(published, rel=0.005)
    check_model([*plain, *runs], "qwen3-30b-a3b")


# What is refused


@listed
def test_a_result_of_an_engine_that_cannot_be_says_so_in_one_line(file, engine, changes, message):
    result = {"vllm": vllm, "sglang": sglang}[engine](**changes)
    refused(message, read_benchmarks, [PLAIN, file(result)])


@each_listed
def test_a_file_that_is_none_of_these_says_so(file, content, message):
    refused(message, read_benchmarks, [file(content.encode("latin-1"))])


def test_a_file_that_is_not_there_or_is_a_folder_says_so(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        refused(r"benchmarks: got .*readable JSON, CSV or Parquet", read_benchmarks, [path])
    refused("benchmarks: got 'no file'", read_benchmarks, [])


@each_row(("row", "message"), faults("benchmarks"))
def test_a_row_that_cannot_be_says_so_in_one_line(table, row, message):
    path = table(row)
    said = refused(message, read_benchmarks, [path])
    assert str(path) in said


def test_a_plain_run_is_asked_for_where_only_speculative_ones_are_timed():
    plain, chain, _, _, ratio, _ = read_benchmarks([DATA / "pairs.csv"])

    def notes(*runs):
        rows = served_runs(runs, {"target": "qwen3-30b-a3b"})
        return [note for row in rows for note in row.notes]

    for fine in ([plain, chain], [chain, ratio], [ratio], [plain], []):
        assert notes(*fine) == []
    (note,) = notes(chain, chain)
    assert "no run without speculation" in note


@cases(
    "content culprit",
    (PLAIN.read_bytes()[:400], r"line 1: .*complete, well-formed JSON"),
    (SGLANG.read_bytes()[:-200], r"line 2: .*complete, well-formed JSON"),
    (b'{"a": ' * 100_000, "line 1: "),
    (b"[" + b"1," * 9_000_000 + b"1]", "leave out --save-detailed"),
    (b"[" + b"1.2345678," * 100_000 + b"1]", "entry 1: got 1.23"),
    (b"tpot_ms,concurrency\n" + b"5,1\n" * 100_001, "at most 100,000 rows"),
)
def test_what_is_cut_or_takes_much_memory_is_refused_in_one_line(
    content, culprit, file, monkeypatch
):
    monkeypatch.setattr("specmodel.core.base.files._MOST_JSON", 100_000_000)
    refused(culprit, read_benchmarks, [file(content)])


def test_a_benchmark_of_another_model_is_refused():
    run = Run(source="a.json", model="", quantity="step_time", value=0.01, batch_size=1.0)
    other = replace(run, model="openai/gpt-oss-120b")
    same = replace(run, model="/models/Qwen3-30B-A3B-Instruct-2507/")
    check_model([same], "qwen3-30b-a3b")
    check_model([other], "my-own/config.json")
    told = r"a\.json model: got .*gpt-oss-120b as the target"
    refused(told, check_model, [other], "gpt-oss-20b")


# The engines' own lists of keys


def dictionaries(source):
    """Keys of each dictionary that is written out, and of each that is added to by name."""
    added = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Dict):
            yield {key.value for key in node.keys if isinstance(key, ast.Constant)}
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            name, key = ast.unparse(node.targets[0].value), node.targets[0].slice
            if isinstance(key, ast.Constant):
                added.setdefault(name, set()).add(key.value)
    yield from added.values()


@each_listed
def test_acceptance_by_position_is_given_that_of_all_before(told, rates, file):
    run = only(file(vllm(spec_decode_per_position_acceptance_rates=told)))
    assert run.acceptance_by_position == pytest.approx(rates)


def test_a_look_up_gains_in_those_steps_that_have_a_draft(file):
    """Of 54 steps 27 had a draft, of which 35 tokens were accepted: vLLM's length is by draft."""
    run = only(file(vllm(total_output_tokens=6 + 54 + 35)))
    assert run.proposal_rate == pytest.approx(0.5, rel=1e-5)
    assert run.tokens_per_step == pytest.approx(1 + 35 / 54, rel=1e-5)
    assert run.value == pytest.approx(3.3e-3 * run.tokens_per_step)
    assert run.acceptance_rate == pytest.approx(only(EAGLE3).acceptance_rate)
    assert run.accepted_fraction == pytest.approx(35 / 81, rel=1e-5)
    assert arguments_of_runs([run])[-1]["proposal_rate"] == 0.5
    (served,) = served_runs([run], {"target": "gpt-oss-120b"})
    assert served.deployment["proposal_rate"] == run.proposal_rate


@each_listed
def test_the_gpus_are_those_of_sglang_s_degrees(info, gpus, file):
    assert only(file(sglang(server_info=info | {"speculative_algorithm": None}))).num_gpus == gpus


def test_what_an_event_brings_tells_of_drafts_that_vllm_did_not_count(file):
    old = {name: value for name, value in vllm().items() if "spec_decode" not in name}
    run, plain = only(file(old)), only(PLAIN)
    assert not run.is_speculative
    assert (run.may_draft, plain.may_draft) == (True, False)
    drafting = run.drafting(3)
    assert drafting.tokens_per_step == pytest.approx(7.6074 / 3.3)
    assert drafting.value == pytest.approx(7.6074e-3)  # an event is a step


@pytest.mark.engine
def test_keys_are_those_that_vllm_writes():
    found = list(dictionaries(own_source("vllm", "vllm/benchmarks/serve.py")))
    written = set().union(*(keys for keys in found if {"duration", "rtfx"} <= keys))
    added = [keys for keys in found if {"model_id", "date"} <= keys or "rps_change_events" in keys]
    written |= set().union(*added)
    of_times = {
        f"{kind}_{name}_ms"
        for kind in ("mean", "median", "std", "p99")
        for name in ("ttft", "tpot", "itl")
    }
    own = set(vllm()) | {"label", "request_goodput"}  # null, which the helper leaves out
    assert own - of_times <= written
    other = {key for key in written - own if not key.startswith(("diffusion_", "ramp_up_"))}
    assert other == {"rps_change_events"}
    assert of_times <= own
    assert set(json.loads(PLAIN.read_text())) == {k for k in own if not k.startswith("spec_")}


@pytest.mark.engine
def test_keys_are_those_that_sglang_writes():
    found = dictionaries(own_source("sglang", "sglang/benchmark/serving.py"))
    written = [keys for keys in found if "accept_length" in keys or "errors" in keys]
    assert set(sglang()) == set().union(*written)
    server = own_source("sglang", "sglang/srt/arg_groups/field_order.py")
    ours = {key for key in sglang()["server_info"] if key.startswith("speculative_")}
    assert all(f'"{key}"' in server for key in (*ours, "model_path"))
