"""What runs where: a target, its drafter, GPUs and an engine, from records or their names."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specmodel.architecture import Architecture, load_architecture
from specmodel.drafters import Drafter, load_drafter, model_drafter
from specmodel.engine import EngineProfile, load_engine
from specmodel.errors import InputError
from specmodel.experts import TYPICAL_ROUTING_CORRELATION
from specmodel.forward import check_tensor_parallel
from specmodel.hardware import HardwareProfile, load_hardware
from specmodel.units import check, check_dtype


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Deployment:
    """A target and its drafter on some GPUs under an engine: all that decides the times.

    Parameters
    ----------
    target, drafter
        The model served and what drafts for it.
    hardware, engine
        One GPU, and the overheads of the serving stack.
    tensor_parallel, draft_tensor_parallel
        GPUs the target and a draft model are cut over; a head follows the target [-].
    routing_correlation
        How far tokens of one sequence share experts, from 0 to 1 [-].
    """

    target: Architecture
    drafter: Drafter
    hardware: HardwareProfile
    engine: EngineProfile
    tensor_parallel: int = 1
    draft_tensor_parallel: int = 1
    routing_correlation: float = 0.0

    def __post_init__(self) -> None:
        check_tensor_parallel("tensor_parallel", self.tensor_parallel, self.target)
        check("routing_correlation", self.routing_correlation, minimum=0, maximum=1)
        for model in (self.target, self.drafter.architecture):
            if model:
                self.hardware.compute_dtype(model.activation_dtype)
        if self.drafter.architecture:
            check_tensor_parallel(
                "draft_tensor_parallel", self.draft_degree, self.drafter.architecture
            )
        if max(self.tensor_parallel, self.draft_degree) > 1 and self.hardware.link is None:
            expected = f"1, as {self.hardware.name} has no link"
            if self.tensor_parallel > 1:
                raise InputError("tensor_parallel", self.tensor_parallel, expected)
            raise InputError("draft_tensor_parallel", self.draft_degree, expected)

    @property
    def draft_degree(self) -> int:
        """GPUs that the drafter is cut over [-]."""
        return self.tensor_parallel if self.drafter.is_head else self.draft_tensor_parallel


def deploy(
    *,
    target: Architecture | str | Path,
    hardware: HardwareProfile | str | Path,
    drafter: Drafter | Architecture | str | Path,
    engine: EngineProfile | str | Path | None = None,
    routing_correlation: float | None = None,
    tensor_parallel: int | None = None,
    draft_tensor_parallel: int | None = None,
    **dtypes: str | None,
) -> tuple[Deployment, dict[str, Any]]:
    """Return a deployment from records, names or paths, and what was assumed in making it.

    Parameters
    ----------
    target, hardware, drafter, engine
        Records, names that ship with the package, or paths; the engine is "ideal" by default.
    routing_correlation
        How far tokens of one sequence share experts, 0.18 by default [-].
    tensor_parallel, draft_tensor_parallel
        GPUs that the target and a draft model are cut over, 1 by default [-].
    **dtypes
        `weight_dtype`, `activation_dtype` and `kv_dtype` of the target; by default its own.

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
        "draft_tensor_parallel": draft_tensor_parallel,
    }
    assumed = {name: value for name, value in _DEFAULTS.items() if given[name] is None}
    chosen = given | assumed
    target = _target(target, dtypes, assumed)
    if isinstance(drafter, Architecture):
        drafter = model_drafter(drafter)
    elif not isinstance(drafter, Drafter):
        drafter = load_drafter(drafter, target)
    engine = chosen["engine"]
    deployment = Deployment(
        target=target,
        drafter=drafter,
        hardware=hardware if isinstance(hardware, HardwareProfile) else load_hardware(hardware),
        engine=engine if isinstance(engine, EngineProfile) else load_engine(engine),
        tensor_parallel=chosen["tensor_parallel"],
        draft_tensor_parallel=chosen["draft_tensor_parallel"],
        routing_correlation=chosen["routing_correlation"],
    )
    if drafter.architecture is None or drafter.is_head:
        assumed.pop("draft_tensor_parallel", None)
    if not target.is_moe:
        assumed.pop("routing_correlation", None)
    arithmetic = deployment.hardware.compute_dtype(target.activation_dtype)
    if arithmetic != target.activation_dtype:
        assumed["arithmetic"] = f"{arithmetic} (no {target.activation_dtype} peak)"
    return deployment, assumed


_DEFAULTS: dict[str, Any] = {
    "engine": "ideal",
    "routing_correlation": TYPICAL_ROUTING_CORRELATION,
    "tensor_parallel": 1,
    "draft_tensor_parallel": 1,
}


def _target(
    target: Architecture | str | Path, dtypes: dict[str, str | None], assumed: dict[str, Any]
) -> Architecture:
    """Load the target, change the dtypes that were given and note those that were not."""
    if not isinstance(target, Architecture):
        target = load_architecture(target)
    changes: dict[str, object] = {}
    for name, dtype in dtypes.items():
        if dtype is None:
            assumed[name] = getattr(target, name)
        else:
            changes[name] = check_dtype(name, dtype)
    return target.with_changes("target", changes)
