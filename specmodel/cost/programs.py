"""A pass as a program: numbers that say the work of each component by measures of the pass.

A program is built once for a model on a GPU. Its components are stacked, so that a pass takes a few
operations on arrays however many components it has; those that depend on contexts are apart, as
contexts often vary along an axis of their own.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from specmodel.algebra.roofline import KernelParameters, Value
from specmodel.base.units import FloatArray
from specmodel.cost.passes import (
    PassTime,
    TimeStack,
    communication_time,
    kernels_taken,
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

_PARAMETERS = tuple(KernelParameters.__dataclass_fields__)

_MOST_TOGETHER = 2**14
"""Points beyond which components are evaluated one after another: a cache holds no more [-]."""


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
    messages
        Work in forms of a component that sends messages, which is then alone.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    causes: tuple[str, ...]
    sums: Mapping[str, Sum]
    parameters: KernelParameters
    peaks: tuple[FloatArray, FloatArray]
    measures: tuple[Measure, ...]
    messages: Work | None = None
    _known: dict[int, "Stack"] = field(default_factory=dict)

    def times(self, carried: Carried, kernel_time: Value, link_time: Value) -> TimeStack:
        """Return the times of the components for what a pass carries [s]."""
        quantities: dict[str, Any] = {}
        for name, (value, terms) in self.sums.items():
            for measure, factor in terms:
                value = value + factor * carried.value(measure)
            quantities[name] = value
        work = Work(**quantities)
        times = time_on_gpu(work, self.parameters, self.peaks, kernel_time, link_time)
        return TimeStack(self.names, self.kinds, self.causes, times)

    def with_axes(self, axes: int) -> "Stack":
        """Return it with so many axes at least, those of points and of draws after the first."""
        axes = max(axes, self._least_axes)
        if axes not in self._known:
            self._known[axes] = self._changed(lambda array: with_axes(array, axes))
        return self._known[axes]

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
        return max(np.ndim(array) for array in (*vars(self.parameters).values(), *self.peaks))


@dataclass(frozen=True, eq=False, repr=False)
class PassProgram:
    """A pass of one model on one kind of GPU, whatever it carries.

    `works` is the work of its components in forms; `stacks` has the same in numbers. All-reduces
    are those of `link_stack`; `experts` are those of the model's MoE layers, None for a dense one.
    """

    works: Mapping[str, Work]
    stacks: tuple[Stack, ...]
    hardware: HardwareProfile
    link_stack: str
    experts: RoutedExperts | None

    def time(self, carried: Carried, overheads: Overheads) -> PassTime:
        """Return the time of the pass for what it carries.

        Of the `overheads`, seconds of the engine, those of a kernel and of a pass count here.
        """
        times = []
        for stack in self.stacks:
            shapes = (np.shape(carried.value(measure)) for measure in stack.measures)
            shape = np.broadcast_shapes(*shapes)
            axes = 1 + max(len(shape), np.ndim(overheads.kernel_time))
            is_small = math.prod(shape) <= _MOST_TOGETHER
            for part in (stack,) if is_small else stack.single:
                times.append(self._times(part.with_axes(axes), carried, overheads.kernel_time))
        return PassTime(
            names=tuple(runs_of(self.works, carried)),
            stacks=tuple(times),
            host_time=overheads.pass_time,
            active_experts=self.active_experts(carried),
            work=lambda: self.work(carried),
        )

    def work(self, carried: Carried) -> PassWork:
        """Return the work of the pass for what it carries, in numbers."""
        works = {name: self.works[name].at(carried) for name in runs_of(self.works, carried)}
        return PassWork(works, self.active_experts(carried))

    def active_experts(self, carried: Carried) -> FloatArray:
        """Return the distinct experts that the pass loads per layer [-]."""
        return carried.value(ActiveExperts(self.experts)) if self.experts else np.ones(())

    def _times(self, stack: Stack, carried: Carried, kernel_time: Value) -> TimeStack:
        link_time: Value = 0.0
        if stack.messages:
            sent = stack.messages.at(carried)
            link_time = communication_time(sent, self.hardware, self.link_stack)[None]
        return stack.times(carried, kernel_time, link_time)


def runs_of(works: Mapping[str, Work], carried: Carried) -> list[str]:
    """Return the names of the components that launch kernels for what a pass carries."""
    return [
        name
        for name, work in works.items()
        if not isinstance(work.kernels, Form) or np.any(work.kernels.at(carried))
    ]


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
    return PassProgram(works, stacks, hardware, kernels.link_stack, experts)


def _stack(works: Mapping[str, Work], hardware: HardwareProfile, kernels: Kernels) -> Stack:
    parts = list(works.values())
    taken = [kernels_taken(work, kernels) for work in parts]
    parameters: dict[str, Any] = {
        name: _stacked_or_none([getattr(own, name) for own, _ in taken]) for name in _PARAMETERS
    }
    memory = np.asarray(hardware.memory.peak_bytes_per_s)
    arithmetic = [np.asarray(hardware.peak_flops_per_s(dtype)) for _, dtype in taken]
    sums = {name: _sum([getattr(work, name) for work in parts]) for name in _QUANTITIES}
    return Stack(
        names=tuple(works),
        kinds=tuple(work.kind for work in parts),
        causes=tuple(work.memory_cause for work in parts),
        sums=sums,
        parameters=KernelParameters(**parameters),
        peaks=(stacked([memory] * len(parts)), stacked(arithmetic)),
        measures=tuple({measure: None for _, terms in sums.values() for measure, _ in terms}),
        messages=parts[0] if parts[0].has_messages else None,
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
