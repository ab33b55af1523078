"""The pages of docs and README: the files, functions and tests that they name, and their form."""

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
from rows import listed

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/one_answer.md").read_text(encoding="utf-8")

WORDS = ROOT / "docs/words.md"

sys.path[:0] = [str(ROOT / "tests/benchmarks"), str(ROOT / "docs/parts")]
import crossed  # noqa: E402 - a script of the benchmarks

import examples  # noqa: E402 - of the site
from specmodel.core.prediction import COLUMNS  # noqa: E402 - below the path
from specmodel.core.prediction.columns import LOAD_COLUMNS  # noqa: E402 - likewise
from specmodel.show.columns import meanings  # noqa: E402 - likewise
from specmodel.show.glossary import LIMITS, WORDS as WORDS_OF_ANSWERS, policy_words  # noqa: E402 - below the path that it needs

GUIDE = sorted({*(ROOT / "docs/guide").glob("*.md")} - {ROOT / "docs/guide/style.md"})
CARRY_ON = ROOT / "docs/carry_on"


def files_of(section: str) -> list[str]:
    """Return the files in the first column of the table under a heading."""
    _, _, rest = PAGE.partition(f"## {section}\n")
    return re.findall(r"^\| `([^`]+)` \|", rest.partition("\n## ")[0], re.MULTILINE)


@listed
def test_every_file_that_a_page_names_is_there(page, pattern, folder, most):
    named = set(re.findall(pattern, (ROOT / page).read_text(encoding="utf-8")))
    assert len(named) > most
    missing = [name for name in named if not (ROOT / folder / name).exists()]
    assert [name for name in missing if "NAME" not in name] == []


def test_every_function_that_is_named_is_there():
    named = set(re.findall(r"`([a-z_]+/[a-z_/0-9]+)\.py:([\w.]+)`", PAGE))
    assert len(named) > 20
    for file, name in named:
        found = import_module(f"specmodel.{file.replace('/', '.')}")
        for part in name.split("."):
            found = vars(found)[part] if isinstance(found, type) else getattr(found, part, None)
        assert found is not None, f"{file}.py:{name}"


def test_the_walk_of_an_answer_is_that_of_a_prediction():
    """The page lists exactly the files that a prediction runs, in the order of their first call."""
    calls = crossed.crossed(crossed.CASES[-1]).calls
    assert files_of("Each answer") == list(dict.fromkeys(file for file, _ in calls))


def test_a_prediction_crosses_no_more_than_was_agreed():
    assert crossed.main(verbose=False)


def glossary_page() -> str:
    """Return the glossary as a page."""
    tables = {"Words of answers": WORDS_OF_ANSWERS, "Limited by": LIMITS}
    tables |= {"Policies": policy_words(), "Columns of tables, CSV and JSON": meanings()}
    parts = ["# What the words mean"]
    parts += ["The same as `specmodel list words`, `policies` and `columns`."]
    for title, words in tables.items():
        rows = "\n".join(f"| {word} | {told} |" for word, told in words.items())
        rows = rows.replace("__", "\\_\\_")
        parts.append(f"## {title}\n\n| word | meaning |\n|---|---|\n{rows}")
    return "\n\n".join(parts) + "\n"


def test_the_page_of_words_is_the_glossary():
    told = f"written anew by python {__file__}"
    assert WORDS.read_text(encoding="utf-8") == glossary_page(), told


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
    assert max(map(len, (line for line in text.splitlines() if "|" not in line))) <= 120


def test_the_guide_has_fifteen_questions_that_open_with_what_why_and_cost():
    assert len(GUIDE) == 15
    for page in GUIDE:
        title, _, first, *_ = (text := page.read_text(encoding="utf-8")).splitlines()
        assert title.startswith("# ")
        assert title.endswith("?")
        assert first.startswith("- **What**: ")
        assert re.findall(r"^- \*\*(\w+)\*\*: ", text, re.MULTILINE)[:3] == ["What", "Why", "Cost"]
        assert examples.BLOCK.search(text)


def test_each_column_is_told_with_its_arithmetic():
    page = (ROOT / "docs/understand.md").read_text(encoding="utf-8")
    names = {column.name for column in (*COLUMNS, *LOAD_COLUMNS)}
    assert not [name for name in names if f"`{name}`" not in page]


def test_every_public_name_has_an_entry_in_the_reference():
    """Packages and exported modules have a page; the build checks that it has their names."""
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs/reference").glob("*.rst")]
    described = set(re.findall(r"automodule:: (\S+)", "\n".join(pages)))
    data = set(re.findall(r"py:data:: (\S+)", "\n".join(pages)))
    folders = [path.parent.relative_to(ROOT) for path in (ROOT / "specmodel").rglob("__init__.py")]
    fronts = {".".join(folder.parts) for folder in folders} - {"specmodel"}
    for front in fronts:
        for name in getattr(import_module(front), "__all__", []):
            value = getattr(import_module(front), name)
            is_code = inspect.isfunction(value) or inspect.isclass(value)
            if not inspect.ismodule(value):
                assert front in described
                assert is_code or name in data, f"{front}.{name} is neither code nor described"
            elif not inspect.getattr_static(value, "__path__", None):
                assert value.__name__ in described


def test_invariants_name_tests_that_are_there():
    text = (CARRY_ON / "invariants.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    rows = re.findall(r"^\| (\d+) \|", text, re.MULTILINE)
    assert rows == [str(number + 1) for number in range(len(rows))]
    assert len(named) >= len(rows) >= 20
    for file, test in named:
        assert f"def {test}" in (ROOT / file).read_text(encoding="utf-8"), (file, test)


PAGE_OF_EXAMPLES = (Path(__file__).parent / "data/examples.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("block", [0, 1])
def test_an_example_that_prints_otherwise_is_found_and_written_anew(block, tmp_path, monkeypatch):
    monkeypatch.setattr(examples, "DOCS", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(PAGE_OF_EXAMPLES, encoding="utf-8")
    assert examples.difference(page, examples.run(page)) == ""
    typed = ("$ cat two.txt", ">>> 1 + 1")[block]
    drifted = PAGE_OF_EXAMPLES.replace(f"{typed}\n2", f"{typed}\n3")
    page.write_text(drifted, encoding="utf-8")
    now = examples.run(page)
    assert "the page shows '3', the example prints '2'" in examples.difference(page, now)
    assert now == PAGE_OF_EXAMPLES


def test_what_a_slow_machine_tells_on_the_way_is_no_output():
    said = "Serving: 3 of about 5 runs, 11 s"
    assert examples.printed(f"echo '{said}' >&2; echo done") == "done\n"


def test_what_was_taken_is_shown_once_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr(examples, "DOCS", tmp_path)
    page = tmp_path / "page.md"
    answer = "{code-block} text\n:caption: one.txt\n\n2.6x\n\nAssumed: a 1.\nOurs: b 2.\n"
    asked = "console\n$ cat one.txt\n"
    page.write_text("\n\n".join(f"```{block}```" for block in (answer, asked, asked)))
    now = examples.run(page)
    assert now.endswith("Ours: b 2.\n```\n\n```console\n$ cat one.txt\n2.6x\n\n...\n```")
    assert now.count("Assumed") == 2  # in the file, and in the first answer


def test_an_example_that_fails_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(examples, "DOCS", tmp_path)
    page = tmp_path / "page.md"
    for example in ("console\n$ specmodel predict nothing h100\n", "pycon\n>>> nothing\n"):
        page.write_text(f"```{example}```\n", encoding="utf-8")
        with pytest.raises(SystemExit, match="nothing"):
            examples.run(page)


if __name__ == "__main__":
    WORDS.write_text(glossary_page(), encoding="utf-8")
