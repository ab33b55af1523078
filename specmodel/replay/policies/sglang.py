"""SGLang's adaptive draft length, as its release 0.5.23 runs it: slots by batch size.

A server has one state for each slot, which requests share. A slot has candidates of a draft length
and a moving average of the tokens accepted; every few batches it goes to a lower candidate, or else
to a higher one, where the average passes a threshold between them.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specmodel.base.errors import InputError
from specmodel.base.ranges import whole_of
from specmodel.base.records import read_text
from specmodel.replay.policies.policy import LearningPolicy, is_number, whole_number

Slots = dict[int, dict[str, Any]]
"""Settings of each slot by its smallest batch size."""

SETTINGS = {
    "ema_alpha": 0.2,
    "update_interval": 5,
    "warmup_batches": 10,
    "up_hysteresis": 0.0,
    "down_hysteresis": -0.25,
    "ceiling_coeff": 0,
}
"""Settings of a slot beside its candidates, and what they are where a file leaves them out."""
DEFAULT: dict[str, Any] = {
    "1": {"candidate_steps": [1, 3, 5, 7]},
    "8": {"candidate_steps": [0, 1, 3], "down_hysteresis": 0.0},
    "32": {"candidate_steps": [0, 1], "down_hysteresis": 0.0},
    "64": {"candidate_steps": [0], "down_hysteresis": 0.0},
}
"""Slots of a server that is given no file."""
METHODS = ("eagle", "eagle3", "mtp")
"""Drafters whose lengths SGLang adapts: EAGLE, EAGLE3 and NEXTN."""


def read_slots(config: str | Path | Mapping[str, Any] | None = None) -> Slots:
    """Return the slots of a server from what its option for the file of slots takes.

    Parameters
    ----------
    config
        A JSON file, what is in it, or None for the slots that SGLang has without one: by batch
        size an object with candidate_steps and settings, beside settings for all.
    """
    table = DEFAULT if config is None else config
    if isinstance(table, str | Path):
        text = read_text(Path(table), "sglang config", "JSON")
        try:
            table = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError("sglang config", str(config), f"well-formed JSON ({error})") from None
    if not isinstance(table, Mapping):
        raise InputError(
            "sglang config", table, 'an object such as {"1": {"candidate_steps": [1]}}'
        )
    sizes = {key: whole_of(key) for key in table}
    shared = {key: value for key, value in table.items() if sizes[key] is None}
    slots = {
        size: _checked(shared, table[key], f"sglang config {key}")
        for key, size in sizes.items()
        if size is not None
    }
    if not slots:
        expected = 'at least one batch size, such as "1": {"candidate_steps": [1, 3]}'
        raise InputError("sglang config", list(table), expected)
    return dict(sorted(slots.items()))


def _checked(shared: Mapping[str, Any], entry: Any, where: str) -> dict[str, Any]:
    """Return all settings of a slot; those of the whole file hold where it has none."""
    if not isinstance(entry, Mapping):
        raise InputError(where, entry, 'an object such as {"candidate_steps": [1, 3]}')
    known = {"candidate_steps", *SETTINGS}
    unknown = next((key for key in (*shared, *entry) if key not in known), None)
    if unknown is not None:
        raise InputError(f"{where} {unknown}", "an unknown key", f"only {', '.join(sorted(known))}")
    steps = entry.get("candidate_steps")
    is_list = isinstance(steps, list) and steps
    if not is_list or not all(type(k) is int and 0 <= k <= 255 for k in steps or ()):
        raise InputError(f"{where} candidate_steps", steps, "a list of whole numbers from 0 to 255")
    slot = SETTINGS | dict(shared) | dict(entry)
    for name, least in (("update_interval", 1), ("warmup_batches", 0)):
        whole_number(f"{where} {name}", slot[name], least)
    for name in ("ema_alpha", "up_hysteresis", "down_hysteresis", "ceiling_coeff"):
        if not (is_number(slot[name]) and math.isfinite(slot[name])):
            raise InputError(f"{where} {name}", slot[name], "a number")
    if not 0 < slot["ema_alpha"] <= 1:
        raise InputError(f"{where} ema_alpha", slot["ema_alpha"], "a number above 0, at most 1")
    return slot | {"candidate_steps": sorted(set(slot["candidate_steps"]))}


def first_steps(slots: Slots, num_steps: int | None = None) -> int:
    """Return the draft length that a server begins with: as told, or the middle one of all."""
    union: list[int] = sorted({k for slot in slots.values() for k in slot["candidate_steps"]})
    if num_steps is None:
        return union[len(union) // 2]
    if num_steps not in union:
        expected = f"one of the candidates: {', '.join(map(str, union))}"
        raise InputError("sglang num_steps", num_steps, expected)
    return num_steps


def slot_of(sizes: Sequence[int], batch_size: int) -> int:
    """Return the number of the slot of a batch: the largest size at or below, or else the first."""
    return max(bisect_right(sizes, batch_size) - 1, 0)


def sglang(s: AdaptiveSteps, emitted_tokens: int, step_time: float, drafted_tokens: int) -> None:
    """Take in what a step emitted [token]; its time [s] does not matter to the rule."""
    adapt(s, emitted_tokens - 1.0)


def adapt(s: AdaptiveSteps, accepted_tokens: float) -> None:
    """Take in the mean of the tokens accepted in a batch [token]."""
    if s.draft_length > 0:
        s.average = (1 - s.ema_alpha) * s.average + s.ema_alpha * accepted_tokens
    s.batches += 1
    beyond = s.batches - s.warmup_batches
    if beyond > 0 and beyond % s.update_interval == 0:
        s.at = next_candidate(s)
        s.draft_length = s.candidates[s.at]


def next_candidate(s: AdaptiveSteps) -> int:
    """Return the number of the candidate to go on with: lower ones are tried first."""
    at, last = s.at, s.num_candidates - 1
    if s.draft_length == 0:  # nothing was observed: the next one up is tried
        at = min(at + 1, last)
        if s.candidates[at] > 0 and s.average < 0:
            s.average = s.candidates[at] - 1.0
        return at
    lower = at
    while lower > 0 and s.average <= fall_below(s.candidates[lower - 1]) + s.down_hysteresis:
        lower -= 1
    higher = lower
    if lower == at:
        while higher < last and s.average > s.candidates[higher] - 0.5 + s.up_hysteresis:
            higher += 1
    if s.ceiling_coeff > 0 and higher <= at:  # a ceiling never stops a rise
        ceiling = max(1, math.ceil(s.average * s.ceiling_coeff))
        while higher > 0 and s.candidates[higher] > ceiling:
            higher -= 1
    return higher


def fall_below(candidate: int) -> float:
    """Return the average at which a slot falls to a candidate, less its hysteresis [token]."""
    return 0.5 if candidate == 0 else candidate - 0.5


class AdaptiveSteps(LearningPolicy):
    """Adapt the draft length as a slot of SGLang does, that of batch size 1 unless told.

    Parameters
    ----------
    max_draft_length
        Longest draft; candidates of the default slots that are longer are left out [token].
    config, num_steps
        What `read_slots` takes; and the draft length that the server was started with, by default
        the middle of the candidates of all slots [token].
    batch_size
        Whose slot it is: the largest key at or below [request].
    settings
        ema_alpha, update_interval, warmup_batches, up_hysteresis, down_hysteresis and ceiling_coeff
        in place of those of all slots [-].
    """

    name = "sglang"
    words = "follows the mean of accepted tokens, as SGLang's adaptive rule"
    policy_state = "server"
    notes = ("slots above batch size 1 belong to serving",)
    rule = staticmethod(sglang)

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
        if settings:
            slot = _checked({}, slot | settings, "sglang")
        fitting = [k for k in slot["candidate_steps"] if k <= max_draft_length]
        if not fitting or (config is not None and fitting != slot["candidate_steps"]):
            expected = f"at most {max_draft_length}, the longest draft considered"
            raise InputError("sglang candidate_steps", slot["candidate_steps"], expected)
        at = fitting.index(first) if first in fitting else len(fitting) // 2
        super().__init__(fitting[at])
        self.candidates, self.num_candidates, self.at = fitting, len(fitting), at
        self.batches, self.average = 0, float(fitting[at] - 1)
        self.update_interval = int(slot["update_interval"])
        self.warmup_batches = int(slot["warmup_batches"])
        self.ema_alpha, self.ceiling_coeff = float(slot["ema_alpha"]), float(slot["ceiling_coeff"])
        self.up_hysteresis = float(slot["up_hysteresis"])
        self.down_hysteresis = float(slot["down_hysteresis"])

    @classmethod
    def settings_taken(cls) -> set[str]:
        """Return the settings that its name may have."""
        return {"config", "num_steps", *SETTINGS}
