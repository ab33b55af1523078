"""Draft lengths by batch size, compared with brute force and with what each engine reads."""

import bisect
import itertools
import json
import math
import re

import numpy as np
import pytest
import yaml
from engine_modules import own_module
from hypothesis import HealthCheck, given, settings, strategies as st
from printed import refused
from rows import each_listed, each_row, faults

from specmodel import predict, schedule
from specmodel.core.cost.launch import launched
from specmodel.core.cost.launch_lines import launch_line
from specmodel.plan import Schedule, config_format, draft_length_schedule, draft_ranges
from specmodel.plan.schedule import mean_speedup
from specmodel.simulate.policies import scheduled_draft_lengths

COARSE = [0.8, 0.95, 0.99, 0.995, 1.0, 1.004, 1.01, 1.05, 1.2]
"""Speedups: few values, which makes ties common."""


@st.composite
def tables(draw, values, most_sizes=6, most_lengths=3):
    """Speedup by batch size and draft length."""
    sizes, lengths = draw(st.integers(1, most_sizes)), draw(st.integers(1, most_lengths))
    row = st.lists(values, min_size=lengths, max_size=lengths)
    return draw(st.lists(row, min_size=sizes, max_size=sizes))


def gain_of(row, length):
    return row[length - 1] if length else 1.0


def is_allowed(row, length, cap, tolerance):
    best = max(gain_of(row, other) for other in range(cap + 1))
    pays = length == 0 or gain_of(row, length) >= 1
    return pays and gain_of(row, length) >= (1 - tolerance) * best


def cost(table, lengths):
    """Return changes of length, and the loss with sizes equally likely on a logarithmic scale."""
    loss = 0.0
    for size, (row, length) in enumerate(zip(table, lengths, strict=True), start=1):
        best = max(1.0, *row)
        loss += math.log(best / gain_of(row, length)) / size
    return sum(a != b for a, b in itertools.pairwise(lengths)), loss


def cheapest(table, schedules):
    """Return the least cost; sums that differ only by rounding count as equal."""
    costs = [cost(table, lengths) for lengths in schedules]
    fewest = min(changes for changes, _ in costs)
    return fewest, min(loss for changes, loss in costs if changes == fewest)


def schedules_up_to(cap, table, tolerance):
    """Return all schedules of allowed lengths up to a longest one."""
    lengths = [[k for k in range(cap + 1) if is_allowed(row, k, cap, tolerance)] for row in table]
    return [*itertools.product(*lengths)]


AMONG_ALL = given(tables(st.sampled_from(COARSE)), st.sampled_from([0, 0.001, 0.01, 0.1, 0.5]))


@settings(max_examples=200)
@AMONG_ALL
def test_no_schedule_of_all_is_cheaper(table, tolerance):
    schedules = schedules_up_to(len(table[0]), table, tolerance)
    chosen = draft_length_schedule(table, tolerance=tolerance).draft_length.tolist()
    assert tuple(chosen) in schedules
    assert cost(table, chosen) == pytest.approx(cheapest(table, schedules), abs=1e-12)


@settings(max_examples=200)
@AMONG_ALL
def test_longest_first_is_the_best_of_all_caps(table, tolerance):
    least = math.inf
    for cap in range(len(table[0]) + 1):
        rest = schedules_up_to(cap, table[1:], tolerance)
        least = min(least, cheapest(table, [(cap, *lengths) for lengths in rest])[1])
    chosen = draft_length_schedule(table, tolerance=tolerance, longest_first=True)
    assert chosen.max_draft_length == chosen.draft_length[0]
    assert cost(table, chosen.draft_length.tolist())[1] == pytest.approx(least, abs=1e-12)


@given(tables(st.floats(0.3, 3), most_sizes=30, most_lengths=6), st.booleans())
def test_no_constant_length_is_better(table, longest_first):
    """No length is better by more than 1 %, neither on average nor at any batch size."""
    schedule = draft_length_schedule(table, longest_first=longest_first)
    mean = mean_speedup(schedule.speedup)
    for constant in [np.ones(len(table)), *np.transpose(table)]:
        assert mean >= mean_speedup(0.99 * constant) - 1e-12
        assert longest_first or (schedule.speedup >= 0.99 * constant - 1e-12).all()
    taken = [gain_of(r, k) for r, k in zip(table, schedule.draft_length, strict=True)]
    assert schedule.speedup.tolist() == taken
    assert schedule.best_speedup.tolist() == [max(1.0, *row) for row in table]


def test_the_longest_first_may_lose_at_batch_size_1_only():
    gain = [[1.15, 1.08, 0.9], *[[1.2, 1.5, 1.4]] * 63]
    assert draft_length_schedule(gain).ranges == ((1, 1, 1), (2, 64, 2))
    bound = draft_length_schedule(gain, longest_first=True)
    assert bound.ranges == ((1, 64, 2),)
    assert bound.loss.tolist() == pytest.approx([1 - 1.08 / 1.15, *[0] * 63])
    harmonic = sum(1 / size for size in range(1, 65))
    assert bound.mean_loss == pytest.approx(1 - (1.08 / 1.15) ** (1 / harmonic))
    hopeless = [[0.2, 0.2], [1.1, 1.1]]
    assert draft_length_schedule(hopeless, longest_first=True).ranges == ((1, 2, 0),)


def test_contexts_enter_as_a_geometric_mean():
    short, long = [[4.0, 1.1], [0.8, 1.0]], [[1.0, 1.1], [0.8, 1.21]]
    schedule = draft_length_schedule([short, long])
    assert schedule.draft_length.tolist() == [1, 2]
    assert schedule.speedup == pytest.approx([2.0, 1.1])
    assert draft_length_schedule([long]).ranges == draft_length_schedule(long).ranges


def test_means_weight_batch_sizes_alike_on_a_logarithmic_scale():
    assert mean_speedup([2.0, 1.0]) == pytest.approx(2 ** (1 / 1.5))
    assert mean_speedup([1.7] * 100) == pytest.approx(1.7)
    step = np.where(np.arange(1, 4097) <= 64, 3.0, 1.0)
    assert mean_speedup(step) == pytest.approx(3**0.5, rel=0.05)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_runs_are_the_longest_that_give_the_lengths_back(lengths):
    found = draft_ranges(lengths)
    assert [k for first, last, k in found for _ in range(first, last + 1)] == lengths
    assert len(found) == len(list(itertools.groupby(lengths)))


@each_row(("speedup", "tolerance", "culprit"), faults("schedules"))
def test_bad_input_is_named(speedup, tolerance, culprit):
    refused(re.escape(culprit), draft_length_schedule, speedup, tolerance=tolerance)


def schedule_of(lengths):
    lengths, ones = np.array(lengths), np.ones(len(lengths))
    return Schedule(
        draft_length=lengths, speedup=ones, best_draft_length=lengths, best_speedup=ones,
        single_draft_length=int(lengths[0]), single_speedup=ones,
    )  # fmt: skip


def test_the_best_single_length_has_the_largest_mean():
    gain = [[1.5, 1.4, 0.9], [1.2, 1.4, 1.3], [0.9, 1.1, 1.2]]
    schedule = draft_length_schedule(gain)
    means = [mean_speedup(column) for column in np.transpose(gain)]
    assert schedule.single_draft_length == int(np.argmax(means)) + 1 == 2
    assert schedule.single_speedup.tolist() == [1.4, 1.4, 1.1]
    assert schedule.gain_over_single == pytest.approx(schedule.mean_speedup / max(means))
    assert draft_length_schedule([[1.2], [0.5]]).single_draft_length == 0


def read_vllm(text, largest):
    config = json.loads(text)
    longest = config["num_speculative_tokens"]
    ranges = config.get("num_speculative_tokens_per_batch_size", [[1, largest, longest]])
    lengths = [0] * largest
    for first, last, length in ranges:
        lengths[first - 1 : last] = [length] * (last + 1 - first)
    assert lengths == scheduled_draft_lengths(ranges, largest)[1:]
    assert longest == max(1, *lengths)
    return lengths


def read_tensorrt_llm(text, largest):
    """Read a schedule as TensorRT-LLM 1.3 does (its PR 10860), by a transcription of its code."""
    longest, schedule = yaml.safe_load(text).values()
    assert all(line.startswith("  ") for line in text.splitlines()[2:])
    assert schedule[min(schedule)] == longest == max(schedule.values())
    sizes = sorted(schedule)
    places = [bisect.bisect_left(sizes, size) for size in range(1, largest + 1)]
    return [schedule[sizes[i]] if i < len(sizes) else 0 for i in places]


def read_sglang(text, largest):
    slots = {int(size): slot["candidate_steps"] for size, slot in json.loads(text).items()}
    sizes = sorted(slots)
    assert sizes[0] == 1
    lengths = [slots[sizes[bisect.bisect(sizes, size) - 1]] for size in range(1, largest + 1)]
    assert all(len(candidates) == 1 for candidates in lengths)
    return [candidates[0] for candidates in lengths]


READERS = {"vllm": read_vllm, "tensorrt-llm": read_tensorrt_llm, "sglang": read_sglang}
LENGTHS = st.lists(st.integers(0, 12), min_size=1, max_size=60).map(
    lambda lengths: [max(1, *lengths), *lengths]
)
"""The longest is first, as TensorRT-LLM requires."""


@pytest.mark.parametrize("engine", READERS)
@given(lengths=LENGTHS)
def test_engines_read_back_the_lengths(engine, lengths):
    text = config_format(engine).fragment(schedule_of(lengths))
    assert READERS[engine](text, len(lengths)) == lengths
    assert max(map(len, text.splitlines())) <= 80


def own_parser(engine):
    """Return the names of an engine's module that reads schedules, without loading the engine."""
    file = {
        "vllm": "vllm/v1/spec_decode/dynamic/utils.py",
        "sglang": "sglang/srt/speculative/adaptive_spec_params.py",
    }[engine]
    return vars(own_module(engine, file))


@pytest.mark.engine
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    steps=st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=6),
    largest=st.integers(1, 80),
    longest=st.integers(1, 7),
)
def test_vllm_itself_has_these_lengths_at_each_batch_size(steps, largest, longest):
    ranges, end = [], 0
    for gap, width, length in steps:  # ranges with gaps, of which the first starts at 1
        first = end + 1 + gap * (end > 0)
        end = first + width
        ranges.append([first, end, length])
    found = own_parser("vllm")["build_dynamic_sd_schedule_lookup"](ranges, largest, longest)
    taken = scheduled_draft_lengths(ranges, largest)
    assert found == [min(length, longest) for length in taken]


@pytest.mark.engine
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(lengths=LENGTHS, accepted=st.lists(st.integers(0, 12), min_size=1, max_size=40))
def test_sglang_itself_reads_back_the_lengths_and_keeps_them(lengths, accepted, tmp_path):
    parser, path = own_parser("sglang"), tmp_path / "schedule.json"
    schedule = schedule_of(lengths)
    path.write_text(config_format("sglang").fragment(schedule), encoding="utf-8")
    flags = config_format("sglang").place(schedule, "eagle3", "").split()
    first = int(flags[flags.index("--speculative-num-steps") + 1])
    assert first in parser["resolve_candidate_steps_from_config"](str(path))
    params = parser["AdaptiveSpeculativeParams"](first, str(path))
    sizes = range(1, len(lengths) + 1)
    assert [params.get_steps_for_batch(size) for size in sizes] == lengths
    for count in accepted:
        for size in sizes:
            assert params.on_verify_complete([min(count, lengths[size - 1])], size) is None
    assert [params.get_steps_for_batch(size) for size in sizes] == lengths


def test_fragments_of_known_schedules():
    schedule = schedule_of([3] * 16 + [2] * 48 + [0] * 36)
    for drafter, method in {
        "mtp": {"method": "mtp"},
        "model": {"method": "draft_model", "model": "DRAFTER"},
    }.items():
        assert json.loads(config_format("vllm").fragment(schedule, drafter)) == method | {
            "num_speculative_tokens": 3,
            "num_speculative_tokens_per_batch_size": [[1, 16, 3], [17, 64, 2], [65, 100, 0]],
        }
    alone = config_format("vllm").fragment(schedule_of([3] * 9), "mtp")
    assert alone == '{"method": "mtp", "num_speculative_tokens": 3}'
    falling = schedule_of([4] * 3 + [2] * 4 + [0] * 5)
    newest = config_format("tensorrt-llm")
    assert newest.fragment(falling) == "max_draft_len: 4\ndraft_len_schedule: {3: 4, 7: 2}"
    sglang = json.loads(config_format("sglang").fragment(schedule))
    assert sglang == {
        str(first): {"candidate_steps": [length]} for first, length in ((1, 3), (17, 2), (65, 0))
    }


@each_listed
def test_vllm_wants_a_multiple_of_several_modules(longest, modules, written):
    """`SpeculativeConfig` refuses other lengths above n_predict; ranges may have shorter ones."""
    config = json.loads(config_format("vllm").fragment(schedule_of([longest, 1]), "mtp", modules))
    assert config["num_speculative_tokens"] == written
    ranges = config["num_speculative_tokens_per_batch_size"]
    assert [length for _, _, length in ranges] == [longest, 1]


def test_vllms_names_of_drafters_of_a_block():
    """P-EAGLE and PARD are other methods with `parallel_drafting` (config/speculative.py)."""
    methods = {"dflash": "dflash", "dspark": "dspark", "suffix": "suffix", "ngram-gpu": "ngram_gpu"}
    methods |= {"p-eagle": "eagle3", "pard": "draft_model"}
    for name, method in methods.items():
        config = json.loads(config_format("vllm").fragment(schedule_of([3]), name))
        assert config["method"] == method
        assert config.get("parallel_drafting", False) == (name in ("p-eagle", "pard"))


def test_tensorrt_llm_refuses_a_schedule_that_it_would_cut():
    written = config_format("tensorrt-llm").fragment
    refused(r"schedule: got .*longest_first", written, schedule_of([1, 2]))


def test_where_nothing_is_drafted_a_loaded_drafter_may_cost():
    """By hand: a loss of 4 % at larger sizes; without a gain on average, no drafter is loaded."""
    schedule = draft_length_schedule([[1.30], [1.20], [0.95], [0.90]], idle_speedup=0.96)
    assert schedule.draft_length.tolist() == [1, 1, 0, 0]
    np.testing.assert_allclose(schedule.speedup, [1.30, 1.20, 0.96, 0.96])
    losing = draft_length_schedule([[1.30], [1.20], [0.95], [0.97]], idle_speedup=0.90)
    assert losing.draft_length.tolist() == [1, 1, 1, 1]  # all lose, a draft the least
    nearly = draft_length_schedule([[1.30], [1.20], [0.95], [0.995]], idle_speedup=0.96)
    assert nearly.draft_length.tolist() == [1, 1, 0, 1]  # within the tolerance of 1
    off = draft_length_schedule([[1.01], [0.9], [0.9], [0.9]], idle_speedup=0.93)
    assert off.max_draft_length == 0
    assert (off.speedup == 1).all()


SGLANG = "python3 -m sglang.launch_server --model x/y --speculative-algorithm EAGLE3"
SGLANG += " --speculative-num-steps 3"


@each_row("engine", ["vllm", "sglang"])
def test_what_schedule_writes_predict_takes_back(tmp_path, engine):
    where = {"target": "qwen3-30b-a3b", "hardware": "h200", "drafter": "eagle3"}
    plan = schedule(**where, config_format=engine, acceptance=0.6, max_batch_size=200)
    file = tmp_path / "told.json"
    file.write_text(plan.fragment)
    line = f"vllm serve x/y --speculative-config {file}"
    if engine == "sglang":
        line = f"{SGLANG} --speculative-adaptive --speculative-adaptive-config {file}"
    length = launched(*launch_line("line", line)).arguments["draft_length"]
    sizes = np.arange(1, 201)
    found = predict(**where, acceptance=0.6, engine=engine, draft_length=length, batch_size=sizes)
    np.testing.assert_array_equal(found.draft_length, plan.schedule.draft_length[:200])
    np.testing.assert_allclose(found.speedup, plan.schedule.speedup[:200], rtol=1e-9)
