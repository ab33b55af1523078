"""Recorded requests: files as their own writers shape them, cuts, draws, and what is refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from constant_steps import requests_of
from printed import refused
from rows import each_listed

from specmodel import InputError, simulate
from specmodel.simulate import Arrivals, Lengths, Study, recorded

OWN = "arrival_time,prompt_tokens,output_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
FOLDER = Path(__file__).parents[1] / "data/recordings"
"""Recordings, as their own writers shape them."""


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.fixture
def write(tmp_path):
    def written(name, text):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return written


@each_listed
def test_files_are_read_as_their_writers_shape_them(kind, name, notes, times):
    found = simulate.read_requests(FOLDER / name)
    assert found.arrival_time == pytest.approx(np.array(times), abs=1e-6)
    assert found.prompt_tokens.tolist() == [5, 7]
    assert found.output_tokens.tolist() == [3, 2]
    assert len(found.notes) == len(notes)
    assert all(text in str(note) for text, note in zip(notes, found.notes, strict=True))


def test_leading_blocks_that_came_before_are_cached():
    found = simulate.read_requests(FOLDER / "trace.jsonl")
    assert found.arrival_time.tolist() == [0, 0, 3]
    assert found.cached_tokens is not None
    assert found.cached_tokens.tolist() == [0, 1024, 0], "a block after a new one is no prefix"
    later = simulate.read_requests(FOLDER / "trace.jsonl", "3:4")
    assert later.arrival_time.tolist() == [0]
    assert later.prompt_tokens.tolist() == [600]


@pytest.mark.parametrize(
    ("window", "kept"), [(None, 5), ("0m:2m", 2), ("1m:1h", 3), ("60:120 s", 1), ("0.0:5h", 5)]
)
def test_a_window_cuts_a_recording(window, kept, write):
    text = OWN + "".join(f"{60 * i + 7},5,3\n" for i in range(4)) + "3607,5,3\n"
    found = simulate.read_requests(write("load.csv", text), window)
    assert found.count == kept
    assert found.arrival_time[0] == 0


SPAN = [0.5, 30.2, 71.9, 100.5]
"""When four requests came [s], as in the example of Qwen-Bailian's README in parts of a second."""
PROMPTS = [60, 160, 256, 96]
SINCE_1970 = [1.76e9 + time for time in SPAN]
NAMES = {"chat": '"chat_id": 7, "turn": 1, ', "plain": ""}


def hashed(times, block, kind="plain", cut=np.ceil):
    """Return lines whose prompts share their first block alone."""
    rows = []
    for row, (time, prompt) in enumerate(zip(times, PROMPTS, strict=True)):
        ids = [1, *range(100 * row + 2, 100 * row + 1 + int(cut(prompt / block)))]
        asked = f'"timestamp": {time}, "input_length": {prompt}, "output_length": 9'
        rows.append(f'{{{NAMES[kind]}{asked}, "hash_ids": {ids}}}\n')
    return "".join(rows)


def in_unit(many, times=SPAN):
    return [int(time * many) for time in times]


@pytest.mark.parametrize(
    ("text", "unit", "block", "other"),
    [
        (hashed(SPAN, 16, "chat"), "s", 16, ""),  # Qwen-Bailian's, as its README has them
        (hashed(in_unit(1), 16, "chat"), "s", 16, ""),
        (hashed(SPAN, 64, "chat"), "s", 64, ""),
        (hashed(SPAN, 48, "chat", np.floor), "s", 48, ""),
        (hashed(in_unit(1e3), 16, "chat"), "ms", 16, "--time-unit s gives 4e-05"),
        (hashed(SPAN, 16), "s", 16, "--time-unit ms gives 40"),
        (hashed(in_unit(1), 512), "s", 512, "--time-unit ms gives 40"),
        (hashed(in_unit(1e3), 512), "ms", 512, ""),  # Mooncake's
        (hashed([1e3 * time for time in SPAN], 512), "ms", 512, ""),
        (hashed(in_unit(1e6), 32), "us", 32, "--time-unit ms gives 4e-05"),
        (hashed(SINCE_1970, 16), "s", 16, ""),
        (hashed(in_unit(1e9, SINCE_1970), 16), "ns", 16, ""),
    ],
)
def test_contents_tell_the_unit_and_the_block(text, unit, block, other, write):
    found = simulate.read_requests(write("trace.jsonl", text))
    assert found.rate == pytest.approx(0.04, rel=0.02)
    assert found.reading == f"times in {unit} and blocks of {block} tokens"
    assert found.cached_tokens is not None
    assert found.cached_tokens.tolist() == [0, *np.minimum(block, PROMPTS[1:])]
    assert [other in str(note) for note in found.notes] == [True] * bool(other)
    path = write("trace.jsonl", text)
    assert simulate.read_requests(path, hash_block=8).cached_tokens[1] == 8
    typed = simulate.read_requests(path, time_unit="ms")
    assert not typed.notes
    assert "times" not in typed.reading


@pytest.mark.parametrize("kind", ["own", "Azure", "BurstGPT"])
def test_times_of_tables_are_what_they_hold(kind, write):
    head = {"own": OWN, "Azure": AZURE, "BurstGPT": "Timestamp,Request tokens,Response tokens\n"}
    days = [f"2024-05-10T00:0{minute}:00Z" for minute in range(4)]
    for times, rate in (
        *((times, 0.04) for times in (SPAN, in_unit(1e3), SINCE_1970, in_unit(1e3, SINCE_1970))),
        (days, 4 / 180),
    ):
        text = head[kind] + "".join(f"{time},5,3\n" for time in times)
        assert simulate.read_requests(write("load.csv", text)).rate == pytest.approx(rate, rel=0.02)


def test_whole_times_that_come_rarely_may_be_milliseconds(write):
    texts = (OWN + "".join(f"{step * i},5,3\n" for i in range(99)) for step in (250, 1))
    rare, often = (simulate.read_requests(write("load.csv", text)) for text in texts)
    assert "If the times are in ms, --time-unit ms" in str(rare.notes[0])
    assert not often.notes


@pytest.mark.parametrize(
    ("text", "typed", "culprit"),
    [
        (hashed(SPAN, 16).replace("[1, 2, 3, 4]", "[1]"), {}, "hash_ids: got '1 for 60 tokens"),
        (hashed(SPAN, 16), {"hash_block": 0}, "hash_block: got 0"),
        (hashed(SPAN, 16), {"time_unit": "h"}, "time_unit: got 'h'"),
        (hashed(SPAN, 16).replace("hash_ids", "ids"), {"hash_block": 16}, "has no hash_ids"),
        (hashed(['"2024-05-10"'] * 4, 16), {"time_unit": "s"}, "are dates"),
    ],
)
def test_contents_without_one_reading_are_refused(text, typed, culprit, write):
    refused(re.escape(culprit), simulate.read_requests, write("trace.jsonl", text), **typed)


@each_listed
def test_what_is_no_recording_is_refused_in_one_line(name, text, culprit, write):
    refused(re.escape(culprit), simulate.read_requests, write(name, text))


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_of_more_requests_than_are_taken_a_window_is_read(suffix, write, monkeypatch):
    monkeypatch.setattr(recorded, "MOST_REQUESTS", 10)
    rows = [{"arrival_time": i, "prompt_tokens": 5, "output_tokens": 3} for i in range(50)]
    text = OWN + "".join(f"{i},5,3\n" for i in range(50)) if suffix == "csv" else lines(rows)
    path = write(f"load.{suffix}", text)
    for window in (None, "5:20"):
        with pytest.raises(InputError, match="at most 10 requests: add time_window='0:10s'"):
            simulate.read_requests(path, window)
    assert simulate.read_requests(path, "2:7").count == 5


@pytest.mark.parametrize("window", ["5", "a:b", "7:3", "-1:4"])
def test_a_window_is_from_a_time_to_a_later_one(window, write):
    refused("FROM:TO", simulate.read_requests, write("load.csv", OWN + "0,5,3\n"), window)


def recording(count=400):
    """Return requests whose outputs are twice as long as their prompts, half of these cached."""
    prompts = np.random.default_rng(1).integers(1, 9, count) * 100
    return requests_of(prompts, 2 * prompts, np.arange(count) / 4.0, cached_tokens=prompts // 2)


def test_what_is_drawn_from_a_recording_stays_together():
    drawn = simulate.draw_requests(Arrivals(request_rate=2.0), recording(), 3000, 5)
    assert (drawn.output_tokens == 2 * drawn.prompt_tokens).all()
    assert drawn.cached_tokens is not None
    assert (drawn.cached_tokens == drawn.prompt_tokens // 2).all()
    assert drawn.prompt_tokens.mean() == pytest.approx(recording().prompt_tokens.mean(), rel=0.05)
    assert drawn.rate == pytest.approx(2.0, rel=0.1)


def test_a_fitted_law_has_means_spreads_and_correlation():
    law = Lengths(
        prompt_tokens=500, output_tokens=200, prompt_spread=0.8, output_spread=0.5, correlation=-0.4
    )
    drawn = simulate.draw_requests(Arrivals(request_rate=2.0), law, 50_000, 5)
    found = Lengths.fitted(drawn)
    for name in ("prompt_tokens", "output_tokens", "prompt_spread", "output_spread"):
        assert getattr(found, name) == pytest.approx(getattr(law, name), rel=0.02)
    assert found.correlation == pytest.approx(-0.4, abs=0.02)
    alike = Lengths.fitted(simulate.draw_requests(Arrivals(users=1), found, 1))
    assert alike.correlation == 0


def test_a_study_replays_a_recording_or_draws_from_it():
    study = {"deployment": None, "max_draft_length": 0, "lengths": recording()}
    replayed = Study(**study).requests(Arrivals(request_rate=8.0))
    np.testing.assert_allclose(replayed.arrival_time, np.arange(400) / 4 / 8 * recording().rate)
    drawn = Study(**study, is_redrawn=True, num_requests=7).requests(Arrivals(request_rate=8.0))
    assert drawn.count == 7
