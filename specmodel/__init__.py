"""Predict target efficiency and speedup of speculative decoding on Mixture-of-Experts models.

Names load on first use, so that importing the package costs nothing. See `predict`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specmodel.algebra.acceptance import Acceptance
    from specmodel.base.errors import InputError
    from specmodel.cost.deploy import deploy
    from specmodel.cost.deployment import Deployment
    from specmodel.prediction.decode import decode
    from specmodel.prediction.outcome import Prediction
    from specmodel.prediction.predict import predict
    from specmodel.records.acceptance_presets import list_acceptance, load_acceptance
    from specmodel.records.architecture import Architecture, list_architectures, load_architecture
    from specmodel.records.drafters import (
        Drafter,
        dflash_drafter,
        dspark_drafter,
        eagle3_drafter,
        eagle_drafter,
        list_drafters,
        load_drafter,
        model_drafter,
        mtp_drafter,
        ngram_drafter,
        p_eagle_drafter,
        parallel_drafter,
        pard_drafter,
        suffix_drafter,
    )
    from specmodel.records.engine import EngineProfile, list_engines, load_engine
    from specmodel.records.hardware import HardwareProfile, list_hardware, load_hardware

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
    "decode",
    "deploy",
    "dflash_drafter",
    "dspark_drafter",
    "eagle3_drafter",
    "eagle_drafter",
    "list_acceptance",
    "list_architectures",
    "list_drafters",
    "list_engines",
    "list_hardware",
    "load_acceptance",
    "load_architecture",
    "load_drafter",
    "load_engine",
    "load_hardware",
    "model_drafter",
    "mtp_drafter",
    "ngram_drafter",
    "p_eagle_drafter",
    "parallel_drafter",
    "pard_drafter",
    "predict",
    "suffix_drafter",
]

_HOMES = {
    "algebra.acceptance": ("Acceptance",),
    "records.acceptance_presets": ("list_acceptance", "load_acceptance"),
    "records.architecture": ("Architecture", "list_architectures", "load_architecture"),
    "records.drafters": (
        "Drafter",
        "dflash_drafter",
        "dspark_drafter",
        "eagle3_drafter",
        "eagle_drafter",
        "list_drafters",
        "load_drafter",
        "model_drafter",
        "mtp_drafter",
        "ngram_drafter",
        "p_eagle_drafter",
        "parallel_drafter",
        "pard_drafter",
        "suffix_drafter",
    ),
    "records.engine": ("EngineProfile", "list_engines", "load_engine"),
    "base.errors": ("InputError",),
    "records.hardware": ("HardwareProfile", "list_hardware", "load_hardware"),
    "cost.deploy": ("deploy",),
    "cost.deployment": ("Deployment",),
    "prediction.decode": ("decode",),
    "prediction.outcome": ("Prediction",),
    "prediction.predict": ("predict",),
}
_MODULES = {
    "speculation": "algebra.speculation",
    "experts": "algebra.experts",
    "moesd": "algebra.moesd",
    **{room: room for room in ("answers", "calibrate", "cost", "explorer", "plots")},
    **{room: room for room in ("replay", "sensitivity", "sweeps")},
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{_MODULES[name]}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
