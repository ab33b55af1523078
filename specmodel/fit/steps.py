"""Measured steps beside the time of the GPU alone: what fits of an engine's host start from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from specmodel.base.classes import dataclass
from specmodel.base.units import FloatArray
from specmodel.cost.deploying import resolve
from specmodel.cost.deployment import Deployment
from specmodel.cost.latency import StepTimes, step_times
from specmodel.cost.passes import PassTime
from specmodel.cost.prefill import (
    added_by_prompts,
    carried_prefill,
    read_by_drafter,
    whole_prompts,
)
from specmodel.fit.measured.tables import Served
from specmodel.layers.batch import sequence_group
from specmodel.machines.engine import EngineProfile, Hiding, Overheads, load_engine

HOST_SECONDS = (
    *("pass_time", "draft_pass_time", "reject_time", "reject_time_per_request"),
    *("reject_time_per_token", "tree_time", "eager_kernel_time"),
)
"""Overheads of the host, which such fits may vary; those of kernels in graphs are held."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredSteps:
    """Runs of engines: what was measured, and times of the GPU alone; arrays of shape (runs,)."""

    plain_time: FloatArray
    verify_time: FloatArray
    draft_time: FloatArray  # of all draft passes of a step [s]
    prefill_time: FloatArray  # that one prompt adds [s]
    prefill_launches: FloatArray  # of its kernels that no CUDA graph holds [-]
    draft_prefill_time: FloatArray  # of the drafter that reads it [s]
    draft_prefill_launches: FloatArray  # of its kernels that no CUDA graph holds [-]
    prefills: FloatArray  # prompts of other requests for each token that a request makes [-]
    draft_passes: FloatArray
    plain_launches: FloatArray  # kernels of a plain pass that no CUDA graph holds [-]
    verify_launches: FloatArray  # of a verify pass [-]
    draft_launches: FloatArray  # of all draft passes of a step [-]
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
        """Return what overheads (numbers, or one for each run) predict, as `measured` is [s] [-].

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
        """Return what is predicted if the host works beside the GPU in these steps."""
        engine, gpu = overheads.on_host(), overheads.gpu_time_factor
        busy, kernel_time = gpu * verify_factor, engine.eager_kernel_time
        waited = self.is_told_to_wait * engine.reject_time  # `EngineProfile.told_to`
        pass_time = engine.pass_time + waited
        verify = PassTime.of(busy * self.verify_time, pass_time, kernel_time * self.verify_launches)
        draft = PassTime.of(
            busy * self.draft_time,
            engine.draft_pass_time * self.draft_passes,
            kernel_time * self.draft_launches,
        )
        if hides != "all":  # launches are beside the work of their own passes
            verify, draft = verify.taking_turns(), draft.taking_turns()
        both = PassTime.of(
            verify.gpu_time + draft.gpu_time,
            verify.host_time + draft.host_time,
            verify.launch_time + draft.launch_time,
        )
        times = StepTimes(
            plain_pass=PassTime.of(
                gpu * self.plain_time, pass_time, kernel_time * self.plain_launches
            ),
            verify_pass=both,
            draft_passes=(),
            speculating_chance=np.ones(()),
            tree_time=np.asarray(busy * engine.tree_time * self.is_tree),
            lookup_time=np.zeros(()),
            rejection_time=engine.rejection_time(self.draft_length, self.requests) - waited,
            hides_host=hides,
        )
        alone, read = times.forward_time, gpu * self.prefill_time
        launches = kernel_time * self.prefill_launches
        if hides == "none":
            added = PassTime.of(read, engine.pass_time, launches).total_time
        else:  # `Evaluation.added_by_prompt`
            added = PassTime.of(alone + read, 0.0, launches).waiting().total_time - alone
        by_draft = PassTime.of(
            gpu * self.draft_prefill_time, 0.0, kernel_time * self.draft_prefill_launches
        )
        plain = alone + self.prefills * added
        carried = self.prefills * (added + by_draft.total_time)
        step = times.step_time + self.tokens_per_step * carried
        ratio = self.tokens_per_step * plain / step
        return np.where(self.is_ratio, ratio, np.where(self.draft_length > 0, step, plain))


def measured_steps(rows: Sequence[Served]) -> MeasuredSteps:
    """Return what the GPU takes of measured runs, and the host where no CUDA graph holds them."""
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
    drafts = times.draft_passes
    return {
        "plain_time": float(times.plain_pass.gpu_time),
        "verify_time": float(times.verify_pass.gpu_time),
        "draft_time": sum(float(part.passes.count * part.each.gpu_time) for part in drafts),
        **_carried(deployment, points),
        "draft_passes": sum(float(part.passes.count) for part in drafts),
        "plain_launches": float(times.plain_pass.launch_time),
        "verify_launches": float(times.verify_pass.launch_time),
        "draft_launches": sum(float(p.passes.count * p.each.launch_time) for p in drafts),
        "draft_length": float(gamma),
        "requests": float(deployment.layout.requests_of_replica(points["batch_size"])),
        "tokens_per_step": row.tokens_per_step or 1.0,
        "is_tree": bool(gamma) and bool(deployment.tree_width > 1 or verified != gamma + 1),
        "is_told_to_wait": _is_told_to_wait(row.deployment),
        "hides_host": deployment.hides_host,
        "is_ratio": row.quantity == "speedup",
        "measured": row.measured,
    }


def _is_told_to_wait(values: Mapping[str, Any]) -> bool:
    return bool(values.get("sync_scheduling")) and _engine(values).hides_host != "none"


def _engine(values: Mapping[str, Any]) -> EngineProfile:
    engine = values["engine"]
    return engine if isinstance(engine, EngineProfile) else load_engine(engine)


def _without_host(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deployment whose host takes a second for a kernel without a graph, and no other.

    Those of kernels in graphs stay.
    """
    engine = _engine(values)
    nothing = dict.fromkeys(HOST_SECONDS, 0.0) | {"gpu_time_factor": 1.0}
    nothing |= {"eager_kernel_time": engine.host_speed}
    return {**values, "engine": engine.with_changes("engine", nothing)}


def _carried(deployment: Deployment, points: Mapping[str, FloatArray]) -> dict[str, float]:
    """Return the time of one prompt [s], and the prefills of others that a token carries [-]."""
    read, by_draft, prefills = PassTime.of(np.ones(()), 0.0), None, np.zeros(())
    if "prompt_length" in points:
        prompts = (whole_prompts(deployment, points["prompt_length"]),)
        decoding = sequence_group(
            batch_size=points["batch_size"], context_length=points["context_length"]
        )
        read = added_by_prompts(deployment, prompts, decoding)
        by_draft = read_by_drafter(deployment, prompts) if points["draft_length"] > 0 else None
        prefills = carried_prefill(deployment, points, 1.0)
    return {
        "prefill_time": float(read.gpu_time),
        "prefill_launches": float(read.launch_time),
        "draft_prefill_time": float(by_draft.gpu_time) if by_draft else 0.0,
        "draft_prefill_launches": float(by_draft.launch_time) if by_draft else 0.0,
        "prefills": float(prefills),
    }


def fitted_on(rows: Sequence[Served], steps: MeasuredSteps, version: str = "") -> dict[str, Any]:
    """Return what runs are of, as `FittedOn` has it; an empty version is one that is not known."""
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
    """Return what measurements are of, as `FittedOn` has it; sizes and lengths as their range."""
    return {
        "version": version or "version not recorded (fit engine --version tells it)",
        "hardware": sorted({d.hardware.name for d in deployments}),
        "drafters": sorted({d.drafter.kind for d in deployments if d.has_drafter}),
        "batch_size": [int(min(batch_size)), int(max(batch_size))],
        "draft_length": [int(min(draft_length)), int(max(draft_length))],
    }
