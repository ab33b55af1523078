"""The core is independent: it names no other room, and its tests pass without the other rooms."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from rows import each_listed
from test_package import MODULES, PACKAGE, ROOMS, TREES

from specmodel.cli.commands import main_group

CORE = ROOMS[: ROOMS.index("plan")]
OTHERS = {"plan", "simulate", "calibrate", "show", "cli"}
OF_CORE = sorted(name for name in MODULES if name.startswith("specmodel.core."))
TESTS = Path(__file__).parent
_PLACE = re.compile(r"\bspecmodel\.(\w*)|\bfrom specmodel import (.*)")


def rooms_named(source: str) -> set[str]:
    """Return the rooms that a module names in an import, as an attribute, or in a text."""
    found = _PLACE.findall(source)
    return {room for one, some in found for room in (re.findall(r"\w+", some) or [one])}


@pytest.mark.parametrize("name", OF_CORE)
def test_the_core_names_no_other_room(name: str) -> None:
    named = rooms_named(MODULES[name].read_text(encoding="utf-8"))
    assert not named & OTHERS
    assert "" not in named, "a room whose name is computed"


@each_listed
def test_names_of_other_rooms_are_seen(source: str) -> None:
    assert rooms_named(source) & {"show", ""}


def test_the_core_names_no_option_and_no_command() -> None:
    """Texts name arguments; the command line makes options of them. Options of engines may
    occur."""
    context = click.Context(main_group)
    commands = [main_group.get_command(context, name) for name in main_group.list_commands(context)]
    commands += [each for group in commands if isinstance(group, click.Group)
                 for each in group.commands.values()]  # fmt: skip
    options = {option.opts[0] for each in commands for option in each.params}
    typed = {word for word in options if word.startswith("--")} - {"--help"}
    typed |= {f"specmodel {each.name}" for each in commands} - {"specmodel list"}
    names = re.compile(rf"(?<![\w-])({'|'.join(sorted(typed))})(?![\w-])")
    for name in OF_CORE:
        nodes = [node for node in ast.walk(TREES[name]) if isinstance(node, ast.Constant)]
        texts = "\n".join(node.value for node in nodes if isinstance(node.value, str))
        assert names.findall(texts) == [], name


_ALONE = """
import specmodel
from specmodel.core.base.fronts import SHOWN

p = specmodel.predict("qwen3.5-397b", "h200", batch_size=[1, 64])
assert not SHOWN
assert str(p) == p.to_text(), p
assert not p.warnings, p.warnings
"""


@pytest.mark.timeout(1200)
@pytest.mark.slow
def test_the_core_and_its_tests_run_where_the_other_rooms_are_gone(tmp_path: Path) -> None:
    others = shutil.ignore_patterns(*OTHERS, "__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "specmodel", ignore=others)
    (tmp_path / "tests").mkdir()
    for path in (*TESTS.glob("*.py"), TESTS / "data", *(TESTS / name for name in CORE[1:])):
        (tmp_path / "tests" / path.name).symlink_to(path)
    for path in ("pyproject.toml", "hw_profiles", "calibration"):
        (tmp_path / path).symlink_to(TESTS.parent / path)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "SPECMODEL"))}
    ran = {"cwd": tmp_path, "env": {**kept, "PYTHONPATH": str(tmp_path)}, "text": True}
    rooms = [f"tests/{name}" for name in CORE[1:]]
    options = ["-m", "pytest", "-n", "2", "-p", "no:cacheprovider", *rooms]
    for words in (["-c", _ALONE], options):
        run = subprocess.run([sys.executable, *words], capture_output=True, check=False, **ran)
        assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
