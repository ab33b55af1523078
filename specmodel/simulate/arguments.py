"""Define the arguments of questions about loads, once for all functions that accept them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict

from specmodel.core.algebra.acceptance import Acceptance
from specmodel.core.base.units import Numeric
from specmodel.core.cost.arguments import (
    AcceptanceArguments,
    CaseArguments,
    CommonArguments,
    PlainPoints,
    WhatIfArguments,
)
from specmodel.core.drafters.passes import Drafter
from specmodel.core.machines.engine import EngineProfile
from specmodel.core.models.architecture import Architecture
from specmodel.simulate.requests import Lengths, Requests
from specmodel.simulate.traces import Trace


class LimitArguments(TypedDict, total=False):
    """Settings of a server's scheduler.

    Parameters
    ----------
    max_running, token_budget
        Maximum running requests [request] and maximum tokens of a step [token]. The defaults are
        those of vLLM on the GPU.
    block_size, reserved_tokens
        Tokens of a cache block, and tokens to keep free for each request. The defaults are those of
        vLLM [token].
    """

    max_running: int | None
    token_budget: int | None
    block_size: int | None
    reserved_tokens: int | None


class SearchArguments(TypedDict, total=False):
    """Settings of a search for the largest rate.

    Parameters
    ----------
    for_rate
        Total rate for which to compute replicas and GPUs [request/s].
    replications
        Runs with other requests at each rate, 5 by default, 2 without numba [-].
    attainment
        Share of the requests that should meet both targets, 0.9 by default [-].
    """

    for_rate: float | None
    replications: int | None
    attainment: float | None


class DrainArguments(TypedDict, total=False):
    """Settings of a drain.

    Parameters
    ----------
    samples, servers
        Answers to each prompt, and servers that share the prompts, 1 by default [-].
    finished
        Share of the answers to wait for, 1 by default [-].
    """

    samples: int | None
    servers: int | None
    finished: float | None


class FileArguments(TypedDict, total=False):
    """Settings of a file of recorded requests.

    Parameters
    ----------
    time_window, time_unit
        Part of the recording, such as ``"10m:1h"``, and the unit of its times: s, ms, us or ns.
    hash_block
        Tokens of the block of each entry in ``hash_ids`` [token].
    """

    time_window: str | None
    time_unit: str | None
    hash_block: int | None


class TrafficArguments(LimitArguments, SearchArguments, DrainArguments, FileArguments, total=False):
    """Requests and their server, in addition to the case.

    Parameters
    ----------
    request_rate, users
        Requests per second [request/s], or users who each send the next request when the previous
        one is answered [-].
    arrivals
        Law of arrivals: "poisson", the default, "gamma:CV" or "bursts:N".
    drain
        Number of prompts that arrive at once and are answered to the end [request].
    workload
        Lengths of requests: a name such as "chat", the default, "lognormal:FILE", or a recording.
    requests
        Requests of a run, 2,000 by default or all of a file [request].
    tpot_target, ttft_target
        Target times per output token and to the first token, in seconds or as text such as "20ms"
        [s].
    policy, policy_state
        Policies by name, and who keeps their states: "request" or "server", by default as in the
        source of each policy.
    trace
        Recorded acceptance of requests, or a preset.
    acceptance_by_request
        Standard deviation between requests of the logit of acceptance [-].
    prefix_hit_rate, shared_prefix
        Share of a prompt in the prefix cache [-]; leading tokens that all prompts share [token].
    seed
        Seed of all random draws [-].
    """

    request_rate: Numeric | None
    users: Numeric | None
    arrivals: str | None
    drain: int | None
    workload: Lengths | Requests | str | Path | None
    requests: int | None
    tpot_target: float | str | None
    ttft_target: float | str | None
    policy: Sequence[str] | str | None
    policy_state: str | None
    trace: Trace | str | None
    acceptance_by_request: float | None
    prefix_hit_rate: float | None
    shared_prefix: int | None
    seed: int


class LoadArguments(CaseArguments, TrafficArguments, total=False):
    """Arguments of `specmodel.load`, including those of `CaseArguments` and `TrafficArguments`.

    Parameters
    ----------
    prompt_length, output_length
        Tokens of every prompt and output, instead of the workload's, or a law such as
        ``"lognormal:1000:0.8"`` [token].
    prefill
        "together", or "disaggregated:N" for N prefill servers.
    gpu_hour_price
        Price of a GPU for an hour [-].
    """

    prompt_length: int | str | None
    output_length: int | str | None
    prefill: str | None
    gpu_hour_price: float | None


class ScheduleArguments(LoadArguments, total=False):
    """Arguments of `specmodel.schedule`; the arguments of loads need `for_load`.

    Parameters
    ----------
    context_length
        KV entries of each sequence before the step; several values have equal weight [token].
    lockstep
        Whether a client sends equal requests together, as in `specmodel.predict`.
    max_batch_size, tolerance
        As in `plan.plan_schedule` [request] [-].
    for_load
        Whether to simulate requests that arrive and wait.
    """

    context_length: Numeric | None
    lockstep: bool | None
    max_batch_size: int | None
    tolerance: float | None
    for_load: bool | None


class CompareArguments(
    CommonArguments,
    WhatIfArguments,
    AcceptanceArguments,
    PlainPoints,
    TrafficArguments,
    total=False,
):
    """Arguments of `specmodel.compare`; each entry of a list is an alternative.

    Parameters
    ----------
    drafter, engine, weight_dtype, expert_dtype, kv_dtype
        Names or records, as in `specmodel.predict`.
    tensor_parallel, data_parallel, expert_parallel, draft_length
        Degrees [-], and draft lengths for all batch sizes [token].
    acceptance, prefill, gpu_hour_price
        One value for all, or one for each drafter, way to prefill, and GPU [-].
    batch_size, max_draft_length
        As in `specmodel.predict` [request] [token].
    for_load
        Whether to simulate requests that arrive and wait.
    """

    drafter: Drafter | Architecture | str | Path | Sequence[str] | None
    engine: EngineProfile | str | Path | Sequence[str] | None
    weight_dtype: Sequence[str] | str | None
    expert_dtype: Sequence[str] | str | None
    kv_dtype: Sequence[str] | str | None
    tensor_parallel: Sequence[int] | int | None
    data_parallel: Sequence[int] | int | None
    expert_parallel: Sequence[int] | int | None
    draft_length: Numeric | None
    acceptance: Acceptance | Numeric | Sequence[str] | str | None
    prefill: Sequence[str] | str | None
    gpu_hour_price: Numeric | None
    batch_size: Numeric
    max_draft_length: int | None
    for_load: bool | None


class ComputeArguments(TypedDict, total=False):
    """Settings of the computation of searches.

    Parameters
    ----------
    workers, client
        Number of processes, or a Dask client or the address of its scheduler [-].
    progress
        Called with the approximate number of rates tried [-].
    """

    workers: int
    client: Any
    progress: Callable[[int], object]
