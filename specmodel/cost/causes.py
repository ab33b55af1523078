"""Why one pass takes longer than another."""

import numpy as np
from msgspec.structs import replace

from specmodel.algebra.roofline import smooth_maximum
from specmodel.base.units import FloatArray
from specmodel.cost.passes import ComponentTime, PassTime
from specmodel.layers.work import CAUSES


def growth_by_cause(before: PassTime, after: PassTime) -> dict[str, FloatArray]:
    """Return by cause how much longer one pass takes than another; the causes sum exactly [s].

    This is the Shapley value of the causes of `CAUSES` but drafting. A pass is a sum over
    components, in each of which only two causes act on the same time, traffic and arithmetic, so
    that the mean over the two orders of changing them is exact.
    """
    growth = {cause: np.zeros(()) for cause in CAUSES if cause != "drafting"}
    causes = after.causes | before.causes
    for name in dict.fromkeys((*before.components, *after.components)):
        old, new = _component(name, before, after), _component(name, after, before)
        more_memory = smooth_maximum(old.compute_time, new.memory_time, old.sharpness)
        more_compute = smooth_maximum(new.compute_time, old.memory_time, old.sharpness)
        moved = new.activation_time - old.activation_time
        grown = new.busy_time - old.busy_time - moved
        crossed = more_memory - more_compute
        by_memory, by_compute = (grown + crossed) / 2, (grown - crossed) / 2
        cause = causes[name]
        growth[cause] = growth[cause] + by_memory
        growth["bandwidth"] = growth["bandwidth"] + moved
        growth["compute"] = growth["compute"] + by_compute
        growth["communication"] = growth["communication"] + new.link_time - old.link_time
        growth["overhead"] = growth["overhead"] + new.launch_time - old.launch_time
    growth["overhead"] = growth["overhead"] + (after.host_time - before.host_time)
    return growth


def _component(name: str, time: PassTime, other: PassTime) -> ComponentTime:
    """Return a component of a pass, with times of 0 if the pass does not run it."""
    return time.components.get(name) or other.components[name].scaled(0.0, 0.0)


def time_by_cause(time: PassTime) -> dict[str, FloatArray]:
    """Return what a pass takes by cause, beyond an empty one; the host's time is overhead [s]."""
    nothing = replace(time, names=(), timed=())
    causes = growth_by_cause(nothing, time)
    return causes | {"overhead": causes["overhead"] + time.host_time}
