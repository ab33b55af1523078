"""Times of passes of a deployment, which keeps the programs of its models."""

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from specmodel.base.units import FloatArray
from specmodel.cost.deployment import Deployment
from specmodel.cost.forward import pass_components
from specmodel.cost.passes import PassTime
from specmodel.cost.programs import Only, PassProgram, pass_program
from specmodel.drafters.passes import Part
from specmodel.layers.batch import Layout, Routing, SequenceGroup, carried_by, joined
from specmodel.machines.engine import Overheads
from specmodel.models.architecture import Architecture

Sequences: TypeAlias = SequenceGroup | Sequence[SequenceGroup]
"""What a pass carries: a group of sequences, or several."""


def pass_times(
    deployment: Deployment,
    model: Architecture,
    several: Sequence[Sequences],
    popularity: FloatArray | None,
    layout: Layout,
    overheads: Overheads,
    part: Part = "layers",
    only: Only = "all",
) -> list[PassTime]:
    """Time passes, from what each carries, by the program of their model, which is kept.

    Those of one group at a single point are computed together: that takes NumPy half the time.
    """
    correlation = np.asarray(deployment.routing_correlation, dtype=float)
    carry = partial(carried_by, layout=layout, routing=Routing(correlation, popularity))
    each = [carry(groups) for groups in several]
    factor, found = overheads.gpu_time_factor, list[PassTime]()
    groups = [group for carried in each for group in carried.everything.groups]
    is_drawn = any(map(np.ndim, (correlation, overheads.kernel_time)))
    if 1 < len(several) == len(groups) and only == "all" and not is_drawn:
        whole = joined(groups)
        joint = carry(whole or groups)
        if whole and len(joint.taken_by) == 1:
            program = _program(deployment, model, layout, joint.taken_by, part)
            found = [] if program.has_draws else program.times(each, joint, overheads)
    for carried in each[len(found) :]:
        program = _program(deployment, model, layout, carried.taken_by, part)
        found.append(program.time(carried, overheads, only))
    is_one = isinstance(factor, float) and factor == 1
    return found if is_one else [time.scaled({}, factor) for time in found]


def _program(
    deployment: Deployment,
    model: Architecture,
    layout: Layout,
    taken_by: tuple[str, ...],
    part: Part,
) -> PassProgram:
    key = id(model), layout, taken_by, part
    if key not in deployment.programs:
        gpu = deployment.hardware
        works = pass_components(
            model,
            layout,
            deployment.states,
            gpu.compute_capability,
            taken_by,
            part,
            deployment.split_tokens,
            deployment.code,
        )
        program = pass_program(works, gpu, deployment.kernels, model.experts)
        deployment.programs[key] = model, program  # which keeps the model, and so its id
    found: PassProgram = deployment.programs[key][1]
    return found
