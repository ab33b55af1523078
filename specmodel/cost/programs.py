"""A pass as a program: numbers that say the work of each component by measures of the pass.

A program is built once for a model on a GPU. Its components are stacked, so that a pass takes a few
operations on arrays however many components it has; those that depend on contexts are apart, as
contexts often vary along an axis of their own.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias

import numpy as np

from specmodel.algebra.roofline import KernelParameters, Value
from specmodel.base.units import FloatArray
from specmodel.cost.forward import work_at
from specmodel.cost.passes import (
    Links,
    PassTime,
    TimeStack,
    communication_time,
    kernels_taken,
    links_of,
    side_by_side,
    stacked,
    time_on_gpu,
    with_axes,
)
from specmodel.layers.batch import Carried
from specmodel.layers.feed_forward import ActiveExperts, RoutedExperts
from specmodel.layers.forms import Form, Measure
from specmodel.layers.work import PassWork, Work
from specmodel.machines.engine import Overheads
from specmodel.machines.hardware import HardwareProfile
from specmodel.machines.kernels import Kernels

_QUANTITIES = (
    *("flop", "weight_bytes", "activation_bytes", "cache_bytes", "kernels"),
    *("groups", "depth", "rows", "spread", "width"),
)
"""Fields of `Work` that decide the time on the GPU."""

_USED_WITH = {
    "group_time": ("groups",),
    "depth_time": ("depth",),
    "tile_rows": ("rows", "spread"),
    "tile_width": ("width",),
}
"""Those that no time depends on where a parameter of the kernels is 0, by the parameter."""

_SENT = ("link_bytes", "network_bytes", "reduced_bytes")
_MESSAGES = ("collectives", "reductions", "link_hops", "network_hops", "ranks")
"""Fields of `Work` that decide the time of messages: what a pass decides, and what it does not."""

_PARAMETERS = tuple(KernelParameters.__dataclass_fields__)

_MOST_TOGETHER = 2**12
"""Points beyond which components are evaluated one after another: a cache holds no more [-]."""


Only: TypeAlias = Literal["all", "free", "contexts"]
"""Which components are timed: all, those that do not depend on contexts, or those that do."""

Sum: TypeAlias = tuple[FloatArray, tuple[tuple[Measure, FloatArray], ...]]
"""A constant, and measures with coefficients, of each component along the first axis."""


@dataclass(frozen=True, eq=False, repr=False)
class Stack:
    """Components that are evaluated together, along the first axis of arrays.

    Parameters
    ----------
    names, kinds, causes
        As in `passes.TimeStack`.
    sums
        What each of `_QUANTITIES` is a sum of.
    parameters, peaks
        Of their kernels, and peak rates of memory [B/s] and of arithmetic [FLOP/s].
    measures
        All that the sums depend on.
    messages, links
        Of a component that sends messages, which is then alone: how many and over how many GPUs,
        by field of `Work`, and what carries them.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    causes: tuple[str, ...]
    sums: Mapping[str, Sum]
    parameters: KernelParameters
    peaks: tuple[FloatArray, FloatArray]
    measures: tuple[Measure, ...]
    messages: Mapping[str, Any] = field(default_factory=dict)
    links: Links | None = None
    _known: dict[int, "Stack"] = field(default_factory=dict)

    def times(self, carried: Carried, kernel_time: Value) -> TimeStack:
        """Return the times of the components for what a pass carries [s]."""
        quantities: dict[str, Any] = {}
        for name, (constant, terms) in self.sums.items():
            value = None if terms and not constant.any() else constant
            for measure, factor in terms:
                term = factor * carried[measure]
                value = term if value is None else value + term
            quantities[name] = value
        work, links = Work(**quantities, **self.messages), self.links
        link_time = communication_time(work, links) if links else 0.0
        times = time_on_gpu(work, self.parameters, self.peaks, kernel_time, link_time)
        return TimeStack(self.names, self.kinds, self.causes, times)

    def with_axes(self, axes: int) -> "Stack":
        """Return it with so many axes at least, those of points and of draws after the first."""
        axes = max(axes, self._least_axes)
        if axes not in self._known:
            self._known[axes] = self._changed(lambda array: with_axes(array, axes))
        return self._known[axes]

    @cached_property
    def has_context(self) -> bool:
        """Whether the times depend on how many entries came before the pass."""
        return any(measure.has_context for measure in self.measures)

    @cached_property
    def single(self) -> "tuple[Stack, ...]":
        """Each component by itself."""
        count = len(self.names)
        return tuple(self._row(i) for i in range(count)) if count > 1 else (self,)

    def _row(self, i: int) -> "Stack":
        own = slice(i, i + 1)
        names = {name: getattr(self, name)[own] for name in ("names", "kinds", "causes")}
        return replace(self._changed(lambda array: array[own]), **names)

    def _changed(self, change: Callable[[FloatArray], FloatArray]) -> "Stack":
        """Return it with each array changed."""
        sums = {
            name: (change(constant), tuple((m, change(factor)) for m, factor in terms))
            for name, (constant, terms) in self.sums.items()
        }
        own = vars(self.parameters).items()
        parameters: dict[str, Any] = {n: v if v is None else change(v) for n, v in own}
        peaks = change(self.peaks[0]), change(self.peaks[1])
        changed = replace(self, sums=sums, parameters=KernelParameters(**parameters), peaks=peaks)
        return replace(changed, _known={})

    @cached_property
    def _least_axes(self) -> int:
        """Axes of the parameters, which may be draws [-]."""
        arrays = (*vars(self.parameters).values(), *self.peaks)
        return max(map(np.ndim, (*arrays, *(array[None] for array in self._of_links))))

    @cached_property
    def _of_links(self) -> list[FloatArray]:
        """Arrays of draws in what is known of the links."""
        links = self.links
        parts = (links.link, links.network, links.all_reduce) if links else ()
        values = [value for part in parts if part for value in vars(part).values()]
        return [value for value in values if isinstance(value, np.ndarray)]


@dataclass(frozen=True, eq=False, repr=False)
class PassProgram:
    """A pass of one model on one kind of GPU, whatever it carries.

    `works` is the work of its components in forms; `stacks` has the same in numbers. `experts` are
    those of the model's MoE layers, None for a dense one.
    """

    works: Mapping[str, Work]
    stacks: tuple[Stack, ...]
    experts: RoutedExperts | None

    def time(self, carried: Carried, overheads: Overheads, only: Only = "all") -> PassTime:
        """Return the time of the pass for what it carries.

        Of the `overheads`, seconds of the engine, those of a kernel and of a pass count here.
        """
        times = []
        for stack in self.stacks:
            if only != "all" and stack.has_context == (only == "free"):
                continue
            shape = np.broadcast_shapes(*map(np.shape, map(carried.__getitem__, stack.measures)))
            axes = 1 + max(len(shape), np.ndim(overheads.kernel_time))
            is_small = math.prod(shape) <= _MOST_TOGETHER
            for part in (stack,) if is_small else stack.single:
                times.append(part.with_axes(axes).times(carried, overheads.kernel_time))
        if self.second and only != "contexts":
            times = side_by_side(times, self.second, carried.replica.num_tokens)
        experts = np.ones(())
        if self.experts and only != "contexts":
            experts = carried[ActiveExperts(self.experts)]
        return PassTime(
            names=tuple(self.works),
            timed=tuple(times),
            host_time=overheads.pass_time,
            active_experts=experts,
            work=partial(self.work, carried),
            kernels=partial(self.kernels.at, carried),
        )

    @cached_property
    def second(self) -> dict[str, Work]:
        """Works on a second stream, by name."""
        return {name: work for name, work in self.works.items() if work.beside}

    @cached_property
    def kernels(self) -> Form:
        """Kernels launched [-]."""
        return sum((work.kernels for work in self.works.values()), Form({}))

    def work(self, carried: Carried) -> PassWork:
        """Return the work of the pass for what it carries, in numbers."""
        return work_at(self.works, carried, self.experts)


def pass_program(
    works: Mapping[str, Work],
    hardware: HardwareProfile,
    kernels: Kernels,
    experts: RoutedExperts | None = None,
) -> PassProgram:
    """Return the program of a pass from the work of its components, in forms."""
    together: dict[tuple[object, ...], dict[str, Work]] = {}
    for name, work in works.items():
        streams_activations = kernels_taken(work, kernels)[0].activation_efficiency is None
        alone = name if work.has_messages else ""
        key = work.depends_on_context, streams_activations, alone
        together.setdefault(key, {})[name] = work
    stacks = tuple(_stack(group, hardware, kernels) for group in together.values())
    return PassProgram(works, stacks, experts)


def _stack(works: Mapping[str, Work], hardware: HardwareProfile, kernels: Kernels) -> Stack:
    parts = list(works.values())
    taken = [kernels_taken(work, kernels) for work in parts]
    parameters: dict[str, Any] = {
        name: _stacked_or_none([getattr(own, name) for own, _ in taken]) for name in _PARAMETERS
    }
    memory = np.asarray(hardware.memory.peak_bytes_per_s)
    arithmetic = [np.asarray(hardware.peak_flops_per_s(dtype)) for _, dtype in taken]
    has_messages = parts[0].has_messages
    names = [*_QUANTITIES, *(_SENT if has_messages else ())]
    for parameter, of_it in _USED_WITH.items():
        if not any(np.any(getattr(own, parameter)) for own, _ in taken):
            names = [name for name in names if name not in of_it]
    sums = {name: _sum([getattr(work, name) for work in parts]) for name in names}
    sent = {name: getattr(parts[0], name) for name in _MESSAGES} if has_messages else {}
    return Stack(
        names=tuple(works),
        kinds=tuple(work.kind for work in parts),
        causes=tuple(work.memory_cause for work in parts),
        sums=sums,
        parameters=KernelParameters(**parameters),
        peaks=(stacked([memory] * len(parts)), stacked(arithmetic)),
        measures=tuple({measure: None for _, terms in sums.values() for measure, _ in terms}),
        messages=sent,
        links=links_of(hardware, kernels.link_stack) if sent else None,
    )


def _sum(quantities: Sequence[Form | float]) -> Sum:
    """Return a quantity of several components as one sum."""
    forms = [q if isinstance(q, Form) else Form({}, q) for q in quantities]
    measures = dict.fromkeys(measure for form in forms for measure in form.terms)
    factors = {m: stacked([form.terms.get(m, 0.0) for form in forms]) for m in measures}
    return stacked([form.constant for form in forms]), tuple(factors.items())


def _stacked_or_none(values: Sequence[Value | None]) -> FloatArray | None:
    found = [value for value in values if value is not None]
    return stacked(found) if found else None
