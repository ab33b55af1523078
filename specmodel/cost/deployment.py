"""What runs where: a target, its drafter, GPUs and an engine, from records or their names."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from specmodel.algebra.experts import TYPICAL_ROUTING_CORRELATION
from specmodel.algebra.popularity import check_popularity
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, Numeric, check, check_dtype
from specmodel.records.architecture import Architecture, load_architecture
from specmodel.records.drafters import Drafter, load_drafter, model_drafter
from specmodel.records.engine import EngineProfile, Overheads, load_engine
from specmodel.records.hardware import HardwareProfile, choose_kernels, load_hardware
from specmodel.records.kernels import DATA_SHEET_KERNELS, Kernels
from specmodel.records.layers.batch import Layout


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Deployment:
    """A target and its drafter on some GPUs under an engine: all that decides the times.

    Parameters
    ----------
    target, drafter
        The model served and what drafts for it.
    hardware, engine
        One GPU, and the overheads of the serving stack.
    kernels
        How the kernels of the stack use the GPU; the data sheet if nothing is known.
    overheads
        Seconds of the engine, or draws of them; those of its profile if None.
    tensor_parallel, expert_parallel, draft_tensor_parallel
        GPUs that the target's matrices are cut over, that its experts are spread over (`Layout`),
        and that a draft model is cut over; a head follows the target [-].
    routing_correlation
        How far tokens of one sequence share experts, from 0 to 1; a number, or an array of draws
        that broadcasts with the points [-].
    popularity
        Probability that a token uses each expert of the target; equal if None [-].
    """

    target: Architecture
    drafter: Drafter
    hardware: HardwareProfile
    engine: EngineProfile
    tensor_parallel: int = 1
    expert_parallel: int = 1
    draft_tensor_parallel: int = 1
    routing_correlation: FloatArray | float = 0.0
    popularity: FloatArray | None = None
    kernels: Kernels = DATA_SHEET_KERNELS
    overheads: Overheads | None = None

    def __post_init__(self) -> None:
        self.target.check_layout(self.layout)
        if self.expert_parallel > 1 and not self.target.is_moe:
            expected = f"1, as {self.target.name} has no routed experts"
            raise InputError("expert_parallel", self.expert_parallel, expected)
        check("routing_correlation", self.routing_correlation, minimum=0, maximum=1)
        if self.popularity is not None:
            check_popularity(
                self.popularity, self.target.num_experts, self.target.experts_per_token
            )
        for name in ("tensor_parallel", "expert_parallel", "draft_tensor_parallel"):
            self._check_links(name, getattr(self, name))
        self._check_drafter()
        _ = self.wider_dtypes

    @cached_property
    def wider_dtypes(self) -> dict[str, str]:
        """Dtypes without a peak on the GPU, and the wider ones they are computed in."""
        wider = {}
        for model in (self.target, *self.drafter.architectures):
            for group, stored in _stored_dtypes(model).items():
                dtype = model.stream.arithmetic_dtype(stored)
                try:
                    computed = self.hardware.compute_dtype(dtype)
                except InputError as error:
                    raise InputError(group, stored, error.expected) from None
                if computed != dtype:
                    wider[dtype] = computed
        return wider

    @property
    def engine_seconds(self) -> Overheads:
        """Seconds that the engine adds."""
        return self.overheads or self.engine.overheads

    @property
    def layout(self) -> Layout:
        """How the target is spread over GPUs."""
        return Layout(self.tensor_parallel, self.expert_parallel, self._gpus_per_node)

    @property
    def draft_layout(self) -> Layout:
        """How the drafter is spread over GPUs."""
        if self.drafter.is_head:
            return self.layout
        replicas = self.layout.replicas
        return Layout(self.draft_tensor_parallel, 1, self._gpus_per_node, replicas)

    @property
    def _gpus_per_node(self) -> int:
        return self.hardware.link.num_gpus if self.hardware.link else 1

    def _check_drafter(self) -> None:
        if self.drafter.is_lookup or self.drafter.is_head:
            return
        for model in self.drafter.architectures:
            model.check_layout(self.draft_layout, "draft_")
        if self.draft_tensor_parallel > self.tensor_parallel:
            expected = f"at most tensor_parallel = {self.tensor_parallel}"
            raise InputError("draft_tensor_parallel", self.draft_tensor_parallel, expected)

    def _check_links(self, name: str, degree: int) -> None:
        if degree > 1 and self.hardware.link is None:
            raise InputError(name, degree, f"1, as {self.hardware.name} has no link")
        if degree > self._gpus_per_node and self.hardware.network is None:
            expected = f"at most {self._gpus_per_node}, as {self.hardware.name} has no network"
            raise InputError(name, degree, expected)


def deploy(  # noqa: PLR0913 - all keyword-only
    *,
    target: Architecture | str | Path,
    hardware: HardwareProfile | str | Path,
    drafter: Drafter | Architecture | str | Path,
    engine: EngineProfile | str | Path | None = None,
    stack: str | None = None,
    routing_correlation: float | None = None,
    popularity: Numeric | None = None,
    tensor_parallel: int | None = None,
    expert_parallel: int | None = None,
    draft_tensor_parallel: int | None = None,
    weight_dtype: str | None = None,
    activation_dtype: str | None = None,
    kv_dtype: str | None = None,
    expert_dtype: str | None = None,
    embedding_dtype: str | None = None,
) -> tuple[Deployment, dict[str, Any]]:
    """Return a deployment from records, names or paths, and what was assumed in making it.

    Parameters
    ----------
    target, hardware, drafter, engine
        Records, names that ship with the package, or paths; the engine is "ideal" by default.
    stack
        Whose kernels: one fitted in the hardware profile, "typical" or "datasheet"; by default
        the engine's, else the profile's default, else "typical".
    routing_correlation
        How far tokens of one sequence share experts, 0.18 by default [-].
    popularity
        Probability that a token uses each expert of the target; equal by default [-].
    tensor_parallel, expert_parallel, draft_tensor_parallel
        GPUs that the target and a draft model are spread over, 1 by default [-].
    weight_dtype, activation_dtype, kv_dtype, expert_dtype, embedding_dtype
        Dtypes of the target; by default its own.

    Returns
    -------
    tuple
        The deployment, and the assumed values by argument.

    Raises
    ------
    InputError
        In one line: the argument, its value and what would do.

    Examples
    --------
    >>> deployment, assumed = deploy(target="mixtral-8x7b", hardware="h100_sxm", drafter="ngram")
    >>> assumed["routing_correlation"]
    0.18
    """
    given = {
        "engine": engine,
        "routing_correlation": routing_correlation,
        "tensor_parallel": tensor_parallel,
        "expert_parallel": expert_parallel,
        "draft_tensor_parallel": draft_tensor_parallel,
    }
    assumed = {name: value for name, value in _DEFAULTS.items() if given[name] is None}
    chosen = given | assumed
    _check_single("routing_correlation", chosen["routing_correlation"])
    dtypes = {
        "weight_dtype": weight_dtype,
        "activation_dtype": activation_dtype,
        "kv_dtype": kv_dtype,
        "expert_dtype": expert_dtype,
        "embedding_dtype": embedding_dtype,
    }
    target = _target(target, dtypes, assumed)
    if isinstance(drafter, Architecture):
        drafter = model_drafter(drafter)
    elif not isinstance(drafter, Drafter):
        drafter = load_drafter(drafter, target)
    engine = chosen["engine"]
    engine = engine if isinstance(engine, EngineProfile) else load_engine(engine)
    record = hardware if isinstance(hardware, HardwareProfile) else load_hardware(hardware)
    kernels = choose_kernels(record, stack, engine.stack)
    if stack is None:
        assumed["stack"] = kernels.stack
    deployment = Deployment(
        target=target,
        drafter=drafter,
        hardware=record,
        engine=engine,
        kernels=kernels,
        tensor_parallel=chosen["tensor_parallel"],
        expert_parallel=chosen["expert_parallel"],
        draft_tensor_parallel=chosen["draft_tensor_parallel"],
        routing_correlation=chosen["routing_correlation"],
        popularity=None if popularity is None else np.asarray(popularity),
    )
    if drafter.is_lookup or drafter.is_head:
        assumed.pop("draft_tensor_parallel", None)
    if not target.is_moe:
        for name in ("routing_correlation", "expert_parallel"):
            assumed.pop(name, None)
    if target.is_moe and popularity is None:
        assumed["popularity"] = "equal"
    if drafter.architectures:
        assumed["draft_dtype"] = drafter.architectures[0].weight_dtype
    else:
        lookup = {"proposal_rate": 1.0, "lookup_time": 0.0}
        assumed |= {k: value for k, value in lookup.items() if getattr(drafter, k) == value}
    for dtype, wider in deployment.wider_dtypes.items():
        assumed["arithmetic"] = f"{wider} (no {dtype} peak)"
    return deployment, assumed


_DEFAULTS: dict[str, Any] = {
    "engine": "ideal",
    "routing_correlation": TYPICAL_ROUTING_CORRELATION,
    "tensor_parallel": 1,
    "expert_parallel": 1,
    "draft_tensor_parallel": 1,
}


def _check_single(argument: str, value: object) -> None:
    if np.ndim(np.asarray(value, dtype=object)):
        raise InputError(argument, value, "one number for the deployment")


def _target(
    target: Architecture | str | Path, dtypes: dict[str, str | None], assumed: dict[str, Any]
) -> Architecture:
    """Load the target, change the dtypes that were given and note those that were not."""
    if not isinstance(target, Architecture):
        target = load_architecture(target)
    changes: dict[str, object] = {}
    for name, dtype in dtypes.items():
        if dtype is not None:
            changes[name] = check_dtype(name, dtype)
        elif getattr(target, name):
            assumed[name] = getattr(target, name)
    return target.with_changes("target", changes)


def _stored_dtypes(model: Architecture) -> dict[str, str]:
    """Return what meets activations in arithmetic: weights by group, and the cache."""
    groups: dict[str, str] = {
        "activation_dtype": model.activation_dtype,
        "weight_dtype": model.weight_dtype,
        "embedding_dtype": model.outer_dtype,
        "kv_dtype": model.kv_dtype,
    }
    return groups | ({"expert_dtype": model.expert_dtype} if model.expert_dtype else {})
