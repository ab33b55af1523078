"""Fits to measurements: `fit_<model>` of a published model, of kernels, of an engine."""

from specmodel.calibrate.fitting.engine import EngineFitting, fit_engine, read_serving
from specmodel.calibrate.fitting.kernels import KernelFitting, fit_kernels, fitted_stack
from specmodel.calibrate.fitting.moesd import fit_moesd, moesd_bounds, moesd_speedup
from specmodel.calibrate.fitting.result import FitResult

__all__ = [
    "EngineFitting", "FitResult", "KernelFitting", "fit_engine", "fit_kernels", "fit_moesd",
    "fitted_stack", "moesd_bounds", "moesd_speedup", "read_serving",
]  # fmt: skip
