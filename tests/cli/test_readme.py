"""What README and docs say can be typed: every command line, and what the first prints.

As a program, it writes into the README what the first prints now.
"""

import re
import shlex
import sys
import tomllib
from pathlib import Path
from string import Template

import pytest

from specmodel import cli

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs/parts"))
import examples  # noqa: E402 - of the site, whose pages are held to what they show likewise

README = (ROOT / "README.md").read_text(encoding="utf-8")
NAMES = sorted({*(ROOT / "docs").glob("*.md")} - {ROOT / "docs/gallery.md"})  # which has tests
DOCS = [path.read_text(encoding="utf-8") for path in NAMES]
PAGES = "\n".join([README, *DOCS])
SHOWN = re.compile(r"(?<=```text\n).*?(?=```)", flags=re.DOTALL)
TEXT = re.sub(r"\s+", " ", re.sub(r"```.*?```", "", PAGES, flags=re.DOTALL))
INSTALLS = {
    "python3 -m venv .venv", ".venv/bin/pip install .", ".venv/bin/pip install -e '.[test]'",
    ".venv/bin/pytest",
}  # fmt: skip
MADE = "specmodel predict mixtral-8x7b h100 --acceptance-rate 0.7 --batch-size 1:8"
NEEDS_A_GPU = "specmodel calibrate"  # or minutes of a CPU


def typed():
    """Command lines of the blocks for a shell and within sentences, variables in their places."""
    for block in re.findall(r"```sh\n(.*?)```", PAGES, flags=re.DOTALL):
        known: dict[str, str] = {}
        for line in block.replace("\\\n", " ").splitlines():
            name, is_set, value = line.partition("=")
            if is_set and name.isupper():
                known[name] = value.strip('"')
                continue
            command = Template(line.partition(" #")[0]).substitute(known)
            yield from (part.strip() for part in command.split("&&") if part.strip())
    yield from (t for t in re.findall(r"`(specmodel [\w-]+ [^`]+)`", TEXT) if "..." not in t)


_KEPT = [command for command in dict.fromkeys(typed()) if command not in INSTALLS | {NEEDS_A_GPU}]
COMMANDS = [command.removeprefix(".venv/bin/") for command in _KEPT]


def test_the_commands_are_found():
    names = [command.split()[1] for command in COMMANDS if command.startswith("specmodel ")]
    assert len(names) == len(COMMANDS) >= 10
    assert {"predict", "schedule", "simulate", "sweep", "list", "plot"} <= set(names)
    assert f"`{NEEDS_A_GPU}`" in TEXT


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An empty folder, in which the commands run in the order of the pages."""
    return Path(tmp_path_factory.mktemp("typed"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_pages_runs_in_an_empty_folder(command, folder, monkeypatch, capsys):
    if " plot " in command:
        pytest.importorskip("matplotlib")
    if " load " in command or "--for-load" in command:
        pytest.importorskip("numba")  # minutes without
    monkeypatch.chdir(folder)
    words, to_file, file = command.partition(" > ")
    given = re.search(r" plot \w+ (\S+\.csv)", words)
    if given and not Path(given[1]).exists():  # made by the command before, in another process
        assert cli.main(shlex.split(f"{MADE} --csv")[1:]) == 0
        Path(given[1]).write_text(capsys.readouterr().out, encoding="utf-8")
    status = cli.main(shlex.split(words)[1:])
    out, err = capsys.readouterr()
    assert status == 0, err
    assert all(line.startswith("specmodel: ") for line in err.splitlines())
    assert out
    if to_file:
        Path(file).write_text(out, encoding="utf-8")
        assert not file.endswith(".toml") or cli.main(["list", f"./{file}"]) == 0
    output = re.search(r"--output (\S+)", words)
    assert output is None or Path(output[1]).stat().st_size > 0


def test_the_first_command_prints_what_the_readme_shows():
    shown = SHOWN.search(README)
    assert shown is not None
    assert examples.printed(COMMANDS[0]) == shown[0], (
        f"the README is written anew by python {__file__}"
    )


def test_python_of_the_readme_runs():
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    found: dict[str, object] = {}
    exec(code, found)
    assert found["p"].speedup.shape == (9,)
    assert "num_speculative_tokens" in found["plan"].fragment


def test_every_extra_is_named_with_what_needs_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra in project["optional-dependencies"].keys() - {"dev"}:
        assert f"[{extra}]" in PAGES, extra


if __name__ == "__main__":
    text = examples.printed(COMMANDS[0])
    (ROOT / "README.md").write_text(SHOWN.sub(lambda _: text, README, count=1), encoding="utf-8")
