"""Drains: prompts that are all there at once, answered to the end, as in rollouts and batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, check
from specmodel.prediction.intervals import states_errors
from specmodel.simulate.outcome import Run
from specmodel.simulate.requests import MOST_REQUESTS, Lengths, Requests, Whole, cut
from specmodel.simulate.service import is_worth_compiling
from specmodel.simulate.state import BY_BATCH
from specmodel.simulate.study import Row, Study
from specmodel.simulate.token_time import Course, course, pace_of, span_times, timeline

_DRAWS = 64
"""Draws whose ordered lengths are averaged to expected ones [-]."""
_MOST_FIXED = 3
"""Single draft lengths that are compared where no policies are named [-]."""


def answers(
    lengths: Lengths | Requests,
    prompts: int,
    samples: int,
    seed: int = 0,
    *,
    longest: int,
    is_drawn: bool = True,
) -> Requests:
    """Return several answers to each prompt, those to one prompt side by side.

    Answers to one prompt are those of requests whose prompts are most alike, so that lengths go
    together as their law or record has them. Recorded ones are taken in order, and again.

    Parameters
    ----------
    lengths, prompts, samples, seed
        Laws or recorded requests, how many prompts and answers to each, and what is drawn [-].
    longest
        Most tokens of a prompt and its answer together, to which answers are cut [token].
    is_drawn
        False for the lengths that are expected of a law, in the order of their size.
    """
    count, cached = prompts * samples, list[Whole]()
    if isinstance(lengths, Requests):
        asked, made, *cached = (np.resize(each, count) for each in lengths.asked)
    elif is_drawn:
        asked, made = lengths.draw(count, seed)
    else:  # by the size of outputs, as expected over draws, in an order by chance
        draws = max(min(_DRAWS, MOST_REQUESTS // count), 1)
        drawn = [each.reshape(draws, count) for each in lengths.draw(draws * count, seed)]
        order = np.argsort(drawn[1], axis=1)
        mixed = np.random.default_rng(seed).permutation(count)
        means = (np.take_along_axis(each, order, axis=1).mean(axis=0) for each in drawn)
        asked, made = (np.rint(mean).astype(np.int64)[mixed] for mean in means)
    alike = np.argsort(asked, kind="stable").reshape(prompts, samples)
    alike = alike[np.argsort(alike.min(axis=1))]
    asked = np.repeat(asked[alike[:, samples // 2]], samples)
    return Requests(
        arrival_time=np.arange(1.0, count + 1),
        prompt_tokens=asked,
        output_tokens=cut(asked, made[alike].ravel(), longest)[1],
        cached_tokens=np.minimum(cached[0][alike].ravel(), asked) if cached else None,
        samples=samples,
        notes=getattr(lengths, "notes", ()),
    )


class Drain(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """A set of prompts that servers answer to the end; the slowest decides.

    Parameters
    ----------
    study
        What runs them, with the lengths of all answers, several to a prompt side by side.
    prompts, samples, servers
        Prompts, answers to each [request], and servers, to which prompts are dealt in turn [-].
    finished
        Share of the answers that are waited for [-].
    by_formula
        Whether nothing is simulated.
    """

    study: Study
    prompts: int
    samples: int = 1
    servers: int = 1
    finished: float = 1.0
    by_formula: bool = False

    def at_peak(self, row: Row) -> Row:
        """Return the most requests that run under a policy, and the draft length there."""
        lengths = self.study.service(row["policy"]).drafts.lengths(np.array(row["most_running"]))
        return {"running": row["most_running"], "drafted_tokens_per_step": int(lengths)}

    def waited_for(self, count: int) -> int:
        """Return how many of `count` answers are waited for, one at least [request]."""
        return max(int(np.ceil(self.finished * count - 1e-9)), 1)

    @cached_property
    def parts(self) -> list[Requests]:
        """What each server is asked."""
        every = self.study.typical
        server = np.arange(every.count) // self.samples % self.servers
        parts = (every.at(server == n) for n in range(self.servers))
        return [replace(part, arrival_time=np.zeros(part.count)) for part in parts]

    def simulated(self, policy: str, *, compiled: bool | None = None) -> list[Run]:
        """Return a run of each server under a policy, with noise of its own."""
        service = self.study.service(policy)
        return [
            service.run(requests, seed=seed, compiled=compiled)
            for seed, requests in enumerate(self.parts, self.study.seed)
        ]

    def closed(self, policy: str) -> list[Course] | None:
        """Return when answers are done by formula, by server; None where the policy learns."""
        service, accepted = self.study.service(policy), self.study.accepted
        if service.drafts.kind != BY_BATCH or service.prefill is not None:
            return None
        return [course(service, requests, accepted) for requests in self.parts]

    def outcome(self, courses: Sequence[Course]) -> Row:
        """Return makespan, throughput and batch sizes up to when enough answers are done."""
        begun, first, done = (
            np.concatenate([getattr(each, name) for each in courses])
            for name in ("begun", "first", "done")
        )
        ends = np.sort(done)[: self.waited_for(len(done))]
        until = float(ends[-1])
        lengths = np.concatenate([own.output_tokens for own in self.parts])
        part = np.clip((until - first) / np.maximum(done - first, 1e-12), 0.0, 1.0)
        made = np.where(done <= until, lengths, (first <= until) + part * (lengths - 1))
        spent, last = _time_by_batch(courses, until)
        at = {f"done_p{p}": float(ends[-(-p * len(ends) // 100) - 1]) for p in (50, 90, 99)}
        return {
            "makespan": until,
            **at,
            "output_tokens": float(made.sum()),
            "throughput": float(made.sum() / until),
            "gpu_hours": self.servers * self.study.num_gpus * until / 3600,
            "running": float((np.minimum(done, until) - np.minimum(begun, until)).sum())
            / (until * self.servers),
            "most_running": len(spent) - 1,
            **{f"share_at_{size}": share for size, share in _by_powers(spent / spent.sum())},
            **{f"last_at_{size}": float(last[size:].max()) for size, _ in _by_powers(spent)[1:]},
        }


def _time_by_batch(courses: Sequence[Course], until: float) -> tuple[FloatArray, FloatArray]:
    """Return by running requests, from 0, how long and until when they ran on any server [s].

    The time is that of all servers together; a server that is done waits for the others.
    """
    spent, last = np.zeros(1), np.zeros(1)
    for own in courses:
        times = np.concatenate([own.begun, own.done]).clip(max=until)
        change = np.repeat([1, -1], len(own.begun))
        order = np.argsort(times, kind="stable")
        running = np.concatenate([[0], np.cumsum(change[order])])
        times = np.concatenate([[0.0], times[order], [until]])
        long, ends = np.diff(times), times[1:]
        running, long, ends = (each[long > 0] for each in (running, long, ends))
        size = max(len(spent), int(running.max()) + 1)
        spent, last = (np.pad(each, (0, size - len(each))) for each in (spent, last))
        np.add.at(spent, running, long)
        np.maximum.at(last, running, ends)
    return spent, last


def _by_powers(values: FloatArray) -> list[tuple[int, float]]:
    """Return the sums over indices 0, 1, 2 to 3, 4 to 7 and so on, each after its first index."""
    first = [0, *(1 << n for n in range(len(values).bit_length()) if 1 << n < len(values))]
    sums = np.add.reduceat(values, first)
    return list(zip(first, sums.tolist(), strict=True))


def drained(
    drain: Drain,
    policies: Sequence[str],
    *,
    gpu_hour_price: float | None = None,
    progress: Callable[[int], object] = lambda done: None,
) -> list[Row]:
    """Return a row for each policy, simulated beside the closed form, or by that alone.

    Parameters
    ----------
    drain, policies
        What is answered, and policies by name.
    gpu_hour_price, progress
        Price of a GPU for an hour, where costs are wanted [-]; what is told after each policy [-].
    """
    study, rows = drain.study, list[Row]()
    tokens = len(policies) * float(study.typical.output_tokens.sum())
    compiled = is_worth_compiling(tokens)
    for name in policies:
        courses = closed = drain.closed(name)
        own: Row = {}
        if not drain.by_formula:
            runs = drain.simulated(name, compiled=compiled)
            courses = [Course(begun=run.started, first=run.first, done=run.last) for run in runs]
            own["preemptions"] = sum(run.state.preemptions for run in runs)
        if courses is None:
            raise InputError("policy", name, "one that does not learn, or a simulation")
        by_formula = drain.outcome(closed)["makespan"] if closed else None
        drafts = study.service(name).drafts
        drafted = np.flatnonzero(drafts.by_batch)
        ends = drafts.kind == BY_BATCH and len(drafted) and not drafts.by_batch[-1]
        told = {"policy": name, "speculates_up_to": int(drafted[-1]) if ends else None}
        rows.append(told | drain.outcome(courses) | {"makespan_closed": by_formula} | own)
        progress(1)
    plain = next((row["makespan"] for row in rows if row["policy"] == "none"), None)
    names = dict.fromkeys(name for row in rows for name in row)
    for row in rows:
        row["speedup"] = plain / row["makespan"] if plain else None
        if states_errors(study.deployment):
            row |= _interval(study, row)
        if gpu_hour_price is not None:
            row["cost"] = row["gpu_hours"] * gpu_hour_price
    return [names | row for row in rows]


def _interval(study: Study, row: Row) -> Row:
    """Return ends of 80 % intervals, of predicted times alike at all batch sizes of a drain."""
    sizes = [int(name.removeprefix("share_at_")) for name in row if name.startswith("share_at_")]
    running = np.array(sizes[1:])
    lengths = study.service(row["policy"]).drafts.lengths(running)
    factors = study.error_factors(running, lengths)
    shares = np.array([row[f"share_at_{size}"] for size in running])
    found: Row = {}
    for name, by in (("makespan", "tpot"), ("speedup", "speedup")):
        low, high = (factors[by] * shares).sum(axis=1) / shares.sum()
        own = row[name]
        found |= {f"{name}_low": own and own * low, f"{name}_high": own and own * high}
    return found


def usual_policies(drain: Drain) -> list[str]:
    """Return none, the single lengths that pay by formula, a schedule, and the best below a batch.

    Of single lengths at most three; batches are powers of two up to the most that run. Noise is
    left out, so that the same requests run together under all of them.
    """
    longest, accepted = drain.study.max_draft_length, drain.study.accepted
    courses, totals = drain.closed("none"), dict[str, float]()
    plain = drain.outcome(courses)["makespan"] if courses else np.inf
    service = drain.study.service(f"fixed:{longest}")
    paces = [pace_of(service, accepted, k) for k in range(longest + 1)]
    for requests in drain.parts:
        need = np.asarray(requests.output_tokens - 1.0)
        line = timeline(service, requests, need, paces[0])
        times = [span_times(service, line, pace) for pace in paces]
        most = int(line.running.max())
        last = np.sort(line.done)[drain.waited_for(requests.count) - 1]
        sizes = [1 << n for n in range(most.bit_length()) if 1 << n < most]
        for k, size in itertools.product(range(1, longest + 1), [*sizes, most]):
            name = f"fixed:{k}" if size == most else f"below:{size}:{k}"
            taken = float(np.where(line.running <= size, times[k], times[0])[:last].sum())
            totals[name] = max(taken, totals.get(name, 0.0))
    by_time = sorted(totals, key=lambda name: totals[name])
    paying = [name for name in by_time if name.startswith("fixed") and totals[name] < plain]
    parts = [name for name in by_time if name.startswith("below")]
    paying = sorted(paying[:_MOST_FIXED], key=lambda name: int(name.partition(":")[2]))
    return ["none", *paying, "schedule", *parts[:1]]


def drain_of(study: Study, prompts: int, **how: Any) -> Drain:
    """Return a drain of a study's laws or recorded requests; `how` are other fields of `Drain`.

    Parameters
    ----------
    study, prompts
        What runs where, with lengths of prompts and answers, and how many prompts [request].
    """
    check("drain", prompts, minimum=1, maximum=MOST_REQUESTS, whole=True)
    samples = how.get("samples", 1)
    check("samples", samples, minimum=1, maximum=MOST_REQUESTS // prompts, whole=True)
    check("servers", how.get("servers", 1), minimum=1, maximum=prompts, whole=True)
    check("finished", how.get("finished", 1), above=0, maximum=1)
    differs = study.trace is not None or study.prefill_servers
    if how.get("by_formula") and differs:
        expected = "a simulation: formulas take no trace or prefill servers"
        raise InputError("by_formula", True, expected)
    every = answers(
        study.lengths,
        int(prompts),
        int(samples),
        study.seed,
        longest=study.deployment.target.max_positions or np.iinfo(np.int64).max,
        is_drawn=not how.get("by_formula"),
    )
    study = replace(study, lengths=every, num_requests=every.count)
    return Drain(study=study, prompts=int(prompts), **how)
