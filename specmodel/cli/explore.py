"""``specmodel explore``: a page in a browser on which to look at all of this."""

from __future__ import annotations

import click

from specmodel.base.errors import InputError, import_extra
from specmodel.cli.settings import OVERWRITE, check_free, command, own

_OWN = ("127.0.0.1", "localhost")
"""Names by which a machine calls itself."""
_HOST = "Address to listen on; one that others reach needs --public.  [default: 127.0.0.1]"
_PUBLIC = "Answer other machines too, whatever name they call this one by."
_OUTPUT = "Write the scenarios as pages that need no server, and end."
_NEEDED = ("starlette", "uvicorn", "jinja2", "python_multipart", "matplotlib")


@command()
@own("host", "ADDRESS", _HOST)
@own("port", int, "Port to listen on.  [default: a free one]")
@own("public", bool, _PUBLIC)
@own("browser/--no-browser", None, "Open the page in a browser.", to="browser", default=True)
@own("output", "FOLDER", _OUTPUT)
@OVERWRITE
def explore(
    host: str | None, port: int | None, public: bool, browser: bool, output: str, overwrite: bool
) -> None:
    """Look at it in a browser: move a model, a GPU, an acceptance, and see whether it pays.

    The page answers this machine alone, until Ctrl-C. It shows what predict, schedule, compare and
    load answer, with the command that prints the same; its address holds what was chosen, to be
    kept and shared. Nothing is fetched from elsewhere.

    \b
    Examples:
      specmodel explore
      specmodel explore --port 8000 --no-browser
      specmodel explore --host 0.0.0.0 --port 8000 --public
      specmodel explore --output ./pages
    """
    host = host or _OWN[0]
    if host not in _OWN and not public:
        raise InputError("host", host, "127.0.0.1, or --public with it, as others could ask")
    for name in _NEEDED:
        import_extra(name, "web", "explore")
    if output:
        _write(output, overwrite=overwrite)
        return
    import webbrowser
    from threading import Thread

    from specmodel.show.web.server import serve

    def opened(address: str) -> None:
        click.echo(f"Look at {address} (Ctrl-C ends it).")
        if browser:  # which may take its time
            Thread(target=webbrowser.open, args=[address], daemon=True).start()

    serve(["*"] if public else _OWN, host, port or 0, opened)


def _write(folder: str, *, overwrite: bool) -> None:
    """Write a page of each scenario into a folder, where no page is replaced unless told to."""
    import re
    from pathlib import Path
    from urllib.parse import parse_qsl

    from specmodel.base.files import write_text
    from specmodel.show.web.asked import Asked
    from specmodel.show.web.pages import SCENARIOS, static_page

    Path(folder).mkdir(parents=True, exist_ok=True)
    names = {re.sub(r"\W+", "-", title.lower()): address for title, address in SCENARIOS.items()}
    pages = {f"{folder}/{name}.html": address for name, address in names.items()}
    for page in pages:
        check_free(page, overwrite=overwrite)
    for page, address in pages.items():
        asked = Asked(fields=dict(parse_qsl(address))).checked()
        write_text(page, static_page(asked))
    click.echo(f"Wrote {len(SCENARIOS)} pages into {folder}.")
