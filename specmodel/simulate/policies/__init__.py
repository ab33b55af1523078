"""Draft-length policies: `propose()` a draft length, `observe(emitted_tokens, step_time)`."""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.simulate.policies.cascade import (
        Cascade as Cascade,
        CascadeSettings as CascadeSettings,
    )
    from specmodel.simulate.policies.goodput import Goodput as Goodput
    from specmodel.simulate.policies.policy import (
        Policy as Policy,
        Step as Step,
        scheduled_draft_lengths as scheduled_draft_lengths,
    )
    from specmodel.simulate.policies.sglang import AdaptiveSteps as AdaptiveSteps

__getattr__, __dir__ = front(__name__)
