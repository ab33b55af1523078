"""Fits to measurements: `fit_<model>` of a published model, of kernels, of an engine."""

from specmodel.calibrate.fitting.engine import EngineFitting, fit_engine, read_serving
from specmodel.calibrate.fitting.kernels import KernelFitting, fit_kernels, fitted_stack
from specmodel.calibrate.fitting.moesd import fit_moesd, moesd_bounds, moesd_speedup
from specmodel.calibrate.fitting.population import Population, fit_population
from specmodel.calibrate.fitting.result import FitResult
from specmodel.calibrate.fitting.update import EngineUpdate, update_engine

__all__ = [
    "EngineFitting", "EngineUpdate", "FitResult", "KernelFitting", "Population", "fit_engine",
    "fit_kernels", "fit_moesd", "fit_population", "fitted_stack", "moesd_bounds", "moesd_speedup",
    "read_serving", "update_engine",
]  # fmt: skip
