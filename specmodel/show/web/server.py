"""The server of the page: addresses to answers, who may ask, and how much at once."""

from __future__ import annotations

import gc
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

import uvicorn
from anyio import Lock, create_task_group, to_thread
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from specmodel.base.errors import InputError
from specmodel.models.architecture import Architecture, load_architecture
from specmodel.show.forms import as_csv, as_json
from specmodel.show.web import drawn, pages
from specmodel.show.web.asked import OF_LOAD, UPLOADED, Asked
from specmodel.show.web.jobs import Job, start

Make: TypeAlias = Callable[[Asked], str | bytes]
"""Makes an answer of what is asked."""

MOST_WAITING = 64
"""Answers that are waited for at once; more are turned away [-]."""
MOST_KEPT = 400
"""Answers that are kept, of at most 150 kB each [-]."""
MOST_UPLOADED = 1_000_000
"""Largest config.json [B]."""
MOST_RUNNING = 2
"""Loads that are simulated at once [-]."""
_MOST_MODELS, _MOST_LOADS = 16, 32
"""Uploads and loads that are kept [-]."""
_FORM = 10_000
"""What a form adds to an upload [B]."""
_HTML = "text/html"
_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src"
    " 'self'; img-src data:; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with none, a form has no origin
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
    """What the page's addresses answer."""

    def __init__(self) -> None:
        self.kept, self.waiting = dict[str, bytes](), 0
        self.uploads, self.jobs = dict[str, Architecture](), dict[str, Job]()
        self.one = Lock()  # figures are drawn one after the other

    def asked(self, fields: Mapping[str, str]) -> Asked:
        """Return the fields of an address that are not blank, unchecked."""
        told = {name: text for name, text in fields.items() if text.strip()}
        return Asked(fields=told, uploads=self.uploads)

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
        _forget(self.kept, MOST_KEPT)
        return made

    async def refuse(self, request: Request, error: Exception) -> Response:
        """Return a response 400 with the error: on the page, or as plain text for a file."""
        assert isinstance(error, InputError)  # noqa: S101 - as it is registered
        if request.url.path[1:] in _FILES:
            return Response(f"{error}\n", 400, media_type="text/plain")
        is_whole = request.url.path not in ("/answer", "/waterfall")
        told = pages.refused(self.asked(request.query_params), error, is_whole=is_whole)
        return Response(told, 400, media_type=_HTML)

    async def upload(self, request: Request) -> Response:
        """Take a config.json, and lead to the page of its model."""
        await _check(request)
        async with request.form(max_files=1, max_fields=9) as form:
            sent = form.get("config")
            content = await sent.read() if isinstance(sent, UploadFile) else b""
        model = await to_thread.run_sync(_model, content)
        token = UPLOADED + secrets.token_urlsafe(9)
        self.uploads[token] = model
        _forget(self.uploads, _MOST_MODELS)
        address = self.asked(request.query_params).address(target=token, drafter="")
        return RedirectResponse(f"/?{address}", 303)

    async def start(self, request: Request) -> Response:
        """Start a load, and lead to its page."""
        await _check(request)
        typed = dict(parse_qsl((await request.body()).decode("utf-8", "replace")))
        asked = self.asked({**request.query_params, **dict.fromkeys(OF_LOAD, ""), **typed})
        if sum(job.runs for job in self.jobs.values()) >= MOST_RUNNING:
            told = "Other loads are simulated. Cancel one, or try again later.\n"
            raise HTTPException(503, told, {"retry-after": "30"})
        token = secrets.token_urlsafe(9)
        self.jobs[token] = start(asked.checked().load_arguments())
        for job in _forget(self.jobs, _MOST_LOADS):
            job.cancel()
        return RedirectResponse(f"/load/{token}?{asked.address()}", 303)

    def job(self, request: Request) -> Job:
        """Return the load that an address names; an InputError where it failed or is not kept."""
        job = self.jobs.get(request.path_params["token"])
        if job is None:
            raise InputError("load", None, "one that is kept: go back, and simulate it again")
        found, job.asked_at = job.look().found, monotonic()
        if isinstance(found, InputError):
            raise found
        return job

    async def load(self, request: Request) -> Response:
        """Return the page of a load: its progress, or its answer."""
        asked, token = self.asked(request.query_params).checked(), request.path_params["token"]
        text = pages.load_page(asked, token, self.job(request))
        return Response(text, media_type=_HTML)

    async def loaded(self, request: Request) -> Response:
        """Return the answer of a load as JSON or CSV; an InputError while it runs."""
        found, kind = self.job(request).found, request.url.path.rpartition(".")[2]
        if not isinstance(found, dict):
            raise InputError("load", "running", "a load that is done: wait for its answer")
        return Response(found[kind], media_type=_FILES[f"answer.{kind}"][1])

    async def cancel(self, request: Request) -> Response:
        """End a load, and lead back to the page."""
        await _check(request)
        self.job(request).cancel()
        return RedirectResponse(f"/?{self.asked(request.query_params).address()}#load", 303)

    async def warm(self) -> None:
        """Make the first page, and look for cycles in what that has loaded never again."""
        async with self.one:
            await to_thread.run_sync(self.made, "/?", Asked(fields={}), pages.page)
        gc.enable()  # which the command line leaves off
        gc.freeze()

    @asynccontextmanager
    async def running(self, _: Starlette) -> AsyncIterator[None]:
        """Begin with the first page, while a browser starts; end all loads in the end."""
        async with create_task_group() as tasks:
            tasks.start_soon(self.warm)
            yield
        for job in self.jobs.values():
            job.cancel()


def _forget(kept: dict[str, Any], most: int) -> list[Any]:
    """Remove and return the oldest entries, so that at most `most` are kept."""
    return [kept.pop(name) for name in [*kept][: max(0, len(kept) - most)]]


async def _check(request: Request) -> None:
    """Refuse requests from another site, and bodies that are too large, after reading them."""
    origin, host = request.headers.get("origin"), request.headers.get("host")
    if origin is not None and origin.partition("://")[2] != host:
        raise HTTPException(403, "Another site may not ask this page.\n")
    size = request.headers.get("content-length", "")
    if not size.isdigit() or int(size) > MOST_UPLOADED + _FORM:
        async for _ in request.stream():
            pass
        raise InputError("upload", f"{size} bytes", f"at most {MOST_UPLOADED:,} bytes")


def _model(content: bytes) -> Architecture:
    """Return the model of a config.json that was uploaded; nothing of it stays on the disk."""
    if not 0 < len(content) <= MOST_UPLOADED:
        expected = f"a config.json of at most {MOST_UPLOADED:,} bytes"
        raise InputError("config.json", f"{len(content):,} bytes", expected)
    with tempfile.TemporaryDirectory(prefix="specmodel-") as folder:
        path = Path(folder, "uploaded", "config.json")
        path.parent.mkdir()
        path.write_bytes(content)
        try:
            return load_architecture(path)
        except InputError as error:  # which may name the path
            value, expected = (str(t).replace(folder, "") for t in (error.value, error.expected))
            raise InputError(error.argument, value, expected) from None


def app(hosts: Iterable[str]) -> Starlette:
    """Return the application, which answers to these names of hosts; * is any."""
    site = Site()
    routes = [
        Route("/", partial(site.answer, make=pages.page)),
        Route("/answer", partial(site.answer, make=pages.fragment)),
        Route("/waterfall", partial(site.answer, make=pages.waterfall)),
        *(Route(f"/{n}", partial(site.answer, make=m, kind=k)) for n, (m, k) in _FILES.items()),
        Route("/upload", site.upload, methods=["POST"]),
        Route("/load", site.start, methods=["POST"]),
        Route("/load/{token}", site.load),
        Route("/load/{token}/cancel", site.cancel, methods=["POST"]),
        *(Route(f"/load/{{token}}/load.{kind}", site.loaded) for kind in ("json", "csv")),
        Mount("/static", StaticFiles(packages=[("specmodel.show.web", "static")])),
    ]
    trusted = Middleware(TrustedHostMiddleware, allowed_hosts=[*hosts], www_redirect=False)
    return Starlette(
        routes=routes,
        middleware=[trusted],
        exception_handlers={InputError: site.refuse},
        lifespan=site.running,
    )


def serve(hosts: Iterable[str], host: str, port: int, opened: Callable[[str], object]) -> None:
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
        config = uvicorn.Config(app(hosts), timeout_graceful_shutdown=1, **how)
        uvicorn.Server(config).run(sockets=[listening])
