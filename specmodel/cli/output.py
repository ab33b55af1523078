"""The decorator of commands that answer: it adds --json and --csv, and prints the answer."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, cast

import click

from specmodel.cli import settings
from specmodel.core.base.errors import InputError
from specmodel.core.base.text import SCREEN, TABLE, Viewed, wrap
from specmodel.show.forms import Answer, as_csv, as_json

_FIGURE = "Also write the figure of specmodel plot {} to this PNG, PDF or SVG file."
_LINES = 10.0
"""Time to the first line of progress; later gaps grow to six times as much [s]."""
_FORMS = ("as_csv", "fragment_only", "as_json")


def answering(
    rows: str | None = "", fragment: str = "", figure: str = ""
) -> Callable[[Callable[..., Answer | Viewed]], Callable[..., None]]:
    """Add --json and --csv to a function, and print its answer in the chosen form.

    `rows` is added to the help of --csv; with None there is no --csv. `fragment` is the help of
    --fragment-only; without it there is no such option. `figure` is the kind that --figure draws,
    unless the answer names one.
    """
    flags = [
        *([settings.own("fragment_only", "flag", fragment)] if fragment else []),
        settings.options("verbose", "json"),
        *([] if rows is None else [settings.own("csv", "flag", f"Print CSV{rows}.", to="as_csv")]),
        *([settings.own("figure", "FILE", _FIGURE.format(figure))] if figure else []),
    ]

    def decorate(function: Callable[..., Answer | Viewed]) -> Callable[..., None]:
        @settings.options(*flags)
        @wraps(function)
        def run(**options: Any) -> None:
            asked = [name for name in _FORMS if options.get(name)]
            if len(asked) > 1:
                known = "--json, --csv and --fragment-only" if fragment else "--json and --csv"
                raise InputError(asked[0].removeprefix("as_"), True, f"one of {known}")
            path, verbose = options.pop("figure", None), options.pop("verbose")
            if path is not None:
                from specmodel.show.plots.figures import check_figure, save_figure

                check_figure("figure", path)
            found = function(**options)
            answer: Answer = found.view() if isinstance(found, Viewed) else found
            if path is not None:
                import pandas as pd

                save_figure(answer.figure or figure, pd.DataFrame(answer.table()), path)
            if asked == ["as_json"]:
                click.echo(as_json(answer))
            elif asked == ["as_csv"]:
                click.echo(as_csv(answer))
                echo_warnings(answer.warnings)
            elif asked:
                click.echo(answer.fragment, nl=bool(answer.fragment))
                echo_warnings(answer.warnings)
                echo_warnings(answer.caveats, "note")
            else:
                click.echo(_page(answer, verbose=verbose))

        return cast(Callable[..., None], run)

    return decorate


def _page(answer: Answer, *, verbose: bool) -> str:
    """Return the page of an answer, in lines of at most 80 characters that fit the terminal."""
    token, wide = SCREEN.set(min(80, screen_width())), TABLE.set(screen_width())
    try:
        return answer.report(verbose=verbose)
    finally:
        SCREEN.reset(token)
        TABLE.reset(wide)


def echo_warnings(warnings: Iterable[object], kind: str = "warning") -> None:
    """Print warnings on standard error, in a line each; wrap them on a terminal."""
    is_watched = sys.stderr.isatty()
    for warning in warnings:
        line = f"specmodel: {kind}: {warning}"
        click.echo(wrap(line, indent="  ") if is_watched else line, err=True)


@contextmanager
def told_progress(
    length: int, of: str, label: str = "Serving", done: int = 0
) -> Iterator[Callable[[int], None]]:
    """Show progress as a bar on a terminal, else in lines, at last one per minute."""
    began, is_watched = time.monotonic(), sys.stderr.isatty()
    due = began + _LINES

    def tell(more: int) -> None:
        nonlocal done, due
        bar.update(more)
        done, now = done + more, time.monotonic()
        if now >= due and not is_watched:
            line = f"{label}: {done} of about {max(length, done)} {of}, {now - began:.0f} s"
            click.echo(line, err=True)
            due = now + min(now - began, 6 * _LINES)

    shown: dict[str, Any] = {"file": sys.stderr, "hidden": not is_watched}
    with click.progressbar(length=length, label=label, **shown) as bar:
        bar.update(done)
        yield tell


def screen_width() -> int:
    """Return the columns of the terminal; 80 without a terminal [-]."""
    if not sys.stdout.isatty():
        return 80
    from shutil import get_terminal_size  # brings compression along

    return max(20, get_terminal_size().columns)
