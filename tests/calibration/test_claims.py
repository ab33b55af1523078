"""Numbers of README and docs on accuracy and speed have commands; a changed number is found."""

import re
import tomllib
from pathlib import Path

import pytest
from rows import each_listed, each_row

import claims

README = claims.text_of(claims.ROOT)
TABLE = tomllib.loads(claims.TABLE.read_text(encoding="utf-8"))
ALL = [claim for command in claims.commands_of(TABLE) for claim in command.claims]


def test_every_number_has_a_command_or_is_of_outsiders():
    assert claims.problems(README, TABLE) == []
    assert len(list(claims.numbers(claims.prose(README)))) > 150


@each_row("claim", ALL)
def test_each_number_is_read_from_what_is_printed(claim):
    assert claim.said
    assert sum(re.compile(pattern).groups for pattern in claim.read) == len(claim.said)
    assert not [number for number in claim.said if not claims.NUMBER.fullmatch(number.lstrip("-"))]


@each_listed
def test_a_number_that_moves_or_is_new_is_noticed(before, after, problem):
    changed = README.replace(before, after)
    assert changed != README
    assert any(problem in found for found in claims.problems(changed, TABLE))


def test_names_are_no_numbers():
    text = "Qwen3-32B by 0.12.0 and 1.3.0rc20 on H100, 2026-11-24, fp8, `--rows 300`."
    assert not list(claims.numbers(text))


def test_what_is_quoted_says_that_it_is():
    unmarked = TABLE | {"outside": ["an 80 % interval"]}
    assert "not marked (outside, ...: an 80 % interval" in claims.problems(README, unmarked)


PRINTS = (Path(__file__).parents[1] / "data/claims_printed.toml").read_text(encoding="utf-8")


@pytest.fixture
def compared(tmp_path, monkeypatch, capsys):
    """Run the script on a README and a table with one number; return its status and text."""

    def run(said, readme="## How fast is it?\n\na mean of 9.9 % of 10 rows\n"):
        (tmp_path / "docs").mkdir()
        (tmp_path / "README.md").write_text("")
        (tmp_path / "docs" / "accuracy.md").write_text(readme)
        (tmp_path / "claims.toml").write_text(PRINTS.replace("SAID", said))
        monkeypatch.setattr(claims, "ROOT", tmp_path)
        return claims.main([], tmp_path / "claims.toml"), capsys.readouterr().out

    return run


def test_a_number_within_its_rounding_holds_and_what_cannot_run_is_said(compared):
    status, out = compared("9.9")
    assert status == 0
    assert "ok          9.9     9.94  a mean of 9.9 %" in out
    assert "skipped: no table of measured engines: --serving; 1 claims" in out
    assert out.endswith("0 wrong\n")


@each_listed
def test_a_number_that_is_wrong_or_not_there_ends_with_status_1(compared, said, prose, problems):
    status, out = compared(said, f"## How fast is it?\n\n{prose}\n")
    assert status == 1
    assert all(problem in out for problem in problems)


def test_what_a_command_does_not_print_is_no_number_that_holds():
    (command, _) = claims.commands_of(tomllib.loads(PRINTS.replace("SAID", "9.9")))
    assert list(claims.compare(command, "nothing")) == [(False, "NOT PRINTED  a mean of 9.9 %")]


def test_speeds_hold_within_a_factor_and_are_asked_for():
    (command, *_) = [each for each in claims.commands_of(TABLE) if each.factor]
    assert command.why_not("", speed=False) == "a speed: --speed"
    assert command.why_not("", speed=True) == ""
    assert claims.agrees("20", "11", factor=2.0)
    assert not claims.agrees("20", "9", factor=2.0)
