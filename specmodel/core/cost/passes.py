"""Compute the time of a pass from its work, by component, and of messages between GPUs."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from operator import add

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from specmodel.core.algebra.collectives import AllReduceParameters, all_reduce_time
from specmodel.core.algebra.overlap import Demand, exposed_share, two_streams_time
from specmodel.core.algebra.roofline import KernelParameters, Value, smooth_maximum
from specmodel.core.base.units import FloatArray
from specmodel.core.layers.work import PassWork, Work
from specmodel.core.machines.hardware import HardwareProfile, Link, Network
from specmodel.core.machines.kernels import Kernels

MESSAGES = "messages"
"""Key of the factor on the time of messages, among the factors on kernels by their kind."""


class Links(Struct, frozen=True, eq=False):
    """Links of a GPU for messages, and how fast all-reduces run on them."""

    link: Link | None
    network: Network | None
    all_reduce: AllReduceParameters | None


def links_of(hardware: HardwareProfile, stack: str | None) -> Links:
    """Return the links of a GPU, with all-reduces of a serving stack."""
    link = hardware.link
    return Links(link, hardware.network, link.all_reduce_parameters(stack) if link else None)


def communication_time(part: Work, links: Links) -> FloatArray:
    """Return the time of a component's messages: latency plus transfer [s]."""
    seconds: Value = 0.0
    link, network = links.link, links.network
    if part.collectives and link:
        seconds = part.collectives * link.collective_latency + part.link_hops * link.hop_latency
        seconds = seconds + part.link_bytes / (link.efficiency * link.peak_bytes_per_s)
    if part.reductions and link and links.all_reduce:
        sent, peak = (part.reduced_bytes, part.ranks), link.peak_bytes_per_s
        seconds = seconds + all_reduce_time(*sent, peak, links.all_reduce, part.reductions)
    if part.network_hops and network:
        seconds = seconds + part.network_hops * network.hop_latency
        seconds = seconds + part.network_bytes / network.peak_bytes_per_s
    return np.asarray(seconds)


class ComponentTime(Struct, frozen=True, eq=False):
    """Times of one component [s]; computing and streaming overlap, the rest adds up.

    In a `TimeStack`, arrays contain several components along the first axis. `reading_time` is the
    time of all traffic without latencies. `hidden_time` overlaps with another stream and does not
    add to the pass.
    """

    compute_time: FloatArray
    memory_time: FloatArray
    activation_time: Value
    link_time: Value
    launch_time: Value
    busy_time: FloatArray  # on the GPU, communication and launches left out
    sharpness: Value
    reading_time: Value = 0.0
    hidden_time: Value = 0.0

    def scaled(self, factor: Value, of_messages: Value = 1.0) -> "ComponentTime":
        """Return the component with factors on the time of its kernels and of its messages."""
        times = {name: getattr(self, name) * factor for name in (*_OF_KERNELS, "hidden_time")}
        return replace(self, link_time=self.link_time * of_messages, **times)

    @property
    def total_time(self) -> FloatArray:
        """Time of the component [s]."""
        return np.asarray(self.busy_time + (self.link_time + self.launch_time))

    @property
    def own_time(self) -> FloatArray:
        """Time of the component, its hidden part included [s]."""
        return np.asarray(self.total_time + self.hidden_time)


_TIMES = ComponentTime.__struct_fields__
_OF_KERNELS = (
    *("compute_time", "memory_time", "activation_time"),
    *("launch_time", "busy_time", "reading_time"),
)
"""Times that a factor on kernels scales."""


class TimeStack(Struct, frozen=True, eq=False):
    """Times of several components of a pass, stacked along the first axis of all arrays.

    `kinds` are their kinds of kernels. `causes` are reported as the cause if their traffic grows.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    causes: tuple[str, ...]
    times: ComponentTime

    def scaled(self, factors: Mapping[str, FloatArray], common: Value) -> "TimeStack":
        """Return the stack with factors on kernels by kind and on messages, and a common factor."""
        of_messages = factors.get(MESSAGES, 1.0) * common
        of_kinds = stacked([factors.get(kind, 1.0) * common for kind in self.kinds])
        own = {name: np.atleast_1d(getattr(self.times, name)) for name in _TIMES}
        axes = max(of_kinds.ndim, np.ndim(common) + 1, *(array.ndim for array in own.values()))
        times = ComponentTime(**{name: with_axes(array, axes) for name, array in own.items()})
        return replace(self, times=times.scaled(with_axes(of_kinds, axes), of_messages))

    @property
    def rows(self) -> dict[str, ComponentTime]:
        """Times of each component."""
        arrays = [np.atleast_1d(getattr(self.times, name)) for name in _TIMES]
        whole = [np.broadcast_to(a, (len(self.names), *a.shape[1:])) for a in arrays]
        return {n: ComponentTime(*(a[i] for a in whole)) for i, n in enumerate(self.names)}


def side_by_side(
    timed: Sequence[TimeStack], second: Mapping[str, Work], tokens: Value
) -> list[TimeStack]:
    """Return times in which work on a `second` CUDA stream overlaps with work on the first.

    The streams overlap in full up to `Work.beside_tokens` tokens, and partly up to twice as many.
    """
    found = list(timed)
    if not second:
        return found
    one, streams = next(iter(second.values())), [Demand(*np.zeros(3)), Demand(*np.zeros(3))]
    for stack in timed:
        t, total = stack.times, stack.times.total_time
        for i, name in enumerate(stack.names):
            is_own = name in second
            if is_own or name.startswith(one.beside):
                own = total[i], np.asarray(t.reading_time)[i], t.compute_time[i]
                streams[is_own] = Demand(*map(add, streams[is_own], own))
    few = np.minimum(np.maximum(2 - tokens / one.beside_tokens, 0), 1)
    alone = streams[0].time + streams[1].time
    hidden = few * (alone - two_streams_time(*streams))
    share = hidden / np.maximum(streams[1].time, np.finfo(float).tiny)
    for place, stack in enumerate(timed):
        rows, times = [name in second for name in stack.names], stack.times
        if any(rows):
            shape = np.broadcast_shapes(np.shape(share), times.busy_time.shape[1:])
            shares = np.zeros((len(rows), *shape))
            shares[rows] = share
            hidden = times.total_time * shares
            times = replace(times.scaled(1 - shares), hidden_time=hidden)
            found[place] = replace(stack, times=times)
    return found


def stacked(values: Sequence[Value]) -> FloatArray:
    """Return values of components along a first axis, each broadcast with the others."""
    return np.stack(np.broadcast_arrays(*values))


def with_axes(array: FloatArray, axes: int) -> FloatArray:
    """Return an array of components with at least `axes` axes; new ones follow the first."""
    missing = max(axes - array.ndim, 0)
    return array.reshape(array.shape[0], *(1,) * missing, *array.shape[1:]) if missing else array


class PassTime(Struct, frozen=True, eq=False, dict=True):
    """Time of one pass, by component and on the host.

    Parameters
    ----------
    names, timed
        Components in the order of the pass, and their times on the GPU before factors.
    host_time
        Time of the host, without launches of kernels [s].
    loaded, work, launches
        Functions that return experts loaded per layer [-], the work, and kernels as
        `KernelKind.launches` counts them [-].
    factors, common
        Factors on the time of kernels by kind and of `MESSAGES`, and on all GPU time [-].
    beside
        GPU time of further components, with factors [s].
    launch_time
        Host time to launch the kernels of a pass outside CUDA graphs [s].
    """

    names: tuple[str, ...] = ()
    timed: tuple[TimeStack, ...] = ()
    host_time: FloatArray | float = 0.0
    loaded: Callable[[], FloatArray] = partial(np.zeros, ())
    work: Callable[[], PassWork] = partial(PassWork, {}, np.zeros(()))
    launches: Callable[[], Value] = float
    factors: Mapping[str, FloatArray] = field(default_factory=dict)
    common: FloatArray | float = 1.0
    beside: FloatArray | float = 0.0
    launch_time: FloatArray | float = 0.0

    @property
    def active_experts(self) -> FloatArray:
        """Distinct experts that the pass loads per layer [-]."""
        return self.loaded()

    @cached_property
    def stacks(self) -> tuple[TimeStack, ...]:
        """Times of the components, with `factors` and `common` applied."""
        if not self.factors and isinstance(self.common, float) and self.common == 1:
            return self.timed
        return tuple(stack.scaled(self.factors, self.common) for stack in self.timed)

    @cached_property
    def components(self) -> dict[str, ComponentTime]:
        """Times of each component by its name."""
        rows = {name: time for stack in self.stacks for name, time in stack.rows.items()}
        return {name: rows[name] for name in self.names}

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Kinds of the kernels of each component."""
        return {n: kind for s in self.timed for n, kind in zip(s.names, s.kinds, strict=True)}

    @cached_property
    def causes(self) -> dict[str, str]:
        """Cause named for each component when its traffic grows."""
        return {n: cause for s in self.timed for n, cause in zip(s.names, s.causes, strict=True)}

    def scaled(
        self, factors: Mapping[str, FloatArray], common: FloatArray | float = 1.0
    ) -> "PassTime":
        """Return the pass with factors on kernels by kind, and a common factor on all GPU time."""
        both = {kind: factors.get(kind, 1.0) * own for kind, own in self.factors.items()}
        common, beside = self.common * common, self.beside * common
        return replace(self, factors={**factors, **both}, common=common, beside=beside)

    @cached_property
    def gpu_time(self) -> FloatArray:
        """Time of the pass without the host's [s]."""
        total: Value = 0.0
        for stack in self.timed:
            times = stack.times
            sent = np.atleast_1d(times.link_time).sum(axis=0)
            total = total + sent * self.factors.get(MESSAGES, 1.0)
            for kind, time in zip(stack.kinds, times.busy_time + times.launch_time, strict=True):
                total = total + time * self.factors.get(kind, 1.0)
        return np.asarray(total * self.common + self.beside)

    @cached_property
    def total_time(self) -> FloatArray:
        """Time of the pass: GPU, host, and launches as far as the GPU waits for them [s]."""
        return np.asarray(self.gpu_time + self.taking_turns().host_time)

    def waiting(self, share: FloatArray | float | None = None) -> "PassTime":
        """Return the pass with only the share of host time for which the GPU waits.

        Launches count as host time. The default is the share of a host that works in parallel.
        """
        if share is None:
            share = exposed_share(self.gpu_time, self.host_time, self.launch_time)
        return self._with_host((self.host_time + self.launch_time) * share)

    def taking_turns(self) -> "PassTime":
        """Return the pass with all its host time, and launch time that the GPU does not hide."""
        if isinstance(self.launch_time, float) and self.launch_time == 0:
            return self
        shown = self.launch_time * exposed_share(self.gpu_time, self.launch_time)
        return self._with_host(self.host_time + shown)

    def _with_host(self, host_time: FloatArray | float) -> "PassTime":
        """Return the pass with another host time, which includes launches [s]."""
        found = replace(self, host_time=host_time, launch_time=0.0)
        vars(found)["gpu_time"] = self.gpu_time  # unchanged
        return found


def kernels_taken(
    part: Work, kernels: Kernels, hardware: HardwareProfile
) -> tuple[KernelParameters, str]:
    """Return the parameters of the kernels of a component, and the dtype of its arithmetic."""
    dtypes = part.kind, part.stored_dtype, part.dtype
    taken, arithmetic = kernels.parameters(*dtypes), kernels.arithmetic(*dtypes)
    if taken.vector_rows and part.rows_per_token != 1:
        taken = replace(taken, vector_rows=taken.vector_rows * part.rows_per_token)
    if walk := part.walk:
        per_s = walk.bytes_per_s + walk.bytes_per_flop * hardware.peak_flops_per_s(arithmetic)
        taken = replace(taken, depth_time=1 / per_s, depth_limit=np.inf)
    return taken, arithmetic


def component_time(
    part: Work,
    hardware: HardwareProfile,
    parameters: KernelParameters,
    kernel_time: FloatArray | float = 0.0,
    stack: str | None = None,
) -> ComponentTime:
    """Return the time of one component, or of measured kernels, from its work.

    Parameters
    ----------
    part, hardware, parameters
        The work, the GPU, and the efficiency of kernels of this kind.
    kernel_time
        Additional time of each kernel's launch [s].
    stack
        Stack whose fitted all-reduces are used; None for typical ones.
    """
    rates = hardware.memory.peak_bytes_per_s, hardware.peak_flops_per_s(part.dtype)
    link_time = communication_time(part, links_of(hardware, stack))
    return time_on_gpu(part, parameters, rates, kernel_time, link_time)


def time_on_gpu(
    part: Work,
    parameters: KernelParameters,
    peaks: tuple[Value, Value],
    kernel_time: Value,
    link_time: Value = 0.0,
) -> ComponentTime:
    r"""Return the time of work at peak rates of memory [B/s] and of arithmetic [FLOP/s].

    .. math:: T = \mathrm{kernels} \cdot t_\mathrm{launch} + \left(T_\mathrm{stream}^p +
              T_\mathrm{compute}^p\right)^{1/p} + T_\mathrm{activations} + T_\mathrm{messages},
              \qquad T_\mathrm{stream} = \frac{\mathrm{bytes}}{e_\mathrm{mem}\, \mathrm{peak}}

    All of them may be of several components, along the first axis.
    """
    k, (bytes_per_s, flops_per_s) = parameters, peaks
    read = k.reread(k.tiled_weights(part.weight_bytes, part.width), part.rows, part.spread)
    streamed = k.with_results(read, part.depth, part.kernels) + part.cache_bytes
    activation_time: Value = 0.0
    if k.activation_efficiency is None:
        streamed = streamed + part.activation_bytes
    else:
        activation_time = part.activation_bytes / (k.activation_efficiency * bytes_per_s)
    reading = k.streamed(streamed, bytes_per_s, part.rows, part.spread)
    streaming = k.walked(k.ramped(reading, part.kernels), part.depth, part.kernels)
    flop = k.with_results(part.flop, part.depth, part.kernels)
    computed = k.computed(flop, flops_per_s, part.rows, part.spread)
    computed = computed + part.groups * k.group_time
    computed, streaming = np.asarray(computed), np.asarray(streaming)
    return ComponentTime(
        compute_time=computed,
        memory_time=streaming,
        activation_time=activation_time,
        link_time=link_time,
        launch_time=part.kernels * (k.launch_time + kernel_time),
        busy_time=np.asarray(smooth_maximum(computed, streaming, k.sharpness) + activation_time),
        sharpness=k.sharpness,
        reading_time=reading + activation_time,
    )
