"""Draw the pictures of the gallery: run each command of ``docs/gallery.md``.

Usage: python docs/gallery.py [FOLDER], by default docs/gallery.
"""

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path

from specmodel import cli

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "gallery.md"
ROOT = DOCS.parent


def commands() -> list[str]:
    """Return the command lines of the page."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def pictures() -> list[str]:
    """Return the names of the pictures that the page shows."""
    return re.findall(r"\(gallery/(\w+)\.png\)", PAGE.read_text(encoding="utf-8"))


def run(line: str) -> None:
    """Run a line of commands, each of which reads what the one before it printed."""
    printed = ""
    for command in line.split(" | "):
        stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(printed.encode()))
        written = io.StringIO()
        try:
            with contextlib.redirect_stdout(written):
                status = cli.main(shlex.split(command)[1:])
        finally:
            sys.stdin = stdin
        if status:
            raise SystemExit(f"status {status} of: {command}")
        printed = written.getvalue()


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "notebooks"
    with contextlib.chdir(folder):
        data.symlink_to(ROOT / "notebooks")
        try:
            for line in commands():
                run(line)
        finally:
            data.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else DOCS / "gallery")
