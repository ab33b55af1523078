"""Tokens per step by draft length in YAML, and the options that carry all of them."""

import io

import pytest
from rows import cases, each_listed, one_case

from specmodel.calibrate.measure import lengths_by_table

NESTED = """
# accepted=900; proposed=2000; drafts=1000
_metadata: {draft-model: some/head}
qwen3-30b-a3b:
  thinking_on:   # of coding
    1: 1.76
    2: 2.36
    3: 2.84
    5: 3.25
  thinking_off:
    "1": 1.7
    2: 2.31
    3: 2.29
"""
FLAT = "model: qwen3-30b-a3b\nmethod: eagle3\nthinking_on: {1: 1.5, 2: 1.9, 4: 2.1}\n"
IN_BRACES = "m: {maths: {on: {2: 2.5}, off: {1: 1.5, 3: n/a}}, code: {on: {1: 1.9}}}"


@one_case("text lengths",
    (NESTED, {"qwen3-30b-a3b thinking_on": {1: 1.76, 2: 2.36, 3: 2.84, 5: 3.25},
              "qwen3-30b-a3b thinking_off": {1: 1.7, 2: 2.31, 3: 2.29}}),
    (FLAT, {"qwen3-30b-a3b thinking_on": {1: 1.5, 2: 1.9, 4: 2.1}}),
    (IN_BRACES, {"m maths on": {2: 2.5}, "m maths off": {1: 1.5}, "m code on": {1: 1.9}}),
    ("2: 2.1\n1: 1.6\n0: 1.0\n", {"": {1: 1.6, 2: 2.1}}),
    ("model: m\n12:30:05 ready\nstep: 3\n", {}),
)  # fmt: skip
def test_tables_are_named_by_their_headings(text, lengths):
    assert lengths_by_table(text, "text") == lengths


@cases("text", NESTED, FLAT)
def test_what_is_pasted_predicts_each_length(text, tmp_path, run, document, rows):
    path = tmp_path / "lengths.yaml"
    path.write_text(text)
    told = document(f"acceptance {path}")
    page = run(f"acceptance {path}")
    for options, (name, table) in zip(
        told["predict"], lengths_by_table(text, "text").items(), strict=True
    ):
        assert f"\n{name}\nspecmodel predict qwen3-30b-a3b GPU --drafter DRAFTER" in page
        lengths = ",".join(map(str, table))
        found = rows(
            f"predict qwen3-30b-a3b h100 --drafter eagle3 --draft-length {lengths} {options}"
        )
        by_length = {row["draft_length"]: row["tokens_per_step"] for row in found}
        made = {r["draft_length"]: r["by_rates"] for r in told["rows"] if r["table"] == name}
        assert by_length == pytest.approx(made, abs=1e-3)
        assert by_length == pytest.approx(table, abs=0.021)  # 0.02 where a longer draft lost


@each_listed
def test_what_no_drafter_has_is_refused(text, expected, tmp_path, refuse):
    path = tmp_path / "lengths.yaml"
    path.write_text(text)
    refuse(f"acceptance {path}", expected)


def test_it_is_read_from_standard_input_and_all_its_tables_are_shown(monkeypatch, document, refuse):
    monkeypatch.setattr("sys.stdin", io.StringIO(FLAT))
    assert [row["tokens_per_step"] for row in document("acceptance -")["rows"]] == [1.5, 1.9, 2.1]
    monkeypatch.setattr("sys.stdin", io.StringIO(FLAT))
    refuse("acceptance - --model thinking_on", "All tables are shown")
