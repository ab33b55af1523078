"""Prepare fits of engines: GPU times of measured steps, and errors of speedups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, get_args

import numpy as np
import pandas as pd
from msgspec import Struct
from msgspec.structs import replace

from specmodel.calibrate.fit.measured.tables import Served
from specmodel.core.base.units import FloatArray
from specmodel.core.cost import prefill
from specmodel.core.cost.deploying import resolve
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.latency import step_times
from specmodel.core.cost.passes import PassTime
from specmodel.core.cost.steps import DraftTime, Step, StepTimes, step_of
from specmodel.core.drafters.passes import DraftPasses
from specmodel.core.layers.batch import sequence_group
from specmodel.core.machines.engine import OVERHEADS, EngineProfile, Hiding, Overheads, load_engine

_OF_KERNELS = ("kernel_time", "draft_kernel_time")
HOST_SECONDS = tuple(name for name in OVERHEADS if name not in _OF_KERNELS)
"""Host overheads, which fits of engines may vary. Times of kernels in graphs stay fixed."""

_OF_STEPS = ("draft_length", "is_tree", "proposing", "chance", "lookup_time")
"""Fields of `Step` that differ between runs. Plain runs are assumed to be without a drafter."""


class MeasuredSteps(Struct, frozen=True, kw_only=True, eq=False):
    """Measured runs of engines, and their passes without host times.

    Fields have shape (runs,), and passes shape (runs, 4). The columns of a pass are the GPU time
    [s], the number of kernels outside CUDA graphs [-], and the numbers of target and drafter passes
    for which the host spends time [-].
    """

    plain: FloatArray
    verify: FloatArray
    drafts: tuple[tuple[DraftPasses, FloatArray], ...]  # by place in a draft
    prefill: FloatArray  # pass that one prompt adds to a step
    draft_prefill: FloatArray  # pass in which the drafter reads the prompt
    prefills: FloatArray  # prompts of other requests per output token [-]
    step: Step
    tokens_per_step: FloatArray
    is_synchronous: np.ndarray  # whether the engine was set to schedule synchronously
    hides_host: np.ndarray  # in which steps host and GPU work at the same time, as in `Step`
    is_ratio: np.ndarray  # whether a speedup was measured, not the time of a step
    measured: FloatArray  # time of a plain step or of a step with a draft [s], or speedup [-]

    def predicted(
        self, overheads: Overheads, verify_factor: FloatArray | float = 1.0
    ) -> FloatArray:
        """Return predictions of `measured` for overheads, which are scalars or arrays (runs,).

        The GPU time of passes with a draft is multiplied by `verify_factor`, which represents the
        errors of their kernels [-].
        """
        engine = overheads.on_host().told_to_wait(self.is_synchronous)

        def timed(alone: FloatArray, factor: FloatArray | float = 1.0) -> PassTime:
            seconds, launches, *passes = alone.T
            gpu_time = factor * engine.gpu_time_factor * seconds
            host_time, launching = engine.host_time(*passes), engine.eager_kernel_time * launches
            return PassTime(beside=gpu_time, host_time=host_time, launch_time=launching)

        plain, verify = timed(self.plain), timed(self.verify, verify_factor)
        drafts = tuple(DraftTime(own, timed(each, verify_factor)) for own, each in self.drafts)
        read, by_draft = timed(self.prefill), timed(self.draft_prefill).total_time
        on_tree = replace(engine, tree_time=engine.tree_time * verify_factor)
        found = np.zeros(self.measured.shape)
        for hides in get_args(Hiding):
            if (is_so := self.hides_host == hides).any():
                step = replace(self.step, hides_host=hides)
                times = step_of(plain, verify, drafts, step, on_tree)
                added = prefill.added_time(read, times.forward_time, hides)
                found = np.where(is_so, self._measured(times, added, by_draft), found)
        return found

    def _measured(self, times: StepTimes, added: FloatArray, by_draft: FloatArray) -> FloatArray:
        """Return step times [s] or speedups [-] from the times of steps without prompts.

        A prompt adds `added` to a step, and `by_draft` if the drafter reads it [s].
        """
        plain = times.forward_time + self.prefills * added
        carried = self.prefills * (added + by_draft)
        step = times.step_time + self.tokens_per_step * carried
        ratio = self.tokens_per_step * plain / step
        return np.where(self.is_ratio, ratio, np.where(self.step.drafts, step, plain))


def measured_steps(rows: Sequence[Served]) -> MeasuredSteps:
    """Return GPU times of measured runs, and the number of kernels outside CUDA graphs."""
    found = [_alone(row) for row in rows]
    drafts = tuple(map(_stacked, zip_longest(*(values.pop("drafts") for values in found))))
    steps = [values.pop("step") for values in found]
    own = {name: np.array([getattr(step, name) for step in steps], float) for name in _OF_STEPS}
    step = replace(steps[0], **own, runs_idle_drafter=False)
    arrays = {name: np.array([values[name] for values in found]) for name in found[0]}
    return MeasuredSteps(drafts=drafts, step=step, **arrays)


def _stacked(parts: Sequence[DraftTime | None]) -> tuple[DraftPasses, FloatArray]:
    """Return the drafter passes of all runs at one place of their drafts.

    `parts` has None for runs whose drafts are shorter.
    """
    own = [(p.passes, _of_gpu(p.each, 0.0, p.passes.host_passes)) if p else None for p in parts]
    known = next(filter(None, own))[0]
    counts = [float(each[0].count) if each else 0.0 for each in own]
    alone = np.array([each[1] if each else _of_gpu(None) for each in own])
    return replace(known, count=np.array(counts)), alone


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
    return {
        "plain": _of_gpu(times.plain_pass, 1.0),
        "verify": _of_gpu(times.verify_pass, 1.0),
        "drafts": times.draft_passes if gamma else (),
        **_carried(deployment, points),
        "step": times.step,
        "tokens_per_step": row.tokens_per_step or 1.0,
        "is_synchronous": bool(row.deployment.get("sync_scheduling"))
        and _engine(row.deployment).hides_host != "none",
        "hides_host": deployment.hides_host,
        "is_ratio": row.quantity == "speedup",
        "measured": row.measured,
    }


def _of_gpu(time: PassTime | None, passes: float = 0.0, draft_passes: float = 0.0) -> FloatArray:
    """Return a row of a pass in `MeasuredSteps`, or zeros if there is no pass.

    In a deployment from `_without_host`, each kernel needs 1 s to launch. The launch time is thus
    the number of kernels.
    """
    if time is None:
        return np.zeros(4)
    return np.array([time.gpu_time, time.launch_time, passes, draft_passes], float)


def _engine(values: Mapping[str, Any]) -> EngineProfile:
    engine = values["engine"]
    return engine if isinstance(engine, EngineProfile) else load_engine(engine)


def _without_host(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deployment where launching a kernel outside CUDA graphs takes 1 s.

    Other host work takes no time. Launch times inside CUDA graphs do not change.
    """
    engine = _engine(values)
    nothing = dict.fromkeys(HOST_SECONDS, 0.0) | {"gpu_time_factor": 1.0}
    nothing |= {"eager_kernel_time": engine.host_speed}
    return {**values, "engine": engine.with_changes("engine", nothing)}


def _carried(deployment: Deployment, points: Mapping[str, FloatArray]) -> dict[str, Any]:
    """Return the work of one prompt, and the prefills of other requests per output token [-]."""
    added, by_drafter, prefills = None, None, np.zeros(())
    if "prompt_length" in points:
        prompts = (prefill.whole_prompts(deployment, points["prompt_length"]),)
        size, context = points["batch_size"], points["context_length"]
        decoding = sequence_group(batch_size=size, context_length=context)
        added = prefill.added_by_prompts(deployment, prompts, decoding)
        if points["draft_length"] > 0:
            by_drafter = prefill.read_by_drafter(deployment, prompts)
        prefills = prefill.carried_prefill(deployment, points, 1.0)
    work = {"prefill": _of_gpu(added, 1.0), "draft_prefill": _of_gpu(by_drafter)}
    return work | {"prefills": float(prefills)}


def fitted_on(rows: Sequence[Served], steps: MeasuredSteps, version: str = "") -> dict[str, Any]:
    """Return the fields of `FittedOn` for runs; an empty version is unknown."""
    deployments = [resolve(row.deployment)[0] for row in rows]
    lengths = [*steps.step.draft_length[steps.step.drafts]]
    sizes = [max(round(row.points["batch_size"]), 1) for row in rows]
    found = provenance(deployments, sizes, lengths or [0], version)
    return found if lengths else found | {"drafters": []}


def provenance(
    deployments: Sequence[Deployment],
    batch_size: Sequence[float],
    draft_length: Sequence[float],
    version: str,
) -> dict[str, Any]:
    """Return the fields of `FittedOn`, with the ranges of batch sizes and draft lengths."""
    return {
        "version": version or "an unrecorded version",
        "hardware": sorted({d.hardware.name for d in deployments}),
        "drafters": sorted({d.drafter.kind for d in deployments if d.has_drafter}),
        "batch_size": [int(min(batch_size)), int(max(batch_size))],
        "draft_length": [int(min(draft_length)), int(max(draft_length))],
    }


VERIFY_SPREAD = 0.05  # spread of steps with a draft relative to plain steps: errors of kernels [-]
RUN_SPREAD = 0.06  # spread of a measured speedup or step [-]
ONE_LOAD = 1.25  # if batch sizes and contexts differ by a smaller factor, the load is the same [-]


def speedup_errors(rows: Sequence[Served], missed: FloatArray, spreads: FloatArray) -> pd.DataFrame:
    """Return a row for each speedup: ``target``, ``error``, ``spread``, ``weight``, ``plain`` [-].

    `missed` and ``error`` are logarithms of predicted over measured. `spreads` has the spread of
    each run [-]. The speedup of a step with a draft is relative to the plain step of the nearest
    load, and ``plain`` is the index of that step. Without a plain step of its load (`ONE_LOAD`), a
    step gives no speedup.
    """
    found = list[tuple[str, float, float, float, int | None]]()
    for row, error, spread in zip(rows, missed.tolist(), spreads.tolist(), strict=True):
        if row.quantity == "speedup":
            found.append((_target(row), error, spread, spread**-2, None))
        elif not _is_plain(row) and (place := nearest_plain(row, rows)) is not None:
            weight = 1 / (spread**2 + float(spreads[place]) ** 2)
            found.append((_target(row), float(missed[place]) - error, spread, weight, place))
    return pd.DataFrame(found, columns=["target", "error", "spread", "weight", "plain"])


def mean_and_score(errors: pd.DataFrame, spreads: FloatArray) -> tuple[float, float]:
    """Return the weighted mean error of the speedups of one target, and its score [-].

    The score is the mean over its standard deviation, which results from errors of kernels and
    runs.
    """
    shares = errors["weight"] / errors["weight"].sum()
    mean = float((shares * errors["error"]).sum())
    runs = float(((shares * errors["spread"]) ** 2).sum())
    plain = errors["plain"].dropna().unique().astype(int)
    runs += 1 / (spreads[plain] ** -2.0).sum() if plain.size else 0.0
    return mean, mean / float(np.sqrt(VERIFY_SPREAD**2 + runs))


def _target(row: Served) -> str:
    return str(row.deployment["target"])


def _is_plain(row: Served) -> bool:
    return row.quantity != "speedup" and not row.points.get("draft_length")


def nearest_plain(row: Served, rows: Sequence[Served]) -> int | None:
    """Return the index of the plain run of the nearest load, or None if no load is near."""
    apart = {
        place: _apart(row, other)
        for place, other in enumerate(rows)
        if _is_plain(other) and _target(other) == _target(row)
    }
    nearest = min(apart, key=apart.__getitem__, default=None)
    return nearest if nearest is not None and apart[nearest] < np.log(ONE_LOAD) else None


def _apart(one: Served, other: Served) -> float:
    """Return the larger of the log factors between batch sizes and between contexts [-]."""
    names = ("batch_size", "context_length")
    factors = [max(one.points[name], 1.0) / max(other.points[name], 1.0) for name in names]
    return float(np.abs(np.log(factors)).max())
