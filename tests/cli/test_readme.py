"""What the README says can be typed: every command line as it stands, and what the first prints.

As a program, it writes into the README what the first prints now.
"""

import contextlib
import io
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from string import Template

import pytest

from specmodel import cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN = re.compile(r"(?<=```text\n).*?(?=```)", flags=re.DOTALL)
TEXT = re.sub(r"\s+", " ", re.sub(r"```.*?```", "", README, flags=re.DOTALL))
INSTALLS = {
    "python3 -m venv .venv",
    ".venv/bin/pip install .",
    ".venv/bin/pip install -e '.[test]'",
    ".venv/bin/pytest",
}
NEEDS_A_GPU = "specmodel calibrate --device cuda --output mine.toml"


def typed() -> Iterator[str]:
    """Command lines of the blocks for a shell and within sentences, variables in their places."""
    for block in re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL):
        known: dict[str, str] = {}
        for line in block.replace("\\\n", " ").splitlines():
            name, is_set, value = line.partition("=")
            if is_set and name.isupper():
                known[name] = value.strip('"')
                continue
            command = Template(line.partition(" #")[0]).substitute(known)
            yield from (part.strip() for part in command.split("&&") if part.strip())
    yield from (text for text in re.findall(r"`(specmodel [\w-]+ [^`]+)`", TEXT))


COMMANDS = [
    command.removeprefix(".venv/bin/")
    for command in dict.fromkeys(typed())
    if command not in INSTALLS | {NEEDS_A_GPU}
]


def test_the_commands_are_found() -> None:
    names = [command.split()[1] for command in COMMANDS if command.startswith("specmodel ")]
    assert len(names) == len(COMMANDS) >= 10
    assert {"predict", "schedule", "simulate", "sweep", "show", "plot"} <= set(names)
    assert f"`{NEEDS_A_GPU}`" in TEXT


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_runs_in_an_empty_folder(
    command, tmp_path, monkeypatch, capsys
) -> None:
    if " plot " in command:
        pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    words, to_file, file = command.partition(" > ")
    status = cli.main(shlex.split(words)[1:])
    out, err = capsys.readouterr()
    assert status == 0, err
    assert all(line.startswith("specmodel: warning: ") for line in err.splitlines())
    assert out
    if to_file:
        Path(file).write_text(out, encoding="utf-8")
        assert cli.main(["show", f"./{file}"]) == 0
    output = re.search(r"--output (\S+)", words)
    assert output is None or Path(output[1]).stat().st_size > 0


def printed() -> str:
    """What the first command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert cli.main(shlex.split(COMMANDS[0])[1:]) == 0
    return out.getvalue()


def test_the_first_command_prints_what_the_readme_shows() -> None:
    shown = SHOWN.search(README)
    assert shown is not None
    assert printed() == shown[0], f"the README is written anew by python {__file__}"


def test_python_of_the_readme_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    found: dict[str, object] = {}
    exec(code, found)
    assert found["p"].speedup.shape == (3, 128)


def test_every_extra_is_named_with_what_needs_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra in project["optional-dependencies"].keys() - {"dev"}:
        assert f"[{extra}]" in README, extra


if __name__ == "__main__":
    text = printed()
    (ROOT / "README.md").write_text(SHOWN.sub(lambda _: text, README, count=1), encoding="utf-8")
