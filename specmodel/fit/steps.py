"""Measured steps beside the time of the GPU alone, and errors of speedups: what fits start from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import numpy as np
from msgspec import Struct, field

from specmodel.algebra.overlap import exposed_share
from specmodel.base.units import FloatArray
from specmodel.cost.deploying import resolve
from specmodel.cost.deployment import Deployment
from specmodel.cost.latency import StepTimes, step_times
from specmodel.cost.passes import PassTime
from specmodel.cost.prefill import added_by_prompts, carried_prefill, read_by_drafter, whole_prompts
from specmodel.fit.measured.tables import Served
from specmodel.layers.batch import sequence_group
from specmodel.machines.engine import EngineProfile, Hiding, Overheads, load_engine

HOST_SECONDS = (
    *("pass_time", "draft_pass_time", "reject_time", "reject_time_per_request"),
    *("reject_time_per_token", "tree_time", "eager_kernel_time"),
)
"""Overheads of the host, which such fits may vary; those of kernels in graphs are held."""


class MeasuredSteps(Struct, frozen=True, kw_only=True, eq=False):
    """Runs of engines: what was measured, (runs,), and the GPU alone, two columns of a pass."""

    plain: FloatArray  # of passes: time of the GPU [s], and kernels that no CUDA graph holds [-]
    verify: FloatArray
    draft: FloatArray  # all draft passes of a step
    prefill: FloatArray  # what one prompt adds
    draft_prefill: FloatArray  # the drafter that reads it
    prefills: FloatArray  # prompts of other requests for each token that a request makes [-]
    draft_passes: FloatArray
    draft_length: FloatArray
    requests: FloatArray  # of one replica [request]
    tokens_per_step: FloatArray
    is_tree: np.ndarray
    is_told_to_wait: np.ndarray  # to schedule synchronously
    hides_host: np.ndarray  # in which steps the host works beside the GPU, as engines name it
    is_ratio: np.ndarray  # whether a speedup was measured, and not the time of a step
    measured: FloatArray  # time of a step, plain where nothing is drafted [s], or speedup [-]

    def predicted(
        self, overheads: Overheads, verify_factor: FloatArray | float = 1.0
    ) -> FloatArray:
        """Return the predictions with overheads, scalars or one per run, as `measured` [s] [-].

        Steps with a draft take `verify_factor` times as long, for errors of their kernels [-].
        """
        found = np.zeros(self.measured.shape)
        for hides in get_args(Hiding):
            if (is_so := self.hides_host == hides).any():
                found = np.where(is_so, self._predicted(overheads, verify_factor, hides), found)
        return found

    def _predicted(
        self, overheads: Overheads, verify_factor: FloatArray | float, hides: Hiding
    ) -> FloatArray:
        """Return the predictions if `hides` says in which steps the host overlaps the GPU."""
        engine, gpu = overheads.on_host(), overheads.gpu_time_factor
        waited = self.is_told_to_wait * engine.reject_time  # `EngineProfile.told_to`
        pass_time = engine.pass_time + waited

        def timed(
            alone: FloatArray, host_time: FloatArray | float, factor: FloatArray | float = 1.0
        ) -> PassTime:
            seconds, launches = alone.T
            launch_time = engine.eager_kernel_time * launches
            return PassTime.of(factor * gpu * seconds, host_time, launch_time)

        verify = timed(self.verify, pass_time, verify_factor)
        draft = timed(self.draft, engine.draft_pass_time * self.draft_passes, verify_factor)
        if hides == "drafts":
            on_gpu = verify.gpu_time + draft.gpu_time
            draft = draft.waiting(exposed_share(on_gpu, draft.host_time, draft.launch_time))
        if hides != "all":  # launches are beside the work of their own passes
            verify, draft = verify.taking_turns(), draft.taking_turns()
        both = PassTime.of(
            verify.gpu_time + draft.gpu_time,
            verify.host_time + draft.host_time,
            verify.launch_time + draft.launch_time,
        )
        times = StepTimes(
            plain_pass=timed(self.plain, pass_time),
            verify_pass=both,
            draft_passes=(),
            speculating_chance=np.ones(()),
            tree_time=np.asarray(gpu * verify_factor * engine.tree_time * self.is_tree),
            lookup_time=np.zeros(()),
            rejection_time=engine.rejection_time(self.draft_length, self.requests) - waited,
            hides_host=hides,
        )
        alone, read = times.forward_time, timed(self.prefill, 0.0)
        if hides == "none":
            added = read.total_time + engine.pass_time
        else:  # `Evaluation.added_by_prompt`
            both = PassTime.of(alone + read.gpu_time, 0.0, read.launch_time)
            added = both.waiting().total_time - alone
        plain = alone + self.prefills * added
        carried = self.prefills * (added + timed(self.draft_prefill, 0.0).total_time)
        step = times.step_time + self.tokens_per_step * carried
        ratio = self.tokens_per_step * plain / step
        return np.where(self.is_ratio, ratio, np.where(self.draft_length > 0, step, plain))


def measured_steps(rows: Sequence[Served]) -> MeasuredSteps:
    """Return GPU times of measured runs, and how many kernels they launch outside CUDA graphs."""
    found = [_alone(row) for row in rows]
    arrays = {name: np.array([values[name] for values in found]) for name in found[0]}
    return MeasuredSteps(**arrays)


def _alone(row: Served) -> dict[str, Any]:
    deployment, _ = resolve(_without_host(row.deployment))
    points: dict[str, Any] = {n: np.asarray(float(v)) for n, v in row.points.items()}
    gamma = points.setdefault("draft_length", np.zeros(()))
    verified = points.get("verify_tokens", gamma + 1)
    times = step_times(
        deployment,
        batch_size=points["batch_size"],
        draft_length=gamma,
        verify_tokens=verified,
        context_length=points["context_length"],
    )
    drafts = [(float(part.passes.count), _of_gpu(part.each)) for part in times.draft_passes]
    return {
        "plain": _of_gpu(times.plain_pass),
        "verify": _of_gpu(times.verify_pass),
        "draft": sum((count * each for count, each in drafts), np.zeros(2)),
        **_carried(deployment, points),
        "draft_passes": sum(count for count, _ in drafts),
        "draft_length": float(gamma),
        "requests": float(deployment.layout.requests_of_replica(points["batch_size"])),
        "tokens_per_step": row.tokens_per_step or 1.0,
        "is_tree": bool(gamma) and bool(deployment.tree_width > 1 or verified != gamma + 1),
        "is_told_to_wait": bool(row.deployment.get("sync_scheduling"))
        and _engine(row.deployment).hides_host != "none",
        "hides_host": deployment.hides_host,
        "is_ratio": row.quantity == "speedup",
        "measured": row.measured,
    }


def _of_gpu(time: PassTime | None) -> FloatArray:
    """Return GPU time [s] and number of kernels launched outside CUDA graphs [-].

    The number is the launch time of a deployment of `_without_host`, where each takes 1 s.
    """
    return np.array([time.gpu_time, time.launch_time], float) if time else np.zeros(2)


def _engine(values: Mapping[str, Any]) -> EngineProfile:
    engine = values["engine"]
    return engine if isinstance(engine, EngineProfile) else load_engine(engine)


def _without_host(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deployment in which a launch outside CUDA graphs takes 1 s, other host work 0 s.

    Launch times inside CUDA graphs stay.
    """
    engine = _engine(values)
    nothing = dict.fromkeys(HOST_SECONDS, 0.0) | {"gpu_time_factor": 1.0}
    nothing |= {"eager_kernel_time": engine.host_speed}
    return {**values, "engine": engine.with_changes("engine", nothing)}


def _carried(deployment: Deployment, points: Mapping[str, FloatArray]) -> dict[str, Any]:
    """Return the work of one prompt, and the prefills of other requests per output token [-]."""
    read, by_draft, prefills = None, None, np.zeros(())
    if "prompt_length" in points:
        prompts = (whole_prompts(deployment, points["prompt_length"]),)
        size, context = points["batch_size"], points["context_length"]
        decoding = sequence_group(batch_size=size, context_length=context)
        read = added_by_prompts(deployment, prompts, decoding)
        by_draft = read_by_drafter(deployment, prompts) if points["draft_length"] > 0 else None
        prefills = carried_prefill(deployment, points, 1.0)
    work = {"prefill": _of_gpu(read), "draft_prefill": _of_gpu(by_draft)}
    return work | {"prefills": float(prefills)}


def fitted_on(rows: Sequence[Served], steps: MeasuredSteps, version: str = "") -> dict[str, Any]:
    """Return the fields of `FittedOn` for runs; version "" stands for an unknown one."""
    deployments = [resolve(row.deployment)[0] for row in rows]
    lengths = [*steps.draft_length[steps.draft_length > 0]]
    sizes = [max(round(row.points["batch_size"]), 1) for row in rows]
    found = provenance(deployments, sizes, lengths or [0], version)
    return found if lengths else found | {"drafters": []}


def provenance(
    deployments: Sequence[Deployment],
    batch_size: Sequence[float],
    draft_length: Sequence[float],
    version: str,
) -> dict[str, Any]:
    """Return the fields of `FittedOn` for measurements; sizes and lengths as ranges."""
    return {
        "version": version or "version not recorded",
        "hardware": sorted({d.hardware.name for d in deployments}),
        "drafters": sorted({d.drafter.kind for d in deployments if d.has_drafter}),
        "batch_size": [int(min(batch_size)), int(max(batch_size))],
        "draft_length": [int(min(draft_length)), int(max(draft_length))],
    }


VERIFY_SPREAD = 0.05  # spread of steps with a draft beside plain ones: kernels' errors [-]
RUN_SPREAD = 0.06  # spread of a measured speedup or step [-]
ONE_LOAD = 1.25  # batches and contexts that differ by a smaller factor are of one load [-]


class SpeedupErrors(Struct, kw_only=True, eq=False):
    """Log predicted over measured speedups of one target [-], and the spreads of their runs [-]."""

    logs: list[float] = field(default_factory=list)
    spreads: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    plain: dict[int, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Mean of the logarithms, by their weights [-]."""
        return float(np.average(self.logs, weights=self.weights))

    @property
    def score(self) -> float:
        """The mean, in standard deviations as errors of kernels and runs explain them [-]."""
        shares = np.array(self.weights) / sum(self.weights)
        runs = float(np.sum((shares * self.spreads) ** 2))
        if self.plain:
            runs += 1 / sum(spread**-2.0 for spread in self.plain.values())
        return self.mean / float(np.sqrt(VERIFY_SPREAD**2 + runs))

    def add(self, error: float, spread: float, of_plain: float = 0.0) -> None:
        """Add the error of a speedup, with the spreads of its run and of its plain one [-]."""
        self.logs.append(error)
        self.spreads.append(spread)
        self.weights.append(1 / (spread**2 + of_plain**2))


def speedup_errors(
    rows: Sequence[Served], missed: FloatArray, spreads: FloatArray
) -> dict[str, SpeedupErrors]:
    """Return the errors of speedups by target; `missed` is log predicted over measured [-].

    A step with a draft counts beside the plain step of the nearest load; one without a plain step
    of its load (`ONE_LOAD`) tells nothing of a speedup. `spreads` are those of runs [-].
    """
    found: dict[str, SpeedupErrors] = defaultdict(SpeedupErrors)
    for row, error, spread in zip(rows, missed.tolist(), spreads.tolist(), strict=True):
        if row.quantity == "speedup":
            found[_target(row)].add(error, spread)
        elif not _is_plain(row) and (place := nearest_plain(row, rows)) is not None:
            plain = found[_target(row)].plain[place] = float(spreads[place])
            found[_target(row)].add(float(missed[place]) - error, spread, plain)
    return found


def worst_score(errors: Iterable[SpeedupErrors]) -> float:
    """Return the score that is farthest from 0; 0 if there is none [-]."""
    return max((own.score for own in errors), key=abs, default=0.0)


def worst_excess(errors: Iterable[SpeedupErrors]) -> float:
    """Return by how much the worst speedups with a score above 2 are too high; else 0 [-]."""
    means = (own.mean for own in errors if abs(own.score) > 2)
    return float(np.expm1(max(means, key=abs, default=0.0)))


def _target(row: Served) -> str:
    return str(row.deployment["target"])


def _is_plain(row: Served) -> bool:
    return row.quantity != "speedup" and not row.points.get("draft_length")


def nearest_plain(row: Served, rows: Sequence[Served]) -> int | None:
    """Return the index of the plain run of the nearest load, unless that is another load."""
    apart = {
        place: _apart(row, other)
        for place, other in enumerate(rows)
        if _is_plain(other) and _target(other) == _target(row)
    }
    nearest = min(apart, key=apart.__getitem__, default=None)
    return nearest if nearest is not None and apart[nearest] < np.log(ONE_LOAD) else None


def _apart(one: Served, other: Served) -> float:
    """Return the larger of the factors between batches and between contexts, as a logarithm [-]."""
    names = ("batch_size", "context_length")
    factors = [max(one.points[name], 1.0) / max(other.points[name], 1.0) for name in names]
    return float(np.abs(np.log(factors)).max())
