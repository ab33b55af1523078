"""Experts that are not equally popular: inclusion probabilities and the union they give.

An inclusion probability is the chance that one token uses an expert; those of a layer sum to the
experts each token uses.
"""

import numpy as np

from specmodel.algebra.experts import check_experts, expert_use, union
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, Numeric, check


def zipf_popularity(num_experts: int, experts_per_token: int, exponent: float) -> FloatArray:
    """Return inclusion probabilities that fall with rank as a power, none above 1.

    Parameters
    ----------
    num_experts, experts_per_token
        Routed experts of the layer and how many each token uses [-].
    exponent
        0 for equally popular experts; larger is more skewed [-].

    Returns
    -------
    FloatArray
        ``min(1, λ rank^-exponent)`` of shape (num_experts,), summing to `experts_per_token` [-].

    Raises
    ------
    InputError
        If an argument is outside its range.

    Examples
    --------
    >>> zipf_popularity(4, 2, 1.0).round(3).tolist()
    [0.96, 0.48, 0.32, 0.24]
    """
    E, k = (int(x) for x in check_experts(num_experts, experts_per_token))
    a = check("popularity_exponent", exponent, minimum=0, maximum=5)
    weight = np.arange(1.0, E + 1) ** -a
    clipped = np.arange(min(k, E - 1) + 1)
    tail = weight[::-1].cumsum()[::-1]
    scale = (k - clipped) / tail[clipped]
    fits = scale * weight[clipped] <= 1 + 1e-12
    first = int(np.argmax(fits))
    return np.where(np.arange(E) < first, 1.0, np.minimum(scale[first] * weight, 1.0))


def check_popularity(popularity: Numeric, num_experts: int, experts_per_token: int) -> FloatArray:
    """Return inclusion probabilities, or say in one line why they cannot be used.

    Parameters
    ----------
    popularity
        Probability that a token uses each expert, shape (num_experts,) [-].
    num_experts, experts_per_token
        Routed experts of the layer and how many each token uses [-].

    Returns
    -------
    FloatArray
        The probabilities [-].

    Raises
    ------
    InputError
        If they are not `num_experts` numbers from 0 to 1 that sum to `experts_per_token`.
    """
    p = check("popularity", popularity, minimum=0, maximum=1)
    if p.shape != (num_experts,):
        shape = " x ".join(map(str, p.shape)) or "1"
        raise InputError("popularity", f"{shape} numbers", f"{num_experts}, one an expert")
    if abs(p.sum() - experts_per_token) > 1e-6 * experts_per_token:
        expected = f"probabilities that sum to experts_per_token = {experts_per_token}"
        raise InputError("popularity", f"a sum of {p.sum():.6g}", expected)
    return p


def popular_active_experts(
    batch_size: Numeric,
    tokens_per_sequence: Numeric,
    popularity: Numeric,
    routing_correlation: Numeric = 0.0,
) -> FloatArray:
    """Return the expected distinct experts of a pass when some experts are more popular.

    Parameters
    ----------
    batch_size
        Sequences in the batch, above 0, any shape [request].
    tokens_per_sequence
        Tokens of each sequence in the pass, broadcasting [token].
    popularity
        Probability that a token uses each expert, shape (num_experts,) [-].
    routing_correlation
        From 0 (independent) to 1 (all tokens use the first one's experts) [-].

    Returns
    -------
    FloatArray
        ``Σ_e 1 - (1 - use_e)^B`` [-].

    Examples
    --------
    >>> float(popular_active_experts(1, 4, zipf_popularity(128, 8, 0.6)).round(1))
    27.0
    """
    s = check("tokens_per_sequence", tokens_per_sequence, minimum=0)
    c = check("routing_correlation", routing_correlation)
    use = expert_use(s[..., None], popularity, c[..., None])
    return union_by_expert(check("batch_size", batch_size, above=0), use)


def union_by_expert(batch_size: FloatArray, use: FloatArray) -> FloatArray:
    """Return the expected distinct experts from the use of each by one sequence.

    Parameters
    ----------
    batch_size
        Sequences in the batch [request].
    use
        Probability that one sequence uses each expert, experts on the last axis [-].

    Returns
    -------
    FloatArray
        ``Σ_e 1 - (1 - use_e)^B``, without the last axis [-].
    """
    one, total = np.ones(()), np.zeros(())
    for experts in np.array_split(np.arange(use.shape[-1]), _groups(batch_size, use)):
        total = total + union(batch_size[..., None], use[..., experts], one).sum(axis=-1)
    return np.asarray(total)


def _groups(batch_size: FloatArray, use: FloatArray) -> int:
    """Return in how many groups of experts to go, so that none takes more than some megabytes."""
    shape = np.broadcast_shapes((*batch_size.shape, 1), use.shape)
    return int(np.clip(np.prod(shape, dtype=float) // 1e6, 1, use.shape[-1]))
