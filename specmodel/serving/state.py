"""What the loop over steps reads and writes: arrays by request, by running request, and in all.

Lists for Python, arrays for numba, which knows no other records.
"""

from typing import Any, NamedTuple

BY_BATCH, SLOTS, SHARED = range(3)
"""Kinds of policies: a draft length by batch, SGLang's slots by batch, one state for the server."""

# places of whole numbers: what is counted over a run, and what changes from step to step
STEPS, PREEMPTIONS, REQUEST_STEPS, LEAST_FREE, LOGGED = range(5)
HEAD, ARRIVED, RUNNING_NOW, FRONT, DONE, FREE_BLOCKS, BATCH, BUDGET, LAST_PREFILL = range(5, 14)
DEFERRED, DECODERS, PARTS_OF_PROMPTS, PROMPT_TOKENS, ENTRIES, HITS, GAINED, BIN = range(14, 22)
WHOLES = 22
ALL_EMITTED, ALL_DRAFTED, BEGUN = range(22, 25)  # of all that came, added after the run
# places of sums
NOW, AREA, RUNNING_AREA, PREFILLED = range(4)
SUMS = 4
# columns of the log of steps
(
    TIME, SECONDS, DECODING, DRAFT, CONTEXT, TOKENS, CHUNKS, EMITTED, FREE, RUNNING, WAITING
) = range(11)  # fmt: skip
LOG_COLUMNS = 11


class Asked(NamedTuple):
    """What is asked: by request arrival, prompt, tokens of it found in the cache, output, luck.

    `ready` are tokens that were emitted before the request comes, where others prefill; the loop
    ends when the first `until` of them are done.
    """

    arrival: Any
    prompt: Any
    cached: Any
    output: Any
    key: Any
    ready: int
    users: int
    until: int


class Outcomes(NamedTuple):
    """What is accepted: thresholds of luck by draft length and position, or a recorded trace.

    A trace has accepted tokens by position, with requests from `first` on, of `lengths` tokens.
    """

    thresholds: Any
    longest: int
    accepted: Any
    first: Any
    lengths: Any


class Limits(NamedTuple):
    """Limits of the scheduler; `reserve` are slots beyond those of a step's tokens [token]."""

    requests: int
    tokens: int
    block: int
    blocks: int
    fixed_blocks: int
    reserve: int
    interval: int
    chunked: bool


class Server(NamedTuple):
    """The policy: a draft length or the number of a state by batch, and its states."""

    kind: int
    by_batch: Any
    states: Any


class Records(NamedTuple):
    """What is recorded by request, of steps, and in all; `edges` are those of `intervals`."""

    started: Any
    first: Any
    last: Any
    drafted: Any
    accepted: Any
    emitted: Any
    intervals: Any
    edges: Any
    log: Any
    wholes: Any
    sums: Any


class Slots(NamedTuple):
    """State of the running requests, in order of admission; `front` are preempted ones."""

    request: Any
    context: Any
    needed: Any
    left: Any
    key: Any
    room: Any
    blocks: Any
    granted: Any
    front: Any
