"""Answers of a server, and streams of them, which are read with little work.

A stream is not read event by event, which would cost the machine of an engine on a CPU a good part
of a step. The kernel keeps what comes and wakes the reader once there is enough of it: half of the
bytes that are left of an answer, by the answers so far, until so few are left that each event is
read as it comes. It wakes the reader at the end of the connection too, so that an answer that is
shorter than expected is not seen late.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from specmodel.base.errors import cut, in_one_line

if TYPE_CHECKING:
    from aiohttp import ClientResponse

MOST_BYTES = 32 * 1024
"""Most that is left to the kernel at a time, whose buffers are not endless [B]."""
LIVE_EVENTS = 4
"""So many events before the expected end, each is read as it comes [-]."""
LOOK = 2.0
"""Longest that a stream is left alone [s]."""
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
        Whether it ended while the stream was left alone on a connection that goes on, and so before
        it was seen to.
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
class Volume:
    """How many bytes streams have, by answers so far; before the first, all are read as they come.

    Parameters
    ----------
    per_token
        Least of an answer, on average over its tokens [B].
    per_event
        Most, on average over its events [B].
    """

    per_token: float = inf
    per_event: float = 0.0

    def note(self, answer: Answer, size: int) -> None:
        """Learn from an answer of so many bytes."""
        if answer.events:
            self.per_token = min(self.per_token, size / answer.output_tokens)
            self.per_event = max(self.per_event, size / answer.events)

    def left_alone(self, length: int, received: int) -> int:
        """Return how much of a stream the kernel may keep: half of what is left, near its end all.

        Parameters
        ----------
        length
            Tokens of the answer [token].
        received
            What came [B].

        Returns
        -------
        int
            1 where the next event is waited for [B].
        """
        if not self.per_event:
            return 1
        left = length * self.per_token - received
        is_near = left <= LIVE_EVENTS * self.per_event
        return 1 if is_near else int(min(left / 2, MOST_BYTES))


async def pieces_of(
    response: ClientResponse, length: int, received: int, volume: Volume | None
) -> AsyncIterator[tuple[bytes, bool]]:
    """Yield what comes after the first bytes of a stream, and with them if it was seen late."""
    while True:
        least = volume.left_alone(length, received) if volume else 1
        piece, is_late = await _piece(response, least)
        if not piece:
            return
        received += len(piece)
        yield piece, is_late and _DONE in piece


async def _piece(response: ClientResponse, least: int) -> tuple[bytes, bool]:
    """Return what comes next once it is so many bytes, and if that was waited for in vain."""
    _wake_at(response, least)
    timer = asyncio.timeout(LOOK if least > 1 else None)
    try:
        async with timer:
            return await response.content.readany(), False
    except TimeoutError:
        if not timer.expired():
            raise
    _wake_at(response, 1)
    return await response.content.readany(), True


def _wake_at(response: ClientResponse, least: int) -> None:
    """Have the kernel keep what comes until it is so many bytes, where it can."""
    transport = response.connection.transport if response.connection else None
    own = transport.get_extra_info("socket") if transport else None
    if own is not None:
        with suppress(OSError, AttributeError):
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)


def read_answer(
    answer: Answer, body: bytes, length: int, volume: Volume | None, *, streams: bool
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
    if volume:
        volume.note(whole, len(body))
    return whole


def _usage(body: bytes, *, streams: bool) -> tuple[int, int]:
    """Return tokens in and out, which the last event of a stream says that has a usage."""
    events = reversed(body.split(EVENT)) if streams else [body]
    usages = (json.loads(event)["usage"] for event in events if b'"usage"' in event)
    usage = next(usage for usage in usages if usage)
    return int(usage["prompt_tokens"]), int(usage["completion_tokens"])
