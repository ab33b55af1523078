"""Draft-length policies: `propose()` a draft length, `observe(emitted_tokens, step_time)`."""

from typing import TYPE_CHECKING

from specmodel.base.fronts import front

if TYPE_CHECKING:
    from specmodel.replay.policies.adaptive import (
        AcceptedAverage as AcceptedAverage,
        DiscountedBandit as DiscountedBandit,
        Goodput as Goodput,
        scheduled_draft_length as scheduled_draft_length,
    )
    from specmodel.replay.policies.cascade import (
        Cascade as Cascade,
        CascadeSettings as CascadeSettings,
    )
    from specmodel.replay.policies.policy import Policy as Policy

__all__, __getattr__, __dir__ = front(__name__)
