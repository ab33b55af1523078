"""Compute the work of messages between GPUs, such as those that bring tokens to experts."""

from specmodel.core.algebra import ranks
from specmodel.core.algebra.ranks import Message
from specmodel.core.layers.blocks import Heads, Tokens, between
from specmodel.core.layers.forms import Quantity
from specmodel.core.layers.run import Pass
from specmodel.core.layers.work import Work

DEEPEP_HOPS = 9
"""Hops of the network that a message of DeepEP waits for [-]. The value was fitted: on 16 to 256
H800, both messages took 42 to 57 us longer than their bytes at the network's peak rate."""

_LOG_SUM_BYTES = 4
"""Size of the logarithm of a head's sum of exponentials [B]."""


def message(sent: Message, sent_bytes: Quantity, *, collectives: float, rounds: float) -> Work:
    """Return the work of collectives on `sent_bytes`; the hops are waited for `rounds` times."""
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
    """Return the work of equal all-reduces of `reduced_bytes` in total; `ranks` GPUs per node."""
    # Traffic inside a node depends on the engine's algorithm and is not counted here. Across
    # nodes, it is the traffic of a ring.
    return Work(
        kind="message",
        network_bytes=reduced_bytes * sent.network_share,
        network_hops=count * sent.network_hops,
        kernels=count,
        reductions=count,
        reduced_bytes=reduced_bytes,
        ranks=ranks,
    )


def exchanged(run: Pass, layers: int, width: float, shares: tuple[float, float]) -> dict[str, Work]:
    """Return the work of bringing tokens to their experts and back, as the engine does it.

    `width` is the width that experts read. `shares` has the probability that a token uses any
    expert of a GPU, and the number of copies that a GPU gets if each of its experts gets one [-].
    """
    layout, by, back = run.layout, run.code.exchange, run.stream.residual_bytes
    if layout.replicas == 1:
        return {}
    if layout.gathers_tokens or by == "gather":
        # GPUs gather the tokens of all replicas, and scatter the sums over experts. Both together
        # send the bytes of one all-reduce in the same number of hops. With cut experts, the
        # all-reduce is over the replicas, and the GPUs of a replica work in parallel. Otherwise it
        # is over all GPUs, each of which has a part of the tokens. Values have 16 bits
        # (`AgRsAll2AllManager` in ``device_communicators/all2all.py`` of vLLM 0.14;
        # ``layers/dp_attention.py`` of SGLang 0.5.23).
        gpus = layout.num_gpus, layout.gpus_per_node
        if layout.gathers_tokens:
            gpus = layout.replicas, max(layout.gpus_per_node // layout.tensor_parallel, 1)
        gathered = run.everything.num_tokens * (layers * width * back)
        sent_by = ranks.all_reduce(*gpus)
        both = message(sent_by, gathered, collectives=2 * layers, rounds=layers)
        return {"gather_scatter": both}
    sent_by = ranks.all_to_all(layout.expert_parallel, layout.gpus_per_node)
    value_bytes = run.stream.expert_stream.activation_bytes
    row = shares[0] * width * (value_bytes + back)
    if by == "copies":
        if sent_by.network_hops:  # the part for other nodes takes longer than the parallel rest
            sent_by = Message(0.0, sent_by.network_share, 0, DEEPEP_HOPS)
        scale = 4 / 128 if value_bytes <= 1 else 0.0  # 32 bits for 128 elements of 8 bits
        row = shares[1] * width * (value_bytes + scale + back)
    sent = run.num_tokens * (layers * row / layout.tensor_parallel)
    return {"all_to_all": message(sent_by, sent, collectives=2 * layers, rounds=2 * layers)}


def partial_outputs(run: Pass, layers: int, tokens: Quantity, heads: Heads) -> dict[str, Work]:
    """Return the work of attention whose cached tokens are split over several GPUs (holders).

    GPUs gather the queries of all heads, then the logarithms of each part's sum in 32 bits. Outputs
    are weighted by these logarithms, summed and scattered (`cp_lse_ag_out_rs`, the default of vLLM
    0.24 and 0.33). Kernels reorder queries, weight outputs, and reorder outputs.
    """
    n, (query, output) = heads.holders, heads.sizes
    if n == 1:
        return {}
    row = n * heads.queries * ((query + output) * run.stream.residual_bytes + n * _LOG_SUM_BYTES)
    moved = n * heads.queries * (2 * query + 4 * output)
    return {
        "context_exchange": gathers(run, tokens * (layers * row), 3 * layers),
        "context_merge": between(Tokens(run.stream, tokens), layers, moved, kernels=3),
    }


def gathers(run: Pass, gathered_bytes: Quantity, count: int) -> Work:
    """Return the work of `count` gathers or scatters among GPUs that split a sequence's tokens."""
    # a gather sends half the bytes of an all-reduce in half the hops
    sent = ranks.all_reduce(run.layout.decode_context_parallel, run.layout.gpus_per_node)
    return message(sent, gathered_bytes / 2, collectives=count, rounds=count / 2)
