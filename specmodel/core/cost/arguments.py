"""The arguments that say what runs where, spelled out once for all that take them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Required, TypedDict

from specmodel.core.algebra.acceptance import Acceptance
from specmodel.core.base.units import Numeric
from specmodel.core.drafters.passes import Drafter
from specmodel.core.machines.engine import EngineProfile
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.models.architecture import Architecture


class CommonArguments(TypedDict, total=False):
    """How models run, the same for all that are compared.

    Parameters
    ----------
    link
        What joins the boxes, one or several GPUs each, by name, such as "roce-200g", "usb4", "tb5"
        or "10gbe"; that of the hardware profile by default.
    host_speed
        How many times as fast the host is as the engine's; that of its profile by default [-].
    graph_limit
        Tokens (vLLM) or requests (SGLang) of the largest pass that a CUDA graph holds, 0 for none;
        the engine's default on the GPU by default. A list has all sizes: what lies between two
        is padded to the next.
    attention_backend
        Kernels of attention that the engine was told to run, as it calls them; its own choice by
        default.
    enforce_eager, eager_drafter, sync_scheduling
        Whether no pass, or none of the drafter, runs from a CUDA graph, and whether no step is
        scheduled beside the GPU (vLLM's ``--no-async-scheduling``).
    stack
        Whose kernels: one fitted in the hardware profile, "typical" or "datasheet"; by default the
        engine's, else the profile's default, else "typical".
    activation_dtype, embedding_dtype
        Dtypes of the target; those of its architecture by default.
    attention_dtype
        Dtype of the weights of its attention (and other mixers); by default that of its
        architecture, else `weight_dtype`, but bf16 for mixers beside experts in NVFP4, as in
        published checkpoints.
    routing_correlation, popularity
        How far tokens of one sequence share experts, from 0 to 1, by default as published for the
        model, else 0.18; probability that a token uses each expert, shape (num_experts,) or
        (layers, num_experts), a file of them, or "equal"; as unequal as the model's
        `popularity_spread` by default [-].
    popularity_exponent
        Experts are used as their rank to minus this power, 0 for equally [-].
    decode_context_parallel
        GPUs, of `tensor_parallel`, that share the cached tokens of each sequence; 1 by default [-].
    memory_utilization
        Share of a GPU's memory that weights and cache may fill, 0.9 by default as in engines [-].
    state_rollback
        How recurrent states get back to the last accepted token: "native", a state is written after
        each verified token, or "replay", one state and records of tokens are kept.
    temperature
        Of sampling; 0, the default, takes the likeliest token, which costs less than drawing [-].
    host_expert_layers
        First layers of the target whose routed experts stay in the host's memory under llama.cpp,
        or "all"; 0 by default [-].
    split_mode
        How llama.cpp splits a model over several GPUs: "layer", its default, has one GPU after
        another work on its layers; "row" and "tensor" cut matrices.
    """

    link: str | None
    host_speed: float | None
    graph_limit: int | Sequence[int] | None
    attention_backend: str | None
    enforce_eager: bool | None
    eager_drafter: bool | None
    sync_scheduling: bool | None
    stack: str | None
    activation_dtype: str | None
    attention_dtype: str | None
    embedding_dtype: str | None
    routing_correlation: float | None
    popularity: Numeric | str | Path | None
    popularity_exponent: float | None
    decode_context_parallel: int | None
    memory_utilization: float | None
    state_rollback: str | None
    temperature: float | None
    host_expert_layers: int | str | None
    split_mode: str | None


class ChoiceArguments(TypedDict, total=False):
    """How a model runs, in which alternatives may differ.

    Parameters
    ----------
    engine
        A record, a name that ships with the package, or a path; "vllm" by default, and "ideal" has
        no overheads.
    weight_dtype, kv_dtype, expert_dtype
        Dtypes of the target, of its KV cache, and of its routed experts; by default those of its
        architecture, of experts else `weight_dtype`.
    tensor_parallel, data_parallel
        GPUs that the target's matrices are cut over, routed experts aside, and replicas of these,
        each with its share of the batch; their product is the number of GPUs. As few replicas as
        `expert_parallel` needs by default [-].
    expert_parallel
        Groups of GPUs that routed experts are spread over; the GPUs of a group cut each of its
        experts. 1 cuts all experts over all GPUs; as many as there are GPUs cuts none [-].
    """

    engine: EngineProfile | str | Path | None
    weight_dtype: str | None
    kv_dtype: str | None
    expert_dtype: str | None
    tensor_parallel: int | None
    data_parallel: int | None
    expert_parallel: int | None


class RunArguments(CommonArguments, ChoiceArguments, total=False):
    """How a model runs on a GPU: `CommonArguments` and `ChoiceArguments`."""


class DraftArguments(TypedDict, total=False):
    """How what drafts for a model runs.

    Parameters
    ----------
    tree_width
        Tokens that follow each drafted one, 1 in chains, which SGLang calls top-k [-].
    mtp_dtype
        Dtype of the weights of the target's block for multi-token prediction.
    draft_tensor_parallel
        GPUs that a draft model is cut over; those of the target by default, as engines do [-].
    """

    tree_width: int | None
    mtp_dtype: str | None
    draft_tensor_parallel: int | None


class DeploymentArguments(RunArguments, DraftArguments, total=False):
    """What runs where, as arguments of `specmodel.deploy`.

    Parameters
    ----------
    target, hardware
        Records, names that ship with the package, or paths.
    drafter
        What drafts: a record, a name that ships with the package, or a path; nothing if None.
    """

    target: Required[Architecture | str | Path]
    hardware: Required[HardwareProfile | str | Path]
    drafter: Drafter | Architecture | str | Path | None


class LookupArguments(TypedDict, total=False):
    """What a drafter that looks up takes.

    Parameters
    ----------
    proposal_rate, lookup_time
        Share of the steps that have a proposal, 0.2 by default [-], and time of the host to look up
        one sequence [s].
    """

    proposal_rate: float | None
    lookup_time: float | None


class NamedArguments(DeploymentArguments, LookupArguments, total=False):
    """What is named of what runs where: `DeploymentArguments` and `LookupArguments`."""


class WhatIfArguments(DraftArguments, LookupArguments, total=False):
    """How a drafter runs, and what else there is to say of what runs where.

    Parameters
    ----------
    num_gpus
        GPUs over which the model is laid out, where the GPU's name does not count them and no
        degrees are given [-].
    changes
        What-ifs: values by dotted field of target, drafter, hardware or engine, such as
        ``{"target.experts_per_token": 4}``, or a list of texts ``KEY=VALUE``.
    force
        Whether values are taken that no machine or model is likely to have.
    """

    num_gpus: int | None
    changes: Mapping[str, object] | Sequence[str] | None
    force: bool | None


class AcceptanceArguments(TypedDict, total=False):
    """What is accepted, in forms other than `acceptance`.

    Parameters
    ----------
    acceptance_rate, tokens_per_step, step_efficiency, accepted_fraction, acceptance_by_position
        Forms of acceptance, of which one is given: see `Acceptance` [-] [token].
    acceptance_by_context
        Another form: tokens per step by context, such as ``{2048: 3.2, 32768: 2.1}`` [token].
    measured_draft_length, acceptance_spread
        Draft length at which it was measured [token]; standard deviation of the acceptance rate,
        which intervals then hold, by default that between tasks of what is published, else 0 [-].
    task
        Kind of task that published acceptance is taken on: "code", "chat", "maths", "prose",
        "agents", "random" (prompts of random tokens), or shares of several by kind; by default
        "mixture", a quarter of the tokens on each of the first four.
    """

    acceptance_rate: Numeric | None
    tokens_per_step: Numeric | None
    step_efficiency: Numeric | None
    accepted_fraction: Numeric | None
    acceptance_by_position: Numeric | None
    acceptance_by_context: Mapping[float, float] | Sequence[tuple[float, float]] | str | None
    measured_draft_length: Numeric | None
    acceptance_spread: float | None
    task: str | Mapping[str, float] | None


class AskedArguments(RunArguments, WhatIfArguments, AcceptanceArguments, total=False):
    """How it runs and what is accepted, beside what `specmodel.predict` names itself.

    Parameters
    ----------
    speculative_config
        What vLLM takes under this name, as a dict, JSON or a file with it: drafter, draft length,
        also by batch size, and the engine where none is given.
    """

    speculative_config: Mapping[str, Any] | str | None


class CaseArguments(AskedArguments, total=False):
    """How it runs, what drafts and what is accepted.

    Parameters
    ----------
    drafter, acceptance, max_draft_length
        As in `specmodel.predict` [token].
    """

    drafter: Drafter | Architecture | str | Path | None
    acceptance: Acceptance | Numeric | str | None
    max_draft_length: int | None


class PlainPoints(TypedDict, total=False):
    """Points, draft lengths aside: lengths of prompts and outputs, and whether in lockstep.

    Parameters
    ----------
    context_length, prompt_length, output_length, lockstep
        As in `specmodel.predict` [token].
    """

    context_length: Numeric | None
    prompt_length: Numeric | None
    output_length: Numeric | None
    lockstep: Numeric | None


class DeployedPoints(PlainPoints, total=False):
    """Points of a deployment, draft lengths aside.

    Parameters
    ----------
    batch_size
        Sequences decoded together, over all replicas [request].
    """

    batch_size: Required[Numeric]
