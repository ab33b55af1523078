"""SGLang's adaptive draft length in release 0.5.23: slots by batch size.

A server has one state for each slot, which its requests share. A slot has candidates for the draft
length, and a moving average of accepted tokens. Every few batches, it changes to a lower candidate,
or else to a higher one, if the average passes a threshold between them.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from specmodel.core.base.bounds import Finite, Portion
from specmodel.core.base.errors import InputError
from specmodel.core.base.ranges import whole_of
from specmodel.core.base.records import Record, build, field_names, read_mapping
from specmodel.simulate.policies.policy import LearningPolicy, learn_nothing


class Slot(Record, frozen=True, kw_only=True):
    """Settings of a slot: its candidates [token], and how their choice follows the average [-]."""

    candidate_steps: Annotated[list[Annotated[int, Meta(ge=0, le=255)]], Meta(min_length=1)]
    ema_alpha: Portion = 0.2
    update_interval: Annotated[int, Meta(ge=1, le=10**9)] = 5
    warmup_batches: Annotated[int, Meta(ge=0, le=10**9)] = 10
    up_hysteresis: Finite = 0.0
    down_hysteresis: Finite = -0.25
    ceiling_coeff: Finite = 0.0


DEFAULT: dict[str, Any] = {
    "1": {"candidate_steps": [1, 3, 5, 7]},
    "8": {"candidate_steps": [0, 1, 3], "down_hysteresis": 0.0},
    "32": {"candidate_steps": [0, 1], "down_hysteresis": 0.0},
    "64": {"candidate_steps": [0], "down_hysteresis": 0.0},
}
"""Default slots of a server."""
METHODS = ("eagle", "eagle3", "mtp")
"""Drafters whose lengths SGLang adapts: EAGLE, EAGLE3 and NEXTN."""


def read_slots(config: str | Path | Mapping[str, Any] | None = None) -> dict[int, Slot]:
    """Return the slots of a server by their smallest batch size [request].

    Parameters
    ----------
    config
        The value of SGLang's option for the file of slots: a JSON file or its content; None for the
        defaults. Keys that are not batch sizes are settings of all slots.
    """
    table = DEFAULT if config is None else config
    if isinstance(table, str | Path):
        table = read_mapping(Path(table), "sglang config")
    if not isinstance(table, Mapping):
        expected = 'an object such as {"1": {"candidate_steps": [1]}}'
        raise InputError("sglang config", table, expected)
    sizes = {key: whole_of(key) for key in table}
    shared = {key: value for key, value in table.items() if sizes[key] is None}
    slots = {}
    for key, size in sizes.items():
        if size is not None:
            own = table[key]
            merged = {**shared, **own} if isinstance(own, Mapping) else own
            slots[size] = build(Slot, merged, f"sglang config {key}")
    if not slots:
        expected = 'at least one batch size, such as "1": {"candidate_steps": [1, 3]}'
        raise InputError("sglang config", list(table), expected)
    return dict(sorted(slots.items()))


def first_steps(slots: Mapping[int, Slot], num_steps: int | None = None) -> int:
    """Return the first draft length of a server: as given, or the middle candidate [token]."""
    union: list[int] = sorted({k for slot in slots.values() for k in slot.candidate_steps})
    if num_steps is None:
        return union[len(union) // 2]
    if num_steps not in union:
        expected = f"one of the candidates: {', '.join(map(str, union))}"
        raise InputError("sglang num_steps", num_steps, expected)
    return num_steps


def slot_of(sizes: Sequence[int], batch_size: int) -> int:
    """Return the index of a batch's slot: the largest size at or below it, or else the first."""
    return max(bisect_right(sizes, batch_size) - 1, 0)


def sglang(s: "AdaptiveSteps", emitted_tokens: int, step_time: float, drafted_tokens: int) -> None:
    """Update the policy after a step of emitted tokens [token]; ignore its time."""
    adapt(s, emitted_tokens - 1.0)


def sglang_step(
    s: "AdaptiveSteps", tables: Any, decoding: int, accepted_tokens: int, context: float
) -> None:
    """Update the policy after a batch, by the mean of its accepted tokens."""
    adapt(s, accepted_tokens / decoding)


def adapt(s: "AdaptiveSteps", accepted_tokens: float) -> None:
    """Update the average and the draft length by the mean accepted tokens of a batch [token]."""
    if s.draft_length > 0:
        s.average = (1 - s.slot.ema_alpha) * s.average + s.slot.ema_alpha * accepted_tokens
    s.batches += 1
    beyond = s.batches - s.slot.warmup_batches
    if beyond > 0 and beyond % s.slot.update_interval == 0:
        s.at = next_candidate(s)
        s.draft_length = s.candidates[s.at]


def next_candidate(s: "AdaptiveSteps") -> int:
    """Return the index of the next candidate: lower candidates are tried first."""
    at, last = s.at, s.num_candidates - 1
    if s.draft_length == 0:  # nothing was observed: try the next higher candidate
        at = min(at + 1, last)
        if s.candidates[at] > 0 and s.average < 0:
            s.average = s.candidates[at] - 1.0
        return at
    lower = at
    while lower > 0 and s.average <= max(s.candidates[lower - 1], 1) - 0.5 + s.slot.down_hysteresis:
        lower -= 1
    higher = lower
    if lower == at:
        while higher < last and s.average > s.candidates[higher] - 0.5 + s.slot.up_hysteresis:
            higher += 1
    if s.slot.ceiling_coeff > 0 and higher <= at:  # a ceiling never stops a rise
        ceiling = max(1, math.ceil(s.average * s.slot.ceiling_coeff))
        while higher > 0 and s.candidates[higher] > ceiling:
            higher -= 1
    return higher


class AdaptiveSteps(LearningPolicy):
    """Adapt the draft length as a slot of SGLang does, by default the slot of batch size 1.

    Parameters
    ----------
    max_draft_length
        Longest draft; longer candidates of the default slots are left out [token].
    config, num_steps
        The argument of `read_slots`; and the draft length at the start of the server, by default
        the middle of the candidates of all slots [token].
    batch_size
        Batch size of the slot, which is the one with the largest key at or below it [request].
    settings
        ema_alpha, update_interval, warmup_batches, up_hysteresis, down_hysteresis and
        ceiling_coeff, which replace those of all slots [-].
    """

    name = "sglang"
    words = "SGLang's adaptive rule: the draft length follows the mean number of accepted tokens"
    policy_state = "server"
    notes = ("the replay uses only the slot for batch size 1",)
    rule = staticmethod(sglang)
    shared_rule = staticmethod(learn_nothing)
    step_rule = staticmethod(sglang_step)

    def __init__(
        self,
        max_draft_length: int,
        config: str | Path | Mapping[str, Any] | None = None,
        num_steps: int | None = None,
        batch_size: int = 1,
        **settings: float,
    ) -> None:
        slots = read_slots(config)
        first = first_steps(slots, num_steps)
        slot = [*slots.values()][slot_of([*slots], batch_size)]
        slot = slot.with_changes("sglang", settings)
        candidates = sorted({*slot.candidate_steps})
        fitting = [k for k in candidates if k <= max_draft_length]
        if not fitting or (config is not None and fitting != candidates):
            expected = f"at most {max_draft_length}, the longest draft length to consider"
            raise InputError("sglang candidate_steps", candidates, expected)
        at = fitting.index(first) if first in fitting else len(fitting) // 2
        super().__init__(fitting[at])
        self.candidates, self.num_candidates, self.at = fitting, len(fitting), at
        self.slot, self.batches, self.average = slot, 0, float(fitting[at] - 1)
        self._sizes = tuple(slots)
        alike: dict[str, Any] = {"config": config, "num_steps": num_steps, **settings}
        self._of_slot = partial(AdaptiveSteps, max_draft_length, **alike)

    def of_server(self, max_batch_size: int) -> tuple[list["AdaptiveSteps"], list[int]]:
        """Return the states of all slots, and the index of the state at each batch size from 0."""
        by_batch = [slot_of(self._sizes, size) for size in range(max_batch_size + 1)]
        return [self._of_slot(batch_size=size) for size in self._sizes], by_batch

    @classmethod
    def settings_taken(cls) -> set[str]:
        """Return the names of the settings that the user may add to the policy's name."""
        return {"config", "num_steps", *field_names(Slot)} - {"candidate_steps"}
