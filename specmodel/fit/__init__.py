"""Fits to measurements: `fit_<model>` of a published model, of kernels, of an engine."""

from typing import TYPE_CHECKING

from specmodel.base.fronts import front

if TYPE_CHECKING:
    from specmodel.fit.doubts import DoubtfulFitError as DoubtfulFitError
    from specmodel.fit.engine import (
        EngineFitting as EngineFitting,
        fit_engine as fit_engine,
        read_serving as read_serving,
    )
    from specmodel.fit.kernels import (
        KernelFitting as KernelFitting,
        fit_kernels as fit_kernels,
        fitted_stack as fitted_stack,
    )
    from specmodel.fit.moesd import (
        fit_moesd as fit_moesd,
        moesd_bounds as moesd_bounds,
        moesd_speedup as moesd_speedup,
    )
    from specmodel.fit.result import FitResult as FitResult
    from specmodel.fit.update import EngineUpdate as EngineUpdate, update_engine as update_engine

__getattr__, __dir__ = front(__name__)
