"""What is asked of a running engine: rounds of a draft length, runs of a load, requests of a run.

A run keeps a number of requests in the engine at all times: as one ends, the next one of its slot
begins. All slots begin together, with first requests of graded lengths. From then on requests end
one after the other, as under steady traffic: a timed request decodes beside as many others as the
load says, and each of the others is prefilled once in that time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import chain, product
from typing import NamedTuple

from specmodel.base.errors import InputError
from specmodel.base.units import check

WARM_UP_TOKENS = 8  # output of a request that only warms up [token]
MOST = 1_000_000  # most tokens of a prompt or an output [token], or requests at once [request]
MOST_REQUESTS = 100_000  # most requests of all runs together [request]


ROLES = ("warm-up", "lead", "timed", "tail")
"""What requests are for: only timed ones see the load from their beginning to their end."""


class Request(NamedTuple):
    """One request of a run: slot, number in the slot, role, and output [token]."""

    slot: int
    number: int
    role: str
    output_length: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """One load, kept up for a while.

    Parameters
    ----------
    round, repeat
        Their numbers from 0; within a round the server is not restarted [-].
    draft_length
        Tokens to draft per sequence and step, 0 for no speculation [token].
    concurrency
        Requests that run at once [request].
    prompt_length, output_length
        Lengths of each request [token].
    """

    round: int
    draft_length: int
    concurrency: int
    prompt_length: int
    output_length: int
    repeat: int

    @property
    def key(self) -> tuple[int, ...]:
        """What identifies the run among others."""
        return astuple(self)


class Budget(NamedTuple):
    """Runs [-], requests [request], and tokens in and out [token]."""

    runs: int
    requests: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that is to be measured; an InputError says if that is nothing, impossible or too much.

    Parameters
    ----------
    draft_lengths
        One for each round, in order; one that comes twice is measured twice [token].
    concurrencies, prompt_lengths, output_lengths
        Requests at once [request]; each prompt length is measured with each output length [token].
    repeats, requests
        Runs of each load in a round, interleaved [-]; timed requests in each slot [request].
    """

    draft_lengths: Sequence[int]
    concurrencies: Sequence[int]
    prompt_lengths: Sequence[int]
    output_lengths: Sequence[int]
    repeats: int = 3
    requests: int = 2

    def __post_init__(self) -> None:
        check("draft_length", self.draft_lengths, minimum=0, maximum=1000, whole=True)
        for argument, numbers, least in (
            ("concurrency", self.concurrencies, 1),
            ("prompt_length", self.prompt_lengths, 1),
            ("output_length", self.output_lengths, 2),
            ("repeats", self.repeats, 1),
            ("requests", self.requests, 1),
        ):
            check(argument, numbers, minimum=least, maximum=MOST, whole=True)
        loads = len(self.draft_lengths) * len(self.prompt_lengths) * len(self.output_lengths)
        asked = sum(self.concurrencies) * loads * self.repeats * self.requests
        if asked > MOST_REQUESTS:
            expected = f"fewer, or fewer loads: {asked:,} timed requests, of {MOST_REQUESTS:,}"
            raise InputError("repeats", self.repeats, expected)

    def runs(self, round_number: int) -> list[Run]:
        """Return the runs of a round: all loads once, then all of them again for each repeat."""
        lengths = product(self.prompt_lengths, self.output_lengths, self.concurrencies)
        loads = [
            {"prompt_length": prompt, "output_length": output, "concurrency": concurrency}
            for prompt, output, concurrency in lengths
        ]
        own = {"round": round_number, "draft_length": self.draft_lengths[round_number]}
        return [Run(**own, **load, repeat=i) for i in range(self.repeats) for load in loads]

    def left(self, done: Collection[tuple[int, ...]] = ()) -> dict[int, list[Run]]:
        """Return the runs that are not done, by round; rounds with none are left out."""
        rounds = {
            number: [run for run in self.runs(number) if run.key not in done]
            for number in range(len(self.draft_lengths))
        }
        return {number: runs for number, runs in rounds.items() if runs}


def slots_of(run: Run, requests: int) -> list[list[Request]]:
    """Return the requests of each slot of a run, in order, with so many timed ones [request].

    A slot begins with a request that leads in, whose length grows with the slot's number. The timed
    requests follow, of full length. The last one makes up for the shortness of the first, so that
    all slots end at about the same time and timed requests are never alone.
    """
    slots = []
    for slot in range(run.concurrency):
        lead = -(-run.output_length * (slot + 1) // run.concurrency)
        last = run.output_length - lead
        lengths = [("lead", lead), *[("timed", run.output_length)] * requests]
        lengths += [("tail", last)] if last else []
        slots.append([Request(slot, i, *length) for i, length in enumerate(lengths)])
    return slots


def warm_up_of(runs: Iterable[Run]) -> list[tuple[Run, list[Request]]]:
    """Return requests that warm a server up for runs: each load once, all of its slots at once."""
    loads = {(run.concurrency, run.prompt_length): run for run in runs}
    warm_ups = []
    for run in loads.values():
        asked = 0, "warm-up", min(run.output_length, WARM_UP_TOKENS)
        warm_ups.append((run, [Request(slot, *asked) for slot in range(run.concurrency)]))
    return warm_ups


def budget(plan: Plan, rounds: dict[int, list[Run]]) -> Budget:
    """Return what the runs left of a plan ask of a server in all, warming up included."""
    count = prompts = outputs = 0
    for runs in rounds.values():
        asked = [(run, [*chain(*slots_of(run, plan.requests))]) for run in runs]
        for run, requests in asked + warm_up_of(runs):
            count += len(requests)
            prompts += len(requests) * run.prompt_length
            outputs += sum(request.output_length for request in requests)
    return Budget(sum(map(len, rounds.values())), count, prompts, outputs)


def seconds_of(
    run: Run, requests: int, first_token: float, tpot: float, known: Mapping[tuple[int, ...], float]
) -> float:
    """Return the time that one of its load took, or a run takes at the pace of one request [s]."""
    if run.key[:-1] in known:
        return known[run.key[:-1]]
    return (requests + 2) * first_token + (requests + 1) * run.output_length * tpot
