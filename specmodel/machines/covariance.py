"""Covariances of fitted parameters, as records of fits have them."""

from collections.abc import Collection

import numpy as np

from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray

_LARGEST_VARIANCE = 1e4  # of a logarithm: beyond, nothing at all is known
_ROUNDING = 1e-3


def limited_covariance(covariance: FloatArray) -> FloatArray:
    """Return a covariance in no direction of which more than `_LARGEST_VARIANCE` is recorded.

    Few rows that hardly name a parameter give more than any logarithm can be unsure of.
    """
    variances, directions = np.linalg.eigh((covariance + covariance.T) / 2)
    if variances.max(initial=0.0) <= _LARGEST_VARIANCE:
        return covariance
    scaled = directions * np.clip(variances, 0.0, 0.999 * _LARGEST_VARIANCE)
    return np.asarray(scaled @ directions.T, float)


def check_covariance(
    table: str, varied: list[str], covariance: list[list[float]], known: Collection[str]
) -> None:
    """Refuse what cannot be the covariance of the logarithms of the parameters `varied`.

    `table` is where the fit stands in its record, for messages: a name and a dot, or nothing.
    """
    size = len(varied)
    if not set(varied) <= set(known) or len(set(varied)) < size:
        raise InputError(f"{table}varied", varied, f"each once of {', '.join(known)}")
    if [len(row) for row in covariance] != [size] * size:
        raise InputError(f"{table}covariance", covariance, f"{size} rows of {size} numbers")
    matrix = np.array(covariance).reshape(size, size)
    largest = np.abs(matrix).max(initial=0.0)
    lost = _ROUNDING * largest
    if largest > _LARGEST_VARIANCE or (np.abs(matrix - matrix.T) > lost).any():
        expected = f"a symmetric matrix of numbers up to {_LARGEST_VARIANCE:g}"
        raise InputError(f"{table}covariance", covariance, expected)
    if size and np.linalg.eigvalsh(matrix).min() < -lost:
        expected = "variances, and covariances that they allow"
        raise InputError(f"{table}covariance", covariance, expected)
