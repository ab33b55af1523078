"""Count the distinct experts that a pass loads, with and without independent routing.

With independent routing, the count follows Eqs. 8-10 of MoESD [1]_. Measured models load fewer
experts, because the tokens of one sequence share experts; the sequences of a batch do not.
`routing_correlation` is the correlation between two tokens of a sequence in the use of one expert.
It can be measured directly, and one number per model fits the published counts
(`unions.measured_unions`). It includes every cause for which tokens choose the same experts. One
cause is popularity, which also acts between sequences: it reduces the count of a whole batch and
loads GPUs unevenly. If you give the spread of popularity (`routing.rate_of`), the correlation is at
least the correlation that popularity causes. If you give the popularity of each expert, give only
the remaining correlation.

References
----------
.. [1] Z. Huang et al., "MoESD: Unveil Speculative Decoding's Potential for Accelerating Sparse
   MoE," in Proc. NeurIPS, 2025, arXiv:2505.19645.
"""

import numpy as np

from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray, Numeric, check, unwrap

TYPICAL_ROUTING_CORRELATION = 0.18
"""Default correlation [-]: the median of nine models with measured routers
(``cost/data/routing.csv``, and 0.29 for Cohere's model)."""

PLAUSIBLE_ROUTING_CORRELATIONS = (0.0, 0.3)
"""Range of published models [-]."""

PLAUSIBLE_POPULARITY_SPREADS = (0.0, 1.9)
"""Range of the standard deviation of experts' popularity over its mean [-], from equal popularity
to the least balanced published deployment."""

MAX_TOKENS_PER_SEQUENCE = 4096
"""Maximum tokens of one sequence in a verify pass [token]."""

LONGEST_SEQUENCE = 1e9
"""Maximum tokens of one sequence for which correlated experts are counted [token]."""

_MULTIPLIED = 128
"""Number of tokens whose factors are multiplied one by one. For further tokens, the logarithms of
their factors are integrated [token]."""


def active_experts(
    num_tokens: Numeric, num_experts: Numeric, experts_per_token: Numeric
) -> FloatArray:
    r"""Return the expected distinct experts that independently routed tokens activate per layer.

    .. math:: N(t) = E \left(1 - \left(\frac{E - k}{E}\right)^t\right)

    This is Eq. 8 of MoESD [1]. It is exact for uniformly random subsets of k experts.

    Parameters
    ----------
    num_tokens
        Tokens in the pass, real-valued [token].
    num_experts, experts_per_token
        Routed experts of the layer, and the number of experts that each token uses [-].

    Returns
    -------
    FloatArray
        N(t), from 0 to `num_experts` [-].

    Examples
    --------
    >>> active_experts([1, 5, 1000], 64, 8).round(2).tolist()
    [8.0, 31.17, 64.0]
    """
    t = check("num_tokens", num_tokens, minimum=0)
    E, k = check_experts(num_experts, experts_per_token)
    return unwrap(np.where(t == 0, 0.0, union(np.where(t == 0, 1.0, t), k, E)))


def tokens_per_expert(
    num_tokens: Numeric, num_experts: Numeric, experts_per_token: Numeric
) -> FloatArray:
    r"""Return the mean number of tokens that each activated expert processes.

    .. math:: T_\mathrm{exp} = \frac{t\,k}{N(t)}

    This is Eq. 10 of MoESD [1].

    Parameters
    ----------
    num_tokens, num_experts, experts_per_token
        As for `active_experts`, tokens above 0 [token] [-].

    Returns
    -------
    FloatArray
        T_exp, at least 1 for one or more tokens [token].
    """
    t = check("num_tokens", num_tokens, above=0)
    E, k = check_experts(num_experts, experts_per_token)
    return t * k / active_experts(t, E, k)


def saturation_tokens(
    num_experts: Numeric, experts_per_token: Numeric, share: Numeric = 0.95
) -> FloatArray:
    r"""Return the number of independent tokens that activate a share of all experts.

    .. math:: T_\mathrm{thres} = \left\lceil \log_{1-\rho} (1 - \tau) \right\rceil,
              \qquad \rho = k / E

    This is Eq. 9 of MoESD [1].

    Parameters
    ----------
    num_experts, experts_per_token, share
        As for `active_experts`, and the share of experts that counts as full activation [-].

    Returns
    -------
    FloatArray
        T_thres [token].

    Examples
    --------
    >>> float(saturation_tokens(64, 8))
    23.0
    """
    E, k = check_experts(num_experts, experts_per_token)
    tau = check("share", share, above=0, maximum=1 - 1e-12)
    with np.errstate(divide="ignore"):
        exact = np.log1p(-tau) / np.log1p(-k / E)
    return unwrap(np.maximum(np.ceil(exact - 1e-9), 1.0))


def expert_use(
    tokens_per_sequence: Numeric, inclusion: Numeric, routing_correlation: Numeric
) -> FloatArray:
    r"""Return the probability that an expert is used by the tokens of one sequence.

    .. math:: 1 - U(s), \qquad U(s) = \prod_{i=0}^{s-1} \frac{(1-p)(1-c) + i c}{(1-c) + i c}

    This is a beta-binomial law. Each sequence has its own probability X of using the expert, drawn
    from a Beta distribution with mean p. The correlation between two of its tokens is
    ``c = 1 / (a + b + 1)``, which gives ``a = p (1 - c) / c`` and ``b = (1 - p) (1 - c) / c``. The
    product is ``E[(1 - X)^s]``. A fraction of a token raises the last factor to this power. Factors
    beyond the 128th occur only in prompts and change slowly. Their product is a ratio of Gamma
    functions, computed by Stirling's series; its error is below 1e-12.

    Parameters
    ----------
    tokens_per_sequence
        Tokens of the sequence in the pass, real-valued [token].
    inclusion
        Probability that one token uses the expert; k/E if all are equally popular [-].
    routing_correlation
        From 0 (independent tokens) to 1 (all tokens use the experts of the first) [-].

    Returns
    -------
    FloatArray
        Probability of use [-].

    Examples
    --------
    >>> expert_use([1, 2], 0.25, 0.0).tolist()
    [0.25, 0.4375]
    """
    s = check("tokens_per_sequence", tokens_per_sequence, minimum=0, maximum=LONGEST_SEQUENCE)
    p = check("inclusion", inclusion, minimum=0, maximum=1)
    c = check("routing_correlation", routing_correlation, minimum=0, maximum=1)
    longest = s.max()
    is_common = p.ndim == c.ndim == 0 and (s.size > 1 or longest > 2)
    if is_common and bool((s == np.floor(s)).all()):
        factors = _next_unused(np.arange(1, min(longest, _MULTIPLIED)), p, c)
        table = np.cumprod([1.0, 1 - p, *factors])
        unused = table[np.minimum(s, _MULTIPLIED).astype(np.intp)]
    else:
        unused = (1 - p) ** np.minimum(s, 1)
        for i in range(1, int(np.ceil(min(longest, _MULTIPLIED)))):
            unused = unused * _next_unused(i, p, c) ** np.clip(s - i, 0, 1)
    if longest > _MULTIPLIED:
        whole = np.floor(np.maximum(s, _MULTIPLIED))
        rest = np.maximum(s, _MULTIPLIED) - whole
        unused = unused * _unused_beyond(whole, p, c) * _next_unused(whole, p, c) ** rest
    return np.asarray(1 - unused)


def correlated_active_experts(
    batch_size: Numeric,
    tokens_per_sequence: Numeric,
    num_experts: Numeric,
    experts_per_token: Numeric,
    routing_correlation: Numeric,
) -> FloatArray:
    """Return the expected distinct experts of a pass in which tokens of one sequence share experts.

    Parameters
    ----------
    batch_size, tokens_per_sequence
        Sequences in the batch [request], and tokens of each in the pass [token].
    num_experts, experts_per_token, routing_correlation
        As for `active_experts` and `expert_use` [-].

    Returns
    -------
    FloatArray
        Active experts; at correlation 0 equal to ``active_experts(batch x tokens)`` [-].

    Examples
    --------
    >>> correlated_active_experts(1, 4, 128, 8, [0.0, 0.29, 1.0]).round(2).tolist()
    [29.12, 20.38, 8.0]
    """
    B = check("batch_size", batch_size, above=0)
    E, k = check_experts(num_experts, experts_per_token)
    of_sequence = E * expert_use(tokens_per_sequence, k / E, routing_correlation)
    return unwrap(union(B, of_sequence, E))


def _next_unused(i: Numeric, p: FloatArray, c: FloatArray) -> FloatArray:
    """Return the probability that token i does not use an expert if the i tokens before did not."""
    before = np.asarray(i) * c
    denominator = (1 - c) + before
    with np.errstate(invalid="ignore"):
        return np.where(denominator > 0, ((1 - p) * (1 - c) + before) / denominator, 1 - p)


def _unused_beyond(s: FloatArray, p: FloatArray, c: FloatArray) -> FloatArray:
    """Return the probability that tokens 128 to s do not use an expert, if no earlier one did [-].

    The product of their factors is a ratio of Gamma functions of ``b + i`` and ``a + b + i``, whose
    logarithms follow from Stirling's series.
    """
    n, per_c = s - _MULTIPLIED, (1 - c) / np.maximum(c, 1e-290)
    x, y = _MULTIPLIED + (1 - np.minimum(p, 1 - 1e-16)) * per_c, _MULTIPLIED + per_c

    def grown(z: FloatArray) -> FloatArray:
        last, first = 1 / (z + n), 1 / z
        return (z - 0.5) * np.log1p(n / z) + (last - first) / 12 - (last**3 - first**3) / 360

    return np.exp(n * np.log1p((x - y) / (y + n)) + grown(x) - grown(y))


def check_experts(
    num_experts: Numeric, experts_per_token: Numeric
) -> tuple[FloatArray, FloatArray]:
    """Check both counts, and return them as arrays.

    Parameters
    ----------
    num_experts, experts_per_token
        Number of experts, E, and number that the router chooses for a token, k, any shape [-].

    Returns
    -------
    tuple of FloatArray
        E and k [-].
    """
    E = check("num_experts", num_experts, minimum=1)
    k = check("experts_per_token", experts_per_token, above=0)
    if (k > E).any():
        expected = f"at most num_experts = {abs(np.min(E)):g}"
        raise InputError("experts_per_token", experts_per_token, expected)
    return E, k


def union(count: FloatArray, each: FloatArray, E: FloatArray) -> FloatArray:
    r"""Return the expected union of `count` independent draws of `each` of E members.

    .. math:: E \left(1 - \left(1 - \frac{\mathrm{each}}{E}\right)^\mathrm{count}\right)

    Parameters
    ----------
    count
        Draws, any shape [-].
    each, E
        Expected members of one draw, and number of all members [-].

    Returns
    -------
    FloatArray
        Expected distinct members [-].
    """
    with np.errstate(divide="ignore"):
        return -E * np.expm1(count * np.log1p(-each / E))
