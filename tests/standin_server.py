"""A server that stands in for vLLM or SGLang: their protocols and counters, steps of a known time.

Its engine makes a step for all requests that run, as theirs do. As a program, it serves until it is
ended, for looking at what measuring it costs.
"""

import argparse
import asyncio
import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field

LIMIT = 60.0
"""Longest life of a server, so that no test hangs [s]."""


@dataclass
class StandIn:
    """What the server is and does; all may be changed while it runs."""

    engine: str = "vllm"
    step_time: float = 0.01
    prefill_time: float = 0.0
    draft_length: int = 0
    accepted: tuple = (0,)
    """Accepted tokens of the drafts of a request, one after the other, again and again."""
    drafts_up_to: int = 10**9
    """Largest batch size at which it drafts, as by a schedule."""
    model: str = "stand-in"
    forms: tuple = ("ids", "text", "chat")
    vocabulary: int = 151_936
    tells_vocabulary: bool = True
    key: str = ""
    has_metrics: bool = True
    has_models: bool = True
    heeds_ignore_eos: bool = True
    cut_after: int = 10**9
    """Requests until a stream is cut short."""
    dies_after: int = 10**9
    """Requests until the server closes all connections and its door."""
    counts: dict = field(default_factory=dict)
    ended: list = field(default_factory=list)
    """Names of the requests that were answered as a whole."""
    began: list = field(default_factory=list)
    prompts: list = field(default_factory=list)
    says: dict = field(default_factory=dict)
    """What it says at a path instead: a text, or a function from the headers of the request to
    status, more headers and text."""
    usage: str = ""
    """What it says of the tokens of each answer instead, in JSON with MADE for their number."""
    port: int = 0
    ssl: object = None
    started: float = field(default_factory=time.time)

    def restart(self, **changes):
        """Forget the counters, as another process would, and be another server."""
        self.counts.clear()
        self.started = time.time() + 1.0
        vars(self).update(changes)

    def add(self, name, number=1):
        self.counts[name] = self.counts.get(name, 0) + number

    @property
    def url(self):
        return f"http{'s' if self.ssl else ''}://localhost:{self.port}"


class Request:
    """One request in the engine."""

    def __init__(self, body, name):
        self.length = body["max_tokens"]
        self.streams = body.get("stream", False)
        self.interval = body.get("stream_interval", 1)
        self.name, self.made, self.steps = name, 0, 0
        self.events = asyncio.Queue()
        self.first = 0.0


async def run_engine(server, running):
    """Make a step for all that run, again and again, at the times at which steps end."""
    clock = asyncio.get_running_loop().time
    end = clock()
    while True:
        if not running:
            await asyncio.sleep(0.0005)
            end = clock()
            continue
        batch = list(running)
        new = sum(1 for request in batch if not request.made)
        end += server.step_time + new * server.prefill_time
        await asyncio.sleep(max(end - clock(), 0.0))
        for request in batch:
            _step(server, request, drafts=len(batch) <= server.drafts_up_to)
            if request.made == request.length and request in running:
                running.remove(request)


def _step(server, request, *, drafts):
    """Give a request the tokens of one step."""
    tokens = 1
    if request.made and server.draft_length and drafts:
        accepted = server.accepted[request.steps % len(server.accepted)]
        tokens, request.steps = 1 + accepted, request.steps + 1
        server.add("drafts")
        server.add("draft_tokens", server.draft_length)
        server.add("accepted_tokens", accepted)
        for position in range(accepted):
            server.add(f"position {position}")
    if not request.made:
        request.first = time.perf_counter()
    tokens = min(tokens, request.length - request.made)
    request.made += tokens
    server.add("output_tokens", tokens)
    request.events.put_nowait(tokens)


def metrics(server):
    """The text of ``/metrics`` as the engine writes it."""
    labels = f'{{engine="0",model_name="{server.model}"}}'
    on = labels.replace("}", ',position="%d"}')
    told = {name: server.counts.get(name, 0) for name in COUNTED}
    if server.engine == "vllm":
        lines = [f"process_start_time_seconds {server.started}"]
        lines += [f"{VLLM[name]}{labels} {told[name]:.9g}" for name in VLLM]
        lines.append(f"vllm:num_requests_running{labels} {max(server.counts.get('running', 0), 0)}")
        lines.append(f"vllm:num_requests_waiting{labels} 0.0")
        lines.append('vllm:cache_config_info{block_size="16",engine="0"} 1.0')
        if server.draft_length:
            lines += [f"{SPECULATIVE[name]}{labels} {told[name]}" for name in SPECULATIVE]
            name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
            values = [server.counts.get(f"position {i}", 0) for i in range(server.draft_length)]
            lines += [f"{name}{on % i} {value}" for i, value in enumerate(values)]
    else:
        labels = f'{{model_name="{server.model}",engine_type="unified",is_streaming="true"}}'
        lines = [f"{SGLANG[name]}{labels} {told['ended_' + name]:.9g}" for name in SGLANG]
        lines.append(f"sglang:num_running_reqs{labels} 7.0")
    names = dict.fromkeys(line.partition("{")[0] for line in lines if "_total{" in line)
    for name in names:
        first = next(i for i, line in enumerate(lines) if line.startswith(name + "{"))
        lines[first] = f"# HELP {name} Number.\n# TYPE {name} counter\n{lines[first]}"
    return "\n".join([*lines, ""])


VLLM = {
    "requests": "vllm:request_success_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "output_tokens": "vllm:generation_tokens_total",
    "tpot_seconds": "vllm:request_time_per_output_token_seconds_sum",
    "tpot_count": "vllm:request_time_per_output_token_seconds_count",
}
SPECULATIVE = {
    "drafts": "vllm:spec_decode_num_drafts_total",
    "draft_tokens": "vllm:spec_decode_num_draft_tokens_total",
    "accepted_tokens": "vllm:spec_decode_num_accepted_tokens_total",
}
SGLANG = {
    "requests": "sglang:num_requests_total",
    "prompt_tokens": "sglang:prompt_tokens_total",
    "output_tokens": "sglang:generation_tokens_total",
    "drafts": "sglang:spec_verify_calls_total",
    "tpot_seconds": "sglang:request_time_per_output_token_seconds_sum",
    "tpot_count": "sglang:request_time_per_output_token_seconds_count",
}
COUNTED = {*VLLM, *SPECULATIVE, *(f"ended_{name}" for name in SGLANG)}


def own_words(server, path):
    """What the engine says of itself at a path, if it does."""
    if path == "/v1/models" and server.has_models:
        return {"object": "list", "data": [{"id": server.model, "max_model_len": 4096}]}
    if path == "/version" and server.engine == "vllm":
        return {"version": "0.33.0"}
    if path == "/server_info" and server.engine == "sglang":
        told = {"version": "0.5.23", "model_path": server.model, "internal_states": [{}]}
        length = server.draft_length
        return told | {
            "speculative_algorithm": "EAGLE3" if length else None,
            "speculative_num_steps": length or None,
            "speculative_eagle_topk": 1 if length else None,
            "speculative_num_draft_tokens": length + 1 if length else None,
        }
    return None


def form_of(path, body):
    if path == "/v1/chat/completions":
        return "chat", body["messages"][0]["content"]
    prompt = body["prompt"]
    return ("text" if isinstance(prompt, str) else "ids"), prompt


def _outside(server, body):
    """What the engine says of token ids that its model lacks; SGLang checks no prompts."""
    size = server.vocabulary
    biased = [int(token) for token in body.get("logit_bias", {}) if int(token) >= size]
    if biased and server.tells_vocabulary:
        if server.engine == "sglang":
            return f"logit_bias must has keys in [0, {size - 1}], got {biased[0]}."
        said = f"token_id(s) {biased} in logit_bias contain out-of-vocab token ids. "
        return said + f"Vocabulary size: {size}"
    prompt = body.get("prompt", "")
    highest = 0 if isinstance(prompt, str) else max(prompt)
    return "" if highest < size else f"Token id {highest} is out of vocabulary"


async def answer(server, running, writer, path, body, name):
    """Answer a request for tokens; tell whether the connection stays."""
    form, prompt = form_of(path, body)
    is_chat_alone = server.forms == ("chat",)
    if form not in server.forms:
        _send(writer, 404 if is_chat_alone else 400, {"error": {"message": f"no {form} here"}})
        return True
    if refusal := _outside(server, body):
        _send(writer, 400, {"error": {"message": refusal}})
        return True
    length = len(prompt) if form == "ids" else len(prompt.split()) + 5 * (form == "chat")
    server.began.append(name)
    server.prompts.append(prompt)
    request = Request(body, name)
    if not server.heeds_ignore_eos:
        request.length = max(request.length // 2, 1)
    server.add("prompt_tokens", length)
    server.add("running")
    running.append(request)
    try:
        is_whole = await _streamed(server, request, writer, path) if request.streams else True
        if not request.streams:
            while request.made < request.length:
                await request.events.get()
    finally:
        server.add("running", -1)
        if request in running:
            running.remove(request)
    usage = {"prompt_tokens": length, "completion_tokens": request.made}
    told = server.usage.replace("MADE", str(request.made)) or json.dumps(
        usage, separators=(",", ":")
    )
    _ended(server, request, length)
    if not is_whole:
        return False
    if request.streams:
        last = f'{{"id":"cmpl-1","object":"text_completion","choices":[],"usage":{told}}}'
        writer.write(_chunk(f"data: {last}\n\ndata: [DONE]\n\n"))
        writer.write(b"0\r\n\r\n")
    else:
        _send(writer, 200, f'{{"id":"cmpl-1","choices":[{{"index":0}}],"usage":{told}}}')
    await writer.drain()
    if name:
        server.ended.append(name)
    return True


def _ended(server, request, prompt_length):
    """Count a request that ended."""
    tpot = (time.perf_counter() - request.first) / max(request.made - 1, 1)
    for name, number in (
        ("requests", 1), ("prompt_tokens", prompt_length), ("output_tokens", request.made),
        ("drafts", request.steps), ("tpot_seconds", tpot), ("tpot_count", 1),
    ):  # fmt: skip
        server.add(f"ended_{name}", number)
        if name in ("requests", "tpot_seconds", "tpot_count"):
            server.add(name, number)


async def _streamed(server, request, writer, path):
    """Send an event for each step; tell whether it came to its end."""
    writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
        b"transfer-encoding: chunked\r\n\r\n"
    )
    text = '"delta":{"content":' if "chat" in path else '"text":'
    sent = tokens = 0
    while sent < request.length:
        new = await request.events.get()
        is_first, sent, tokens = not sent, sent + new, tokens + new
        if tokens < request.interval and not is_first and sent < request.length:
            continue
        end = "}" if "chat" in path else ""
        choice = (
            f'{{"index":0,{text}"{" word" * tokens}"{end},"logprobs":null,"finish_reason":null}}'
        )
        event = (
            '{"id":"cmpl-8f2e6c0ac1f44e57b7f0a1b2c3d4e5f6","object":"text_completion",'
            f'"created":1795000000,"model":"{server.model}","choices":[{choice}]}}'
        )
        writer.write(_chunk(f"data: {event}\n\n"))
        tokens = 0
        if len(server.began) >= server.cut_after and sent > request.length // 2:
            return False
    return True


def _chunk(text):
    data = text.encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


def _send(writer, status, content, more=""):
    is_text = isinstance(content, str)
    data = (content if is_text else json.dumps(content)).encode()
    kind = "text/plain" if is_text else "application/json"
    head = (
        f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{more}content-length: {len(data)}\r\n\r\n"
    )
    writer.write(head.encode() + data)


class Door:
    """Connections of a server: requests that come in, and what goes out."""

    def __init__(self, server):
        self.server, self.running, self.writers, self.asked = server, [], set(), 0

    async def connection(self, reader, writer):
        self.writers.add(writer)
        try:
            while await self.exchange(reader, writer):
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()

    async def exchange(self, reader, writer):
        """Answer one request; tell whether the connection stays."""
        server = self.server
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split()
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        wants_key = server.key and path.startswith("/v1")
        if wants_key and headers.get("authorization") != f"Bearer {server.key}":
            _send(writer, 401, {"error": "Unauthorized"})
            return True
        stays = headers.get("connection", "").lower() != "close"
        if path in server.says:
            said = server.says[path]
            status, more, text = said(headers) if callable(said) else (200, "", said)
            _send(writer, status, text, more)
            return stays
        if method == "POST":
            return await self.post(writer, path, json.loads(body), headers) and stays
        own = own_words(server, path)
        if path == "/metrics" and server.has_metrics:
            _send(writer, 200, metrics(server))
        else:
            _send(writer, 404 if own is None else 200, own or {"detail": "Not Found"})
        return stays

    async def post(self, writer, path, body, headers):
        self.asked += 1
        if self.asked > self.server.dies_after:
            self.shut()
            return False
        name = headers.get("x-request-id", "")
        return await answer(self.server, self.running, writer, path, body, name)

    async def open(self):
        server = self.server
        self.socket = await asyncio.start_server(
            self.connection, "127.0.0.1", server.port, ssl=server.ssl
        )
        server.port = self.socket.sockets[0].getsockname()[1]

    def shut(self):
        self.socket.close()
        for writer in list(self.writers):
            writer.transport.abort()


async def serve(server, ready, stop):
    """Serve until told to stop."""
    door = Door(server)
    await door.open()
    engine = asyncio.create_task(run_engine(server, door.running))
    ready.set()
    end = time.monotonic() + LIMIT
    while not stop.is_set() and time.monotonic() < end:
        await asyncio.sleep(0.02)
    engine.cancel()
    door.shut()
    await asyncio.sleep(0.01)


@contextmanager
def standing_in(**settings):
    """A server in a thread of its own."""
    server = StandIn(**settings)
    ready, stop = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(serve(server, ready, stop)), daemon=True)
    thread.start()
    assert ready.wait(10.0)
    try:
        yield server
    finally:
        stop.set()
        thread.join(10.0)
    assert not thread.is_alive()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8123)
    parser.add_argument("--step-time", type=float, default=0.02)
    parser.add_argument("--draft-length", type=int, default=0)
    parser.add_argument("--engine", default="vllm")
    given = StandIn(**vars(parser.parse_args()))
    asyncio.run(serve(given, threading.Event(), threading.Event()))
