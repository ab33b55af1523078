"""The columns of a part, flat: each computed once along the axes it depends on, then repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from specmodel.base.units import FloatArray
from specmodel.prediction.outcome import LIMITS, Prediction
from specmodel.prediction.predict import predict
from specmodel.sweeps.plan import Part

if TYPE_CHECKING:
    import pandas as pd

Column = np.ndarray[Any, np.dtype[Any]]

WHOLE = ("context_length", "batch_size", "draft_length", "verify_tokens")
"""Columns of whole numbers."""

CODED = {"limited_by": LIMITS}
"""Columns that hold places in a list of words."""


def part_columns(part: Part, dtype: type[np.floating[Any]] = np.float64) -> dict[str, Column]:
    """Return the columns of a part, a value for each point.

    Parameters
    ----------
    part
        What is to be computed.
    dtype
        Of the columns that are not whole numbers.

    Returns
    -------
    dict
        By name, in the order of the part; those of `CODED` as places in their list.
    """
    prediction = predict(**part.arguments)
    shape = prediction.speedup.shape
    return {
        name: _flat(_column(prediction, part, name), shape, name, dtype) for name in part.columns
    }


def num_points(columns: dict[str, Column]) -> int:
    """Return how many points flat columns have [-]."""
    return len(next(iter(columns.values())))


def data_frame(parts: Sequence[tuple[dict[str, Any], dict[str, Column]]]) -> pd.DataFrame:
    """Return parts as one tidy table, words as categories.

    Parameters
    ----------
    parts
        Labels and flat columns of each, of the same names.

    Returns
    -------
    pandas.DataFrame
        A row a point.
    """
    import pandas as pd

    sizes = [num_points(columns) for _, columns in parts]
    joined: dict[str, Any] = {}
    for name in parts[0][0]:
        values = [labels[name] for labels, _ in parts]
        if isinstance(values[0], str):
            place = {word: i for i, word in enumerate(dict.fromkeys(values))}
            codes = np.repeat([place[value] for value in values], sizes)
            joined[name] = _categories(codes, list(place))
        else:
            joined[name] = np.repeat(values, sizes)
    for name in parts[0][1]:
        column = np.concatenate([columns[name] for _, columns in parts])
        joined[name] = _categories(column, CODED[name]) if name in CODED else column
    return pd.DataFrame(joined, copy=False)


def _categories(codes: Column, words: Sequence[str]) -> pd.Categorical[str]:
    import pandas as pd

    return pd.Categorical.from_codes(codes, pd.Index(words))


def _column(prediction: Prediction, part: Part, name: str) -> Column:
    if name in CODED:
        return prediction.limit
    if name == "acceptance_rate":
        return _acceptance_rate(prediction, part)
    if prediction.intervals:
        stem, _, end = name.rpartition("_")
        if stem in prediction.intervals and end in ("low", "high"):
            return np.asarray(getattr(prediction.intervals[stem], end))
    return np.asarray(getattr(prediction, name))


def _acceptance_rate(prediction: Prediction, part: Part) -> FloatArray:
    """Return the rate of each point, given or solved: of drafted tokens; there is none of trees."""
    acceptance = part.arguments["acceptance"]
    acceptance = acceptance.where_proposed(prediction.deployment.drafter.proposal_rate)
    if "verify_tokens" not in part.arguments:
        return np.asarray(acceptance.rate())
    is_chain = prediction.verify_tokens == prediction.draft_length + 1
    rate = acceptance.rate() if is_chain.any() else np.nan
    return np.where(is_chain, rate, np.nan)


def _flat(values: Column, shape: tuple[int, ...], name: str, dtype: Any) -> Column:
    """Convert before repeating: most columns depend on few of the axes."""
    if name in WHOLE:
        dtype = np.int32
    elif name in CODED:
        dtype = np.int8
    short = values[tuple(slice(1) if stride == 0 else slice(None) for stride in values.strides)]
    return np.broadcast_to(short.astype(dtype), shape).reshape(-1)
