"""Fits to measurements: `fit_<model>` of a published model, of kernels, of an engine."""

from specmodel.fitting.moesd import (
    MOESD_COLUMNS,
    fit_moesd,
    moesd_bounds,
    moesd_speedup,
    stride_sample,
)
from specmodel.fitting.result import FitResult

__all__ = [
    "MOESD_COLUMNS",
    "FitResult",
    "fit_moesd",
    "moesd_bounds",
    "moesd_speedup",
    "stride_sample",
]
