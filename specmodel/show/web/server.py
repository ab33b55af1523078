"""The server of the page: addresses to answers, who may ask, and how much at once."""

from __future__ import annotations

import gc
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import uvicorn
from anyio import Lock, create_task_group, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from specmodel.base.errors import InputError
from specmodel.show.forms import as_csv, as_json
from specmodel.show.web import drawn, pages
from specmodel.show.web.asked import Asked

Make: TypeAlias = Callable[[Asked], str | bytes]
"""Makes an answer of what is asked."""

MOST_WAITING = 64
"""Answers that are waited for at once; more are turned away [-]."""
MOST_KEPT = 400
"""Answers that are kept, of at most 150 kB each [-]."""
_HTML = "text/html"
_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src"
    " 'self'; img-src data:; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}


def _figure(asked: Asked, *, kind: str) -> bytes:
    """Return the curves of an address as SVG or PNG."""
    return drawn.written(pages.drawing_of(pages.settings_of(asked)), kind)


_FILES: dict[str, tuple[Make, str]] = {
    "speedup.svg": (partial(_figure, kind="svg"), "image/svg+xml"),
    "speedup.png": (partial(_figure, kind="png"), "image/png"),
    "answer.json": (lambda a: as_json(pages.verdict_of(a)), "application/json"),
    "answer.csv": (lambda a: as_csv(pages.verdict_of(a)), "text/csv"),
    "model.toml": (pages.model_of, "text/plain"),
}
"""Files to download, and how each is made."""


class Site:
    """What the page's addresses answer; `own` are files that it may name."""

    def __init__(self, own: Collection[str]) -> None:
        self.own = own
        self.kept, self.waiting = dict[str, bytes](), 0
        self.one = Lock()  # figures are drawn one after the other

    def asked(self, fields: Mapping[str, str]) -> Asked:
        """Return the fields of an address that are not blank, unchecked."""
        told = {name: text for name, text in fields.items() if text.strip()}
        return Asked(fields=told, own=self.own)

    async def answer(self, request: Request, make: Make, kind: str = _HTML) -> Response:
        """Return the response to an address, cached or made now; 503 if too many wait."""
        asked = self.asked(request.query_params)
        address = f"{request.url.path}?{asked.address()}"
        made = self.kept.get(address)
        if made is None:
            if self.waiting >= MOST_WAITING:
                told = "Too many ask at once. Try again in some seconds.\n"
                raise HTTPException(503, told, {"retry-after": "5"})
            self.waiting += 1
            work = partial(self.made, address, asked, make)
            try:
                async with self.one:
                    if await request.is_disconnected():  # it asks something else by now
                        return Response(status_code=499)
                    made = self.kept.get(address) or await to_thread.run_sync(work)
            finally:
                self.waiting -= 1
        return Response(made, media_type=kind)

    def made(self, address: str, asked: Asked, make: Make) -> bytes:
        """Make the answer to an address, cache it, and return its bytes."""
        content = make(asked.checked())
        made = content.encode() if isinstance(content, str) else content
        self.kept[address] = made
        while len(self.kept) > MOST_KEPT:
            self.kept.pop(next(iter(self.kept)))
        return made

    async def refuse(self, request: Request, error: Exception) -> Response:
        """Return a response 400 with the error: on the page, or as plain text for a file."""
        assert isinstance(error, InputError)  # noqa: S101 - as it is registered
        if request.url.path[1:] in _FILES:
            return Response(f"{error}\n", 400, media_type="text/plain")
        is_whole = request.url.path not in ("/answer", "/waterfall")
        told = pages.refused(self.asked(request.query_params), error, is_whole=is_whole)
        return Response(told, 400, media_type=_HTML)

    async def warm(self) -> None:
        """Make the first page, and look for cycles in what that has loaded never again."""
        async with self.one:
            await to_thread.run_sync(self.made, "/?", self.asked({}), pages.page)
        gc.enable()  # which the command line leaves off
        gc.freeze()

    @asynccontextmanager
    async def running(self, _: Starlette) -> AsyncIterator[None]:
        """Begin with the first page, while a browser starts."""
        async with create_task_group() as tasks:
            tasks.start_soon(self.warm)
            yield


def app(hosts: Iterable[str], own: Collection[str]) -> Starlette:
    """Return the application, which answers to these names of hosts; * is any.

    `own` are files that addresses may name.
    """
    site = Site(own)
    routes = [
        Route("/", partial(site.answer, make=pages.page)),
        Route("/answer", partial(site.answer, make=pages.fragment)),
        Route("/waterfall", partial(site.answer, make=pages.waterfall)),
        *(Route(f"/{n}", partial(site.answer, make=m, kind=k)) for n, (m, k) in _FILES.items()),
        Mount("/static", StaticFiles(packages=[("specmodel.show.web", "static")])),
    ]
    trusted = Middleware(TrustedHostMiddleware, allowed_hosts=[*hosts], www_redirect=False)
    return Starlette(
        routes=routes,
        middleware=[trusted],
        exception_handlers={InputError: site.refuse},
        lifespan=site.running,
    )


def serve(app: Starlette, host: str, port: int, opened: Callable[[str], object]) -> None:
    """Serve the page until stopped; an InputError where the port cannot be listened on.

    `opened` is called with the URL.
    """
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
            listening.listen()  # from here on no other can take it
        except (OSError, OverflowError) as error:
            expected = f"an address that is free ({getattr(error, 'strerror', None) or error})"
            name, value = ("port", f"{host}:{port}") if port else ("host", host)
            raise InputError(name, value, expected) from None
        opened(f"http://{host}:{listening.getsockname()[1]}/")
        how: Any = {"headers": [*_HEADERS.items()], "log_level": "error"}
        config = uvicorn.Config(app, timeout_graceful_shutdown=1, **how)
        uvicorn.Server(config).run(sockets=[listening])
