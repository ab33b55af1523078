"""Passes that llama.cpp makes of one batch: a pass takes equally many tokens of each slot."""

from collections.abc import Sequence

import numpy as np

from specmodel.core.base.units import FloatArray


def passes_of_batch(
    tokens: Sequence[int],
    *,
    is_unified: bool = False,
    is_recurrent: bool = False,
    snapshots: int = 0,
) -> int:
    """Return how many passes the target makes of a batch.

    Parameters
    ----------
    tokens
        Tokens of each slot in order, 0 of an idle one [token].
    is_unified
        Whether slots share one cache: their tokens then fit one pass, whatever their numbers.
    is_recurrent
        Whether layers keep states: lengths are then equal in a pass in either case.
    snapshots
        Drafted tokens whose states are kept, which may not fall into two passes; 0 for none
        [token].

    Notes
    -----
    ``llama_batch_allocr::split_equal`` and ``llama_memory_hybrid`` of llama.cpp 0.7.0. With one
    cache for each slot a pass takes slots in a row.

    Examples
    --------
    >>> passes_of_batch([4, 4, 4, 4]), passes_of_batch([4, 3, 2, 1]), passes_of_batch([4, 0, 4])
    (1, 4, 2)
    """
    if is_unified and not is_recurrent:
        return 1
    left = [n for n in tokens if n] if is_unified else [*tokens]
    lengths = [n for n in left if n]
    if snapshots and 0 < max(lengths) - min(lengths) <= snapshots:
        return len(lengths)
    count = 0
    while any(left):
        first = next(i for i, n in enumerate(left) if n)
        rest = left[first:]
        row = rest[: rest.index(0)] if 0 in rest and not is_unified else [n for n in rest if n]
        least, count = min(row), count + 1
        taken = 0
        for i in range(first, len(left)):
            if left[i] and taken < len(row):
                left[i], taken = left[i] - least, taken + 1
    return count


def runs_of_proposing(slots: FloatArray, share: float) -> FloatArray:
    """Return the mean number of runs of slots in a row that have a proposal, at least 1 [-].

    Each of the `slots` has one with chance `share`, whatever the others have [-].
    """
    return np.maximum(share + (slots - 1) * share * (1 - share), 1.0)
