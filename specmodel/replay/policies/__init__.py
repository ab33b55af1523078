"""Draft-length policies: `propose()` a draft length, `observe(emitted_tokens, step_time)`."""

from specmodel.replay.policies.adaptive import (
    AcceptedAverage,
    DiscountedBandit,
    Goodput,
    scheduled_draft_length,
)
from specmodel.replay.policies.cascade import Cascade, CascadeSettings
from specmodel.replay.policies.policy import Policy

__all__ = [
    "AcceptedAverage",
    "Cascade",
    "CascadeSettings",
    "DiscountedBandit",
    "Goodput",
    "Policy",
    "scheduled_draft_length",
]
