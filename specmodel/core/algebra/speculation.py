"""Compute a draft-and-verify step: acceptance, tokens per step, target efficiency, speedup.

These functions do not depend on models or hardware, and broadcast over NumPy arrays. They follow
[1]_ (expected tokens per step) and [2]_ (step efficiency, target efficiency, speedup). Cascade's
utility [3]_ equals the speedup.

References
----------
.. [1] Y. Leviathan, M. Kalman and Y. Matias, "Fast Inference from Transformers via Speculative
   Decoding," in Proc. ICML, 2023, arXiv:2211.17192.
.. [2] Z. Huang et al., "MoESD: Unveil Speculative Decoding's Potential for Accelerating Sparse
   MoE," in Proc. NeurIPS, 2025, arXiv:2505.19645.
.. [3] A. Saxena et al., "Utility-Driven Speculative Decoding for Mixture-of-Experts,"
   arXiv:2506.20675, 2025.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray, Numeric, check, unwrap

MAX_DRAFT_LENGTH = 1000
"""Longest valid draft, far longer than any draft that pays [token]."""


def expected_tokens_per_step(acceptance_rate: Numeric, draft_length: Numeric) -> FloatArray:
    r"""Return the expected tokens emitted per sequence and step, including the target's own.

    .. math:: \mathrm{tokens\ per\ step} = \sum_{i=0}^{\gamma} \alpha^i
              = \frac{1 - \alpha^{\gamma+1}}{1 - \alpha}

    This is Eq. 1 of Leviathan et al. [1], accurate to rounding even if α is close to 1.

    Parameters
    ----------
    acceptance_rate, draft_length
        Probability that a token is accepted if all earlier ones were [-], and tokens drafted per
        step [token].

    Returns
    -------
    FloatArray
        Tokens per step, from 1 to `draft_length + 1` [token].

    Examples
    --------
    >>> float(expected_tokens_per_step(0.8, 4).round(12))
    3.3616
    """
    alpha = check("acceptance_rate", acceptance_rate, minimum=0, maximum=1)
    gamma = check_draft_length(draft_length)
    return unwrap(_tokens_per_step(alpha, gamma))


def step_efficiency(acceptance_rate: Numeric, draft_length: Numeric) -> FloatArray:
    r"""Return MoESD's σ: tokens emitted per step as a share of the maximum.

    .. math:: \sigma = \frac{1 - \alpha^{\gamma+1}}{(1 - \alpha)(\gamma + 1)}

    This is Eq. 5 of MoESD [2].

    Parameters
    ----------
    acceptance_rate, draft_length
        As for `expected_tokens_per_step` [-] [token].

    Returns
    -------
    FloatArray
        Step efficiency, from 1 / (draft_length + 1) to 1 [-].

    Examples
    --------
    >>> float(step_efficiency(0.8, 4).round(5))
    0.67232
    """
    gamma = check_draft_length(draft_length)
    return expected_tokens_per_step(acceptance_rate, gamma) / (gamma + 1)


def accepted_fraction(acceptance_rate: Numeric, draft_length: Numeric) -> FloatArray:
    """Return accepted over drafted tokens; engines report it as "draft acceptance rate".

    Parameters
    ----------
    acceptance_rate, draft_length
        As for `expected_tokens_per_step`; the length is at least 1 [-] [token].

    Returns
    -------
    FloatArray
        Accepted fraction, at most `acceptance_rate` [-].

    Examples
    --------
    >>> float(accepted_fraction(0.8, 4).round(4))
    0.5904
    """
    gamma = check_draft_length(draft_length, minimum=1)
    return (expected_tokens_per_step(acceptance_rate, gamma) - 1) / gamma


def solve_acceptance_rate(tokens_per_step: Numeric, draft_length: Numeric) -> FloatArray:
    """Return the acceptance rate that gives `tokens_per_step`: inverse `expected_tokens_per_step`.

    Parameters
    ----------
    tokens_per_step, draft_length
        Tokens emitted per sequence and step, and the measured draft length [token].

    Returns
    -------
    FloatArray
        Acceptance rate, accurate to rounding [-].

    Examples
    --------
    >>> float(solve_acceptance_rate(3.3616, 4).round(12))
    0.8
    """
    gamma = check_draft_length(draft_length, minimum=1)
    tokens = check("tokens_per_step", tokens_per_step, minimum=1)
    if (tokens > gamma + 1).any():
        bad, length = (a[tokens > gamma + 1][0] for a in np.broadcast_arrays(tokens, gamma))
        expected = f"numbers from 1 to draft_length + 1 = {length + 1:g}"
        raise InputError("tokens_per_step", float(bad), expected)
    return unwrap(_invert_tokens_per_step(tokens, gamma))


def target_efficiency(forward_time: Numeric, verify_time: Numeric) -> FloatArray:
    r"""Return the time of a decode step over the time of a verify pass.

    .. math:: \mathrm{target\ efficiency} = \frac{T_T(B, 1)}{T_T(B, \gamma + 1)}

    This is the inverse of the middle term of Eq. 4 of MoESD [2], which has no number there.

    Parameters
    ----------
    forward_time, verify_time
        Time of a pass with one token per sequence, and of a verify pass of the same batch [s].

    Returns
    -------
    FloatArray
        1 if verifying is free, ``1 / verify_tokens`` if fully compute-bound [-].
    """
    return check("forward_time", forward_time, above=0) / check("verify_time", verify_time, above=0)


def relative_step_time(forward_time: Numeric, step_time: Numeric) -> FloatArray:
    """Return the time of a speculative step relative to a decode step: Cascade's cost.

    Parameters
    ----------
    forward_time, step_time
        Times of a pass with one token per sequence; of drafting, verification and rejection [s].

    Returns
    -------
    FloatArray
        Relative step time [-].
    """
    return check("step_time", step_time, above=0) / check("forward_time", forward_time, above=0)


def utility(tokens_per_step: Numeric, relative_step_time: Numeric) -> FloatArray:
    r"""Return Cascade's utility: benefit over cost, which equals the speedup [3].

    .. math:: U = \frac{\mathrm{tokens\ per\ step}}{T_\mathrm{step} / T_T(B, 1)}

    Parameters
    ----------
    tokens_per_step, relative_step_time
        Tokens emitted per sequence and step [token]; step time relative to a decode step [-].

    Returns
    -------
    FloatArray
        Utility; speculation pays above 1 [-].
    """
    tokens = check("tokens_per_step", tokens_per_step, minimum=0)
    return tokens / check("relative_step_time", relative_step_time, above=0)


def speedup(
    tokens_per_step: Numeric,
    forward_time: Numeric,
    verify_time: Numeric,
    draft_time: Numeric = 0.0,
    reject_time: Numeric = 0.0,
) -> FloatArray:
    r"""Return the time without speculation over the time with it, for the same tokens.

    .. math:: \mathrm{speedup} = \frac{\sigma (\gamma + 1)\, T_T(B, 1)}
              {\gamma T_D + T_T(B, \gamma + 1) + T_\mathrm{reject}}

    This is Eq. 4 of MoESD [2]. σ (γ + 1) is the tokens per step, and γ T_D the draft time.

    Parameters
    ----------
    tokens_per_step
        Tokens emitted per sequence and step [token].
    forward_time, verify_time, draft_time, reject_time
        Time of a decode step and of a verify pass; drafting and rejection sampling of a step [s].

    Returns
    -------
    FloatArray
        Speedup [-].

    Examples
    --------
    >>> float(speedup(3.0, 0.010, 0.014, draft_time=0.005, reject_time=0.001))
    1.5
    """
    verify = check("verify_time", verify_time, above=0)
    draft = check("draft_time", draft_time, minimum=0)
    step_time = draft + verify + check("reject_time", reject_time, minimum=0)
    return utility(tokens_per_step, relative_step_time(forward_time, step_time))


def break_even_acceptance_rate(
    relative_step_time: Numeric, draft_length: Numeric, proposal_rate: float = 1.0
) -> FloatArray:
    r"""Return the acceptance rate above which speculation pays, where the utility is 1.

    .. math:: 1 + r \left(\frac{1 - \alpha^{\gamma+1}}{1 - \alpha} - 1\right)
              = \frac{T_\mathrm{step}}{T_T(B, 1)}

    Parameters
    ----------
    relative_step_time, draft_length
        Time of a step relative to a decode step [-], and tokens drafted in it [token].
    proposal_rate
        Share of steps with a proposal; other steps emit one token [-].

    Returns
    -------
    FloatArray
        The rate; 0 if speculation pays at any rate, NaN if no rate pays [-].

    Examples
    --------
    >>> break_even_acceptance_rate([0.9, 1.5, 9.0], [1, 1, 4]).round(12).tolist()
    [0.0, 0.5, nan]
    """
    cost = check("relative_step_time", relative_step_time, above=0)
    gamma = check_draft_length(draft_length)
    rate_of_proposals = float(check("proposal_rate", proposal_rate, minimum=0, maximum=1))
    if rate_of_proposals == 0:
        return unwrap(np.full(np.broadcast_shapes(cost.shape, gamma.shape), np.nan))
    needed = 1 + (cost - 1) / rate_of_proposals
    attainable = (gamma >= 1) & (needed <= gamma + 1)
    rate = _invert_tokens_per_step(np.where(attainable, np.maximum(needed, 1), 1), gamma)
    return unwrap(np.where(attainable, rate, np.nan))


def best_draft_length(speedup: Numeric, draft_length: Numeric, axis: int = -1) -> FloatArray:
    """Return the first draft length with the largest speedup; 0 if no speedup is above 1.

    Parameters
    ----------
    speedup, draft_length
        Speedups [-] of candidate lengths in ascending order [token].
    axis
        Axis of `speedup` that runs over the candidates [-].

    Returns
    -------
    FloatArray
        Best length, with `axis` removed [token].

    Examples
    --------
    >>> best_draft_length([[1.2, 1.5, 1.4], [0.9, 0.8, 0.7]], [1, 2, 3]).tolist()
    [2.0, 0.0]
    """
    gain = np.moveaxis(np.atleast_1d(check("speedup", speedup)), axis, 0)
    gamma = np.atleast_1d(check_draft_length(draft_length))
    if gamma.shape != gain.shape[:1] or (np.diff(gamma) <= 0).any():
        expected = f"{gain.shape[0]} rising draft lengths, one for each speedup"
        raise InputError("draft_length", draft_length, expected)
    place, _ = first_of_largest(gain, 1.0, gain.shape[1:])
    return unwrap(np.append(gamma, 0.0)[place])


def first_of_largest(
    candidates: Iterable[FloatArray], floor: FloatArray | float, shape: tuple[int, ...]
) -> tuple[NDArray[np.int16], FloatArray]:
    """Return which of some candidates is the largest, element by element, and the largest.

    Parameters
    ----------
    candidates
        Arrays to compare; an iterator may compute them one by one [-].
    floor, shape
        Value that the largest must exceed [-], and the shape to which all arrays broadcast.

    Returns
    -------
    tuple of NDArray
        Index of the first largest, and its value; -1 and the floor if none exceeds the floor [-].
    """
    most, first = np.full(shape, floor), np.full(shape, -1, dtype=np.int16)
    for index, candidate in enumerate(candidates):
        np.copyto(first, index, where=candidate > most)
        np.maximum(most, candidate, out=most)
    return first, most


def check_draft_length(value: Numeric, *, minimum: float = 0, whole: bool = False) -> FloatArray:
    """Check draft lengths, and return them as an array.

    Parameters
    ----------
    value
        Draft lengths, any shape [token].
    minimum, whole
        Smallest valid length [token], and whether lengths must be whole numbers.

    Returns
    -------
    FloatArray
        The same draft lengths [token].
    """
    return check("draft_length", value, minimum=minimum, maximum=MAX_DRAFT_LENGTH, whole=whole)


def _tokens_per_step(alpha: FloatArray, gamma: FloatArray) -> FloatArray:
    """Return ``1 + α (1 - α^γ) / (1 - α)``, exactly 1 at α = 0 or γ = 0, and at least 1."""
    logarithm = np.log(np.maximum(alpha, np.finfo(float).tiny))
    with np.errstate(divide="ignore", invalid="ignore"):
        before = -np.expm1(gamma * logarithm) / (1 - alpha)
    return 1 + alpha * np.where(alpha == 1, gamma, before)


def _tokens_per_step_slope(alpha: FloatArray, gamma: FloatArray, tokens: FloatArray) -> FloatArray:
    """Return the derivative of ``Σ_{i<=γ} α^i`` with respect to α.

    Near α = 1, the closed form loses all digits. Two terms of the series in 1 - α replace it; the
    first two derivatives at 1 are ``Σ i = γ(γ+1)/2`` and ``Σ i(i-1) = (γ-1)γ(γ+1)/3``.
    """
    rest = 1 - alpha
    with np.errstate(divide="ignore", invalid="ignore"):
        closed = (tokens - (gamma + 1) * alpha**gamma) / rest
    series = gamma * (gamma + 1) * (0.5 - rest * (gamma - 1) / 3)
    return np.where(gamma * rest < 1e-4, series, closed)


def _invert_tokens_per_step(tokens: FloatArray, gamma: FloatArray) -> FloatArray:
    """Solve ``Σ_{i<=γ} α^i = tokens`` by Newton's method, without importing scipy.

    The sum is convex in α, so the method decreases to the root from any start above it, such as the
    root of the first three terms, ``1 + α + α² = tokens``. The last step squares an error below
    1e-9. Points that have converged do not change, so no point depends on its neighbours.
    """
    tokens, gamma = np.broadcast_arrays(tokens, np.maximum(gamma, 1.0))
    three_terms = (np.sqrt(4 * tokens - 3) - 1) / 2
    alpha = np.minimum(np.where(gamma >= 2, three_terms, tokens - 1), 1.0)
    is_done = np.zeros(alpha.shape, dtype=bool)
    for _ in range(100):
        value = _tokens_per_step(alpha, gamma)
        step = (value - tokens) / _tokens_per_step_slope(alpha, gamma, value)
        alpha = np.where(is_done, alpha, np.clip(alpha - step, 0.0, 1.0))
        is_done |= np.abs(step) < 1e-9
        if is_done.all():
            break
    return alpha
