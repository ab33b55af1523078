"""Run the examples of pages, and check that they print what the page shows.

A block `console` has commands after `$ ` and a block `pycon` lines of Python after `>>> `, each
with its output below. A code block with a caption is a file of that name. The blocks of a page run
one after another in a folder of this page under `_made`. There the page finds the figures that they
draw, and `checkout` is the folder of the sources. A formula below a comment that names a function
is the formula of its docstring. `python docs/build.py --rewrite` writes the present output into the
pages. The first answer of a page shows its assumptions; in later answers, `...` replaces them.
"""

import contextlib
import doctest
import inspect
import io
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

from specmodel import cli

DOCS = Path(__file__).parents[1]
BLOCK = re.compile(
    r"^```(?:(console|pycon)|\{code-block\} \w+\n:caption: (\S+)\n)\n(.*?)^```$",
    flags=re.MULTILINE | re.DOTALL,
)
FORMULA = re.compile(r"^<!-- (specmodel[.\w]*) -->\n\$\$.*?\$\$$", flags=re.MULTILINE | re.DOTALL)
IN_DOCSTRING = re.compile(r"\.\. math:: (.+(?:\n {10}.+)*)")

TAKEN = re.compile(r"^Assumed: (?:.+\n)+", flags=re.MULTILINE)
"""The assumptions at the end of an answer."""
SPEED = re.compile(r"[\d.,]+[kM]? (points|steps) a second")
"""A speed, which differs between runs."""
PROGRESS = re.compile(r"^(?:Replaying|Serving|Sweeping): .*\n", flags=re.MULTILINE)
"""Progress of an answer, which only a slow machine prints."""


def made(page: Path) -> Path:
    """Return the folder in which the examples of a page run."""
    return DOCS / "_made" / page.resolve().relative_to(DOCS).with_suffix("")


def printed(command: str) -> str:
    """Return what a command line prints on a terminal of 80 columns; end if the command fails."""
    words, into, file = command.partition(" > ")
    out, told = io.StringIO(), io.StringIO()
    if words.startswith("specmodel "):
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(told):
            status = cli.main(shlex.split(words)[1:])
    else:
        done = subprocess.run(words, shell=True, text=True, capture_output=True, check=False)
        out.write(done.stdout)
        told.write(done.stderr)
        status = done.returncode
    if status:
        raise SystemExit(f"{command}: status {status}: {told.getvalue().strip()}")
    if into:
        Path(file.strip()).write_text(out.getvalue(), encoding="utf-8")
        out = io.StringIO()
    text = SPEED.sub(r"... \1 a second", PROGRESS.sub("", told.getvalue()) + out.getvalue())
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)


def commands(block: str, *, before: str = "") -> str:
    """Return a block of commands with their present output; `before` is earlier output."""
    shown = before
    for typed in re.findall(r"^\$ (?:.*\\\n)*.*\n", block, flags=re.MULTILINE):
        text = printed(typed[2:].replace("\\\n", " ").strip())
        shown += typed + (TAKEN.sub("...\n", text) if TAKEN.search(shown) else text)
    return shown[len(before) :]


def session(block: str, names: dict[str, Any]) -> str:
    """Return lines of Python with their present output."""
    shown = ""
    for example in doctest.DocTestParser().get_examples(block):
        first, *rest = example.source.splitlines()
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            try:
                exec(compile(example.source, "<example>", "single"), names)
            except Exception as error:
                raise SystemExit(f"{first}: {type(error).__name__}: {error}") from error
        shown += "".join([f">>> {first}\n", *(f"... {line}".rstrip() + "\n" for line in rest)])
        shown += out.getvalue()
    return shown


def formula(named: re.Match[str]) -> str:
    """Return the formula of the function that a comment names."""
    told = str(inspect.getdoc(pkgutil.resolve_name(named[1])))
    found = IN_DOCSTRING.search(told)
    if found is None:
        raise SystemExit(f"{named[1]}: no formula in its docstring")
    return f"<!-- {named[1]} -->\n$${' '.join(found[1].split())}$$"


def run(page: Path) -> str:
    """Return the text of a page with the present output of its examples."""
    text = FORMULA.sub(formula, page.read_text(encoding="utf-8"))
    if not BLOCK.search(text):
        return text
    folder = made(page)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "checkout").symlink_to(DOCS.parent)
    names: dict[str, Any] = {}
    answers = ""

    def anew(block: re.Match[str]) -> str:
        nonlocal answers
        kind, file, body = block.groups()
        if file:
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(body, encoding="utf-8")
            return block[0]
        shown = session(body, names) if kind == "pycon" else commands(body, before=answers)
        answers += shown
        return f"```{kind}\n{shown}```"

    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "80"
    with contextlib.chdir(folder):
        text = BLOCK.sub(anew, text)
    os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
    return text


def _without_rounding(line: str) -> str:
    """Return a line whose long numbers are cut to the digits that are equal on all processors."""
    return re.sub(r"\d+\.\d{10,}", lambda number: f"{float(number[0]):.9g}", line)


def difference(page: Path, now: str) -> str:
    """Return the first line of a page that differs from the output of its examples, or nothing."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, (said, prints) in enumerate(zip(lines, now.splitlines(), strict=False), start=1):
        if _without_rounding(said) != _without_rounding(prints):
            return f"line {number}: the page shows {said!r}, the example prints {prints!r}"
    return "" if len(lines) == len(now.splitlines()) else "the example prints more or fewer lines"


def check(app: Any, name: str, source: list[str]) -> None:
    """Warn if a page differs from the output of its examples, or write the output into the page."""
    from sphinx.util import logging

    page = Path(app.env.doc2path(name))
    if page.suffix != ".md":
        return
    try:
        now = run(page)
        found = difference(page, now)
    except SystemExit as error:
        now, found = source[0], str(error)
    if found and app.config.rewrite_examples and now != source[0]:
        page.write_text(now, encoding="utf-8")
        source[0] = now
    elif found:
        told = f"{found}; python docs/build.py --rewrite writes what is printed now"
        logging.getLogger(__name__).warning(told, location=name)


def setup(app: Any) -> dict[str, bool]:
    app.add_config_value("rewrite_examples", False, "")
    app.connect("source-read", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
