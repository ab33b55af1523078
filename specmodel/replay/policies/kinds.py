"""Which policies are plain numbers and functions, and the one function that is all of their rules.

A policy of this form is a file beside this one, a number, and two lines below.
"""

from specmodel.replay.policies import (
    bandit as _bandit,
    cascade as _cascade,
    goodput as _goodput,
    sglang as _sglang,
)
from specmodel.replay.policies.bandit import DiscountedBandit, bandit
from specmodel.replay.policies.cascade import Cascade, cascade
from specmodel.replay.policies.goodput import Goodput, goodput
from specmodel.replay.policies.policy import StatePolicy
from specmodel.replay.policies.sglang import AdaptiveSteps, sglang

CONSTANT, PLANNED, CASCADE, GOODPUT, SGLANG, BANDIT = range(6)
"""Kinds of policies by number; the first two learn nothing."""

KINDS: dict[type[StatePolicy], int] = {
    Cascade: CASCADE,
    Goodput: GOODPUT,
    AdaptiveSteps: SGLANG,
    DiscountedBandit: BANDIT,
}
"""Policies that learn, by class; a class derived from one is not the same policy."""


def react(
    kind: int,
    whole: list[int],
    real: list[float],
    emitted_tokens: int,
    step_time: float,
    drafted: int,
) -> None:
    """Let a policy take in a step: what it emitted [token], how long it took [s], and drafted."""
    if kind == CASCADE:
        cascade(whole, real, emitted_tokens, step_time, drafted)
    elif kind == GOODPUT:
        goodput(whole, real, emitted_tokens, step_time, drafted)
    elif kind == SGLANG:
        sglang(whole, real, emitted_tokens, step_time, drafted)
    elif kind == BANDIT:
        bandit(whole, real, emitted_tokens, step_time, drafted)


PARTS = (react, *_cascade.PARTS, *_goodput.PARTS, *_sglang.PARTS, *_bandit.PARTS)
"""The functions that numba compiles."""
HOT = (react, goodput)
"""Those that it copies into the walk, where a call costs more than what it does in most steps."""
