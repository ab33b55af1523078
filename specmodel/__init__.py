"""Predict target efficiency and speedup of speculative decoding on Mixture-of-Experts models.

Names load on first use, so that importing the package costs nothing. See `predict`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specmodel.acceptance import Acceptance
    from specmodel.architecture import Architecture, list_architectures, load_architecture
    from specmodel.deployment import Deployment, deploy
    from specmodel.drafters import (
        Drafter,
        eagle3_drafter,
        eagle_drafter,
        list_drafters,
        load_drafter,
        model_drafter,
        mtp_drafter,
        ngram_drafter,
        parallel_drafter,
    )
    from specmodel.engine import EngineProfile, list_engines, load_engine
    from specmodel.errors import InputError
    from specmodel.hardware import HardwareProfile, list_hardware, load_hardware
    from specmodel.outcome import Prediction
    from specmodel.prediction import predict

__version__ = "0.1.0"

__all__ = [
    "Acceptance",
    "Architecture",
    "Deployment",
    "Drafter",
    "EngineProfile",
    "HardwareProfile",
    "InputError",
    "Prediction",
    "deploy",
    "eagle3_drafter",
    "eagle_drafter",
    "list_architectures",
    "list_drafters",
    "list_engines",
    "list_hardware",
    "load_architecture",
    "load_drafter",
    "load_engine",
    "load_hardware",
    "model_drafter",
    "mtp_drafter",
    "ngram_drafter",
    "parallel_drafter",
    "predict",
]

_HOMES = {
    "acceptance": ("Acceptance",),
    "architecture": ("Architecture", "list_architectures", "load_architecture"),
    "drafters": (
        "Drafter",
        "eagle3_drafter",
        "eagle_drafter",
        "list_drafters",
        "load_drafter",
        "model_drafter",
        "mtp_drafter",
        "ngram_drafter",
        "parallel_drafter",
    ),
    "engine": ("EngineProfile", "list_engines", "load_engine"),
    "errors": ("InputError",),
    "hardware": ("HardwareProfile", "list_hardware", "load_hardware"),
    "deployment": ("Deployment", "deploy"),
    "outcome": ("Prediction",),
    "prediction": ("predict",),
}
_MODULES = {
    "acceptance",
    "answers",
    "datasets",
    "experts",
    "explorer",
    "fitting",
    "forward",
    "latency",
    "measure",
    "moesd",
    "parallel",
    "passes",
    "plots",
    "points",
    "policies",
    "popularity",
    "routing",
    "scrapes",
    "sensitivity",
    "simulation",
    "speculation",
    "sweeps",
    "traces",
    "unions",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
