"""Work of messages between GPUs."""

from specmodel.algebra.ranks import Message
from specmodel.layers.forms import Quantity
from specmodel.layers.work import Work


def message(sent: Message, sent_bytes: Quantity, *, collectives: float, rounds: float) -> Work:
    """Return the work of collectives on tensors of `sent_bytes`, whose hops `rounds` wait for."""
    return Work(
        kind="message",
        link_bytes=sent_bytes * sent.link_share,
        network_bytes=sent_bytes * sent.network_share,
        kernels=collectives,
        collectives=collectives,
        link_hops=rounds * sent.link_hops,
        network_hops=rounds * sent.network_hops,
    )


def all_reduces(sent: Message, reduced_bytes: Quantity, *, count: float, ranks: int) -> Work:
    """Return the work of equal all-reduces, `reduced_bytes` in all, on `ranks` GPUs of a node."""
    # What a GPU sends inside the node depends on the engine's algorithm, and is not counted here;
    # across nodes it is a ring's.
    return Work(
        kind="message",
        network_bytes=reduced_bytes * sent.network_share,
        network_hops=count * sent.network_hops,
        kernels=count,
        reductions=count,
        reduced_bytes=reduced_bytes,
        ranks=ranks,
    )
