"""The server of the page, which answers addresses."""

import gc
import socket
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any

import uvicorn
from anyio import Lock, to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from specmodel.core.base.errors import InputError
from specmodel.show.forms import as_csv, as_json
from specmodel.show.web import figures, pages
from specmodel.show.web.address import Address

_MOST_KEPT = 400
"""Number of cached answers, of at most 150 kB each [-]."""
_MOST_AT_ONCE = 64
"""Largest number of requests in progress or waiting; the server refuses more [-]."""
_HTML = "text/html"
_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src"
    " 'self'; img-src data:; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


def _figure(address: Address, *, kind: str) -> bytes:
    """Return the curves of an address as SVG or PNG."""
    return figures.written(pages.drawing_of(pages.settings_of(address)), kind)


_MADE: dict[str, tuple[Callable[[Address], str | bytes], str]] = {
    "": (pages.page, _HTML),
    "speedup.svg": (partial(_figure, kind="svg"), "image/svg+xml"),
    "speedup.png": (partial(_figure, kind="png"), "image/png"),
    "answer.json": (lambda a: as_json(pages.verdict_of(a)), "application/json"),
    "answer.csv": (lambda a: as_csv(pages.verdict_of(a)), "text/csv"),
    "model.toml": (pages.model_of, "text/plain"),
}
"""Functions that make the page and the files to download."""


@lru_cache(_MOST_KEPT)
def _made(path: str, address: Address) -> bytes:
    """Return the answer to an address as bytes."""
    content = _MADE[path][0](address.checked())
    return content.encode() if isinstance(content, str) else content


def app(hosts: Iterable[str], own: Iterable[str] = ()) -> Starlette:
    """Return the application for requests to the host names `hosts`; * is any host.

    `own` are files that addresses may name.
    """
    files, one = tuple(own), Lock()  # for one figure at a time

    def asked(fields: Mapping[str, str]) -> Address:
        """Return the fields of an address that are not blank, unchecked."""
        return Address(fields={n: text for n, text in fields.items() if text.strip()}, own=files)

    async def answer(request: Request) -> Response:
        """Return the response to an address, from the cache if possible."""
        path = request.url.path[1:]
        async with one:
            if await request.is_disconnected():  # the browser has sent another request
                return Response(status_code=499)
            made = await to_thread.run_sync(_made, path, asked(request.query_params))
        return Response(made, media_type=_MADE[path][1])

    async def refuse(request: Request, error: Exception) -> Response:
        """Return a response 400 with the error on the page, or as plain text for a file."""
        assert isinstance(error, InputError)  # noqa: S101 - as it is registered
        if request.url.path != "/":
            return Response(f"{error}\n", 400, media_type="text/plain")
        return Response(pages.refused(asked(request.query_params), error), 400, media_type=_HTML)

    static = Mount("/static", StaticFiles(packages=[("specmodel.show.web", "static")]))
    trusted = Middleware(TrustedHostMiddleware, allowed_hosts=[*hosts], www_redirect=False)
    return Starlette(
        routes=[*(Route(f"/{path}", answer) for path in _MADE), static],
        middleware=[trusted],
        exception_handlers={InputError: refuse},
    )


def serve(app: Starlette, host: str, port: int, opened: Callable[[str], object]) -> None:
    """Serve the page until it is stopped; an InputError if the port cannot be used.

    `opened` is called with the URL.
    """
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
            listening.listen()  # reserves the port
        except (OSError, OverflowError) as error:
            expected = f"a free address ({getattr(error, 'strerror', None) or error})"
            name, value = ("port", f"{host}:{port}") if port else ("host", host)
            raise InputError(name, value, expected) from None
        gc.enable()  # which the command line leaves off
        opened(f"http://{host}:{listening.getsockname()[1]}/")
        how: Any = {"headers": [*_HEADERS.items()], "log_level": "error"}
        how |= {"timeout_graceful_shutdown": 1, "limit_concurrency": _MOST_AT_ONCE}
        uvicorn.Server(uvicorn.Config(app, **how)).run(sockets=[listening])
