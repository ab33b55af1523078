"""Answers of a server, and streams of them, which are read with little work.

A stream is not read event by event, which would cost the machine of an engine on a CPU a good part
of a step. Between the first and the last events the socket is left to the kernel, which keeps what
comes: half of the way that is left by the events seen so far is slept through at a time, until so
little is left that each event is read as it comes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from specmodel.base.errors import cut, in_one_line

if TYPE_CHECKING:
    from aiohttp import ClientResponse

MOST_EVENTS = 128
"""Most events that are left to the kernel at a time, whose buffers are not endless [-]."""
LIVE_EVENTS = 4
"""So many events before the expected end, each is read as it comes [-]."""
EVENT, _DONE, _ERROR = b"data: ", b"data: [DONE]", b'data: {"error"'
"""How events of a stream begin, the one that ends it, and one that tells an error."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer, or why there is none.

    Parameters
    ----------
    started
        Time of the clock when it was asked for [s].
    first_token
        Until the first event of a stream came; NaN if it was none [s].
    latency
        Until all had come [s].
    prompt_tokens, output_tokens
        As the server counts them [token].
    events
        Of a stream, but for those that bring no token [-].
    fault
        What is wrong with it; empty if nothing is.
    is_late
        Whether it ended while the stream was left alone, and so before it was seen to.
    """

    started: float
    first_token: float
    latency: float
    prompt_tokens: int = 0
    output_tokens: int = 0
    events: int = 0
    fault: str = ""
    is_late: bool = False


@dataclass(kw_only=True)
class Pace:
    """How the events of streams come, by answers so far; before the first, none is slept through.

    Parameters
    ----------
    tokens
        Most that an event brought, on average over an answer [token].
    seconds
        Least between two events, likewise [s].
    """

    tokens: float = 0.0
    seconds: float = inf

    def note(self, answer: Answer) -> None:
        """Learn from an answer; one that was late tells that all must be learned anew."""
        if answer.is_late:
            self.tokens, self.seconds = 0.0, inf
        elif answer.events >= LIVE_EVENTS:
            self.tokens = max(self.tokens, answer.output_tokens / answer.events)
            each = (answer.latency - answer.first_token) / (answer.events - 1)
            self.seconds = min(self.seconds, each)

    def nap(self, length: int, events: int) -> float:
        """Return how long a stream can be left alone: half of what is left of it at least.

        Parameters
        ----------
        length
            Tokens of the answer [token].
        events
            That came [-].

        Returns
        -------
        float
            0 where the next event is waited for [s].
        """
        left = length / self.tokens - events if self.tokens else 0.0
        return min(left / 2, MOST_EVENTS) * self.seconds if left > LIVE_EVENTS else 0.0


async def pieces_of(
    response: ClientResponse, length: int, pace: Pace | None
) -> AsyncIterator[tuple[bytes, bool]]:
    """Yield what comes after the first piece of a stream, and if it ended in a nap, with naps."""
    events = 1
    while True:
        nap = pace.nap(length, events) if pace else 0.0
        if nap and response.connection and response.connection.transport:
            transport = response.connection.transport
            transport.pause_reading()
            await asyncio.sleep(nap)
            transport.resume_reading()
        piece = await response.content.readany()
        if not piece:
            return
        events += piece.count(EVENT)
        yield piece, bool(nap) and _DONE in piece


def read_answer(
    answer: Answer, body: bytes, length: int, pace: Pace | None, *, streams: bool
) -> Answer:
    """Return an answer with what its body says, or what is wrong with it."""
    events = body.count(EVENT)
    if _ERROR in body:
        said = body[body.index(_ERROR) :].decode(errors="replace")
        return replace(answer, fault=f"an error in the stream: {cut(in_one_line(said))}")
    if streams and _DONE not in body[-64:]:
        return replace(answer, events=events, fault=f"cut short after {events} events")
    try:
        prompt, output = _usage(body, streams=streams)
    except (ValueError, KeyError, TypeError, StopIteration):
        return replace(answer, fault="no usage in it, which says how many tokens it has")
    tokens = max(events - 2, 0)
    whole = replace(answer, prompt_tokens=prompt, output_tokens=output, events=tokens)
    if output != length:
        fault = f"{output} of {length} tokens (does the server heed ignore_eos?)"
        return replace(whole, fault=fault)
    if pace:
        pace.note(whole)
    return whole


def _usage(body: bytes, *, streams: bool) -> tuple[int, int]:
    """Return tokens in and out, which the last event of a stream says that has a usage."""
    events = reversed(body.split(EVENT)) if streams else [body]
    usages = (json.loads(event)["usage"] for event in events if b'"usage"' in event)
    usage = next(usage for usage in usages if usage)
    return int(usage["prompt_tokens"]), int(usage["completion_tokens"])
