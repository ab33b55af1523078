"""Acceptance that is published, on the commands that take one."""

import re
import tomllib

from printed import widest
from rows import each_row

import specmodel


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
    assert (code["lengths"], len(code["tokens_per_step"])) == ([*range(1, 9)], 8)
