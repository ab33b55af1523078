"""Times and speedup of a long list of unrelated points, in chunks that stay in cache."""

import numpy as np

from specmodel.algebra.acceptance import Acceptance
from specmodel.algebra.speculation import check_draft_length
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, Numeric, check
from specmodel.cost.deployment import Deployment
from specmodel.prediction.columns import BY_NAME
from specmodel.prediction.evaluate import evaluate

CHUNK = 16_384
"""Points computed at a time [-]: large enough to forget Python, small enough for the L2 cache."""

COLUMNS = ("forward_time", "verify_time", "draft_time", "reject_time", "step_time", "speedup")


def point_speedups(
    deployment: Deployment,
    *,
    batch_size: Numeric,
    draft_length: Numeric,
    context_length: Numeric,
    acceptance_rate: Numeric,
) -> dict[str, FloatArray]:
    """Return times and speedup of points that share no axes, such as a random sample.

    For a grid, `predict` with open axes is several times faster: it computes each time once.

    Parameters
    ----------
    deployment
        What runs where.
    batch_size, draft_length, context_length
        Points of one axis, or one number for all [request] [token] [token].
    acceptance_rate
        P(drafted token accepted, all before it were) [-].

    Returns
    -------
    dict
        Arrays by column: those of `COLUMNS`, times in seconds [s] and speedup [-].

    Raises
    ------
    InputError
        If an argument has more than one axis or lengths differ.

    Examples
    --------
    >>> from specmodel.cost.deploy import deploy
    >>> d, _ = deploy(target="mixtral-8x7b", hardware="h100_sxm", drafter="ngram",
    ...               stack="datasheet")
    >>> points = point_speedups(d, batch_size=[1, 64], draft_length=[3, 5], context_length=512,
    ...                         acceptance_rate=0.6)
    >>> points["speedup"].round(2).tolist()
    [1.0, 2.24]
    """
    named = {
        "batch_size": check("batch_size", batch_size, above=0),
        "draft_length": check_draft_length(draft_length),
        "context_length": check("context_length", context_length, minimum=0),
        "acceptance_rate": check("acceptance_rate", acceptance_rate, minimum=0, maximum=1),
    }
    size = max(array.size for array in named.values())
    for name, array in named.items():
        if array.ndim > 1 or array.size not in (1, size):
            expected = f"one number, or a list of {size} as the longest argument"
            raise InputError(name, f"shape {array.shape}", expected)
    points = {name: np.broadcast_to(array, (size,)) for name, array in named.items()}
    alpha = points.pop("acceptance_rate")
    columns = {name: np.empty(size) for name in COLUMNS}
    for start in range(0, size, CHUNK):
        part = slice(start, start + CHUNK)
        chunk = {name: array[part] for name, array in points.items()}
        evaluation = evaluate(deployment, chunk, Acceptance(acceptance_rate=alpha[part]))
        for name in COLUMNS:
            columns[name][part] = BY_NAME[name].of(evaluation)
    return columns
