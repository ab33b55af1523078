"""A pass as a program: numbers that say the work of each component by measures of the pass.

A program is built once for a model on a GPU. Its components are stacked, so that a pass takes a few
operations on arrays however many components it has; those that depend on contexts are apart, as
contexts often vary along an axis of their own.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

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


@dataclass(frozen=True, eq=False, repr=False)
class Stack:
    """Components that are evaluated together, along the first axis of arrays.

    Parameters
    ----------
    works
        Their work, in forms, by name.
    measures, coefficients
        Measures that they depend on, and what a constant and each of these add to each of
        `_QUANTITIES` of each component: shape (quantities, components, 1 + measures).
    parameters, peaks
        Of their kernels, and peak rates of memory [B/s] and of arithmetic [FLOP/s].
    """

    works: Mapping[str, Work]
    measures: tuple[Measure, ...]
    coefficients: FloatArray
    parameters: KernelParameters
    peaks: tuple[FloatArray, FloatArray]
    _by_axes: dict[int, tuple[KernelParameters, tuple[FloatArray, FloatArray]]] = field(
        default_factory=dict
    )

    def times(self, carried: Carried, kernel_time: Value, link_time: Value) -> TimeStack:
        """Return the times of the components for what a pass carries [s]."""
        values = stacked([1.0, *map(carried.value, self.measures)])
        numbers = np.tensordot(self.coefficients, values, 1)
        axes = max(numbers.ndim - 1, self._axes, np.ndim(kernel_time) + 1)
        named = zip(_QUANTITIES, numbers, strict=True)
        quantities: dict[str, Any] = {name: with_axes(array, axes) for name, array in named}
        work = Work(**quantities)
        times = time_on_gpu(work, *self._aligned(axes), kernel_time, np.asarray(link_time)[None])
        return TimeStack(tuple(self.works), self._kinds, self._causes, times)

    def parts(self, carried: Carried) -> "tuple[Stack, ...]":
        """Return it whole, or each component by itself where there are many points."""
        values = map(carried.value, self.measures)
        is_small = len(self.works) == 1 or np.broadcast(0.0, *values).size <= _MOST_TOGETHER
        return (self,) if is_small else self._single

    @cached_property
    def _single(self) -> "tuple[Stack, ...]":
        return tuple(
            Stack(
                {name: work},
                self.measures,
                self.coefficients[:, i : i + 1],
                _each(self.parameters, lambda array, i=i: array[i : i + 1]),  # type: ignore[misc]
                (self.peaks[0][i : i + 1], self.peaks[1][i : i + 1]),
            )
            for i, (name, work) in enumerate(self.works.items())
        )

    @cached_property
    def _axes(self) -> int:
        """Axes of the parameters, which may be draws [-]."""
        arrays = [*vars(self.parameters).values(), *self.peaks]
        return max(np.ndim(array) for array in arrays if array is not None)

    @cached_property
    def _kinds(self) -> tuple[str, ...]:
        return tuple(work.kind for work in self.works.values())

    @cached_property
    def _causes(self) -> tuple[str, ...]:
        return tuple(work.memory_cause for work in self.works.values())

    def _aligned(self, axes: int) -> tuple[KernelParameters, tuple[FloatArray, FloatArray]]:
        """Return parameters and peaks with so many axes."""
        if axes not in self._by_axes:
            parameters = _each(self.parameters, lambda array: with_axes(array, axes))
            memory, arithmetic = (with_axes(peak, axes) for peak in self.peaks)
            self._by_axes[axes] = parameters, (memory, arithmetic)
        return self._by_axes[axes]


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
        stacks = [part for stack in self.stacks for part in stack.parts(carried)]
        return PassTime(
            names=tuple(runs_of(self.works, carried)),
            stacks=tuple(self._times(stack, carried, overheads.kernel_time) for stack in stacks),
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
        work = next(iter(stack.works.values()))
        if work.has_messages:  # which is then alone
            link_time = communication_time(work.at(carried), self.hardware, self.link_stack)
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
    taken = [kernels_taken(work, kernels) for work in works.values()]
    quantities = [[getattr(work, name) for work in works.values()] for name in _QUANTITIES]
    measures = _measures(quantity for row in quantities for quantity in row)
    parameters: dict[str, Any] = {
        name: _stacked_or_none(getattr(own, name) for own, _ in taken) for name in _PARAMETERS
    }
    memory = np.asarray(hardware.memory.peak_bytes_per_s)
    return Stack(
        works=works,
        measures=measures,
        coefficients=np.array([[_row(q, measures) for q in row] for row in quantities]),
        parameters=KernelParameters(**parameters),
        peaks=(
            stacked([memory] * len(works)),
            stacked([hardware.peak_flops_per_s(dtype) for _, dtype in taken]),
        ),
    )


def _each(
    parameters: KernelParameters, change: Callable[[FloatArray], FloatArray]
) -> KernelParameters:
    """Return stacked parameters with each array changed."""
    found: dict[str, Any] = {
        name: array if array is None else change(array) for name, array in vars(parameters).items()
    }
    return KernelParameters(**found)


def _measures(quantities: Iterable[object]) -> tuple[Measure, ...]:
    forms = (quantity for quantity in quantities if isinstance(quantity, Form))
    return tuple(dict.fromkeys(measure for form in forms for measure in form.terms))


def _row(quantity: Form | float, measures: tuple[Measure, ...]) -> list[float]:
    if not isinstance(quantity, Form):
        return [float(quantity)] + [0.0] * len(measures)
    return [quantity.constant, *(quantity.terms.get(measure, 0.0) for measure in measures)]


def _stacked_or_none(values: Iterable[Value | None]) -> FloatArray | None:
    found = [value for value in values if value is not None]
    return stacked(found) if found else None
