"""Compute the cost of a rejected draft in engines that do not keep a state for each token.

llama.cpp 0.7.0 keeps snapshots of recurrent states for heads only (``need_n_rs_seq``). For draft
models and look-ups, it copies the states of a slot to the host before a draft. After a rejection,
it copies them back. The accepted tokens run again in the next pass of the target, which makes one
more token (``server-context.cpp``).
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from specmodel.core.algebra.acceptance import Acceptance
from specmodel.core.base.units import FloatArray
from specmodel.core.cost.blocks import BlockedTimes
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.latency import draft_pass, target_pass
from specmodel.core.cost.steps import StepTimes
from specmodel.core.layers.batch import SequenceGroup
from specmodel.core.machines.llama_cpp import state_copy_bytes_per_s


class Refusals(NamedTuple):
    """Chance of a rejection in a step of a slot [-], tokens of its replay and of a step [token]."""

    chance: FloatArray
    tokens: FloatArray
    per_step: FloatArray

    @classmethod
    def of(
        cls, drafted: FloatArray, tokens: FloatArray, shorter: FloatArray, rate: float
    ) -> "Refusals":
        """Return the rejections of drafts of `drafted` tokens, proposed at a rate.

        A step with a proposal makes `tokens`; one with a draft shorter by one makes `shorter`
        [token].
        """
        whole = np.where(drafted > 0, np.clip(tokens - shorter, 0.0, 1.0), 1.0)
        refused = np.maximum(1.0 - whole, 1e-12)
        accepted = np.clip((tokens - 1.0 - drafted * whole) / refused, 0.0, drafted)
        return cls(rate * (1.0 - whole), accepted + 2.0, 1.0 + rate * (tokens - 1.0))


def passes_of_slots(slots: FloatArray, chance: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""Return the passes of the server that have drafts, and replays, for each step of a slot [-].

    .. math:: (1 + q)(1 - s^B), \qquad (1 + q)(1 - (1 - s)^B), \qquad s = \frac{q}{1 + q}

    A slot replays in the pass after a rejection, which has chance q, and drafts in all other
    passes. Slots are independent of each other.
    """
    share = chance / (1 + chance)
    return (1 + chance) * (1 - share**slots), (1 + chance) * (1 - (1 - share) ** slots)


def replay_time(
    deployment: Deployment,
    points: Mapping[str, FloatArray],
    slots: FloatArray,
    acceptance: Acceptance,
    times: StepTimes | BlockedTimes,
) -> FloatArray:
    """Return the time that rejections add to a step of some slots, 0 without a draft [s].

    The step makes as many tokens as it makes without rejections. A slot that replays drafts nothing
    in that pass of the server. Slots therefore draft in fewer passes than the server has, or in
    other passes than those in which they replay.
    """
    drafted, of = points["draft_length"], acceptance.expected_tokens_per_step
    d, B, rate = deployment, slots, deployment.drafter.proposal_rate
    found = Refusals.of(drafted, of(drafted), of(np.maximum(drafted - 1, 0)), rate)
    running = SequenceGroup(
        batch_size=B,
        context_length=points["context_length"],
        tokens_per_sequence=points["verify_tokens"],
    )
    q = np.maximum(found.chance, 1e-12)
    drafting, replaying = passes_of_slots(B, q)
    fewer = target_pass(d, replace(running, batch_size=B / drafting)).total_time
    ratio = fewer / target_pass(d, running).total_time
    again = replace(
        running,
        batch_size=B * q / replaying,
        tokens_per_sequence=np.minimum(found.tokens, running.tokens_per_sequence),
    )
    replay, silent = target_pass(d, again).total_time, np.zeros(())
    for model in d.drafter.architectures:  # they read all tokens of the target
        read = replace(again, logits_per_sequence=silent)
        replay = replay + draft_pass(d, model, read).total_time
    mixers, stream = d.target.mixers.items(), d.target.stream
    kept = sum(layers * mixer.sequence_bytes(0.0, stream, 1) for mixer, layers in mixers)
    copied = (rate + q) * B * kept / state_copy_bytes_per_s(d.hardware)
    step = times.step_time
    more = times.draft_time * (drafting - 1) + times.verify_time * (drafting * ratio - 1)
    whole = step + more + replaying * replay + copied
    return np.where(drafted > 0, whole * found.per_step / (found.per_step + q) - step, 0.0)
