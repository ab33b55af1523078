"""Define the arguments of questions of load, once for all functions that accept them."""

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
    """What a server's scheduler takes.

    Parameters
    ----------
    max_running, token_budget
        Most running requests and most tokens of a step; vLLM's on the GPU by default [request]
        [token].
    block_size, reserved_tokens
        Tokens of a block of the cache, and what is kept free of it; vLLM's by default [token].
    """

    max_running: int | None
    token_budget: int | None
    block_size: int | None
    reserved_tokens: int | None


class SearchArguments(TypedDict, total=False):
    """What only a search for the largest rate takes.

    Parameters
    ----------
    for_rate
        Requests a second for which replicas and GPUs are told [request/s].
    replications
        Runs of other requests at each rate that is tried, 5 by default, 2 without numba [-].
    attainment
        Share of the requests that should meet both targets, 0.9 by default [-].
    """

    for_rate: float | None
    replications: int | None
    attainment: float | None


class DrainArguments(TypedDict, total=False):
    """What only a drain takes.

    Parameters
    ----------
    samples, servers
        Answers to each prompt, and servers that share them, 1 by default [-].
    finished
        Share of the answers that a drain waits for, 1 by default [-].
    """

    samples: int | None
    servers: int | None
    finished: float | None


class FileArguments(TypedDict, total=False):
    """What only a file of recorded requests takes.

    Parameters
    ----------
    time_window, time_unit
        Part of the recording, such as ``"10m:1h"``, and the unit of its times: s, ms, us or ns.
    hash_block
        Tokens that one of its ``hash_ids`` names [token].
    """

    time_window: str | None
    time_unit: str | None
    hash_block: int | None


class TrafficArguments(LimitArguments, SearchArguments, DrainArguments, FileArguments, total=False):
    """Which requests come, and what serves them, apart from the case.

    Parameters
    ----------
    request_rate, users
        Requests a second that come [request/s], or users who each ask again when answered [-].
    arrivals
        The law by which they come: "poisson", the default, "gamma:CV" or "bursts:N".
    drain
        Prompts that are all there at once, to be answered to the end [request].
    workload
        Their lengths: a name such as "chat", the default, "lognormal:FILE", or a recording.
    requests
        Requests of a run, 2,000 by default; of a file, its own [request].
    tpot_target, ttft_target
        Time per output token, and to the first, that a request should meet, as seconds or a text
        such as "20ms" [s].
    policy, policy_state
        Policies by name, and who keeps what they learn: "request" or "server", by default as the
        source of each has it.
    trace
        Recorded acceptance of requests, or a preset.
    acceptance_by_request
        How much requests differ in what is accepted, as standard deviation of a logit [-].
    prefix_hit_rate, shared_prefix
        Share of a prompt found in the prefix cache [-]; tokens that all prompts begin with [token].
    seed
        Of all that is drawn [-].
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
    """Arguments of `specmodel.load`, with those of `CaseArguments` and `TrafficArguments`.

    Parameters
    ----------
    prompt_length, output_length
        Tokens of every prompt and output in place of the workload's, or a law such as
        ``"lognormal:1000:0.8"`` [token].
    prefill
        "together", or "disaggregated:N", N servers that prefill and hand on.
    gpu_hour_price
        Price of a GPU for an hour [-].
    """

    prompt_length: int | str | None
    output_length: int | str | None
    prefill: str | None
    gpu_hour_price: float | None


class ScheduleArguments(LoadArguments, total=False):
    """Arguments of `specmodel.schedule`, of which those of loads are taken with `for_load`.

    Parameters
    ----------
    context_length
        KV entries of each sequence before the step; several count alike [token].
    lockstep
        Whether equal requests are sent together, as in `specmodel.predict`.
    max_batch_size, tolerance
        As in `answers.plan_schedule` [request] [-].
    for_load
        Whether requests that come and wait are simulated.
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
    """Arguments of `specmodel.compare`, of which these may be lists, an alternative each.

    Parameters
    ----------
    drafter, engine, weight_dtype, expert_dtype, kv_dtype
        Names or records, as in `specmodel.predict`.
    tensor_parallel, data_parallel, expert_parallel, draft_length
        Degrees [-], and lengths at which all batch sizes are compared [token].
    acceptance, prefill, gpu_hour_price
        One for all, or one for each drafter, way to prefill, and GPU [-].
    batch_size, max_draft_length
        As in `specmodel.predict` [request] [token].
    for_load
        Whether requests that come and wait are simulated.
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
    """Where searches are computed.

    Parameters
    ----------
    workers, client
        Processes, or a Dask cluster, by a client or the address of its scheduler [-].
    progress
        Called with the number of rates tried, about [-].
    """

    workers: int
    client: Any
    progress: Callable[[int], object]
