"""The command line as a process: encodings, closed streams, signals, and errors in one line."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from programs import start
from rows import cases, each_row, one_case

import specmodel
from specmodel import cli

WHERE = "--target qwen3-30b-a3b --drafter eagle3 --hardware h200_sxm --acceptance-rate 0.7"
PREDICT = f"predict {WHERE} --batch-size 4 --draft-length 3"
KILL = """
import os, signal
from specmodel.cli import options
options.case_from = lambda _: os.kill(os.getpid(), signal.{})
"""
INTERRUPTED_IMPORT = """
import sys
from pathlib import Path
class Interrupt:
    def find_spec(name, *_):
        if name == "{}":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt)
"""


def run(command: str, code: str = "", **options: object) -> tuple[int, str, str]:
    """Run the program in a process of its own, after some code; return what it left."""
    process = start(command, code, **options)
    out, err = (text.decode("latin-1") for text in process.communicate())
    return process.returncode, out, err.removeprefix("\n")  # what a terminal shows after ^C


def printed_by(*words: str, **options: object) -> str:
    """Run Python, which must succeed and complain of nothing; return what it prints."""
    command = [sys.executable, *words]
    done = subprocess.run(command, capture_output=True, check=True, text=True, **options)
    assert done.stderr == ""
    return done.stdout


def test_terminals_without_a_character_get_its_number() -> None:
    words = f"import specmodel.cli as c; c.run(); print({chr(0x221A)!r})"
    out = printed_by("-c", words, env=os.environ | {"PYTHONIOENCODING": "latin-1"})
    assert out.endswith("\\u221a\n")


@cases(
    "descriptor command status said",
    (0, "plot speedup - --output out.svg", 2, "table: got '-'"),
    (1, PREDICT, 2, "specmodel: error: output: "), (1, "", 2, "specmodel: error: output: "),
    (2, PREDICT, 0, ""), (2, "predit", 2, ""),
)  # fmt: skip
def test_a_closed_stream(descriptor: int, command: str, status: int, said: str, tmp_path) -> None:
    if descriptor == 0:
        pytest.importorskip("matplotlib")
    found, out, err = run(command, cwd=tmp_path, preexec_fn=lambda: os.close(descriptor))
    assert found == status
    assert said in err
    assert (len(err.splitlines()), bool(out)) == (bool(said), status == 0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_it_silently(name: str) -> None:
    assert run(PREDICT, KILL.format(name)) == (130, "", "")


@pytest.mark.parametrize("module", ["click", "numpy"])
def test_an_interrupted_import_is_silent(module: str) -> None:
    assert run(PREDICT, INTERRUPTED_IMPORT.format(module)) == (130, "", "")


@each_row("strange", ["x" * 5000, "x " * 2500, "a\nb", "\x1b[31mred", "\udcff"])
@one_case(
    "command",
    *("{}", "list {}", "predict {}", "predict --{}", "fit kernels {} --output a.toml"),
    *(f"{PREDICT} {{}}", f"{PREDICT} --tensor-parallel {{}}", f"{PREDICT} --set {{}}"),
    *(f"{PREDICT} --set target.{{}}=1", f"{PREDICT} --hardware {{}}", "acceptance {}"),
)
def test_errors_are_one_short_line(command: str, strange: str, capsys) -> None:
    words = [word.replace("{}", strange) for word in shlex.split(command)]
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("specmodel: error: ")
    assert err.endswith("\n")
    assert err[:-1].isprintable()
    assert max(map(len, err.split())) <= 80 + len("''.")  # quotes and a full stop beside
    assert err.count("x") < 200


def test_the_package_is_the_program_and_imports_nothing_of_the_folder(tmp_path) -> None:
    (tmp_path / "tomli.py").write_text("raise SystemExit(9)")
    env = os.environ | {"PYTHONPATH": str(Path(specmodel.__file__).parents[1])}
    out = printed_by("-m", "specmodel", *shlex.split(PREDICT), cwd=tmp_path, env=env)
    assert "\nQwen3-30B-A3B + EAGLE-3 head" in out
