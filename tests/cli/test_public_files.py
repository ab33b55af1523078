"""Files of other engines and benches at the two commands that read them, as people have them."""

import json
import re
from pathlib import Path

import pytest
from printed import in_one_line
from rows import cases, each_listed

FILES = Path(__file__).parents[1] / "data" / "benchmarks" / "public"
WHERE = "--target llama-3.1-8b --hardware h200 --drafter eagle3"


@pytest.fixture
def text(tmp_path):
    """Write a text, and return its path."""

    def write(content, name="mine.log"):
        path = tmp_path / name
        path.write_text(content)
        return path

    return write


def lines_of_atom(*counts):
    """The line of ROCm/ATOM's PR 560 for all drafts so far, each by (drafts accepted 0, 1, ...)."""
    made = []
    for drafts in counts:
        steps, longest = sum(drafts), len(drafts) - 1
        accepted = sum(i * n for i, n in enumerate(drafts))
        shares = ", ".join(f"{i}: '{100 * n / steps:.2f}%'" for i, n in enumerate(drafts))
        rate = f"{100 * accepted / steps / longest:.2f}%"
        made.append(
            f"[atom 09:12:31] [MTP Stats         ] Average toks/fwd: {1 + accepted / steps:.2f},"
            f" Accepted/Total Draft tokens: {accepted}/{steps * longest}, Acceptance rate:"
            f" {rate}, Accepted tokens distribution: {{{shares}}}\n"
        )
    return "".join(made)


@each_listed
def test_the_last_total_of_atom_counts(counts, tokens, length, text, document, refuse):
    """And fit engine says what it lacks."""
    path = text(lines_of_atom(*counts))
    found = document(f"acceptance {path}")
    assert (found["engine"], found["num_lines"], found["draft_length"]) == ("ATOM", 1, length)
    assert found["tokens_per_step"] == pytest.approx(tokens, abs=0.005)
    told = f"specmodel acceptance {path} reads its acceptance.\n"
    refuse(f"fit engine {path} {WHERE}", told)


@each_listed
def test_golden_lengths_are_rates_for_all_lengths(content, longest, text, document, refuse):
    path = text(content, "golden.yaml")
    rows = document(f"acceptance {path}")["rows"]
    assert rows[-1]["tokens_per_step"] == longest
    assert rows[-1]["by_rates"] == pytest.approx(longest, rel=0.01)
    refuse(f"fit engine {path} {WHERE}", "reads its acceptance")


@each_listed
def test_acceptance_reads_what_a_file_tells_of_drafts(name, tokens, length, document):
    found = document(f"acceptance {FILES / name}")
    (run,) = found.get("runs", [found])
    assert run["tokens_per_step"] == pytest.approx(tokens, rel=1e-3)
    assert run["draft_length"] == length


@each_listed
def test_acceptance_says_that_plain_runs_have_none(name, refuse):
    refuse(f"acceptance {FILES / name}", "expected a run with counts of drafts")


DRAWN = (FILES / "drawn_tables.md").read_text(encoding="utf-8").split("\n\n")[1:]


@cases("form", *DRAWN, DRAWN[0].replace("│", "║").replace("┃", "║"))
@each_listed
def test_tables_that_are_drawn_are_read(form, name, text, document):
    path = text(form.format(name, "2.62"), "table.txt")
    assert document(f"acceptance {path}")["tokens_per_step"] == 2.62


def fitted(page):
    """Measured and fitted times of a page's runs [ms]."""
    pairs = re.findall(r"([\d.]+)ms +[\d.]+ -> ([\d.]+)ms", page)
    return [tuple(map(float, each)) for each in pairs]


@each_listed
def test_fit_engine_fits_what_files_tell(name, where, milliseconds, started, run, tmp_path):
    command = f"fit engine {FILES / name} {where} --force --output {tmp_path / 'mine.toml'}"
    page = run(command)
    joined = in_one_line(page)
    assert f"Engine profile before the fit: {started}" in joined
    found = fitted(page)
    assert [measured for measured, _ in found] == pytest.approx(milliseconds, rel=0.01)
    for measured, now in found:
        assert now == pytest.approx(measured, rel=0.6)
    printed = joined[joined.index("specmodel predict") :].replace("\\", "")
    (tmp_path / "mine.toml").rename(tmp_path / "own.toml")
    typed = printed.removeprefix("specmodel ").replace("mine.toml", "own.toml")
    rows = json.loads(run(f"{typed} --batch-size 16 --json --force"))
    assert rows["rows" if "rows" in rows else "deployment"]


def test_a_row_that_drafts_says_what_is_assumed_and_what_it_lacks(run):
    page = in_one_line(run(f"fit engine {FILES / 'flat_offline.json'} --drafter mtp"))
    assert (
        "has no draft length: 3 is assumed, the shortest that gives 3.507 tokens per step" in page
    )
    assert "no run without speculation" in page
    assert "8 x NVIDIA B300 (tensor parallel 1, data parallel 8, expert parallel 8)" in page
    other = run(f"fit engine {FILES / 'flat_offline.json'} --drafter mtp --draft-length 4")
    assert "is assumed" not in in_one_line(other)


@each_listed
def test_what_is_typed_must_be_what_the_row_tells(typed, told, refuse):
    refuse(f"fit engine {FILES / 'flat_offline.json'} --drafter mtp {typed}", told)


def test_an_engine_that_does_not_ship_is_named(refuse):
    where = "--target gpt-oss-120b --hardware 8xmi355x"
    told = ("--engine: got 'atom'. No such profile is shipped.", "specmodel list engines")
    refuse(f"fit engine {FILES / 'inferencex_mi355x.json'} {where}", *told)
