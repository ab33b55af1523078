"""Simulate drains: all prompts arrive at once and are answered, as in rollouts or batch jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray, check
from specmodel.core.prediction.intervals import states_errors
from specmodel.simulate.drafting import paces
from specmodel.simulate.machine_code import is_worth_compiling
from specmodel.simulate.outcome import Run
from specmodel.simulate.requests import MOST_REQUESTS, Lengths, Requests, Whole, cut
from specmodel.simulate.state import BY_BATCH
from specmodel.simulate.study import Row, Study

_MOST_FIXED = 3
"""Most single draft lengths that are compared if no policies are given [-]."""


def answers(
    lengths: Lengths | Requests, prompts: int, samples: int, seed: int = 0, *, longest: int
) -> Requests:
    """Return several answers to each prompt; answers to the same prompt are adjacent.

    The answers to a prompt are those of requests whose prompts have the most similar lengths. The
    lengths of prompts and answers then keep the correlation of their law or record. Recorded
    requests are used in order, and again from the first if they are too few.

    Parameters
    ----------
    lengths, prompts, samples, seed
        Laws or recorded requests, number of prompts and of answers to each, and random seed [-].
    longest
        Largest sum of a prompt's and its answer's tokens; longer answers are cut [token].
    """
    count, cached = prompts * samples, list[Whole]()
    if isinstance(lengths, Requests):
        asked, made, *cached = (np.resize(each, count) for each in lengths.asked)
    else:
        asked, made = lengths.draw(count, seed)
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
    """A set of prompts that servers answer to the end. The slowest server decides the time.

    Parameters
    ----------
    study
        The study that runs them, with the lengths of all answers; the answers to a prompt are
        adjacent.
    prompts, samples, servers
        Prompts, answers to each [request], and servers, which receive prompts in turn [-].
    finished
        Share of the answers to wait for [-].
    """

    study: Study
    prompts: int
    samples: int = 1
    servers: int = 1
    finished: float = 1.0

    def at_peak(self, row: Row) -> Row:
        """Return the most requests that run at once under a policy, and the draft length then."""
        lengths = self.study.service(row["policy"]).drafts.lengths(np.array(row["most_running"]))
        return {"running": row["most_running"], "drafted_tokens_per_step": int(lengths)}

    @cached_property
    def parts(self) -> list[Requests]:
        """Requests of each server."""
        every = self.study.typical
        server = np.arange(every.count) // self.samples % self.servers
        parts = (every.at(server == n) for n in range(self.servers))
        return [replace(part, arrival_time=np.zeros(part.count)) for part in parts]

    def simulated(self, policy: str, *, compiled: bool | None = None) -> list[Run]:
        """Return a run of each server under a policy, each with its own noise."""
        service = self.study.service(policy)
        return [
            service.run(requests, seed=seed, compiled=compiled)
            for seed, requests in enumerate(self.parts, self.study.seed)
        ]

    def outcome(self, runs: Sequence[Run]) -> Row:
        """Return makespan, throughput and batch sizes until enough answers are done."""
        begun, first, done = (
            np.concatenate([getattr(run, name) for run in runs])
            for name in ("started", "first", "last")
        )
        waited_for = max(int(np.ceil(self.finished * len(done) - 1e-9)), 1)
        ends = np.sort(done)[:waited_for]
        until = float(ends[-1])
        lengths = np.concatenate([own.output_tokens for own in self.parts])
        part = np.clip((until - first) / np.maximum(done - first, 1e-12), 0.0, 1.0)
        made = np.where(done <= until, lengths, (first <= until) + part * (lengths - 1))
        spent, last = _time_by_batch(runs, until)
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


def _time_by_batch(runs: Sequence[Run], until: float) -> tuple[FloatArray, FloatArray]:
    """Return by running requests, from 0, how long and until when so many ran on any server [s].

    The times of all servers are added up. A server that is done waits for the others.
    """
    parts = []
    for run in runs:
        times = np.concatenate([run.started, run.last]).clip(max=until)
        order = np.argsort(times, kind="stable")
        change = np.repeat([1, -1], len(run.started))[order]
        ends = np.append(times[order], until)
        parts.append((np.append(0, np.cumsum(change)), np.diff(ends, prepend=0.0), ends))
    running, long, ends = map(np.concatenate, zip(*parts, strict=True))
    running, long, ends = (each[long > 0] for each in (running, long, ends))
    spent = np.asarray(np.bincount(running, long), float)
    last = np.zeros(len(spent))
    np.maximum.at(last, running, ends)
    return spent, last


def _by_powers(values: FloatArray) -> list[tuple[int, float]]:
    """Return the first index and the sum of indices 0, 1, 2 to 3, 4 to 7 and so on."""
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
    """Simulate a drain, and return a row for each policy.

    Parameters
    ----------
    drain, policies
        The prompts to answer, and policies by name.
    gpu_hour_price, progress
        Price of a GPU for an hour, to add costs. Function to call after each policy, with 1 [-].
    """
    study, rows = drain.study, list[Row]()
    tokens = len(policies) * float(study.typical.output_tokens.sum())
    compiled = is_worth_compiling(tokens)
    for name in policies:
        runs = drain.simulated(name, compiled=compiled)
        drafts = study.service(name).drafts
        drafted = np.flatnonzero(drafts.by_batch)
        ends = drafts.kind == BY_BATCH and len(drafted) and not drafts.by_batch[-1]
        told = {"policy": name, "speculates_up_to": int(drafted[-1]) if ends else None}
        preemptions = sum(run.state.preemptions for run in runs)
        rows.append(told | drain.outcome(runs) | {"preemptions": preemptions})
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
    """Return the ends of 80 % intervals, for errors of times that all batch sizes share."""
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
    """Return none, the single lengths that pay, a schedule, and the best length up to a batch size.

    There are at most three single lengths. The batch size is a power of two below the largest batch
    that runs. The time of a policy is estimated from the steps of a run without drafts. Each step
    is scaled by the ratio of the times per token with and without drafts.
    """
    study, longest = drain.study, drain.study.max_draft_length
    plain = study.service("none")
    steps = (run.state.steps for run in drain.simulated("none"))
    runs = [plain.run(asked, log_steps=n) for asked, n in zip(drain.parts, steps, strict=True)]
    log = np.concatenate([run.log[run.log["decoding"] > 0] for run in runs])
    running, spent = log["decoding"], log["step_time"]
    times, contexts = study.drafting_service.times, log["context"] / running
    found = paces(times, study.accepted, longest, running, contexts)
    taken, totals = spent * found[0] / found, dict[str, float]()
    for length in range(1, longest + 1):
        totals[f"fixed:{length}"] = float(taken[length].sum())
        for size in (1 << n for n in range(int(running.max(initial=1) - 1).bit_length())):
            mixed = np.where(running <= size, taken[length], spent)
            totals[f"below:{size}:{length}"] = float(mixed.sum())
    by_time = sorted(totals, key=lambda name: totals[name])
    paying = [name for name in by_time if name.startswith("fixed") and totals[name] < spent.sum()]
    parts = [name for name in by_time if name.startswith("below")]
    paying = sorted(paying[:_MOST_FIXED], key=lambda name: int(name.partition(":")[2]))
    return ["none", *paying, "schedule", *parts[:1]]


def drain_of(study: Study, prompts: int, **how: Any) -> Drain:
    """Return a drain of a study's laws or recorded requests.

    Parameters
    ----------
    study, prompts
        The study, with lengths of prompts and answers, and the number of prompts [request].
    **how
        Other fields of `Drain`.
    """
    check("drain", prompts, minimum=1, maximum=MOST_REQUESTS, whole=True)
    samples = how.get("samples", 1)
    check("samples", samples, minimum=1, maximum=MOST_REQUESTS // prompts, whole=True)
    if check("servers", how.get("servers", 1), minimum=1, whole=True) > prompts:
        raise InputError("servers", how["servers"], f"at most {prompts}, the number of prompts")
    check("finished", how.get("finished", 1), above=0, maximum=1)
    every = answers(
        study.lengths,
        int(prompts),
        int(samples),
        study.seed,
        longest=study.deployment.target.max_positions or np.iinfo(np.int64).max,
    )
    study = replace(study, lengths=every, num_requests=every.count)
    return Drain(study=study, prompts=int(prompts), **how)
