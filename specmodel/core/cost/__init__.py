"""Compute the cost of a pass: its work, its time, and its memory."""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.core.cost.deploying import deploy as deploy, resolve as resolve
    from specmodel.core.cost.deployment import Deployment as Deployment
    from specmodel.core.cost.forward import pass_work as pass_work
    from specmodel.core.cost.latency import step_times as step_times, target_pass as target_pass
    from specmodel.core.cost.memory import MemoryUse as MemoryUse
    from specmodel.core.cost.passes import PassTime as PassTime, component_time as component_time
    from specmodel.core.cost.prefill import prefill_pass as prefill_pass
    from specmodel.core.cost.steps import StepTimes as StepTimes

__getattr__, __dir__ = front(__name__)
