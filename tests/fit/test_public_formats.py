"""Results of twelve tools as people published them: what fit engine and acceptance read of each."""

import json
from pathlib import Path

import pytest
from printed import refused
from rows import cases, each_listed, listed

from specmodel.calibrate.fit.measured import placed, read_benchmarks, served_runs

DATA = Path(__file__).parents[1] / "data" / "benchmarks" / "public"


def public(name):
    return read_benchmarks([DATA / name])


def flat(**changes):
    """A row of InferenceX as a file has it; None leaves a key out."""
    (row,) = json.loads((DATA / "flat_offline.json").read_text())
    return {name: value for name, value in (row | changes).items() if value is not None}


@each_listed
def test_steps_timed_without_prompts(name, engine, milliseconds, batch, tokens, context):
    run = public(name)[0]
    assert (run.engine, run.quantity) == (engine, "step_time")
    assert run.value * 1e3 == pytest.approx(milliseconds, rel=2e-3)
    assert run.tokens_per_step == pytest.approx(tokens)
    assert (run.batch_size, run.context_length) == (batch, context)
    assert (run.prompt_length, run.output_length) == (None, None)
    run = run if run.draft_length is not None else run.drafting(3)
    (row,) = served_runs([run], {"target": "qwen3-30b-a3b"})
    assert row.points["context_length"] == (1000 if context is None else context)
    assert "prompt_length" not in row.points  # so that none is carried


# by Little's law a mean of rate x time decode, and a request sees itself and others beside it
@each_listed
def test_runs_of_servers_under_load(name, place, milliseconds, tokens, rate, most, prompt, output):
    run, decoding = public(name)[place], rate * milliseconds * 1e-3
    assert run.value * 1e3 == pytest.approx(milliseconds, rel=1e-3)
    assert run.tokens_per_step == pytest.approx(tokens)
    first = 1 / output if "inferencex" not in name else 0
    seen = 1 + min(decoding * (1 - first), most) * (1 - 1 / most)
    assert run.batch_size == pytest.approx(seen, rel=2e-3)
    assert (run.prompt_length, run.output_length) == pytest.approx((prompt, output), rel=5e-3)


def test_lengths_of_inferencex_are_means_as_its_rates_tell():
    """Rows name the longest that are drawn; prompts and outputs are as their rates."""
    rows = json.loads((DATA / "inferencex_mi355x.json").read_text())
    for run, row in zip(public("inferencex_mi355x.json"), rows, strict=True):
        ratio = row["input_tput_per_gpu"] / row["output_tput_per_gpu"]
        assert run.prompt_length / run.output_length == pytest.approx(ratio, rel=0.03)
        assert 0.85 < run.output_length / row["osl"] < 0.95


def test_rows_are_taken_of_the_place_that_is_typed():
    runs = public("inferencex_mi355x.json")
    typed = {"target": "gpt-oss-120b", "hardware": "mi355x", "num_gpus": 8}
    kept, told, out = placed(runs, typed)
    assert [run.concurrency for run in kept] == [8, 16]
    assert told == {"tensor_parallel": 8, "data_parallel": 1, "expert_parallel": 1}
    assert out == "2 of 4 runs have another model, GPU or layout and are left out"
    for change, message in (
        ({"num_gpus": None}, "hardware: got None; expected 1 or 8, as in these files"),
        ({"num_gpus": 2}, "hardware: got '2 GPUs'; expected 1 or 8"),
        ({"hardware": "b200"}, "hardware: got 'b200'; expected mi355x"),
    ):
        refused(message, placed, runs, typed | change)
    one, _, _ = placed(runs, typed | {"num_gpus": 1})
    assert [run.concurrency for run in one] == [32]


def test_files_of_unlike_servers_are_refused_and_own_profiles_of_a_gpu_taken():
    runs = public("trtllm_bench_mtp.json") + public("trtllm_bench.json")
    refused("hardware: got '8 GPUs'; expected 1, as in these files", placed, runs, {"num_gpus": 8})
    assert placed(runs, {})[1] == {"data_parallel": 1}
    mine = {"target": "gpt-oss-120b", "hardware": "./mine.toml", "num_gpus": 8}
    kept, told, _ = placed(public("inferencex_mi355x.json"), mine)
    assert (len(kept), "hardware" in told) == (2, False)


def test_attention_of_a_row_may_be_data_parallel(file):
    (run,) = public("flat_offline.json")
    degrees = {"tensor_parallel": 1, "data_parallel": 8, "expert_parallel": 8}
    assert dict(run.place) == {"hardware": "b300", "num_gpus": 8} | degrees
    assert run.model == "deepseek-v4-pro"
    (run,) = read_benchmarks([file([flat(decode_dp_attention="false")])])
    assert dict(run.place)["tensor_parallel"] == dict(run.place)["expert_parallel"] == 8


@cases("tokens length", (3.507, 3), (1.71, 1), (2.0, 1), (2.001, 2), (1.0, 1), (5.9, 5))
def test_a_draft_that_a_row_does_not_tell_is_the_shortest_that_will_do(tokens, length, file):
    (run,) = read_benchmarks([file([flat(observed_tokens_per_step=tokens)])])
    assert (run.draft_length, run.verify_tokens) == (length, length + 1)
    assert "--draft-length sets another" in run.assumed
    assert run.drafting(7).draft_length == 7


def test_prompts_are_carried_unless_the_rate_has_none(file):
    loaded = flat(tput_per_gpu=7857.0, mean_e2el=4.94 + 1024 * 0.00916)
    (run,) = read_benchmarks([file([loaded])])
    assert (run.prompt_length, run.output_length) == pytest.approx((8192, 1025))
    assert run.context_length is None


def test_what_trtllm_bench_tells_of_drafts():
    (run,) = public("trtllm_bench_mtp.json")
    assert (run.draft_length, run.num_gpus, run.version) == (3, 8, "1.2")
    assert dict(run.place)["expert_parallel"] == 8


@listed
def test_a_row_of_inferencex_that_cannot_be_says_so_in_one_line(changes, message, file):
    refused(message, read_benchmarks, [file([flat(**changes)])])


@each_listed
def test_damaged_files_say_so_in_one_line(name, old, new, message, file):
    text = (DATA / name).read_text()
    assert old in text
    said = refused(message, read_benchmarks, [file(text.replace(old, new), name=name)])
    assert name in said


@cases("name", *(path.name for path in sorted(DATA.glob("*.json*"))))
def test_a_file_that_is_cut_off_says_so(name, file):
    text = (DATA / name).read_text()
    refused("complete, well-formed JSON", read_benchmarks, [file(text[:-40], name=name)])
