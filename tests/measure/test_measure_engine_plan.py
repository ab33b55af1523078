"""What is asked of a running engine, its counters, its options, and the table of what came."""

import re
import shlex

import pytest
from engine_modules import own_source
from standin_server import StandIn, metrics

from specmodel.base.errors import InputError
from specmodel.measure.live import (
    METHODS,
    Plan,
    budget,
    launch_options,
    seconds_of,
    summary,
)
from specmodel.measure.live.engines import (
    COUNTERS,
    RUNNING,
    growth,
    read_scrape,
    speculation,
)
from specmodel.measure.live.plan import Run, slots_of, warm_up_of
from specmodel.measure.scrapes import BY_POSITION

PLAN = {"draft_lengths": [0, 3], "concurrencies": [1, 4], "prompt_lengths": [64]}


def plan(**changes):
    return Plan(**PLAN | {"output_lengths": [32]} | changes)


@pytest.mark.parametrize("concurrency", [1, 3, 4, 32, 100])
def test_slots_end_one_after_the_other_and_ask_for_as_much(concurrency):
    (run,) = plan(draft_lengths=[0], concurrencies=[concurrency], repeats=1).runs(0)
    slots = slots_of(run, 2)
    assert len(slots) == concurrency
    leads = [requests[0].output_length for requests in slots]
    assert leads == sorted(leads)
    assert leads[-1] == 32
    assert max(b - a for a, b in zip([0, *leads], leads, strict=False)) <= -(-32 // concurrency)
    for slot, requests in enumerate(slots):
        assert sum(request.output_length for request in requests) == 3 * 32
        assert [r.output_length for r in requests if r.role == "timed"] == [32, 32]
        assert all(r.slot == slot and r.output_length >= 1 for r in requests)
        assert [r.number for r in requests] == list(range(len(requests)))


def test_loads_are_interleaved_and_those_done_left_out():
    runs = plan().runs(1)
    assert [run.concurrency for run in runs] == [1, 4] * 3
    assert [run.repeat for run in runs] == [0, 0, 1, 1, 2, 2]
    assert {run.draft_length for run in runs} == {3}
    left = plan().left({run.key for run in plan().runs(0)} | {runs[0].key})
    assert list(left) == [1]
    assert left[1] == runs[1:]


def test_the_budget_is_what_is_asked_for():
    whole = plan(draft_lengths=[0], repeats=2)
    asked = budget(whole, whole.left())
    timed = 2 * 2 * (1 + 4)  # repeats, requests, slots
    leads, tails, warm_ups = 2 * (1 + 4), 2 * 3, 1 + 4
    assert asked.runs == 4
    assert asked.requests == timed + leads + tails + warm_ups
    assert asked.prompt_tokens == 64 * asked.requests
    assert asked.output_tokens == 2 * 3 * 32 * (1 + 4) + 8 * warm_ups
    assert [len(requests) for _, requests in warm_up_of(whole.runs(0))] == [1, 4]


def test_a_run_takes_as_long_as_one_of_its_load_did():
    run, other = plan().runs(0)[:2]
    assert seconds_of(run, 2, 0.5, 0.01, {}) == pytest.approx(4 * 0.5 + 3 * 32 * 0.01)
    known = {run.key[:-1]: 7.0}
    assert seconds_of(plan().runs(0)[2], 2, 0.5, 0.01, known) == 7.0
    assert seconds_of(other, 2, 0.5, 0.01, known) != 7.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("concurrencies", [0]), ("output_lengths", [1]), ("prompt_lengths", [0]),
        ("draft_lengths", [-1]), ("repeats", 0), ("requests", 0), ("concurrencies", [10**7]),
    ],
)  # fmt: skip
def test_what_cannot_be_asked(name, value):
    argument = {"concurrencies": "concurrency"}.get(name, name.removesuffix("s"))
    with pytest.raises(InputError, match=argument):
        plan(**{name: value})


def test_more_than_anybody_asks():
    with pytest.raises(InputError, match=r"repeats: got 100000; .* timed requests, of 100,000"):
        plan(repeats=100_000)


def scrape(counts, engine="vllm", draft_length=0, **changes):
    server = StandIn(engine=engine, draft_length=draft_length, counts=counts, started=5.0)
    vars(server).update(changes)
    return read_scrape(metrics(server), "scrape")


def test_counters_of_vllm_and_what_they_tell_of_speculation():
    earlier = scrape({"requests": 2, "drafts": 5, "position 0": 4}, draft_length=3, running=1)
    later = scrape(
        {"requests": 7, "drafts": 9, "accepted_tokens": 6, "position 0": 7, "position 2": 1},
        draft_length=3,
    )
    assert (earlier.engine, earlier.running) == ("vllm", 0.0)
    grown = growth(earlier, later)
    assert (grown["requests"], grown["drafts"], grown["accepted_tokens"]) == (5, 4, 6)
    assert [grown[f"position {i}"] for i in range(3)] == [3, 0, 1]
    assert speculation(later, {}).draft_length == 3
    assert speculation(scrape({}), {}).draft_length == 0
    assert speculation(None, {}).draft_length == 0


def test_counters_of_sglang_which_says_itself_what_it_drafts():
    first = scrape({}, "sglang")
    grown = growth(first, scrape({"ended_requests": 3, "ended_drafts": 8}, "sglang"))
    assert (grown["requests"], grown["drafts"]) == (3, 8)
    told = {"speculative_algorithm": "EAGLE3", "speculative_num_steps": 3}
    told |= {"speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4}
    assert speculation(first, told).draft_length == 3
    tree = speculation(
        first, told | {"speculative_eagle_topk": 4, "speculative_num_draft_tokens": 16}
    )
    assert (tree.draft_length, tree.topk, tree.verify_tokens) == (3, 4, 16)
    assert speculation(first, told | {"speculative_adaptive": True}).draft_length is None


def test_no_engine_s_counters():
    assert read_scrape("python_info 1.0\n", "scrape") is None
    with pytest.raises(InputError, match="scrape line 1"):
        read_scrape("{{{", "scrape")


def test_counters_that_go_backwards_are_a_restart():
    some, more = {"requests": 5, "output_tokens": 9}, {"requests": 6, "output_tokens": 3}
    with pytest.raises(InputError, match=r"generation_tokens_total: got 3.*restarted"):
        growth(scrape(some), scrape(more))
    with pytest.raises(InputError, match=r"process_start_time_seconds.*restarted"):
        growth(scrape(some), scrape(some | {"requests": 9}, started=6.0))
    with pytest.raises(InputError, match="restarted"):
        growth(scrape(some), scrape(some, draft_length=2))
    with pytest.raises(InputError, match="vllm as before"):
        growth(scrape(some), scrape(some, "sglang"))


def test_options_that_a_server_is_started_with():
    words = shlex.split(launch_options("vllm", 3, "eagle3", "a/head"))
    assert words == [
        "--speculative-config",
        '{"method": "eagle3", "model": "a/head", "num_speculative_tokens": 3}',
    ]
    words = shlex.split(launch_options("sglang", 3, "mtp"))
    assert words[:3] == ["--enable-metrics", "--speculative-algorithm", "NEXTN"]
    assert words[-4:] == ["--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"]
    assert "--speculative-" not in launch_options("vllm", 0, "eagle3").replace("no --spec", "")
    assert launch_options("", 2, "ngram").count("ngram") == 2
    with pytest.raises(InputError, match=r"method: got 'medusa'; expected eagle, eagle3"):
        launch_options("vllm", 3, "medusa")


@pytest.mark.engine
def test_names_are_those_of_the_engines():
    vllm = own_source("vllm", "vllm/v1/metrics/loggers.py")
    vllm += own_source("vllm", "vllm/v1/spec_decode/metrics.py")
    sglang = own_source("sglang", "sglang/srt/observability/metrics_collector.py")
    for engine, source in (("vllm", vllm), ("sglang", sglang)):
        for name in COUNTERS[engine].values():
            # Prometheus' client adds the ends of names
            own = re.sub("_(sum|count)$", "", name)
            assert f'"{own}"' in source or f'"{own.removesuffix("_total")}"' in source, name
    assert all(f'"{name}"' in vllm for name in (*RUNNING, BY_POSITION.removesuffix("_total")))
    methods = own_source("vllm", "vllm/config/speculative.py")
    assert all(f'"{name}"' in methods for name in METHODS)
    algorithms = own_source("sglang", "sglang/srt/arg_groups/speculative_hook.py")
    algorithms += own_source("sglang", "sglang/srt/speculative/spec_info.py")
    assert all(f'"{name}"' in algorithms or f" {name} =" in algorithms for name in METHODS.values())
    fields = own_source("sglang", "sglang/srt/arg_groups/fields/spec.py")
    for option in re.findall(r"--(spec[\w-]+)", launch_options("sglang", 3, "eagle3", "head")):
        assert f"{option.replace('-', '_')}:" in fields
    assert "speculative_ngram_max_bfs_breadth:" in fields


RUN = Run(
    round=0, draft_length=3, concurrency=1, prompt_length=64, output_length=11, repeat=0
)  # fmt: skip


def rows(repeat=0, note="", seconds=0.1, **counted):
    """Rows of a run of two requests, which take 5 steps each to make 10 tokens after the first."""
    key = {
        "round": "0",
        "draft_length": "3",
        "concurrency": "1",
        "prompt_length": "64",
        "output_length": "11",
        "repeat": str(repeat),
        "attempt": "1",
        "note": "",
    }
    request = {"first_token": "0.5", "latency": str(0.5 + seconds), "prompt_tokens": "64"}
    request |= {"output_tokens": "11", "events": "6"}
    counts = {"requests": 2, "output_tokens": 22, "drafts": 10, "draft_tokens": 30}
    counts |= {"accepted_tokens": 11} | counted  # one more than were kept
    run = {"role": "run", "engine_tpot": "0.012", "topk": "1", "verify_tokens": "4"}
    run |= {"engine": "vllm", "version": "0.33.0", "model": "m", "note": note}
    run |= {"accepted_by_position": "8 2 1"} | {n: str(v) for n, v in counts.items()}
    return [
        *({**key, **request, "role": role, "slot": "0"} for role in ("lead", "timed")),
        {**key, **run},
    ]


def test_steps_are_those_that_the_engine_counted():
    (row,) = summary(rows()).to_dict("records")
    assert row["tokens_per_step"] == pytest.approx(20 / 10)
    assert row["tpot_ms"] == pytest.approx(10.0)
    assert row["step_ms"] == pytest.approx(20.0)
    assert row["tokens_per_s"] == pytest.approx(11 / 0.6)
    assert row["ttft_ms"] == pytest.approx(500.0)
    assert row["acceptance_by_position"] == "0.8000,0.2500,0.5000"  # 8, 2, 1 of 10 drafts
    assert (row["draft_length"], row["verify_tokens"], row["usable"]) == (3, 4, True)


def test_the_others_of_a_request_miss_the_one_step_in_which_they_are_prefilled():
    (row,) = summary([{**row, "concurrency": "4"} for row in rows()]).to_dict("records")
    # ten tokens after the first, two a step: the others are in five of six
    assert row["step_batch"] == pytest.approx(1 + 3 * 5 / 6)
    (row,) = summary(rows()).to_dict("records")
    assert row["step_batch"] == 1.0


def test_steps_without_a_draft_are_counted_by_their_tokens():
    (row,) = summary(rows(drafts=4, draft_tokens=12, accepted_tokens=10)).to_dict("records")
    assert row["tokens_per_step"] == pytest.approx(20 / (4 + 6))
    (row,) = summary(rows(drafts=10, draft_tokens=25)).to_dict("records")
    assert row["notes"] == "drafts of 2.5 tokens, not all of 3"


def test_repeats_with_traffic_of_others_are_left_out():
    foreign = rows(1, "3 requests of others", seconds=0.3)
    (row,) = summary(rows() + rows(2, seconds=0.12) + foreign).to_dict("records")
    assert row["tpot_ms"] == pytest.approx(11.0)
    assert (row["repeats"], row["usable"], row["notes"]) == (2, True, "3 requests of others")
    assert row["step_spread"] == pytest.approx(0.02 / 0.11)
    (row,) = summary(foreign).to_dict("records")
    assert not row["usable"]


def test_repeats_that_differ_by_much_are_no_run_to_fit():
    (row,) = summary(rows() + rows(1, seconds=0.145) + rows(2)).to_dict("records")
    assert (row["step_spread"], row["usable"]) == (pytest.approx(0.45), True)
    (row,) = summary(rows() + rows(1, seconds=0.206) + rows(2)).to_dict("records")
    assert (row["step_spread"], row["usable"]) == (pytest.approx(1.06), False)
    assert row["notes"] == "repeats differ by 106%: too much for a fit"
    (row,) = summary(rows()).to_dict("records")
    assert row["step_spread"] != row["step_spread"]
    assert row["usable"]


def test_without_streams_the_engine_tells_the_time_of_a_token():
    table = [{**row, "first_token": ""} if row["role"] != "run" else row for row in rows()]
    (row,) = summary(table).to_dict("records")
    assert row["tpot_ms"] == pytest.approx(12.0)
    blind = [{**row, "engine_tpot": ""} for row in table]
    (row,) = summary(blind).to_dict("records")
    assert row["tpot_ms"] == pytest.approx(600 / 11)
    assert "TPOT with prefill" in row["notes"]


def test_a_request_whose_end_was_not_seen_tells_no_time():
    late = {**rows()[1], "slot": "1", "latency": "3.5", "note": "late"}
    assert summary([late, *rows()])["tpot_ms"][0] == pytest.approx(10.0)


def test_an_attempt_that_was_interrupted_is_not_counted():
    begun = [{**row, "attempt": "2", "latency": "9.9"} for row in rows()[:2]]
    assert summary(begun + rows()).equals(summary(rows()))
    assert summary(begun).empty
