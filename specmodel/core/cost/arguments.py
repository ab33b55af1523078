"""Define the arguments for what runs where, once for all functions that accept them."""

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
    """How models run; alternatives of a comparison share these.

    Parameters
    ----------
    link
        Name of the link between boxes of one or several GPUs, such as "roce-200g", "usb4", "tb5" or
        "10gbe"; by default the link of the hardware profile.
    host_speed
        Speed of the host relative to the host on which the engine was measured; by default the
        speed in the engine's profile [-].
    graph_limit
        Tokens (vLLM) or requests (SGLang) of the largest pass with a CUDA graph, 0 for no graphs;
        by default, the engine's default on the GPU. A list has all sizes: passes in between are
        padded to the next size.
    attention_backend
        Attention kernels that the engine runs, by its own names; by default, the engine chooses.
    enforce_eager, eager_drafter, sync_scheduling
        Whether no pass, or no pass of the drafter, runs from a CUDA graph. Whether scheduling does
        not overlap with the GPU (vLLM's ``--no-async-scheduling``).
    stack
        Stack of the kernels: one fitted in the hardware profile, "typical" or "datasheet". By
        default the engine's, else the profile's default, else "typical".
    activation_dtype, embedding_dtype
        Dtypes of the target; by default the dtypes of its architecture.
    attention_dtype
        Dtype of the weights of the target's attention and other mixers. The default is the dtype in
        its architecture, or `weight_dtype` if the architecture has none. Mixers of models with
        NVFP4 experts have bf16, as in published checkpoints.
    routing_correlation, popularity
        How much the tokens of one sequence share experts, from 0 to 1; by default as published for
        the model, else 0.18. Probability that a token uses each expert: shape (num_experts,) or
        (layers, num_experts), a file, or "equal"; by default as unequal as the model's
        `popularity_spread` [-].
    popularity_exponent
        Exponent of a power law: popularity is rank to minus this power, 0 for equal use [-].
    decode_context_parallel
        Number of `tensor_parallel` GPUs that share the cached tokens of each sequence; 1 by default
        [-].
    memory_utilization
        Share of a GPU's memory for weights and cache, 0.9 by default as in engines [-].
    state_rollback
        How recurrent states return to the last accepted token. "native" writes a state after each
        verified token; "replay" keeps one state and records of tokens.
    temperature
        Sampling temperature. 0, the default, selects the likeliest token, which costs less than
        sampling [-].
    host_expert_layers
        Number of first layers whose routed experts stay in the host's memory under llama.cpp, or
        "all"; 0 by default [-].
    split_mode
        How llama.cpp splits a model over several GPUs. With "layer", its default, one GPU after
        another works on its layers; "row" and "tensor" split matrices.
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
    """How a model runs; alternatives of a comparison may differ in these.

    Parameters
    ----------
    engine
        A record, a shipped name, or a path; "vllm" by default. "ideal" has no overheads.
    weight_dtype, kv_dtype, expert_dtype
        Dtypes of the target, of its KV cache, and of its routed experts. The defaults are those in
        its architecture. If it has none for experts, they have `weight_dtype`.
    tensor_parallel, data_parallel
        GPUs that share the target's matrices (except routed experts), and replicas of this group,
        each with its share of the batch. Their product is the number of GPUs. By default, as few
        replicas as `expert_parallel` needs [-].
    expert_parallel
        Groups of GPUs that share the routed experts; the GPUs of a group split each of its experts.
        1 splits all experts over all GPUs; the number of GPUs keeps experts whole [-].
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
    """How a model's drafter runs.

    Parameters
    ----------
    tree_width
        Branches after each drafted token, 1 in chains; SGLang calls it top-k [-].
    mtp_dtype
        Dtype of the weights of the target's block for multi-token prediction.
    draft_tensor_parallel
        GPUs that share a draft model; by default the GPUs of the target, as in engines [-].
    """

    tree_width: int | None
    mtp_dtype: str | None
    draft_tensor_parallel: int | None


class DeploymentArguments(RunArguments, DraftArguments, total=False):
    """What runs where, as arguments of `specmodel.deploy`.

    Parameters
    ----------
    target, hardware
        Records, shipped names, or paths.
    drafter
        The drafter: a record, a shipped name, or a path; no drafter if None.
    """

    target: Required[Architecture | str | Path]
    hardware: Required[HardwareProfile | str | Path]
    drafter: Drafter | Architecture | str | Path | None


class LookupArguments(TypedDict, total=False):
    """Settings of a look-up drafter.

    Parameters
    ----------
    proposal_rate, lookup_time
        Share of steps with a proposal, 0.2 by default [-], and host time to look up one sequence
        [s].
    """

    proposal_rate: float | None
    lookup_time: float | None


class NamedArguments(DeploymentArguments, LookupArguments, total=False):
    """What runs where, by name: `DeploymentArguments` and `LookupArguments`."""


class WhatIfArguments(DraftArguments, LookupArguments, total=False):
    """How a drafter runs, and further settings of what runs where.

    Parameters
    ----------
    num_gpus
        Number of GPUs for the model, if the GPU's name does not count them and no degrees are given
        [-].
    changes
        Values to change, by dotted field of target, drafter, hardware or engine, such as
        ``{"target.experts_per_token": 4}``, or a list of texts ``KEY=VALUE``.
    force
        Whether to accept values outside their plausible range.
    """

    num_gpus: int | None
    changes: Mapping[str, object] | Sequence[str] | None
    force: bool | None


class AcceptanceArguments(TypedDict, total=False):
    """Acceptance, in forms other than `acceptance`.

    Parameters
    ----------
    acceptance_rate, tokens_per_step, step_efficiency, accepted_fraction, acceptance_by_position
        Forms of acceptance; give one of them, as in `Acceptance` [-] [token].
    acceptance_by_context
        Another form: tokens per step by context, such as ``{2048: 3.2, 32768: 2.1}`` [token].
    measured_draft_length, acceptance_spread
        Draft length of the measurement [token]. Standard deviation of the acceptance rate for
        intervals. By default, published acceptance has the deviation between tasks, and your own
        acceptance has 0 [-].
    task
        Kind of task for published acceptance: "code", "chat", "maths", "prose", "agents", "random"
        (prompts of random tokens), or shares of several by kind; by default "mixture", a quarter of
        the tokens from each of the first four.
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
    """How it runs, and its acceptance: the further arguments of `specmodel.predict`.

    Parameters
    ----------
    speculative_config
        vLLM's option of this name, as a dict, JSON or a JSON file: drafter, draft length, also by
        batch size. It also sets the engine if none is given.
    """

    speculative_config: Mapping[str, Any] | str | None


class CaseArguments(AskedArguments, total=False):
    """How it runs, its drafter, and its acceptance.

    Parameters
    ----------
    drafter, acceptance, max_draft_length
        As in `specmodel.predict` [token].
    """

    drafter: Drafter | Architecture | str | Path | None
    acceptance: Acceptance | Numeric | str | None
    max_draft_length: int | None


class PlainPoints(TypedDict, total=False):
    """Points without draft lengths: lengths of prompts and outputs, and whether in lockstep.

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
    """Points of a deployment without draft lengths.

    Parameters
    ----------
    batch_size
        Sequences decoded together, over all replicas [request].
    """

    batch_size: Required[Numeric]
