"""Results of twelve tools as people published them: what fit engine and acceptance read of each."""

import json
from pathlib import Path

import pytest
from printed import refused
from rows import cases

from specmodel.calibrate.fit.measured import placed, read_benchmarks, served_runs

DATA = Path(__file__).parents[1] / "data" / "benchmarks" / "public"


def public(name):
    return read_benchmarks([DATA / name])


def flat(**changes):
    """A row of InferenceX as a file has it; None leaves a key out."""
    (row,) = json.loads((DATA / "flat_offline.json").read_text())
    return {name: value for name, value in (row | changes).items() if value is not None}


# times, batches and contexts as the tables print them: T_TG / TG, (PP + TG/2), 1000 / (t/s), ...
@cases(
    "name engine milliseconds batch tokens context",
    ("batched_bench.md", "llama.cpp", 405 / 32, 1, 1, 528),
    ("sweep_bench.md", "llama.cpp", 1221 / 128, 1, 1, 64),
    ("llama_bench.md", "llama.cpp", 1000 / 391.2, 1, 1, 64),
    ("sglang_batches.md", "sglang", 4.76 * 2.4, 1, 2.4, 1024),
    ("trtllm_iterations.jsonl", "trtllm", 10, 20, 1 + 35 / 20, None),
    ("flat_offline.json", "trt", 9.16 * 3.507, 64, 3.507, 8192 + 1025 / 2),
)
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
@cases(
    "name place milliseconds tokens decoding most prompt output",
    ("aiperf.csv", 0, 2.81, 1, 598.78 * 2.81e-3, 50, 300, 498.06),
    ("genai_perf.csv", 0, 159.59, 1, 410.43 * 0.15959, 353, 4000.03, 241.75),
    ("trtllm_bench.json", 0, 14.03, 1, 3.37 * 14.03e-3, 1, 64, 16),
    ("trtllm_bench_mtp.json", 0, 5.0 * 3.04, 3.04, 6.0, 100, 1024, 76),
    ("evalscope.json", 0, 50.0, 2, 0.8, 1, 1000, 100),
    ("evalscope_1.json", 0, 37.4, 1, 259.5567 * 0.0374, 10, 1093.9, 1024),
    ("printed_vllm.txt", 0, 10.76, 1, 1393.52 * 0.01076, 16, 227546 / 960, 300),
    ("inferencex_mi355x.json", 0, 86.49, 1, 4 * 364.298 * 0.086492, 128, 7370, 922),
    ("inferencex_mi355x.json", 3, 10.461, 1, 2886.92 * 0.0104614, 32, 7413, 927),
    ("inferencex_b200.json", 0, 8.592, 1, 8 * 57.1397 * 0.00859200, 4, 908, 7262),
)
def test_runs_of_servers_under_load(
    name, place, milliseconds, tokens, decoding, most, prompt, output
):
    run = public(name)[place]
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


@cases(
    "content message",
    ([flat(mean_tpot=None)], "entry 1 mean_tpot: got None; expected milliseconds above 0"),
    ([flat(mean_tpot="fast")], "mean_tpot: got 'fast'"),
    ([flat(mean_tpot=9e-6)], r"mean_tpot: got 0\.009\d*; expected milliseconds, not seconds"),
    ([flat(disagg=True)], "no usable row'; expected at least one result; disagg is True"),
    ([flat(observed_tokens_per_step=None)], "a row with speculation has no tokens per step"),
    (
        [flat(observed_tokens_per_step=0.4)],
        r"tokens_per_step: got 0\.4; expected 1 . the accepted tokens per",
    ),
    ([flat(conc="64")], "conc: got '64'; expected requests at once"),
    ([flat(output_tput_per_gpu=None)], "output_tput_per_gpu: got None; expected tokens per second"),
    ([flat(tput_per_gpu=9e3, output_tput_per_gpu=2e3)], "at most 64, the concurrency"),
    ([flat(), {"model": "x"}], "entry 2: got 'model'; expected JSON of"),
    ([], "no usable row'; expected at least one result"),
)
def test_a_row_of_inferencex_that_cannot_be_says_so_in_one_line(content, message, file):
    refused(message, read_benchmarks, [file(content)])


@cases(
    "name old new message",
    ("batched_bench.md", "S_TG t/s", "S_TG", "row 1: got 'PP, TG, B, N_KV, T_PP s"),
    ("batched_bench.md", "    79.04", "     fast", "S_TG t/s: got 'fast'; expected tokens per"),
    ("batched_bench.md", "|    1 |    5", "|    0 |    5", r"row 1 B: got 0\.0; expected requests"),
    ("sweep_bench.md", "104.83", "-", "row 1 S_TG t/s: got '-'"),
    ("llama_bench.md", "tg128", "pp128", "no usable row'; expected at least one result; test is"),
    ("sglang_batches.md", "4.76", "0.00476", "ITL .ms.: got 0.00476; expected milliseconds, not"),
    ("aiperf.csv", "Request Count,50.00\n", "", "got 'Inter Token Latency"),
    ("aiperf.csv", ",2.81,", ",0.00281,", r"Inter Token Latency: got 0\.00281; expected millis"),
    ("genai_perf.csv", "353.00", "none", "expected JSON of"),
    ("printed_vllm.txt", "10.76", "", "got 'Successful requests"),
    ("trtllm_bench.json", "avg_tpot_ms", "tpot", "avg_tpot_ms: got None; .*trtllm-bench: --str"),
    ("trtllm_bench.json", 'ests": 1, "avg_i', 'ests": 0, "avg_i', "at least one finished"),
    ("trtllm_bench_mtp.json", "0.68}", "0.55}", "got '3.71 a draft'. The draft length varied"),
    ("trtllm_iterations.jsonl", "numGenRequests", "gen", "concurrency: got None|numGen"),
    ("trtllm_iterations.jsonl", 'numDraftTokens": 60', 'numDraftTokens": 70', "got '3.5 a draft'"),
    ("evalscope.json", "25.0", "0.025", r"Avg TPOT \(ms\): got 0\.025; expected milliseconds, not"),
    ("evalscope_1.json", 'eed requests": 20', 'eed requests": 0', "at least one finished"),
    ("evalscope_1.json", '0.0374, "Average in', '-1, "Average in', "got -1; expected milliseconds"),
)  # fmt: skip
def test_damaged_files_say_so_in_one_line(name, old, new, message, file):
    text = (DATA / name).read_text()
    assert old in text
    said = refused(message, read_benchmarks, [file(text.replace(old, new), name=name)])
    assert name in said


@cases("name", *(path.name for path in sorted(DATA.glob("*.json*"))))
def test_a_file_that_is_cut_off_says_so(name, file):
    text = (DATA / name).read_text()
    refused(
        "complete, well-formed JSON", read_benchmarks, [file(text[: len(text) - 40], name=name)]
    )
