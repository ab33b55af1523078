"""The time of a pass from its work, component by component, to check programs against."""

import numpy as np
from msgspec.structs import fields, replace

from specmodel import HardwareProfile
from specmodel.core.cost import PassTime, component_time
from specmodel.core.cost.passes import ComponentTime, TimeStack, kernels_taken, side_by_side
from specmodel.core.layers import PassWork
from specmodel.core.layers.kinds import kernel_kind
from specmodel.core.machines import Kernels
from specmodel.core.machines.engine import Overheads
from specmodel.core.machines.kernels import DATA_SHEET_KERNELS

NO_OVERHEADS = Overheads()
TIMES = tuple(field.name for field in fields(ComponentTime))


def pass_time(
    work: PassWork,
    hardware: HardwareProfile,
    kernels: Kernels = DATA_SHEET_KERNELS,
    overheads: Overheads = NO_OVERHEADS,
) -> PassTime:
    """Return the time of a pass from its work.

    Parameters
    ----------
    work, hardware, kernels
        Work of the pass on each GPU, the GPU, and how kernels use it, by kind and dtype.
    overheads
        Seconds of the engine, of which those of a kernel and of a pass count here.

    Returns
    -------
    PassTime
        Time by component, with the work.
    """
    stacks = []
    second = {name: part for name, part in work.components.items() if part.beside}
    tokens = next(iter(second.values())).rows if second else 0.0
    for name, part in work.components.items():
        parameters, dtype = kernels_taken(part, kernels, hardware)
        one = component_time(
            replace(part, dtype=dtype), hardware, parameters, overheads.kernel_time,
            kernels.link_stack,
        )  # fmt: skip
        times = ComponentTime(*(np.asarray(getattr(one, field))[None] for field in TIMES))
        stacks.append(TimeStack((name,), (part.kind,), (part.memory_cause,), times))
    launches = sum(w.kernels * kernel_kind(w.kind).launches for w in work.components.values())
    return PassTime(
        names=tuple(work.components), timed=tuple(side_by_side(stacks, second, tokens)),
        host_time=overheads.pass_time, loaded=lambda: work.active_experts, work=lambda: work,
        launches=lambda: launches,
    )  # fmt: skip
