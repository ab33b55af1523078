"""Evaluate operating points: the times of a step, its tokens, and derived quantities.

Predictions, intervals, sensitivity, sweeps and long lists of points all use this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, reduce

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.algebra import speculation
from specmodel.core.algebra.acceptance import Acceptance, mean_tokens_per_step
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray, check
from specmodel.core.cost.blocks import BlockedTimes
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.latency import KernelErrors, KnownPasses
from specmodel.core.cost.memory import MemoryUse
from specmodel.core.cost.passes import PassTime
from specmodel.core.cost.prefill import Prompt, added_time, carried_prefill, prompt_read, waiting
from specmodel.core.cost.replays import replay_time
from specmodel.core.cost.steps import StepTimes
from specmodel.core.drafters.passes import refuse_tokens
from specmodel.core.layers.work import CAUSES
from specmodel.core.prediction.best import MORE, Best, Held
from specmodel.core.prediction.turns import AtOnce, all_at_once, times_of

LIMITS = (*CAUSES, "none", "memory")
"""Values of `limited_by`."""

LOAD = ("prompt_length", "output_length")
"""Coordinates of points at which an engine prefills prompts between its steps."""

LOCKSTEP = "lockstep"
"""Coordinate: whether requests are sent together, and the next ones when all have ended."""

COORDINATES = ("batch_size", "context_length", *LOAD, LOCKSTEP)
"""Coordinates of a point other than its draft."""


class Evaluation(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Times and tokens of operating points, and what follows from them; arrays broadcast.

    `points` contains batch size [request], draft length, verify tokens and context length [token]
    by name, and the coordinates in `LOAD` if steps carry prefill. `acceptance` is the acceptance of
    steps with a proposal. `times` exclude the prefill that steps carry. `step_error` is a factor on
    steps with a draft, for errors of an engine [-]. `max_draft_length` is the longest draft with
    known acceptance that the drafter makes [token]. `memory` is the memory of the fullest GPU, and
    `prompt` contains the passes that read a prompt on each replica. `chains` are the same points at
    all `lengths_considered`, if these were evaluated. `is_chain` is False for trees. `at_once`
    contains the requests that run if memory lacks room for the states of all. They then take turns:
    `times` are times of a step of the running requests, and all others of one turn of all requests.
    """

    deployment: Deployment
    points: Mapping[str, FloatArray]
    acceptance: Acceptance
    times: StepTimes | BlockedTimes
    tokens_per_step: FloatArray
    is_chain: np.ndarray
    memory: MemoryUse
    step_error: FloatArray | float = 1.0
    max_draft_length: int = 1
    prompt: Prompt | None = None
    chains: Evaluation | None = None
    at_once: AtOnce | None = None

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape to which points and acceptance broadcast."""
        return np.broadcast_shapes(*map(np.shape, self.points.values()), self.acceptance.shape)

    @property
    def running(self) -> FloatArray:
        """Requests that run at once [request]."""
        return self.at_once.drafting if self.at_once else self.points["batch_size"]

    @cached_property
    def prefill(self) -> PassTime | None:
        """The pass over a prompt, with the host time for which it waits."""
        return waiting(self.deployment, self.prompt.alone) if self.prompt else None

    @cached_property
    def carried(self) -> FloatArray | float:
        """Prefill of other requests for each generated token of a request [s]."""
        return 0.0 if self.prefill is None else self._carried(self.added_by_prompt)

    @property
    def added_by_prompt(self) -> FloatArray:
        """What a prompt adds to a plain step, including visible launches of both [s]."""
        if not self.prompt:
            return np.zeros(())
        hides_host = self.deployment.engine.hides_host
        return added_time(self.prompt.added, self._plain_time, hides_host)

    @cached_property
    def carried_by_draft(self) -> FloatArray | float:
        """Prefill by the drafter for each token, in steps that draft [s]."""
        draft = self.prompt.by_drafter if self.prompt else None
        carried = self._carried(draft.total_time) if draft else 0.0
        return np.where(self.points["draft_length"] > 0, carried, 0.0)

    def _carried(self, added: FloatArray) -> FloatArray:
        return carried_prefill(self.deployment, self.points, added)

    @cached_property
    def _plain_time(self) -> FloatArray:
        """Time of decoding until each request has one more token [s]."""
        plain, batch = self.times.forward_time, self.points["batch_size"]
        return plain * (batch / self.at_once.plain) if self.at_once else plain

    def _drafting(self, time: FloatArray) -> FloatArray:
        """Return a time of steps with a draft until each request has had one step [s]."""
        batch = self.points["batch_size"]
        return time * (batch / self.at_once.drafting) if self.at_once else time

    @property
    def forward_time(self) -> FloatArray:
        """Decode step with the prefill it carries [s]."""
        plain = self._plain_time
        return plain if self.prefill is None else plain + self.carried

    @property
    def verify_time(self) -> FloatArray:
        """Mean target pass of a step with the prefill it carries [s]."""
        verify = self._drafting(self.times.verify_time)
        return verify if self.prefill is None else verify + self.tokens_per_step * self.carried

    @property
    def draft_time(self) -> FloatArray:
        """All drafting of a step, with the prefill by the drafter [s]."""
        draft = self._drafting(self.times.draft_time)
        if not (self.prompt and self.prompt.by_drafter):
            return draft
        return draft + self.tokens_per_step * self.carried_by_draft

    @property
    def reject_time(self) -> FloatArray:
        """Rejection sampling of a step, other host work after a draft, and replays [s]."""
        return self._drafting(self.times.reject_time + self.replay_time)

    @cached_property
    def replay_time(self) -> FloatArray | float:
        """Computing and copying again after rejections, 0 if states are kept [s]."""
        d = self.deployment
        if not d.replays:
            return 0.0
        return replay_time(d, self.points, self.running, self.acceptance, self.times)

    @cached_property
    def step_time(self) -> FloatArray:
        """Drafting, verification, rejection and the prefill that the step carries [s]."""
        step = self._unloaded_step_time
        if self.prefill is None:
            return step
        return step + self.tokens_per_step * (self.carried + self.carried_by_draft)

    @cached_property
    def _unloaded_step_time(self) -> FloatArray:
        """Drafting, verification and rejection [s]."""
        step = self._drafting(self.times.step_time + self.replay_time)
        if isinstance(self.step_error, float) and self.step_error == 1:
            return step
        return step * np.where(self.points["draft_length"] > 0, self.step_error, 1.0)

    @property
    def target_efficiency(self) -> FloatArray:
        """Decode step over verify pass, at most 1 whatever the drawn errors are [-]."""
        efficiency = speculation.target_efficiency(self.forward_time, self.verify_time)
        return np.minimum(efficiency, 1.0)

    @cached_property
    def relative_step_time(self) -> FloatArray:
        """Step over decode step [-]."""
        return speculation.relative_step_time(self.forward_time, self.step_time)

    @cached_property
    def speedup(self) -> FloatArray:
        """Tokens per step over relative step time: the utility of speculation [-]."""
        return self.tokens_per_step / self.relative_step_time

    @property
    def break_even_acceptance_rate(self) -> FloatArray:
        """Least rate at which speculation pays; NaN if it never does, and for trees [-].

        It does not depend on load, as prefill by the target adds the same to every token. Prefill
        by the drafter is left out.
        """
        if not self.is_chain.any():
            return np.full((), np.nan)
        relative = speculation.relative_step_time(self._plain_time, self._unloaded_step_time)
        rate = self.deployment.drafter.proposal_rate
        gamma = self.points["draft_length"]
        least = speculation.break_even_acceptance_rate(relative, gamma, rate)
        return least if self.is_chain.all() else np.where(self.is_chain, least, np.nan)

    def growth_by_cause(self) -> dict[str, FloatArray]:
        """Return the time of a step beyond a plain step, by cause, without `step_error` [s]."""
        growth = self.times.growth_by_cause() | {"prefill": np.zeros(())}
        growth["overhead"] = growth["overhead"] + self.replay_time
        if self.prefill:
            growth["prefill"] = np.asarray((self.tokens_per_step - 1) * self.carried)
            growth["drafting"] = self.draft_time
        return growth

    @property
    def largest_of_plain(self) -> np.ndarray:
        """Index into `LIMITS` of the largest share of a decode step [-]."""
        parts = self.times.plain_by_cause() | {"prefill": np.asarray(self.carried)}
        parts["drafting"] = np.zeros(())
        return _largest(parts)

    @property
    def passes(self) -> dict[str, PassTime]:
        """Each kind of pass by its name in tables; without a drafter, the decode step only."""
        passes = self.times.passes if self.deployment.has_drafter else {}
        passes = passes or {"forward": self.times.forward}
        return passes | ({"prefill": self.prefill} if self.prefill else {})

    @property
    def limit(self) -> np.ndarray:
        """Index into `LIMITS` of the cause that lengthens the step most [-].

        The cause is memory if requests wait for memory for their states, or if the best draft
        length is 0 for this reason.
        """
        gamma = self.points["draft_length"]
        growth = self.growth_by_cause()
        largest = _largest(growth)
        found = np.where((gamma > 0) & (largest >= 0), largest, LIMITS.index("none"))
        if self.at_once:
            running, plain = self.at_once
            waited = (plain / running - 1) * self.times.step_time
            is_first = (gamma > 0) & (waited > reduce(np.maximum, growth.values()))
            found = np.where(is_first, LIMITS.index("memory"), found)
        if self.chains and self.held:
            is_held = (gamma == 0) & (self.held.draft_length > 0)
            found = np.where(is_held, LIMITS.index("memory"), found)
        return found.astype(np.int8)

    def at_lengths(self, draft_length: FloatArray) -> Evaluation:
        """Return the same points with drafts of other lengths, as chains."""
        points = {name: self.points[name] for name in COORDINATES if name in self.points}
        # draft passes of a tree, or of other numbers of requests, do not apply to these chains
        times, known = self.times, None
        if isinstance(times, StepTimes) and self.is_chain.all():
            known = KnownPasses(times.plain_pass, () if self.at_once else times.draft_passes)
        return evaluate(
            self.deployment,
            points | {"draft_length": draft_length},
            self.acceptance,
            known=known,
            max_draft_length=self.max_draft_length,
            prompt=self.prompt,
        )

    @cached_property
    def best(self) -> Best:
        """The best of the lengths considered at each point."""
        none = 0.0 if self.deployment.runs_idle_drafter else 1.0
        gains = (self.chains or self.at_lengths(self.lengths)).speedup
        opened = gains if self._open is None else gains * self._open
        return Best(*speculation.first_of_largest(opened, none, self._chain_shape))

    @property
    def best_draft_length(self) -> FloatArray:
        """Draft length with the largest speedup, 0 for none; NaN for trees [token].

        If a loaded drafter also runs without a draft, the speedup of no draft is below 1.
        """
        if not self.is_chain.any():
            return np.full((), np.nan)
        best = np.append(np.ravel(self.lengths), 0.0)[self.best.place]
        return best if self.is_chain.all() else np.where(self.is_chain, best, np.nan)

    @cached_property
    def held(self) -> Held | None:
        """Drafts that would gain more with memory for states; None without recurrent layers."""
        if self._open is None or not self.is_chain.all():
            return None
        chains, drafts = self.chains or self.at_lengths(self.lengths), -self.max_draft_length
        running, plain = chains.at_once or (np.ones(()), np.ones(()))
        whole = np.broadcast_to(chains.speedup * plain / running, chains.shape)[drafts:]
        is_more = ~self._open[drafts:] & (whole > np.maximum(MORE * self.best.speedup, 1.0))
        first = is_more.argmax(axis=0)
        length = np.where(is_more.any(axis=0), first + 1.0, 0.0)
        told = (np.broadcast_to(a, chains.shape)[drafts:] for a in (chains.speedup, running))
        return Held(length, *(np.take_along_axis(a, first[None], axis=0)[0] for a in told))

    @cached_property
    def _chain_shape(self) -> tuple[int, ...]:
        """Shape of the points without their draft lengths."""
        points = [np.shape(self.points[name]) for name in COORDINATES if name in self.points]
        return np.broadcast_shapes(*points, self.acceptance.shape)

    @cached_property
    def lengths(self) -> FloatArray:
        """Draft lengths to consider, along an axis before the axes of the points [token]."""
        axes = len(self._chain_shape)
        return lengths_considered(self.deployment, self.max_draft_length, axes)

    @cached_property
    def _open(self) -> np.ndarray | None:
        """Mask, by draft length and point, of drafts with enough memory for recurrent states.

        None without recurrent layers. If not even a decode step fits, all lengths are allowed.
        """
        if not self.deployment.recurrent_model:
            return None
        drafting, plain = (
            self.points["batch_size"] <= replace(self.memory, verify_tokens=tokens).max_batch_size
            for tokens in (self.lengths + 1, 1.0)
        )
        return np.asarray(drafting | ~(drafting.any(axis=0) | plain))


def evaluate(
    deployment: Deployment,
    points: Mapping[str, FloatArray],
    acceptance: Acceptance,
    *,
    known: KnownPasses | None = None,
    errors: KernelErrors | None = None,
    step_error: FloatArray | float = 1.0,
    max_draft_length: int = 1,
    prompt: Prompt | None = None,
) -> Evaluation:
    """Return times and tokens of speculation at operating points; arrays may be draws.

    `points` are described in `Evaluation`; verify tokens are needed for trees only. `acceptance` is
    the acceptance of steps with a proposal (`Acceptance.where_proposed`). `known` and `errors` are
    described in `step_times`.
    """
    points = {"verify_tokens": points["draft_length"] + 1} | dict(points)
    memory = MemoryUse(deployment, points["context_length"], points["verify_tokens"])
    at_once = all_at_once(memory, points)
    if prompt is None and "prompt_length" in points:
        plain = points | ({"batch_size": at_once.plain} if at_once else {})
        prompt = prompt_read(deployment, plain, errors)
    has_branches = (deployment.tree_width > 1) & (points["draft_length"] > 0)
    is_chain = np.asarray((points["verify_tokens"] == points["draft_length"] + 1) & ~has_branches)
    tokens = (
        acceptance.expected_tokens_per_step(points["draft_length"])
        if is_chain.all()
        else _tokens_with_trees(points, acceptance, deployment.tree_width, is_chain)
    )
    return Evaluation(
        deployment=deployment,
        points=points,
        acceptance=acceptance,
        times=times_of(deployment, points, at_once, known, errors),
        tokens_per_step=mean_tokens_per_step(tokens, deployment.drafter.proposal_rate),
        is_chain=is_chain,
        memory=memory,
        step_error=step_error,
        max_draft_length=max_draft_length,
        prompt=prompt,
        at_once=at_once,
    )


def lengths_considered(deployment: Deployment, longest: int, axes: int) -> FloatArray:
    """Return draft lengths on a leading axis, from 0 if an idle drafter costs time [token]."""
    first = 0.0 if deployment.runs_idle_drafter else 1.0
    return np.arange(first, longest + 1).reshape(-1, *(1,) * axes)


def _largest(parts: Mapping[str, FloatArray]) -> np.ndarray:
    """Return the index into `CAUSES` of the largest time above 0, -1 if none is [-]."""
    shape = np.broadcast_shapes(*(parts[cause].shape for cause in CAUSES))
    largest, _ = speculation.first_of_largest((parts[cause] for cause in CAUSES), 0.0, shape)
    return largest


def _tokens_with_trees(
    points: Mapping[str, FloatArray], acceptance: Acceptance, tree_width: int, chains: np.ndarray
) -> FloatArray:
    """Return the tokens of a step with a proposal; for trees, they must be measured [token]."""
    gamma = points["draft_length"]
    if acceptance.form != "tokens_per_step" and tree_width > 1:
        expected = f"1 (a chain) with {acceptance.form}; for trees, give tokens_per_step"
        raise InputError("tree_width", tree_width, expected)
    if acceptance.form != "tokens_per_step":
        expected = f"draft_length + 1 with {acceptance.form}; for trees, give tokens_per_step"
        refuse_tokens(points["verify_tokens"], ~chains, expected)
    tokens = check("tokens_per_step", acceptance.tokens_per_step, minimum=1)
    is_beyond = ~chains & (tokens > gamma + 1)
    if is_beyond.any():
        most = np.broadcast_to(gamma, is_beyond.shape)[is_beyond].min() + 1
        expected = f"numbers from 1 to draft_length + 1 = {most:g}"
        raise InputError("tokens_per_step", acceptance.tokens_per_step, expected)
    if chains.any():
        tokens = np.where(chains, acceptance.expected_tokens_per_step(gamma), tokens)
    return tokens
