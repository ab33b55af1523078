"""A running engine measured: a known step, acceptance, traffic of others, what goes wrong."""

import asyncio
import itertools
import subprocess

import numpy as np
import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("filelock")

import ssl

from standin_server import standing_in

from specmodel.base.errors import InputError
from specmodel.measure.live import (
    Log,
    Plan,
    answers,
    connected,
    drive,
    found_prompts,
    random_ids,
    random_words,
    summary,
)
from specmodel.measure.live.answers import MOST_BYTES, Answer, Volume
from specmodel.measure.live.log import counted_rows

LIMIT = 30.0
"""Seconds that a measurement may take."""
SMALL = {"concurrencies": [1], "prompt_lengths": [16], "output_lengths": [31], "repeats": 1}


def within(work):
    """Run something asynchronous, but not for ever."""

    async def limited():
        async with asyncio.timeout(LIMIT):
            return await work

    return asyncio.run(limited())


def measure(server, folder, *, draft_length=0, before=None, requests=1, seed=None, **changes):
    """Rows of a measurement of a server."""
    options = {n: changes.pop(n) for n in ("streams", "stream_interval") if n in changes}

    async def work():
        plan = Plan(draft_lengths=[draft_length], requests=requests, **SMALL | changes)
        async with connected(server.url, timeout=10.0, **options) as client:
            told = await client.told()
            prompts = random_ids(100, 200, seed)
            with Log(folder / "rows.csv", {"model": told.model}, {}) as log:
                async for done in drive(client, told, plan, plan.runs(0), log, prompts):
                    if before and not done.is_run:
                        before(server)
                return log.rows

    return within(work())


def own_tpot(rows):
    """Milliseconds of a token by the server's own clock, which a busy machine may slow down."""
    return 1e3 * float(rows[-1]["engine_tpot"])


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("streams", [True, False])
def test_a_known_step_and_acceptance_are_measured(engine, streams, tmp_path):
    # 30 tokens after the first, three a step: ten steps of each request, to the token
    with standing_in(engine=engine, step_time=0.02, draft_length=4, accepted=(2,)) as server:
        rows = measure(server, tmp_path, draft_length=4, requests=2, streams=streams)
    (row,) = summary(rows).to_dict("records")
    assert row["tokens_per_step"] == pytest.approx(3.0, rel=1e-12)
    assert row["step_ms"] == pytest.approx(20.0, rel=0.1)
    assert row["tpot_ms"] == pytest.approx(own_tpot(rows), rel=0.04)
    assert (row["engine"], row["draft_length"], row["verify_tokens"]) == (engine, 4, 5)
    assert (row["usable"], row["notes"], row["prompt_length"]) == (True, "", 16.0)
    ((run, _),) = counted_rows(rows)
    assert int(run["drafts"]) == 30
    if engine == "vllm":
        assert (int(run["draft_tokens"]), int(run["accepted_tokens"])) == (120, 60)
        assert row["acceptance_by_position"] == "1.0000,1.0000,0.0000,0.0000"


def test_steps_carry_the_prefill_of_the_others(tmp_path):
    with standing_in(step_time=0.01, prefill_time=0.04) as server:
        rows = measure(server, tmp_path, concurrencies=[4], requests=2, output_lengths=[32])
    (row,) = summary(rows).to_dict("records")
    # while a request makes its 32 tokens, each of the three others is prefilled once
    assert row["tpot_ms"] == pytest.approx(10.0 + 3 / 32 * 40.0, rel=0.08)
    assert row["ttft_ms"] > 45.0
    rate = 4 / (row["tpot_ms"] / 1e3 * 31 / 32 + row["ttft_ms"] / 1e3 / 32)
    assert row["tokens_per_s"] == pytest.approx(rate, rel=0.02)


@pytest.mark.parametrize("interval", [None, 8])
def test_streams_left_alone_and_few_events_change_no_time(interval, tmp_path):
    with standing_in(step_time=0.005) as server:
        rows = measure(server, tmp_path, output_lengths=[120], requests=2, stream_interval=interval)
    (row,) = summary(rows).to_dict("records")
    assert row["tpot_ms"] == pytest.approx(5.0, rel=0.15)
    assert row["tpot_ms"] == pytest.approx(own_tpot(rows), rel=0.03)
    events = {int(r["events"]) for r in rows if r["role"] == "timed"}
    assert events == {120 if interval is None else 1 + -(-119 // 8)}


def test_half_of_what_is_left_is_left_alone():
    volume = Volume()
    assert volume.left_alone(100, 300) == 1  # nothing is known yet
    one = {"started": 0.0, "first_token": 1.0, "latency": 2.0, "prompt_tokens": 9}
    volume.note(Answer(output_tokens=100, events=100, **one), 30_000)
    assert volume.left_alone(100, 6_000) == 12_000
    assert volume.left_alone(100, 29_000) == 1
    assert volume.left_alone(10_000, 6_000) == MOST_BYTES
    volume.note(Answer(output_tokens=100, events=50, **one), 15_000)  # two tokens an event
    assert volume.left_alone(100, 6_000) == 4_500


@pytest.mark.parametrize("closes", [True, False])
def test_answers_shorter_than_expected_are_late_only_where_connections_go_on(closes):
    async def work(server):
        async with connected(server.url) as client:
            await client.told()
            if not closes:
                client.session.connector._force_close = False
            volume = Volume(per_token=20_000.0, per_event=20_000.0)  # a hundred times as much
            answers = [await client.complete([1, 2], 60, volume=volume) for _ in range(2)]
            return *answers, volume

    with standing_in(step_time=0.002) as server:
        first, again, volume = within(work(server))
    assert (first.is_late, again.is_late) == (not closes, False)
    assert (first.latency > 0.5) == (not closes)
    assert again.latency < 0.4
    assert 0.0 < volume.per_token < 1_000.0
    assert (first.fault, first.output_tokens) == ("", 60)


def test_a_stream_that_is_left_alone_wakes_no_reader():
    pieces = []

    async def work(server):
        async with connected(server.url) as client:
            await client.told()
            volume = Volume()
            for _ in range(2):
                before = len(pieces)
                await client.complete([1, 2], 200, volume=volume)
                yield len(pieces) - before

    async def both(server):
        return [count async for count in work(server)]

    read = answers._piece

    async def counted(response, least):
        pieces.append(least)
        return await read(response, least)

    answers._piece = counted
    try:
        with standing_in(step_time=0.002) as server:
            first, again = within(both(server))
    finally:
        answers._piece = read
    assert again < first / 4


def test_no_request_sees_less_than_the_load(tmp_path):
    seen = []
    with standing_in(step_time=0.004) as server:
        measure(server, tmp_path, concurrencies=[5], output_lengths=[20], before=lambda s: s)
        rows = (tmp_path / "rows.csv").read_text()
        assert rows.count(",timed,") == 5
    log = Log(tmp_path / "rows.csv", {"model": "stand-in"}, {})
    timed = [r for r in log.read() if r["role"] == "timed"]
    spans = [(float(r["started"]), float(r["latency"])) for r in log.rows if r["role"] != "warm-up"]
    for row in timed:
        middle = float(row["started"]) + float(row["latency"]) / 2
        seen.append(sum(start <= middle <= start + length for start, length in spans[:-1]))
    assert min(seen) >= 4  # one may just be between two requests
    assert np.mean(seen) > 4.5


def test_traffic_of_others_is_seen(tmp_path):
    def disturb(server):
        server.restart()
        asyncio.get_running_loop().call_later(0.1, add, server)

    def add(server):
        server.add("requests", 3)
        server.add("output_tokens", 50)

    with standing_in() as server:
        rows = measure(server, tmp_path, before=disturb)
    (row,) = summary(rows).to_dict("records")
    assert not row["usable"]
    assert row["notes"] == "3 requests of others; 50 output_tokens of others"


def test_requests_of_others_that_run_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr("specmodel.measure.live.driver.SETTLED", 0.1)
    with standing_in() as server:
        rows = measure(server, tmp_path, before=lambda s: s.add("running", 2))
    assert "2 requests of others at the beginning" in rows[-1]["note"]
    assert not summary(rows)["usable"].any()


def test_a_restart_in_a_run_is_refused_and_rows_are_kept(tmp_path):
    def restart(server):
        asyncio.get_running_loop().call_later(0.1, server.restart)

    with standing_in() as server, pytest.raises(InputError, match="restarted"):
        measure(server, tmp_path, before=restart)
    rows = (tmp_path / "rows.csv").read_text()
    assert ",timed," in rows
    assert ",run," not in rows


def test_another_draft_length_in_a_round_is_refused(tmp_path):
    with standing_in(draft_length=3) as server, pytest.raises(InputError, match="server: got"):
        measure(server, tmp_path, draft_length=3, before=lambda s: s.restart(draft_length=2))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_speculation_without_its_counters_is_refused(engine, tmp_path):
    with standing_in(engine=engine, draft_length=3, has_metrics=False) as server:
        with pytest.raises(InputError, match=r"draft_length: got 3; expected 0.*enable-metrics"):
            measure(server, tmp_path, draft_length=3)
        row = summary(measure(server, tmp_path, draft_length=0)).to_dict("records")[0]
    assert "no counters: traffic of others is not seen" in row["notes"]


def test_drafts_that_are_not_counted_are_refused(tmp_path):
    def stop(server):
        server.draft_length = 0

    with (
        standing_in(engine="sglang", draft_length=3) as server,
        pytest.raises(InputError, match="draft_length: got 3; expected 0"),
    ):
        measure(server, tmp_path, draft_length=3, before=stop)


def test_loads_at_which_a_schedule_drafts_nothing_are_measured_and_no_run_to_fit(tmp_path):
    with standing_in(draft_length=3, accepted=(3,), drafts_up_to=2) as server:
        rows = measure(server, tmp_path, draft_length=3, concurrencies=[1, 4], requests=2)
    few, many = summary(rows).to_dict("records")
    # thirty tokens after the first are seven steps of four and one of two
    assert (few["tokens_per_step"], few["usable"], few["notes"]) == (30 / 8, True, "")
    assert many["tpot_ms"] > 2 * few["tpot_ms"]
    assert "% of steps drafted nothing" in many["notes"]  # the last ones of a run are alone
    assert not many["usable"]


def test_a_server_that_drafts_nothing_at_a_load_is_no_run_to_fit(tmp_path):
    with standing_in(draft_length=3, drafts_up_to=0) as server:
        rows = measure(server, tmp_path, draft_length=3)
    (row,) = summary(rows).to_dict("records")
    assert (row["tokens_per_step"], row["usable"]) == (1.0, False)
    assert row["notes"] == "100% of steps drafted nothing"
    assert row["step_ms"] == row["tpot_ms"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cut_after": 4}, r"cut short after \d+ events, .* \(the end is missing\)"),
        ({"dies_after": 4}, "connection was lost"),
        ({"heeds_ignore_eos": False}, r"\d+ of \d+ tokens .*ignore_eos"),
    ],
)
def test_a_bad_answer_is_one_line_and_its_row_is_kept(changes, said, tmp_path):
    with standing_in(**changes) as server, pytest.raises(InputError, match=said) as error:
        measure(server, tmp_path, requests=4)
    assert "rows.csv: run again" in str(error.value)
    rows = (tmp_path / "rows.csv").read_text().splitlines()
    assert len(rows) >= 2
    assert rows[-1].split(",")[-1]  # why, in the note


@pytest.mark.parametrize("forms", [("text",), ("chat",), ("ids", "text")])
def test_the_form_of_prompts_is_found_and_their_length_met(forms):
    async def work(server):
        async with connected(f"{server.url}/v1/") as client:
            await client.told()
            prompts, refused = await found_prompts(client, [50])
            form = client.form
            assert bool(refused) == (form != "ids")
            answer = await client.complete(prompts(50), 20)
            assert answer.output_tokens == 20
            return form, answer.prompt_tokens

    with standing_in(forms=forms) as server:
        form, length = within(work(server))
    assert form == forms[0]
    assert length == pytest.approx(50, abs=1)


def test_a_chat_takes_no_prompt_shorter_than_its_frame():
    async def work(server):
        async with connected(server.url) as client:
            await client.told()
            await client.find_form([("chat", "the")])
            await found_prompts(client, [3])

    with (
        standing_in(forms=("chat",)) as server,
        pytest.raises(InputError, match="prompt_length: got 3; expected at least 6"),
    ):
        within(work(server))


def test_prompts_are_new_each_time(tmp_path):
    with standing_in() as server:
        measure(server, tmp_path, concurrencies=[3])
    prompts = [tuple(prompt) for prompt in server.prompts]
    assert len(set(prompts)) == len(prompts) > 6
    assert {len(prompt) for prompt in prompts} == {16}
    assert min(map(min, prompts)) >= 100
    assert max(map(max, prompts)) <= 200


def test_with_a_seed_draft_lengths_meet_the_same_requests(tmp_path):
    asked = []
    for length in (0, 2):
        (tmp_path / str(length)).mkdir()
        with standing_in(draft_length=length, accepted=(1,)) as server:
            own = {"concurrencies": [1, 3], "repeats": 2, "draft_length": length}
            measure(server, tmp_path / str(length), seed=7, **own)
        asked.append(sorted(map(tuple, server.prompts)))
        assert len(set(asked[-1])) == len(asked[-1])
    assert asked[0] == asked[1]
    assert random_words(7)(9, (1,)) == random_words(7)(9, (1,)) != random_words(7)(9, (2,))
    assert random_words()(9) != random_words()(9)


def test_a_server_with_a_certificate_of_its_own(tmp_path):
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    command += " -addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem"
    try:
        subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        # Python makes no certificates, and openssl may be absent or too old for -addext
        pytest.skip("needs openssl")
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")

    async def told(server, **options):
        async with connected(server.url, **options) as client:
            found = await client.told()
            answer = await client.complete([1, 2, 3], 8)
            return found.model, answer.output_tokens

    with standing_in(ssl=own) as server:
        assert server.url.startswith("https://localhost:")
        assert within(told(server, ca_file=str(tmp_path / "cert.pem"))) == ("stand-in", 8)
        with pytest.raises(InputError, match=r"url: got 'https://.*certificate"):
            within(told(server))
    with pytest.raises(InputError, match="ca_file"):
        within(told(server, ca_file=str(tmp_path / "none.pem")))


def test_rows_of_another_model_are_refused(tmp_path):
    with standing_in() as server:
        measure(server, tmp_path)
        server.model = "another"
        with pytest.raises(InputError, match="rows of model 'another'"):
            measure(server, tmp_path)


def test_a_damaged_table_is_refused(tmp_path):
    with standing_in() as server:
        measure(server, tmp_path)
    path = tmp_path / "rows.csv"
    first, second, *rest = path.read_text().splitlines()
    path.write_text("\n".join([first, second.partition("warm-up")[0], *rest, ""]))
    with pytest.raises(InputError, match="line 2 is damaged"):
        Log(path, {"model": "stand-in"}, {}).read()
    for lines in ([first, second, *rest, rest[-2]], [first, second, *rest[:-2], rest[-1]]):
        path.write_text("\n".join([*lines, ""]))
        with pytest.raises(InputError, match="each request of run 0-0-1-16-31-0 once"):
            Log(path, {"model": "stand-in"}, {}).read()


TOLERATED = {"note", "role", "engine", "version", "model"}
"""Columns of text, of which some changes are sound."""


@pytest.mark.filterwarnings("error")
def test_a_damaged_cell_is_refused_or_leaves_a_finite_summary(tmp_path):
    with standing_in(draft_length=2, accepted=(1,)) as server:
        measure(server, tmp_path, draft_length=2)
    path = tmp_path / "rows.csv"
    header, *lines = path.read_text().splitlines()
    names = header.split(",")
    chosen = [next(i for i, line in enumerate(lines) if f",{r}," in line) for r in ("timed", "run")]
    refused = dict.fromkeys(("nan", "0", "-1", "1e400", "", "x", "9" * 400), 0)
    for index, name, value in itertools.product(chosen, names, refused):
        cells = lines[index].split(",")
        cells[names.index(name)] = value
        damaged = [header, *lines[:index], ",".join(cells), *lines[index + 1 :], ""]
        path.write_text("\n".join(damaged))
        try:
            rows = Log(path, {"model": "stand-in"}, {}).read()
        except InputError:
            refused[value] += 1
            continue
        assert value in ("", "0") or name in TOLERATED
        # without streams there are no first tokens, and one repeat tells no spread
        table = summary(rows).select_dtypes("number").drop(columns=["ttft_ms", "step_spread"])
        assert np.isfinite(table.to_numpy()).all(), (name, value)
    assert min(refused.values()) > 8
