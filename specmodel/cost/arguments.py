"""The arguments that say what runs where, spelled out once for all that take them."""

from pathlib import Path
from typing import Required, TypedDict

from specmodel.base.units import Numeric
from specmodel.drafters.by_name import Drafter
from specmodel.machines.engine import EngineProfile
from specmodel.machines.hardware import HardwareProfile
from specmodel.models.architecture import Architecture


class PlainArguments(TypedDict, total=False):
    """What runs where, as arguments of `specmodel.decode`.

    Parameters
    ----------
    target, hardware, engine
        Records, names that ship with the package, or paths; the engine is "vllm" by default, and
        "ideal" has no overheads.
    host_speed
        How many times as fast the host is as the engine's; that of its profile by default [-].
    graph_limit
        Tokens (vLLM) or requests (SGLang) of the largest pass that a CUDA graph holds; the engine's
        default on the GPU by default.
    stack
        Whose kernels: one fitted in the hardware profile, "typical" or "datasheet"; by default the
        engine's, else the profile's default, else "typical".
    weight_dtype, activation_dtype, kv_dtype, embedding_dtype
        Dtypes of the target; those of its architecture by default.
    attention_dtype, expert_dtype
        Dtypes of the weights of its attention (and other mixers), and of its routed experts; by
        default those of its architecture, else `weight_dtype`.
    routing_correlation, popularity
        How far tokens of one sequence share experts, from 0 to 1; probability that a token uses
        each expert, shape (num_experts,), equal by default [-].
    tensor_parallel, data_parallel
        GPUs that the target's matrices are cut over, routed experts aside, and replicas of these,
        each with its share of the batch; their product is the number of GPUs. As few replicas as
        `expert_parallel` needs by default [-].
    expert_parallel
        Groups of GPUs that routed experts are spread over; the GPUs of a group cut each of its
        experts. 1 cuts all experts over all GPUs; as many as there are GPUs cuts none [-].
    memory_utilization
        Share of a GPU's memory that weights and cache may fill, 0.9 by default as in engines [-].
    state_rollback
        How recurrent states get back to the last accepted token: "native", a state is written after
        each verified token, or "replay", one state and records of tokens are kept.
    """

    target: Required[Architecture | str | Path]
    hardware: Required[HardwareProfile | str | Path]
    engine: EngineProfile | str | Path | None
    host_speed: float | None
    graph_limit: int | None
    stack: str | None
    weight_dtype: str | None
    activation_dtype: str | None
    kv_dtype: str | None
    attention_dtype: str | None
    expert_dtype: str | None
    embedding_dtype: str | None
    routing_correlation: float | None
    popularity: Numeric | None
    tensor_parallel: int | None
    data_parallel: int | None
    expert_parallel: int | None
    memory_utilization: float | None
    state_rollback: str | None


class DeploymentArguments(PlainArguments, total=False):
    """What runs where, as arguments of `specmodel.predict` and `specmodel.deploy`.

    Parameters
    ----------
    drafter
        What drafts: a record, a name that ships with the package, or a path; nothing if None.
    tree_width
        Tokens that follow each drafted one, 1 in chains, which SGLang calls top-k [-].
    mtp_dtype
        Dtype of the weights of the target's block for multi-token prediction.
    draft_tensor_parallel
        GPUs that a draft model is cut over [-].
    """

    drafter: Drafter | Architecture | str | Path | None
    tree_width: int | None
    mtp_dtype: str | None
    draft_tensor_parallel: int | None
