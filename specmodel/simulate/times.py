"""Compute the time of a step that decodes, verifies and prefills, and tabulate it.

`prefill.added_by_prompts` gives the time that chunks of prompts add on the GPU. The host prepares
decoding and prefill together, and launches the kernels that are in no graph while the GPU runs.
Replicas that share experts wait for the replica that reads a prompt.

The simulator's loop reads the table. A step without prompts is tabulated by draft length, every
number of requests, and mean context. The time that chunks of prompts add is tabulated by draft
length, requests, tokens of all chunks, and the mean number of entries that such a token sees. If a
step has several prompts, each adds its part of the time that they would need if all were like it. A
step with prompts only drafts for one request. If graphs end at a number of tokens, the time that
chunks add jumps there, so it is tabulated for both sides of the jump.
"""

from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from specmodel.core.base.units import FloatArray, Numeric, check
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.latency import sequences_of, step_times
from specmodel.core.cost.passes import PassTime
from specmodel.core.cost.prefill import added_by_prompts, read_by_drafter, read_by_target, waiting
from specmodel.core.layers.batch import SequenceGroup, sequence_group
from specmodel.simulate.tables import TabulatedTimes

ROWS = 96
"""Rows of context of a table [-]."""
_NEAR = (1, 2, 4, 8, 16, 32, *range(64, 257, 32), *range(320, 641, 64), 768, 1024)
"""Tabulated tokens of chunks; larger ones grow by `_GROWTH` [token]."""
_GROWTH = 2**0.5


def mixed_step_time(
    deployment: Deployment,
    *,
    requests: Numeric,
    draft_length: Numeric,
    context: Numeric,
    prompts: tuple[SequenceGroup, ...] = (),
    beside: Numeric = 0.0,
) -> FloatArray:
    """Return the time of a step that decodes, with chunks of prompts if there are any [s].

    The time includes drafting, verification, rejection, and the prefill of both models. `beside`
    tokens need no time. With prompts, they only count towards the limit of graphs: -inf runs the
    step in graphs, and inf runs it without graphs [token].
    """
    gamma = np.asarray(draft_length, dtype=float)
    served: Any = {"batch_size": requests, "context_length": context}
    times = step_times(deployment, **served, draft_length=gamma, verify_tokens=gamma + 1)
    if not prompts:
        return times.step_time
    size, seen = np.asarray(requests, float), np.asarray(context, float)
    groups, passes = sequences_of(deployment, size, gamma + 1, seen), list[PassTime]()
    for time, decoding in zip((times.plain_pass, times.verify_pass), groups, strict=True):
        tokens = np.add(beside, decoding.batch_size * decoding.tokens_per_sequence)
        added = added_by_prompts(deployment, prompts, decoding, tokens)
        both = time.gpu_time + added.gpu_time
        passes.append(
            PassTime(beside=both, host_time=time.host_time, launch_time=added.launch_time)
        )
    mixed = times.with_passes(*passes)
    return mixed.step_time + _read_by_drafter(deployment, prompts)


def prompts_step_time(
    deployment: Deployment, prompts: SequenceGroup, beside: Numeric = 0.0
) -> FloatArray:
    """Return the time of a step with chunks of prompts only [s]."""
    read = waiting(deployment, read_by_target(deployment, (prompts,), beside))
    return read.total_time + _read_by_drafter(deployment, (prompts,))


def _read_by_drafter(
    deployment: Deployment, prompts: tuple[SequenceGroup, ...]
) -> FloatArray | float:
    read = read_by_drafter(deployment, prompts)
    return read.total_time if read else 0.0


def tabulate(
    deployment: Deployment,
    *,
    max_draft_length: int,
    max_requests: int,
    max_context: int,
    mean_context: float,
    token_budget: int,
) -> TabulatedTimes:
    """Return the step times of a deployment, tabulated from its program.

    Parameters
    ----------
    deployment, max_draft_length
        The deployment, and the longest draft [token].
    max_requests, max_context, mean_context
        Most requests of a step [request]; the longest context, and the context of decoding requests
        for which the time of chunks is tabulated [token].
    token_budget
        Most tokens of a step [token].
    """
    check("max_requests", max_requests, minimum=1, maximum=1e5, whole=True)
    lengths = np.arange(max_draft_length + 1.0)
    jumps = _jumps(deployment, lengths, max_requests)
    step = max(max_context / (ROWS - 2), 1.0)
    nodes = (
        np.array([0.0, *_nodes(max_requests, dense=1, growth=1.5, jumps=jumps)]),
        _token_nodes(token_budget),
        _token_nodes(max_context),
    )
    limit, layout = deployment.graph_limit, deployment.layout
    ends = limit is not None and limit.unit == "token"
    spread = layout.replicas if layout.expert_parallel > 1 else 1
    # with graphs and without, whatever the size of the step
    beside = np.array([-np.inf, np.inf] if ends else [0.0])[:, None, None, None]
    # equal chunks: one chunk after earlier entries, or the first chunks of several prompts
    tokens, seen = nodes[1][:, None], nodes[2]
    each = np.minimum(tokens, 2 * seen - 1)
    together = np.minimum(spread, np.maximum(tokens[-1] / tokens, 1.0))
    prompts = sequence_group(
        batch_size=tokens / each * together,
        tokens_per_sequence=each,
        context_length=np.maximum(seen - (each + 1) / 2, 0.0),
        logits_per_sequence=1,
    )
    some, every = _nodes(max_requests, dense=32, growth=1.07, jumps=jumps), np.arange(max_requests)
    base = np.zeros((len(lengths), max_requests + 1, ROWS))
    more = np.zeros([len(beside), len(lengths), *map(len, nodes)])
    for k, length in enumerate(lengths):
        decoding = partial(mixed_step_time, deployment, draft_length=length)
        found = decoding(requests=some[:, None], context=np.arange(ROWS) * step)
        for row, column in enumerate(np.broadcast_to(found, (len(some), ROWS)).T):
            base[k, 1:, row] = np.interp(every + 1.0, some, column)
        at_nodes = partial(decoding, requests=nodes[0][1:, None, None], context=mean_context)
        more[:, k, 1:] = at_nodes(prompts=(prompts,), beside=beside) - at_nodes()
    draft = _draft_times(deployment, lengths, np.ones(1), mean_context)[..., None]
    more[:, :, 0] = draft + prompts_step_time(deployment, prompts, beside)
    return TabulatedTimes(
        base=base,
        context_step=step,
        more=np.concatenate(more),
        nodes=nodes,
        graph_tokens=limit.count * layout.replicas if limit and ends else np.inf,
        spread=spread,
    )


def drafting_in_full(
    deployment: Deployment, times: TabulatedTimes, context: float
) -> TabulatedTimes:
    """Return the times of a server that always drafts the longest draft, and verifies a part of it.

    Draft lengths of the table are then the verified tokens of each draft.
    """
    longest, most = times.max_draft_length, times.max_requests
    some, every = _nodes(most, dense=32, growth=1.07, jumps=[]), np.arange(1, most + 1)
    whole = _draft_times(deployment, np.arange(longest + 1.0), some, context)
    rest = np.array([np.interp(every, some, row) for row in whole[-1] - whole])
    base, more = times.base.copy(), times.more.copy()
    base[:, 1:] += rest[:, :, None]
    sides = more.reshape(-1, longest + 1, *more.shape[1:])
    sides[:, :, 0] = sides[:, -1:, 0]
    return replace(times, base=base, more=more)


def _draft_times(
    deployment: Deployment, lengths: FloatArray, requests: FloatArray, context: float
) -> FloatArray:
    """Return the time of drafting, by draft length and requests [s]."""
    at = partial(step_times, deployment, batch_size=requests, context_length=context)
    found = [at(draft_length=length, verify_tokens=length + 1).draft_time for length in lengths]
    return np.array([np.broadcast_to(each, requests.shape) for each in found])


def _token_nodes(most: float) -> FloatArray:
    """Return nodes of tokens up to `most`: those of `_NEAR`, and then growing ones [token].

    There are at least two nodes, as interpolation needs.
    """
    most = max(most, _NEAR[1])
    count = max(int(np.ceil(np.log(max(most / _NEAR[-1], 1.0)) / np.log(_GROWTH))), 1)
    first = _NEAR[-1] if most > _NEAR[-1] else most
    near = [float(node) for node in _NEAR if node < most]
    return np.array([*near, *(first * (most / first) ** (i / count) for i in range(1, count + 1))])


def _jumps(deployment: Deployment, lengths: FloatArray, most: int) -> list[int]:
    """Return the largest batch in a CUDA graph and the next one, for any draft length [request]."""
    limit = deployment.graph_limit
    if limit is None:
        return []
    held = limit.count * deployment.layout.replicas
    last = {int(held // (length + 1 if limit.unit == "token" else 1)) for length in lengths}
    return [n for each in last for n in (each, each + 1) if 1 <= n <= most]


def _nodes(most: int, *, dense: int, growth: float, jumps: list[int]) -> FloatArray:
    """Return numbers up to `most`: each from 1 to `dense`, then growing ones [request]."""
    found, at = [*range(1, min(dense, most) + 1), *jumps], float(dense)
    while at < most:
        at = max(at * growth, at + 1)
        found.append(min(round(at), most))
    return np.array(sorted({*found}), dtype=float)
