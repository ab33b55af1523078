"""A pass as a program: coefficients that give the work of each component from measures of the pass.

A program is built once for a model on a GPU. Its components are stacked, and a pass needs a few
operations on arrays for any number of components. Components that depend on contexts are in a
separate stack, as contexts often vary along a separate axis.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from operator import itemgetter
from typing import Any, Literal, TypeAlias

import numpy as np
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from specmodel.core.algebra.roofline import KernelParameters, Value
from specmodel.core.base.units import FloatArray
from specmodel.core.cost.forward import work_at
from specmodel.core.cost.passes import (
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
from specmodel.core.layers.batch import Carried
from specmodel.core.layers.feed_forward import RoutedExperts, active_experts_of
from specmodel.core.layers.forms import Form, Measure
from specmodel.core.layers.kinds import kernel_kind
from specmodel.core.layers.work import Work
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.machines.kernels import Kernels

_QUANTITIES = (
    *("flop", "weight_bytes", "activation_bytes", "cache_bytes", "kernels"),
    *("groups", "depth", "rows", "spread", "width"),
)
"""Fields of `Work` that decide the time on the GPU."""

_SENT = ("link_bytes", "network_bytes", "reduced_bytes")
_MESSAGES = ("collectives", "reductions", "link_hops", "network_hops", "ranks")
"""Fields of `Work` that decide the time of messages: variable in a pass, and constant."""

_PARAMETERS = tuple(KernelParameters.__struct_fields__)

_MOST_TOGETHER = 2**12
"""Points above which components are evaluated one by one, as their arrays exceed a cache [-]."""

_FEW = 2**6
"""Points up to which components are evaluated together, whatever they depend on [-]."""

Only: TypeAlias = Literal["all", "free", "contexts"]
"""Components to time: all, the ones that do not depend on contexts, or the ones that do."""

Sum: TypeAlias = tuple[FloatArray | None, tuple[tuple[Measure, FloatArray], ...]]
"""A constant if it is not 0, and measures with coefficients, of each component along the first axis
of arrays."""


class Stack(Struct, frozen=True, eq=False, dict=True):
    """Components that are evaluated together, along the first axis of arrays.

    Parameters
    ----------
    names, kinds, causes
        As in `passes.TimeStack`.
    sums
        What each of `_QUANTITIES` is a sum of.
    parameters, peaks
        Of their kernels, and peak rates of memory [B/s] and of arithmetic [FLOP/s].
    has_context
        Whether the times depend on how many entries came before the pass.
    messages, links
        For a component that sends messages, which is the only one of its stack: `_MESSAGES` by
        field of `Work`, and the links that carry them.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    causes: tuple[str, ...]
    sums: Mapping[str, Sum]
    parameters: KernelParameters
    peaks: tuple[Value, Value]
    has_context: bool
    messages: Mapping[str, Any] = field(default_factory=dict)
    links: Links | None = None
    _known: dict[int, "Stack"] = field(default_factory=dict)

    def times(self, carried: Carried, kernel_time: Value) -> TimeStack:
        """Return the times of the components for what a pass carries [s]."""
        quantities: dict[str, Any] = {}
        for name, (constant, terms) in self.sums.items():
            value = constant
            for measure, factor in terms:
                term = factor * carried[measure]
                value = term if value is None else value + term
            quantities[name] = value
        work, links = Work(**quantities, **self.messages), self.links
        link_time = communication_time(work, links) if links else 0.0
        times = time_on_gpu(work, self.parameters, self.peaks, kernel_time, link_time)
        return TimeStack(self.names, self.kinds, self.causes, times)

    def with_axes(self, axes: int) -> "Stack":
        """Return the stack with at least `axes` axes: components, then points and draws."""
        if axes not in self._known:
            k, links = self.parameters, self.links
            drawn = [getattr(k, name) for name in _PARAMETERS]
            for part in (links.link, links.network, links.all_reduce) if links else ():
                values = asdict(part).values() if part else ()
                drawn += [value[None] for value in values if isinstance(value, np.ndarray)]
            least = max(axes, *map(np.ndim, drawn), *map(np.ndim, self.peaks))
            self._known[axes] = self._changed(lambda array: with_axes(array, least))
        return self._known[axes]

    @cached_property
    def single(self) -> "tuple[Stack, ...]":
        """Each component by itself."""
        cuts = [slice(i, i + 1) for i in range(len(self.names))]
        return tuple(
            replace(
                self._changed(itemgetter(own)),
                names=self.names[own],
                kinds=self.kinds[own],
                causes=self.causes[own],
            )
            for own in cuts
        )

    def _changed(self, of_array: Callable[[FloatArray], FloatArray]) -> "Stack":
        """Return the stack with `of_array` applied to each of its arrays."""

        def change(value: Any) -> Any:
            return of_array(value) if isinstance(value, np.ndarray) else value

        sums = {
            name: (change(constant), tuple((m, change(factor)) for m, factor in terms))
            for name, (constant, terms) in self.sums.items()
        }
        parameters = {name: change(getattr(self.parameters, name)) for name in _PARAMETERS}
        peaks = change(self.peaks[0]), change(self.peaks[1])
        changed = {"sums": sums, "parameters": KernelParameters(**parameters), "peaks": peaks}
        return replace(self, **changed, _known={})


def _shapes(carried: Carried, kernel_time: Value) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of the points and draws of a pass: without contexts, and with them."""
    routing, groups = carried.routing, carried.everything.groups
    numbers = [kernel_time, routing.correlation, 0.0 if routing.spread is None else routing.spread]
    contexts = []
    for group in groups:
        numbers += [group.batch_size, group.tokens_per_sequence, group.speculating_share]
        contexts.append(np.shape(group.context_length))
    free = np.broadcast_shapes(*map(np.shape, numbers))
    return free, np.broadcast_shapes(free, *contexts)


class PassProgram(Struct, frozen=True, eq=False):
    """A pass of one model on one kind of GPU, whatever it carries.

    Parameters
    ----------
    works, second
        The work of its components in forms, and the components on a second stream.
    hardware, kernels
        The GPU, and how it does the work.
    experts
        Routed experts of the model's MoE layers, None for a dense model.
    launches
        Kernels that the host launches for the pass [-].
    groups
        Stack of each component, in the order in which times add up. Components that send messages
        are alone: their own name. Others: whether they depend on contexts.
    """

    works: Mapping[str, Work]
    second: Mapping[str, Work]
    hardware: HardwareProfile
    kernels: Kernels
    experts: RoutedExperts | None
    launches: Form
    groups: Mapping[str, str | bool]
    _known: dict[bool, tuple[Stack, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        works: Mapping[str, Work],
        hardware: HardwareProfile,
        kernels: Kernels,
        experts: RoutedExperts | None = None,
    ) -> "PassProgram":
        """Return the program of components by their work in forms."""
        second = {name: work for name, work in works.items() if work.beside}
        launches = Form({})
        for work in works.values():
            launches = launches + work.kernels * kernel_kind(work.kind).launches
        places = {name: (w.has_messages, w.depends_on_context) for name, w in works.items()}
        groups = {
            n: n if places[n][0] else places[n][1] for n in sorted(works, key=places.__getitem__)
        }
        return cls(works, second, hardware, kernels, experts, launches, groups)

    def stacks(self, *, is_few: bool) -> tuple[Stack, ...]:
        """Return a stack for each group; if `is_few`, one for all components without messages."""
        if is_few not in self._known:
            found: dict[str | bool, dict[str, Work]] = {}
            for name, group in self.groups.items():
                group = group if isinstance(group, str) else is_few or group
                found.setdefault(group, {})[name] = self.works[name]
            each = (_stack(works, self.hardware, self.kernels) for works in found.values())
            self._known[is_few] = tuple(each)
        return self._known[is_few]

    def time(self, carried: Carried, seconds: tuple[Value, Value], only: Only = "all") -> PassTime:
        """Return the time of the pass for what it carries.

        `seconds` are the times that the engine adds to each kernel, and to the pass on the host.
        """
        kernel_time, host_time = seconds
        free, whole = _shapes(carried, kernel_time)
        times = []
        for stack in self.stacks(is_few=only == "all" and math.prod(whole) <= _FEW):
            if only != "all" and stack.has_context == (only == "free"):
                continue
            shape = whole if stack.has_context else free
            for part in (stack,) if math.prod(shape) <= _MOST_TOGETHER else stack.single:
                times.append(part.with_axes(1 + len(shape)).times(carried, kernel_time))
        if self.second and only != "contexts":
            times = side_by_side(times, self.second, carried.replica.num_tokens)
        active = active_experts_of(self.experts) if self.experts else None
        return PassTime(
            names=tuple(self.works),
            timed=tuple(times),
            host_time=host_time,
            loaded=partial(carried.__getitem__, active) if active else partial(np.ones, ()),
            work=partial(work_at, self.works, carried, self.experts),
            launches=partial(self.launches.at, carried),
        )


def _stack(works: Mapping[str, Work], hardware: HardwareProfile, kernels: Kernels) -> Stack:
    parts = list(works.values())
    taken = [kernels_taken(work, kernels, hardware) for work in parts]
    for i, (own, dtype) in enumerate(taken):
        if own.activation_efficiency is None:  # activations stream like the cache
            streamed = parts[i].cache_bytes + parts[i].activation_bytes
            parts[i] = replace(parts[i], cache_bytes=streamed, activation_bytes=0.0)
            taken[i] = replace(own, activation_efficiency=1.0), dtype
    values = {name: [getattr(own, name) for own, _ in taken] for name in _PARAMETERS}
    parameters: dict[str, Any] = {n: stacked(each) for n, each in values.items()}
    memory: list[Any] = [hardware.memory.peak_bytes_per_s] * len(parts)
    arithmetic: list[Any] = [hardware.peak_flops_per_s(dtype) for _, dtype in taken]
    has_messages = parts[0].has_messages
    names = [*_QUANTITIES, *(_SENT if has_messages else ())]
    sums = {name: _sum([getattr(work, name) for work in parts]) for name in names}
    sums = {n: s for n, s in sums.items() if n == "flop" or s[1] or np.any(s[0])}
    sent = {name: getattr(parts[0], name) for name in _MESSAGES} if has_messages else {}
    return Stack(
        names=tuple(works),
        kinds=tuple(work.kind for work in parts),
        causes=tuple(work.memory_cause for work in parts),
        sums=sums,
        parameters=KernelParameters(**parameters),
        peaks=(stacked(memory), stacked(arithmetic)),
        has_context=any(m.has_context for _, terms in sums.values() for m, _ in terms),
        messages=sent,
        links=links_of(hardware, kernels.link_stack) if sent else None,
    )


def _sum(quantities: Sequence[Form | float]) -> Sum:
    """Return a quantity of several components as one sum."""
    forms = [q if isinstance(q, Form) else Form({}, q) for q in quantities]
    measures = dict.fromkeys(measure for form in forms for measure in form.terms)
    factors = {m: stacked([form.terms.get(m, 0.0) for form in forms]) for m in measures}
    constant = stacked([form.constant for form in forms])
    return None if factors and not constant.any() else constant, tuple(factors.items())
