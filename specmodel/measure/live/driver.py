"""Drive a server through the runs of a round, and append each request to the table as it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from specmodel.base.errors import InputError
from specmodel.measure.live.answers import Answer, Volume
from specmodel.measure.live.client import Server, Told
from specmodel.measure.live.engines import Scrape, growth
from specmodel.measure.live.log import COLUMNS, Log, tells_steps
from specmodel.measure.live.plan import ROLES, Plan, Request, Run, slots_of, warm_up_of
from specmodel.measure.live.prompts import Prompts

SETTLED = 3.0  # longest wait for counters of ended requests, or for an idle server [s]
POLL = 0.05  # time between two looks at the counters [s]


@dataclass(frozen=True)
class Done:
    """The end of a run, or of its warm-up.

    Parameters
    ----------
    run
        The run.
    requests, seconds
        Requests of the run [request], and the time that they took [s].
    is_run
        Whether it is the run, and not its warm-up.
    """

    run: Run
    requests: int
    seconds: float
    is_run: bool


async def drive(
    server: Server, told: Told, plan: Plan, runs: Sequence[Run], log: Log, prompts: Prompts
) -> AsyncIterator[Done]:
    """Warm a server up and do the runs of a round; yield the end of each, and of what warms up.

    Where an answer fails or counters go wrong, rows of what has ended are in the table.
    """
    drafting = [run.draft_length for run in runs if run.draft_length]
    if drafting and not told.has_counters:
        raise _uncounted(drafting[0])
    ask = _Asking(server, log, prompts)
    for run, requests in warm_up_of(runs):
        begun, attempt = time.perf_counter(), log.attempt(run)
        async with _together() as group:
            for request in requests:
                group.create_task(ask.each(run, [request], attempt))
        yield Done(run, len(requests), time.perf_counter() - begun, is_run=False)
    for run in runs:
        begun, attempt, slots = time.perf_counter(), log.attempt(run), slots_of(run, plan.requests)
        before, note = await _idle(server)
        if before is not None:
            _check_drafts(before, run)
        elif told.has_counters:
            raise _vanished(server)
        ask = _Asking(server, log, prompts)
        async with _together() as group:
            for requests in slots:
                group.create_task(ask.each(run, requests, attempt))
        seconds, grown = time.perf_counter() - begun, dict[str, float]()
        if before is not None:
            grown = await _grown(server, before, ask.own)
            _check_drafted(grown, run)
        facts = _run_facts(told, grown, ask.own)
        facts["note"] = "; ".join(filter(None, [note, facts["note"]]))
        log.add(run, "run", facts | {"started": time.time() - seconds, "latency": seconds}, attempt)
        yield Done(run, ask.own["requests"], seconds, is_run=True)


@asynccontextmanager
async def _together() -> AsyncIterator[asyncio.TaskGroup]:
    """Open a group of tasks whose first error is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


@dataclass
class _Asking:
    """Asks for the requests of a slot one after the other, and counts the answers."""

    server: Server
    log: Log
    prompts: Prompts

    def __post_init__(self) -> None:
        self.volume = Volume()
        self.own = dict.fromkeys(("requests", "prompt_tokens", "output_tokens"), 0)

    async def each(self, run: Run, requests: Sequence[Request], attempt: int) -> None:
        for request in requests:
            # the load and the request, whatever is drafted
            key = (*run.key[2:], ROLES.index(request.role), request.slot, request.number)
            prompt = self.prompts(run.prompt_length, key)
            name = "-".join(map(str, (*run.key, attempt, *request[:3])))
            answer = await self.server.complete(
                prompt, request.output_length, name=f"specmodel-{name}", volume=self.volume
            )
            self.log.add(run, request.role, _facts(request, answer), attempt)
            if answer.fault:
                expected = f"a whole answer: {answer.fault}; rows so far are kept in"
                raise InputError("answer", name, f"{expected} {self.log.path}: run again")
            self.own["requests"] += 1
            self.own["prompt_tokens"] += answer.prompt_tokens
            self.own["output_tokens"] += answer.output_tokens


def _facts(request: Request, answer: Answer) -> dict[str, Any]:
    """Return the columns of a request."""
    note = answer.fault or ("late" if answer.is_late else "")
    own = {"slot": request.slot, "number": request.number, "note": note}
    names = ("first_token", "latency", "prompt_tokens", "output_tokens", "events")
    started = f"{answer.started:.3f}"
    return own | {name: getattr(answer, name) for name in names} | {"started": started}


def _uncounted(draft_length: int) -> InputError:
    expected = "0, as the server has no counters of speculation at /metrics"
    return InputError("draft_length", draft_length, f"{expected} (SGLang: --enable-metrics)")


def _vanished(server: Server) -> InputError:
    return InputError("url", server.url, "counters at /metrics, as before: they are gone")


def _check_drafts(scrape: Scrape, run: Run) -> None:
    """Refuse a vLLM that was restarted between two runs and drafts another length now."""
    if scrape.engine == "vllm" and len(scrape.positions) != run.draft_length:
        expected = f"{run.draft_length} to the end of the round: it was restarted; run again"
        raise InputError("server", f"{len(scrape.positions)} tokens drafted", expected)


async def _settled(server: Server, is_settled: Callable[[Scrape], bool]) -> Scrape | None:
    """Return the counters once they are settled, or after a while; None where there are none."""
    end = time.perf_counter() + SETTLED
    while True:
        scrape = await server.scrape()
        if scrape is None or is_settled(scrape) or time.perf_counter() > end:
            return scrape
        await asyncio.sleep(POLL)


async def _idle(server: Server) -> tuple[Scrape | None, str]:
    """Return the counters once nothing runs, or after a while with a note of what still runs."""
    scrape = await _settled(server, lambda counted: not counted.running)
    others = scrape.running if scrape else None
    return scrape, f"{others:.0f} requests of others at the beginning" if others else ""


async def _grown(server: Server, before: Scrape, own: Mapping[str, int]) -> dict[str, float]:
    """Return what was counted in a run, once the counters include its requests."""

    def has_all(counted: Scrape) -> bool:
        grown = growth(before, counted)
        return all(grown.get(what, 0.0) >= count for what, count in own.items())

    after = await _settled(server, has_all)
    if after is None:
        raise _vanished(server)
    return growth(before, after)


def _check_drafted(grown: Mapping[str, float], run: Run) -> None:
    """Refuse a run without drafts, unless vLLM counts positions: its schedule may say 0."""
    if run.draft_length and not tells_steps(grown):
        raise InputError("server", "counters that do not move", "them to, to tell what is drafted")
    if run.draft_length and not grown.get("drafts") and "position 0" not in grown:
        raise _uncounted(run.draft_length)


def _run_facts(told: Told, grown: Mapping[str, float], own: Mapping[str, int]) -> dict[str, Any]:
    """Return the columns of a run, with a note of what is not as it should be."""
    positions = [value for name, value in grown.items() if name.startswith("position ")]
    seconds, count = (grown.get(name, 0.0) for name in ("tpot_seconds", "tpot_count"))
    return {
        **{name: count for name, count in grown.items() if name in COLUMNS},
        "accepted_by_position": " ".join(f"{value:.0f}" for value in positions),
        "engine_tpot": seconds / count if count else None,
        "topk": told.drafts.topk,
        "verify_tokens": told.drafts.verify_tokens,
        "engine": told.engine,
        "version": told.version,
        "model": told.model,
        "note": "; ".join(_odd(grown, own)),
    }


def _odd(grown: Mapping[str, float], own: Mapping[str, int]) -> Iterator[str]:
    """Yield what the counters show that should not be."""
    if not any(grown.get(what) for what in own):
        yield f"{'counters do not move' if grown else 'no counters'}: traffic of others is not seen"
        return
    for what, asked in own.items():
        more = grown.get(what, 0.0) - asked
        if more and what == "prompt_tokens":  # which are counted again after a preemption
            yield f"{more:+.0f} prompt_tokens counted"
        elif more:
            yield f"{abs(more):.0f} {what} {'of others' if more > 0 else 'not counted'}"
    if grown.get("preemptions"):
        yield f"{grown['preemptions']:.0f} preempted"
