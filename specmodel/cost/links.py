"""Seconds of messages between GPUs."""

import numpy as np
from msgspec import Struct

from specmodel.algebra.collectives import AllReduceParameters, all_reduce_time
from specmodel.algebra.roofline import Value
from specmodel.base.units import FloatArray
from specmodel.layers.work import Work
from specmodel.machines.hardware import HardwareProfile, Link, Network


class Links(Struct, frozen=True, eq=False):
    """What carries messages: links of a GPU, and how fast all-reduces are on them."""

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
