"""A running server over HTTP: what it says of itself, its counters, and answers that are timed."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from specmodel.base.errors import InputError, cut, in_one_line, install, nearest
from specmodel.base.files import parsed_json
from specmodel.measure.live.answers import EVENT, Answer, Volume, pieces_of, read_answer, whole
from specmodel.measure.live.engines import Scrape, Speculation, read_scrape, speculation

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

Form = Literal["ids", "text", "chat"]  # a prompt is token ids, text, or a message of a chat


_BUFFER = 2**20  # the client stops reading beyond it: more than the kernel keeps [B]
_MOST_TOLD = 4_000_000  # most that is read of a page, some ten times an engine's counters [B]
_MOST_OF_A_TOKEN = 16_384  # most that is read of an answer for each token asked [B]
_SECRET = 8  # a key of fewer characters may be in a text by chance [-]
_TLS_CLOSES = 0.25  # time in which connections with TLS close, which aiohttp does not wait for [s]
_VOCABULARY = re.compile(rb"Vocabulary size: ([1-9]\d{0,8})\b|keys in \[0, ([1-9]\d{0,8})\]")
_PATHS = {"ids": "/v1/completions", "text": "/v1/completions", "chat": "/v1/chat/completions"}


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a server says of itself.

    Parameters
    ----------
    engine, version
        vllm or sglang, and its version; empty for others.
    model
        Name that the model is served by.
    drafts
        How the server speculates.
    has_counters
        Whether the server shows its counters.
    context_length
        The longest sequence, if the server says so [token].
    """

    engine: str
    version: str
    model: str
    drafts: Speculation
    has_counters: bool
    context_length: int | None = None


@dataclass(kw_only=True)
class Server:
    """A server, and how it is asked.

    Parameters
    ----------
    session
        Client with the server's URL as its base.
    url
        The server's URL, for messages.
    form
        Whether prompts are token ids, text, or a message of a chat.
    streams, stream_interval, temperature
        As for `connected` [token] [-].
    model
        Name that the model is served by; `told` sets it.
    key
        Bearer token that is sent, which is masked in all that the server says; empty for none.
    """

    session: ClientSession = field(repr=False)
    url: str
    form: Form = "ids"
    streams: bool = True
    stream_interval: int | None = None
    temperature: float | None = None
    model: str = ""
    key: str = field(default="", repr=False)

    async def told(self, model: str | None = None) -> Told:
        """Return what the server says of itself, and of one model where it serves several."""
        entry = await self._entry(model)
        self.model = str(entry["id"])
        scrape = await self.scrape()
        info = await self._json("/server_info") or await self._json("/get_server_info")
        if "speculative_algorithm" not in info and "internal_states" not in info:
            info = {}  # not SGLang's
        engine = scrape.engine if scrape else "sglang" if info else ""
        said = (info or await self._json("/version")).get("version")
        return Told(
            engine=engine,
            version=cut(in_one_line(said)) if engine and isinstance(said, str) else "",
            model=self.model,
            drafts=speculation(scrape, info),
            has_counters=scrape is not None,
            context_length=whole(entry.get("max_model_len")),
        )

    async def _entry(self, model: str | None) -> dict[str, Any]:
        """Return the entry of a model in the server's list; of the only one if none is named."""
        listed = await self._json("/v1/models", is_needed=True)
        try:
            models = {str(entry["id"]): dict(entry) for entry in listed["data"]}
        except (KeyError, TypeError, ValueError):
            raise self._strange("/v1/models") from None
        if model is None and len(models) != 1:
            raise InputError("model", None, f"one of {nearest('', models) or 'none served'}")
        name = next(iter(models)) if model is None else model
        if name not in models:
            raise InputError("model", name, f"what is served: {nearest(name, models)}")
        return models[name]

    async def scrape(self) -> Scrape | None:
        """Return the counters of the server; None where it has none."""
        status, body = await self._get("/metrics")
        return read_scrape(body, f"{self.url}/metrics") if status == 200 else None

    async def find_form(self, tries: Sequence[tuple[Form, Any]]) -> tuple[int, str]:
        """Return which prompt is the first that the server answers, and why not the very first.

        Its form is used from now on.
        """
        said = ""
        for number, (form, prompt) in enumerate(tries):
            self.form = form
            answer = await self.complete(prompt, 1, streams=False)
            if not answer.fault:
                return number, said
            said = said or answer.fault
        raise InputError("url", self.url, f"a server of completions or chats: {said}")

    async def vocabulary_size(self) -> int | None:
        """Return how many token ids the served model has; None if the server does not tell.

        vLLM and SGLang tell it as they refuse a bias of a token that no model has [-].
        """
        from aiohttp import ClientError

        asked = self._asked([1], 1, streams=False) | {"logit_bias": {str(2**31 - 1): 1.0}}
        with suppress(TimeoutError, ClientError, OSError):
            async with self.session.post(_PATHS["ids"], json=asked) as response:
                said = await _start_of(response, _MOST_TOLD)
            if response.status >= 400 and (found := _VOCABULARY.search(said)):
                size, last = found.groups()
                return int(size) if size else int(last) + 1
        return None

    async def complete(
        self,
        prompt: Sequence[int] | str,
        output_length: int,
        *,
        name: str = "",
        volume: Volume | None = None,
        streams: bool | None = None,
    ) -> Answer:
        """Ask for an answer of exactly so many tokens, and measure when it comes.

        `volume` knows the sizes of the answers so far; without it, every event is read as it comes.
        An answer that is not as asked has a fault: nothing is raised.
        """
        from aiohttp import ClientError

        streams = self.streams if streams is None else streams
        asked = self._asked(prompt, output_length, streams=streams)
        started, begun = time.time(), time.perf_counter()
        first, faults, is_late = float("nan"), "", False
        most = _MOST_OF_A_TOKEN * (output_length + 256)
        pieces: list[bytes] = []
        try:
            async with self.session.post(
                _PATHS[self.form], json=asked, headers={"X-Request-Id": name} if name else None
            ) as response:
                if response.status == 200 and streams:
                    pieces.append(await response.content.readany())
                    first = time.perf_counter() - begun
                    received = len(pieces[0])
                    more = pieces_of(response, output_length, received, volume)
                    async for piece, is_late in more:  # noqa: B007 - of the last one
                        pieces.append(piece)
                        received += len(piece)
                        if received > most:
                            break
                else:
                    pieces.append(await _start_of(response, most))
                    received = len(pieces[0])
                if response.status != 200:
                    faults = _refusal(response.status, self._masked(pieces[0]))
                elif received > most:
                    faults = f"more than {most / 1e6:.1f} MB for {output_length} tokens"
        except TimeoutError:
            faults = "no answer in time (--timeout)"
        except (ClientError, OSError) as error:
            faults = f"the connection was lost ({self._reason(error)})"
            if streams and pieces:
                events = b"".join(pieces).count(EVENT)
                faults = f"cut short after {events} events, {faults}"
        latency, body = time.perf_counter() - begun, self._masked(b"".join(pieces))
        times: dict[str, Any] = {"started": started, "first_token": first, "latency": latency}
        answer = Answer(**times, fault=faults, is_late=is_late)
        if faults:
            return answer
        return read_answer(answer, body, output_length, volume, streams=streams)

    def _asked(self, prompt: Sequence[int] | str, length: int, *, streams: bool) -> dict[str, Any]:
        """Return the body of a request."""
        body: dict[str, Any] = {"model": self.model, "max_tokens": length, "stream": streams}
        body["ignore_eos"] = True
        if self.form == "chat":
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if streams and self.stream_interval is not None:
            body["stream_interval"] = self.stream_interval
        return body | ({"stream_options": {"include_usage": True}} if streams else {})

    async def _json(self, path: str, *, is_needed: bool = False) -> dict[str, Any]:
        """Return the object at a path; an empty one where there is none, unless it is needed."""
        status, body = await self._get(path)
        if status == 200:
            with suppress(ValueError):
                if isinstance(found := parsed_json(body), dict):
                    return found
        if is_needed:
            raise self._strange(f"{path}, not status {status}" if status != 200 else path)
        return {}

    async def _get(self, path: str) -> tuple[int, str]:
        """Return the status and text at a path."""
        from aiohttp import ClientError

        try:
            async with self.session.get(path) as response:
                if response.status in (401, 403):
                    given = "a key that it refuses" if self.key else "no key"
                    raise InputError("api_key", given, _key_wanted(response.status))
                body = await _start_of(response, _MOST_TOLD)
        except TimeoutError:
            reason = "it does not answer in time"
        except (ClientError, OSError) as error:
            reason = self._reason(error)
        else:
            if len(body) <= _MOST_TOLD:
                return response.status, self._masked(body).decode(errors="replace")
            reason = f"at most {_MOST_TOLD / 1e6:g} MB at {path}, where it says more"
        raise InputError("url", self.url, f"a server that answers ({reason})")

    def _masked(self, said: bytes) -> bytes:
        """Return what the server said without the key, which some servers say again."""
        key = self.key.encode()
        if key:
            said = said.replace(b"Bearer " + key, b"Bearer ***")
        return said.replace(key, b"***") if len(key) >= _SECRET else said

    def _reason(self, error: BaseException) -> str:
        said = self._masked(_reason(error).encode(errors="replace"))
        return cut(said.decode(errors="replace"), 200)

    def _strange(self, path: str) -> InputError:
        expected = f"an OpenAI-compatible server, such as vLLM or SGLang, with a list at {path}"
        return InputError("url", self.url, expected)


@asynccontextmanager
async def connected(
    url: str,
    *,
    api_key: str | None = None,
    ca_file: str | None = None,
    timeout: float = 600.0,
    streams: bool = True,
    stream_interval: int | None = None,
    temperature: float | None = None,
) -> AsyncIterator[Server]:
    """Open a client of a server, not yet asked anything, and close it at the end.

    `ca_file` has certificates to trust instead of the system's, `timeout` is for an answer [s].
    Tokens of an event [token] and temperature [-] are the server's own unless given.
    """
    try:
        import aiohttp
    except ImportError:
        expected = f"it to be installed: {install('engine')}"
        raise InputError("aiohttp", "no such package", expected) from None
    from yarl import URL

    base = _base(url)
    trusted: ssl.SSLContext | bool = True
    if ca_file is not None:
        try:
            trusted = ssl.create_default_context(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise InputError("ca_file", ca_file, f"certificates in PEM ({error})") from None
    if api_key and not api_key.isprintable():
        raise InputError("api_key", "a key of several lines", "one line without control characters")
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    session = aiohttp.ClientSession(
        URL(base + "/"),
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=min(timeout, 30.0)),
        # each request has a connection of its own: servers close those that wait for seconds
        connector=aiohttp.TCPConnector(limit=0, ssl=trusted, force_close=True),
        read_bufsize=_BUFFER,
    )
    how: dict[str, Any] = {"stream_interval": stream_interval, "temperature": temperature}
    try:
        yield Server(session=session, url=base, streams=streams, key=api_key or "", **how)
    finally:
        await session.close()
        if base.startswith("https:"):
            await asyncio.sleep(_TLS_CLOSES)


def _base(url: str) -> str:
    """Return the URL below which a server's paths are."""
    scheme, _, rest = url.partition("://")
    if scheme not in ("http", "https") or not rest.strip("/"):
        raise InputError("url", url, "http://HOST:PORT or https://HOST")
    if "@" in rest.partition("/")[0]:
        raise InputError("url", f"{scheme}://...", "no password in it: --api-key")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


async def _start_of(response: ClientResponse, most: int) -> bytes:
    """Return a body, or more than so much of one that is larger [B]."""
    try:
        return await response.content.readexactly(most + 1)
    except asyncio.IncompleteReadError as body:
        return body.partial


def _refusal(status: int, body: bytes) -> str:
    """Return what an answer with an error status says."""
    if status in (401, 403):
        return _key_wanted(status)
    return f"status {status}: {cut(in_one_line(body.decode(errors='replace')))}"


def _key_wanted(status: int) -> str:
    return f"a key that the server takes, in OPENAI_API_KEY (it says {status})"


def _reason(error: BaseException) -> str:
    """Return why a connection failed, without the error's type and number."""
    from aiohttp import ClientPayloadError, TooManyRedirects

    if isinstance(error, TooManyRedirects):
        return "it redirects again and again"
    if isinstance(error, ClientPayloadError):
        return "the end is missing"
    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    if isinstance(inner, ssl.SSLError):
        return f"no certificate that is trusted, see --ca-file: {in_one_line(str(inner))}"
    number = getattr(inner, "errno", None)
    told = getattr(inner, "message", "") or str(inner)
    said = os.strerror(number) if isinstance(number, int) and number > 0 else str(told)
    return in_one_line(said or type(inner).__name__)
