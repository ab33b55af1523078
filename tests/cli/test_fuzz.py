"""Random command lines and damaged files: no traceback, no NaN, one line an error."""

import shlex

import fuzzed
import pytest

from specmodel import cli

SEED, COUNT = 20261122, 600


def test_what_the_fuzz_starts_from_works(tmp_path, monkeypatch, capsys) -> None:
    for module in ("matplotlib", "pyarrow"):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    fuzzed.write_files(tmp_path)
    for command in fuzzed.BASES:
        status = cli.main(shlex.split(command))
        assert status == 2 * command.startswith("calibrate "), capsys.readouterr().err
    named = {command.split()[0] for command in fuzzed.BASES}
    assert named == set(fuzzed.main_group.list_commands(None))


@pytest.mark.slow
def test_no_command_line_ends_as_none_should(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = fuzzed.fuzz(SEED, COUNT, tmp_path)
    assert not found, "\n\n".join(f"{shlex.join(words)[:600]}\n{fault}" for words, fault in found)
