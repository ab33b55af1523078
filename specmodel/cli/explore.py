"""``specmodel explore``: a page in a browser that shows answers of other commands."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import click

from specmodel.cli.positionals import two_words
from specmodel.cli.settings import check_free, command, options, options_of
from specmodel.core.base.errors import InputError, given, import_extra

_OWN = ("127.0.0.1", "localhost")
"""Names of this machine for itself."""
_NEEDED = ("starlette", "uvicorn", "jinja2", "matplotlib")


@command()
@options(two_words(required=False), "target", "hardware")
@options_of("explore")
def explore(host: str | None, port: int | None, public: bool, output: str, **options: Any) -> None:
    """Open a browser page that shows whether speculation pays for the model and GPU you choose.

    The page starts with the model and GPU that you name. The model and GPU may be your own
    files: a config.json and a TOML file. Only this machine can open the page, and Ctrl-C ends the
    server. The page shows the command that prints the same answer. The address of the page contains
    all your choices, so you can bookmark or share it. The page loads nothing from the internet.

    \b
    Examples:
      specmodel explore
      specmodel explore ./config.json h200
      specmodel explore --port 8000 --no-browser
      specmodel explore --host 0.0.0.0 --port 8000 --public
      specmodel explore --output ./pages
    """
    host = host or _OWN[0]
    if host not in _OWN and not public:
        expected = "Other machines can reach this address. Add --public, or use 127.0.0.1."
        raise InputError("host", host, expected)
    for name in _NEEDED:
        import_extra(name, "web", "explore")
    start = _start(options)
    if output:
        _write(output, start, overwrite=options["overwrite"])
        return
    import webbrowser
    from threading import Thread

    from specmodel.show.web.server import app, serve

    def opened(address: str) -> None:
        address += f"?{urlencode(start)}" if start else ""
        click.echo(f"Open {address} in a browser. Ctrl-C ends the server.")
        if options["browser"]:  # in a thread, as a browser may start slowly
            Thread(target=webbrowser.open, args=[address], daemon=True).start()

    serve(app(["*"] if public else _OWN, start.values()), host, port or 0, opened)


def _start(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of the page that the user named; an InputError for an invalid record."""
    from specmodel.core.machines.hardware import load_hardware
    from specmodel.core.models.architecture import load_architecture

    named = given(options, ("target", "hardware", "num_gpus"))
    for name, load in (("target", load_architecture), ("hardware", load_hardware)):
        if name in named:
            load(named[name])
    return {name: str(value) for name, value in named.items()}


def _write(folder: str, start: dict[str, str], *, overwrite: bool) -> None:
    """Write a page for each scenario, or for the named model and GPU, into a folder.

    Existing pages are replaced only with `overwrite`.
    """
    from specmodel.core.base.files import refusing, write_text
    from specmodel.show.web.address import Address
    from specmodel.show.web.pages import SCENARIOS, static_page

    with refusing(folder, "output", "a folder"):
        Path(folder).mkdir(parents=True, exist_ok=True)
    titles = {" ".join(start.values()): urlencode(start)} if start else SCENARIOS
    names = {re.sub(r"\W+", "-", title.lower()).strip("-"): at for title, at in titles.items()}
    pages = {f"{folder}/{name}.html": address for name, address in names.items()}
    for page in pages:
        check_free(page, overwrite=overwrite)
    for page, address in pages.items():
        fields = dict(parse_qsl(address))
        whole = Address(fields=fields, own=tuple(start.values())).checked()
        write_text(page, static_page(whole))
    click.echo(f"Pages written into {folder}: {len(pages)}.")
