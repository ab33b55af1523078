"""Answers of a server, whose streams are read with little work.

To read a stream event by event would cost the machine of an engine on a CPU a good part of a step.
The kernel keeps what arrives instead, and wakes the reader once half of the bytes that are left of
the answer are there, as estimated from the answers so far. Near the end each event is read as it
arrives. The end of the connection wakes the reader too, so that an answer that is shorter than
expected is not seen late.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from specmodel.base.errors import cut, in_one_line
from specmodel.base.files import parsed_json

if TYPE_CHECKING:
    from aiohttp import ClientResponse

MOST_BYTES = 32 * 1024  # most that is left to the kernel, whose buffers are limited [B]
LIVE_EVENTS = 4  # so many events before the expected end, each event is read as it arrives [-]
LOOK = 2.0  # longest time that a stream is left alone [s]
EVENT, _DONE, _ERROR = b"data: ", b"data: [DONE]", b'data: {"error"'
"""How each event of a stream begins, the one that ends it, and one that reports an error."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer, or why there is none."""

    started: float  # by the clock [s]
    first_token: float  # until the first event of a stream; NaN without one [s]
    latency: float  # until the end [s]
    prompt_tokens: int = 0
    output_tokens: int = 0
    events: int = 0  # of a stream, except those without a token
    fault: str = ""
    is_late: bool = False  # whether its end came while the stream was left alone, and was seen late


@dataclass(kw_only=True)
class Volume:
    """Sizes of streams by the answers so far; until one has ended, all events are read live."""

    per_token: float = inf  # smallest mean of an answer [B]
    per_event: float = 0.0  # largest mean of an answer [B]

    def note(self, answer: Answer, size: int) -> None:
        """Learn from an answer of so many bytes."""
        if answer.events:
            self.per_token = min(self.per_token, size / answer.output_tokens)
            self.per_event = max(self.per_event, size / answer.events)

    def left_alone(self, length: int, received: int) -> int:
        """Return how much of a stream the kernel may keep: half of the rest, 1 near its end [B]."""
        if not self.per_event:
            return 1
        left = length * self.per_token - received
        is_near = left <= LIVE_EVENTS * self.per_event
        return 1 if is_near else int(min(left / 2, MOST_BYTES))


async def pieces_of(
    response: ClientResponse, length: int, received: int, volume: Volume | None
) -> AsyncIterator[tuple[bytes, bool]]:
    """Yield what follows the first bytes of a stream, and whether its end was seen late."""
    while True:
        least = volume.left_alone(length, received) if volume else 1
        piece, is_late = await _piece(response, least)
        if not piece:
            return
        received += len(piece)
        yield piece, is_late and _DONE in piece


async def _piece(response: ClientResponse, least: int) -> tuple[bytes, bool]:
    """Return what comes next once it has so many bytes, and whether that was awaited in vain."""
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
    """Have the kernel keep what arrives until it has so many bytes, where the kernel can."""
    transport = response.connection.transport if response.connection else None
    own = transport.get_extra_info("socket") if transport else None
    if own is not None:
        with suppress(OSError, AttributeError):
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)


def read_answer(
    answer: Answer, body: bytes, length: int, volume: Volume | None, *, streams: bool
) -> Answer:
    """Return an answer completed by its body, or by what is wrong with it."""
    events = body.count(EVENT)
    if _ERROR in body:
        said = body[body.index(_ERROR) :].decode(errors="replace")
        return replace(answer, fault=f"an error in the stream: {cut(in_one_line(said))}")
    if streams and _DONE not in body[-64:]:
        return replace(answer, events=events, fault=f"cut short after {events} events")
    try:
        prompt, output = _usage(body, streams=streams)
    except (ValueError, KeyError, TypeError, StopIteration):
        return replace(answer, fault="no usage in it that says how many tokens it has")
    tokens = max(events - 2, 0)
    whole = replace(answer, prompt_tokens=prompt, output_tokens=output, events=tokens)
    if output != length:
        fault = f"{output} of {length} tokens (does the server heed ignore_eos?)"
        return replace(whole, fault=fault)
    if volume:
        volume.note(whole, len(body))
    return whole


def _usage(body: bytes, *, streams: bool) -> tuple[int, int]:
    """Return tokens in and out; in a stream, those of the last event with a usage [token]."""
    events = reversed(body.split(EVENT)) if streams else [body]
    usages = (parsed_json(event)["usage"] for event in events if b'"usage"' in event)
    usage = next(usage for usage in usages if usage)
    prompt, output = whole(usage["prompt_tokens"]), whole(usage["completion_tokens"])
    if not prompt or output is None:
        raise ValueError("not numbers of tokens")
    return prompt, output


def whole(told: object) -> int | None:
    """Return a count that a server told; None if it is none, as true, 1e400 or -5 are not."""
    return told if type(told) is int and 0 <= told < 2**53 else None
