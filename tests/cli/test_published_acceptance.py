"""Acceptance that is published, on the commands that take one."""

import re
import tomllib

import pytest
from printed import widest
from rows import each_row, one_case

import specmodel

WHERE = "--target deepseek-v3 --drafter mtp --hardware b200 --tensor-parallel 8"
NAMED = f"{WHERE} --acceptance glm-5.2-mtp"
SOURCE = "glm-5.2-mtp in mixed use (code: speed-coding, thinking on, 2026-"


@one_case(
    "command",
    "predict --batch-size 8 --draft-length 3",
    "predict --view lengths --batch-size 1,8",
    "predict --view terms --draft-length 3 --batch-size 8",
    "compare --batch-size 1,8",
    "schedule --for vllm --max-batch-size 8",
    "sensitivity --draft-length 3 --batch-size 8 --samples 64",
)
def test_every_command_takes_it_and_prints_its_source(run, command):
    assert SOURCE in run(f"{command} {NAMED} --verbose", one_line=True)


def test_what_is_printed_is_what_was_measured(rows):
    found = rows(f"predict {NAMED} --batch-size 8 --draft-length 1,8 --task code")
    assert [row["tokens_per_step"] for row in found] == pytest.approx([1.84, 4.06])


def test_a_list_says_which_there_are(run):
    listed = run("list acceptance")
    names = [line.split()[0] for line in listed.splitlines() if line]
    assert {*specmodel.list_acceptance()} < {*names}
    assert len({*names[2:]}) == len(names[2:])  # each row is told apart by its first word
    assert re.search(r"gpt-oss-120b-dflash +1.79, 2.92, 3.5\d +3, 9 +maths\n", listed)
    assert len(widest(listed)) <= 80


@each_row("name", ["qwen3.5-397b-mtp", "kimi-k3-dspark"])
def test_what_is_listed_is_shown_with_its_source(run, name):
    shown = run(f"list {name}")
    assert f"# as an option: --acceptance {name}" in shown
    told = tomllib.loads(shown)
    assert f"{told['target']}-{told['drafter']}" == name
    code = told["tasks"]["code"]
    assert code["lengths"] == [*range(1, 9)]
    assert len(code["tokens_per_step"]) == 8


def test_what_a_model_usually_has_is_shown_with_it(run):
    assert "# usual drafter: eagle3, draft length 7 (vLLM recipes" in run("list gpt-oss-120b")
    assert "# usual drafter: eagle (EAGLE's authors" in run("list mixtral-8x7b")
    assert "usual drafter" not in run("list phi-3.5-moe")
