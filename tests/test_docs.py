"""The pages for those who carry on: files that they name, in the order in which they run."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/one_answer.md").read_text(encoding="utf-8")

sys.path.insert(0, str(ROOT / "tests/benchmarks"))
import crossed  # noqa: E402 - a script of the benchmarks


def files_of(section: str) -> list[str]:
    """Files in the first column of the table under a heading."""
    _, _, rest = PAGE.partition(f"## {section}\n")
    return re.findall(r"^\| `([^`]+)` \|", rest.partition("\n## ")[0], re.MULTILINE)


def test_every_file_that_is_named_is_there():
    named = set(re.findall(r"`([a-z_]+/[a-z_/0-9]+\.(?:py|toml))`", PAGE))
    assert len(named) > 30
    missing = [name for name in named if not (ROOT / "specmodel" / name).is_file()]
    assert not missing


def test_the_walk_of_an_answer_is_that_of_a_prediction():
    """The very files that it crosses, in the order in which they are first entered."""
    calls = crossed.crossed(crossed.CASES[-1]).calls
    assert files_of("Each answer") == list(dict.fromkeys(file for file, _ in calls))


def test_a_prediction_crosses_no_more_than_was_agreed():
    assert crossed.main(verbose=False)
