"""Acceptance read off saved scrapes of vLLM: counters, figures, bad input, the command."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from printed import refused
from rows import cases, each_row

from specmodel.calibrate.measure import scraped_acceptance
from specmodel.core.algebra.acceptance import expected_tokens_per_step_by_position

DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
QWEN, LLAMA = "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-3.1-8B"

BEFORE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="MODEL"} 3.0
"""
AFTER = """\
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="MODEL"} 12.0
"""


def labels(**given):
    return "{" + ",".join(f'{name}="{value}"' for name, value in sorted(given.items())) + "}"


def scrape(*series):
    """Text of a scrape of series (model_name, engine, drafts, draft tokens, by position)."""
    text = [BEFORE.replace("MODEL", series[0][0]).rstrip()]
    values = {DRAFTS: [], DRAFTED: [], ACCEPTED: [], BY_POSITION: []}
    for model, engine, drafts, drafted, by_position in series:
        on = labels(model_name=model, engine=engine)
        values[DRAFTS].append((on, drafts))
        values[DRAFTED].append((on, drafted))
        values[ACCEPTED].append((on, sum(by_position)))
        for position, count in enumerate(by_position):
            on = labels(model_name=model, engine=engine, position=position)
            values[BY_POSITION].append((on, count))
    for name, samples in values.items():
        created = name.replace("_total", "_created")
        text += [f"# HELP {name} Number of something.", f"# TYPE {name} counter"]
        text += [f"{name}{on} {float(value)}" for on, value in samples]
        text += [f"# HELP {created} Number of something.", f"# TYPE {created} gauge"]
        text += [f"{created}{on} 1.7634e+09" for on, _ in samples]
    return "\n".join(text) + "\n" + AFTER.replace("MODEL", series[0][0])


ONE = (QWEN, 0, 1000, 3000, [800, 560, 280])
TWO = (QWEN, 1, 500, 1500, [400, 340, 170])
OTHER = (LLAMA, 0, 200, 400, [50, 10])
LATER = (QWEN, 0, 1600, 4800, [1220, 770, 370])


@pytest.fixture
def write(tmp_path):
    """Write a scrape of series, or a text, and return its path."""

    def write(*content, name="run.prom"):
        path = tmp_path / name
        text = content[0] if isinstance(content[0], str) else scrape(*content)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_the_engines_of_a_model_are_summed(write):
    measured = scraped_acceptance(write(ONE, OTHER, TWO), model=QWEN)
    # 1500 drafts of 4500 tokens; accepted 1200, 900 and 450 by position, 2550 in all.
    assert (measured.model_name, measured.num_engines) == (QWEN, 2)
    assert (measured.num_drafts, measured.num_draft_tokens) == (1500, 4500)
    assert measured.accepted_by_position.tolist() == [1200, 900, 450]
    assert (measured.mean_draft_length, measured.max_draft_length) == (3, 3)
    np.testing.assert_allclose(measured.acceptance_by_position, [0.8, 0.75, 0.5], rtol=1e-12)
    assert measured.accepted_fraction == pytest.approx(2550 / 4500, rel=1e-12)
    a = measured.acceptance_rate
    assert 1 + a + a**2 + a**3 == pytest.approx(2.7, rel=1e-12)


def test_short_drafts_hide_acceptance_but_not_tokens_per_step(write):
    """200,000 drafts of a simulated engine, of length 1 to 5, each token accepted by 0.7."""
    alpha, drafts = 0.7, 200_000
    generator = np.random.default_rng(2)
    lengths = generator.integers(1, 6, drafts)
    accepted = np.minimum(generator.geometric(1 - alpha, drafts) - 1, lengths)
    reached = [int((accepted >= i).sum()) for i in range(1, 6)]
    measured = scraped_acceptance(write((QWEN, 0, drafts, int(lengths.sum()), reached)))
    assert (measured.mean_draft_length, measured.max_draft_length) == (lengths.mean(), 5)
    # One of five drafts of length g: 1.7, 2.19, 2.533, 2.7731, 2.94117; their mean at length 3.
    assert measured.tokens_per_step == pytest.approx(2.427454, abs=0.01)
    assert measured.acceptance_rate == pytest.approx(0.6716, abs=0.004)
    expected = alpha * np.array([1, 4 / 5, 3 / 4, 2 / 3, 1 / 2])
    np.testing.assert_allclose(measured.acceptance_by_position, expected, atol=0.01)
    for cut in range(1, 6):
        tokens = expected_tokens_per_step_by_position(measured.acceptance_by_position, cut)
        assert tokens == pytest.approx(1 + np.minimum(accepted, cut).mean(), rel=1e-12)


def test_steps_without_a_draft_follow_from_the_tokens_emitted(write):
    """Of 2,500 steps 1,000 had a draft, of which 1,640 tokens were accepted."""

    def counted(emitted, first):
        on = labels(model_name=QWEN, engine=0)
        counts = f"vllm:time_to_first_token_seconds_count{on} {first}\n"
        counts += "# TYPE vllm:generation_tokens counter\n"
        return f"{counts}vllm:generation_tokens_total{on} {emitted}\n"

    measured = scraped_acceptance(write(scrape(ONE) + counted(2500 + 1640 + 60, 60)))
    assert measured.proposal_rate == 0.4
    assert measured.tokens_per_step == pytest.approx(1 + 0.4 * 1.64)
    assert measured.mean_draft_length == pytest.approx(0.4 * 3)
    later = write(scrape(LATER) + counted(6000, 90), name="later.prom")
    between = scraped_acceptance(write(scrape(ONE) + counted(4200, 60)), later)
    assert between.proposal_rate == pytest.approx(600 / (1800 - 30 - 720))
    assert scraped_acceptance(write(ONE)).proposal_rate is None


def test_two_scrapes_give_what_was_counted_between(write):
    measured = scraped_acceptance(write(ONE), write(LATER, name="later.prom"))
    assert (measured.num_drafts, measured.num_draft_tokens) == (600, 1800)
    assert measured.accepted_by_position.tolist() == [420, 210, 90]
    assert measured.num_accepted_tokens == 720
    np.testing.assert_allclose(measured.acceptance_by_position, [0.7, 0.5, 3 / 7], rtol=1e-12)


@cases("later match",
        ([(LLAMA, *ONE[1:])], f"model_name: got '{LLAMA}'; expected {QWEN}"),
        ([(QWEN, 5, *ONE[2:]), TWO], 'engine="0".; expected the same engines and positions'),
        ([(*ONE[:3], 2999, ONE[4]), TWO], f"^{DRAFTED}: got 2999; .*the earlier count"),
        ([(*ONE[:4], [801, 559, 280]), TWO], "position 1: got 559; .*the earlier count"),
        ([(QWEN, 0, 9000, 27000, [7200, 5000, 2500]), (QWEN, 1, 9, 27, [4] * 3)],
         f"{DRAFTS}: got 9; expected at least 500"),  # that restarted, though the sum rose,
)  # fmt: skip
def test_only_counters_of_the_same_engines_that_rose_have_a_difference(later, match, write):
    refused(match, scraped_acceptance, write(ONE, TWO), write(*later, name="later.prom"))


def test_the_suffix_may_be_left_to_the_client(write):
    text = scrape(ONE)
    open_metrics = re.sub(r"# (TYPE|HELP) (vllm:spec\w+)_total", r"# \1 \2", text) + "# EOF\n"
    old_client = re.sub(r"(vllm:spec\w+)_total", r"\1", text)
    untyped = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for variant in (open_metrics, old_client, untyped, text.replace("\n", "\r\n")):
        assert variant != text
        assert scraped_acceptance(write(variant)).num_drafts == 1000
    refused("none found", scraped_acceptance, write(old_client.replace(" counter", " gauge")))


def one(name, value, position=None):
    """The text of a scrape whose counter has another value."""
    on = "" if position is None else f'position="{position}"'
    pattern = rf"^({name}{{[^}}]*{on}[^}}]*}}) .*$"
    text, count = re.subn(pattern, rf"\g<1> {value}", scrape(ONE), flags=re.M)
    assert count == 1
    return text


def test_a_torn_scrape_does_a_wrong_one_does_not(write):
    torn = scraped_acceptance(write(one(ACCEPTED, 1650)))
    assert torn.tokens_per_step == 2.65
    counts = ((9999, [7000]), (30100, [8000, 5000, 2000]), (30000, [8000, 8010, 2000]))
    for drafted, by_position in counts:
        measured = scraped_acceptance(write((QWEN, 0, 10_000, drafted, by_position)))
        assert 1 <= measured.mean_draft_length <= len(by_position)
        assert (measured.acceptance_by_position <= 1).all()
    for wrong in (1700, 1600):
        told = f"{BY_POSITION}: got 1640; expected {wrong} accepted tokens over all positions"
        refused(told, scraped_acceptance, write(one(ACCEPTED, wrong)))


def without(pattern):
    """The text of a scrape without the lines that a pattern is in."""
    lines = scrape(ONE).splitlines()
    kept = [line for line in lines if not re.search(pattern, line)]
    assert len(kept) < len(lines)
    return "\n".join(kept) + "\n"


BAD = {
    "off": (without("spec_decode"), r"^scrape: got '.*'; .*speculation may be off"),
    "one counter": (without(rf"^{DRAFTED}"), f"^scrape .*. Counter {DRAFTED} is missing"),
    "no position": (without(rf"^{BY_POSITION}"), f"Counter {BY_POSITION} position 0 is missing"),
    "position": (scrape(ONE).replace('"2"}', '"-2"}'), f"^{BY_POSITION}: got .*'-2'.*; .* from 0"),
    "no model": (scrape(ONE).replace("model_name", "model"), f"^{DRAFTS}: .*a label model_name"),
    "twice": (scrape(ONE, ONE), f"^scrape .* {DRAFTS}: got .*engine.*; expected each series once"),
    "idle": (scrape((QWEN, 0, 0, 0, [0, 0, 0])), f"^{DRAFTS}: got 0; expected at least 1 draft;"),
    "negative": (one(DRAFTS, -1), rf"{DRAFTS}: got -1(\.0)?; expected whole numbers from 0"),
    "few drafted": (one(DRAFTED, 989), f"{DRAFTED}: got 989; expected 1 to 3 tokens for each of"),
    "accepted": (one(ACCEPTED, 3001), f"^{ACCEPTED}: got 3001; expected at most 3000"),
    "first": (one(BY_POSITION, 1011, 0), "position 0: got 1011; expected at most 1000"),
    "rising": (one(BY_POSITION, 566, 2), "position 2: got 566; expected at most 560"),
}


@each_row("case", BAD)
def test_bad_scrapes_are_refused_in_one_line(case, write, refuse):
    text, match = BAD[case]
    error = refuse(f"acceptance {write(text)}").removeprefix("specmodel: error: ")
    assert re.search(match, error), error


@cases("line", "<html>", 'vllm:x{a="b" 3', "# TYPE x")
def test_a_malformed_line_is_told_by_its_number(line, write, refuse):
    path = write("\n".join([*scrape(ONE).splitlines()[:8], line]))
    start = repr(line)[:10].rstrip("'\"")
    refuse(f"acceptance {path}", f"specmodel: error: scrape {path} line 9: got {start}")


def test_files_that_are_no_text(tmp_path, refuse, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("binary").write_bytes(b"\x7fELF\xff\xfe")
    Path("huge").write_bytes("é".encode() * 4_000_001)
    for name, reason in {"missing": "No such file", "binary": "UTF-8", "huge": "4 MB"}.items():
        refuse(f"acceptance {name}", f"specmodel: error: file: got '{name}'; expected ", reason)


def test_a_model_is_asked_for_by_its_option(write, run, refuse):
    path = write(ONE, OTHER)
    refuse(f"acceptance {path}", f"error: --model: none given; expected one of {QWEN}, {LLAMA}\n")
    told = "Model: {}.\nNumber of drafts: {}.\n".format
    assert run(f"acceptance {path} --model {LLAMA}").startswith(told(LLAMA, 200))
    later = write(LATER, OTHER, name="later.prom")
    assert run(f"acceptance {path} {later} --model {QWEN}").startswith(told(QWEN, 600))


def test_a_url_is_told_with_its_page_of_counters(refuse):
    for path in ("", "/v1/", "/metrics"):
        told = "a saved scrape: curl -s http://host:8000/metrics > run.prom\n"
        refuse(f"acceptance http://host:8000{path}", told)


def test_people_see_80_columns_and_what_to_paste_last(write, run):
    path = write(ONE, TWO)
    out, document = run(f"acceptance {path}"), json.loads(run(f"acceptance {path} --json"))
    lines = out.splitlines()
    assert lines[:3] == [f"Model: {QWEN}.", "Number of drafts: 1500.", "Number of engines: 2."]
    assert max(map(len, lines)) <= 80
    assert re.search(r"^ +3 +0\.3000 +0\.5000$", out, re.M)
    assert document["predict"] == [
        "--acceptance-by-position conditional:0.8,0.75,0.5",
        "--tokens-per-step 2.7 --measured-draft-length 3",
    ]
    assert all(line in "\n".join(lines[-7:]) for line in document["predict"])


def test_drafts_that_vary_are_predicted_at_their_mean_length(write, run):
    """The counters of suffix decoding: 1000 drafts of 2600 tokens in all, at most 8 each."""
    reached = [700, 450, 300, 180, 110, 70, 50, 40]
    path = write((LLAMA, 0, 1000, 2600, reached))
    text, document = run(f"acceptance {path}"), json.loads(run(f"acceptance {path} --json"))
    assert "\nMean draft length: 2.6.\nLongest draft length: 8.\n" in text
    assert document["predict"] == ["--draft-length 3 --tokens-per-step 2.9 --proposal-rate 1"]
    assert "the options use the mean draft" in document["warnings"][0]
    assert document["predict"][0] in text


def test_the_printed_command_predicts_once_gpu_and_drafter_are_there(write, run):
    """At the requests that ran, up to the longest draft measured; the other form goes further."""
    text = run(f"acceptance {write(ONE, name='a.prom')} {write(LATER, name='b.prom')}")
    command = re.search(r"^specmodel (predict .*\\\n.*)$", text, re.M)[1].replace("\\\n", "")
    typed = command.replace("GPU", "h200").replace("DRAFTER", "eagle3")
    rates = re.search(r"--acceptance-by-position \S+", typed)[0]
    further = re.search(r"^--tokens-per-step .*$", text, re.M)[0]
    for words, goes_further in ((typed, False), (typed.replace(rates, further), True)):
        document = json.loads(run(f"{words} --json"))
        assert {row["batch_size"] for row in document["rows"]} == {3}
        assert (document["assumptions"]["max_draft_length"] > 3) == goes_further


def test_requests_that_ran_are_a_mean_of_scrapes_that_had_any(write):
    def ran(*counts):
        texts = [
            scrape(series).replace('"Qwen/Qwen3-30B-A3B"} 3.0', f'"Qwen/Qwen3-30B-A3B"}} {count}')
            for series, count in zip((ONE, LATER), counts, strict=True)
        ]
        paths = (write(text, name=f"{i}.prom") for i, text in enumerate(texts))
        return scraped_acceptance(*paths).running_requests

    assert ran(3, 8) == 5.5
    assert ran(0, 8) == 8
    assert ran(0, "NaN") is None
