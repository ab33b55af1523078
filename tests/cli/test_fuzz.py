"""Random command lines and damaged files: no traceback, no NaN, one line an error.

What the fuzz reaches is compared with what there is, and it finds mends that are taken back.
"""

import ast
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("pyarrow")
pytest.importorskip("filelock")

import click
import fuzzed
import fuzzed_files
import fuzzed_lines
import fuzzed_runs
from rows import each_row, faults, slow

import specmodel
from specmodel.cli.commands import main_group
from specmodel.show.plots import KINDS

SEED, COUNT = 20261122, 600
PACKAGE = Path(specmodel.__file__).parent
_READERS = tomllib.loads((Path(__file__).parents[1] / "data/readers.toml").read_text())
READING, *OF_ITS_OWN = ({*names.split()} for names in _READERS.values())


def commands_of(group, words=()):
    """Give the words of each command of a group, and of the groups in it."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from commands_of(command, (*words, name))
        else:
            yield (*words, name)


def readers():
    """Give the functions of the package that read files, as module.function."""
    for path in PACKAGE.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef):
                calls = [n.func for n in ast.walk(function) if isinstance(n, ast.Call)]
                if READING & {getattr(c, "attr", getattr(c, "id", "")) for c in calls}:
                    yield f"{path.stem}.{function.name}"


def test_the_fuzz_starts_from_lines_that_reach_all_commands_and_readers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reached, is_on = set(), True

    def note(event, _arguments):
        frame = sys._getframe() if is_on and event == "open" else None
        while frame:
            file = frame.f_code.co_filename
            if file.startswith(str(PACKAGE)):
                reached.add(f"{Path(file).stem}.{frame.f_code.co_name}")
            frame = frame.f_back

    sys.addaudithook(note)
    fuzzed_files.write_files(tmp_path)
    kept = fuzzed_files.contents(tmp_path)
    named, kinds = set(), set()
    for line in [*fuzzed_lines.BASES, *fuzzed_lines.REFUSED]:
        words = shlex.split(line)
        ended = fuzzed_runs.run(words)
        assert (ended.status == 2) == (line in fuzzed_lines.REFUSED), (line, ended.err)
        assert not [*fuzzed_runs.faults(ended)]
        fuzzed_files.restore(tmp_path, kept)
        if words[0] == "fit" and words[1] not in ("engine", "check"):
            words.insert(1, "kernels")
        named |= {tuple(words[:1]), tuple(words[:2])}
        kinds |= {words[1].replace("-", "_")} if words[0] == "plot" else set()
    is_on = False
    served = {("explore",)}  # until it is ended: tests/show/web sends it what is wrong
    assert {*commands_of(main_group)} - served <= named
    assert (kinds, {*readers()} - set().union(*OF_ITS_OWN) - reached) == ({*KINDS}, set())


@pytest.mark.parametrize("count", [40, *slow(COUNT)])
def test_no_command_line_ends_as_none_should(count, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = fuzzed.fuzz(SEED, count, tmp_path)
    assert not found, "\n\n".join(fuzzed.ascii_lines(found))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the valid files."""
    path = tmp_path_factory.mktemp("fuzzed")
    fuzzed_files.write_files(path)
    return path


@each_row(("line", "name", "there", "wrong", "told"), faults("absurd numbers"))
def test_an_absurd_number_of_a_file_is_named(line, name, there, wrong, told, folder, monkeypatch):
    monkeypatch.chdir(folder)
    kept = fuzzed_files.contents(folder)
    text = Path(name).read_text(encoding="utf-8")
    Path(name).write_text(re.sub(there, wrong, text, count=1), encoding="utf-8")
    named = Path(name).stem
    words = next(base for base in fuzzed_lines.BASES if base.startswith(line) and named in base)
    ended = fuzzed_runs.run(shlex.split(words))
    fuzzed_files.restore(folder, kept)
    assert not [*fuzzed_runs.faults(ended)]
    assert re.search(told, ended.err)
