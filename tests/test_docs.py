"""The pages for those who carry on: files that they name, in the order in which they run."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/one_answer.md").read_text(encoding="utf-8")

WORDS = ROOT / "docs/words.md"

sys.path.insert(0, str(ROOT / "tests/benchmarks"))
import crossed  # noqa: E402 - a script of the benchmarks

from specmodel.show.glossary import (  # noqa: E402 - below the path that it needs
    LIMITS,
    POLICIES,
    WORDS as WORDS_OF_ANSWERS,
)


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


def glossary_page() -> str:
    """The glossary as a page."""
    tables = {
        "Words of answers": WORDS_OF_ANSWERS,
        "Limited by": LIMITS,
        "Policies": POLICIES,
    }
    parts = ["# What the words mean", "The same as `specmodel list words` and `list policies`."]
    for title, words in tables.items():
        rows = "\n".join(f"| {word} | {told} |" for word, told in words.items())
        parts.append(f"## {title}\n\n| word | meaning |\n|---|---|\n{rows}")
    return "\n\n".join(parts) + "\n"


def test_the_page_of_words_is_the_glossary():
    told = f"written anew by python {__file__}"
    assert WORDS.read_text(encoding="utf-8") == glossary_page(), told


def test_the_readme_is_short_and_names_pages_that_are_there():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert max(map(len, (line for line in text.splitlines() if "|" not in line))) <= 120
    named = set(re.findall(r"`((?:docs|notebooks|calibration)/[\w/.]+\.md)`", text))
    assert len(named) >= 5
    assert all((ROOT / name).is_file() for name in named)


if __name__ == "__main__":
    WORDS.write_text(glossary_page(), encoding="utf-8")
