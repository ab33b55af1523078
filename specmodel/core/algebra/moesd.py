"""Implement the ten-parameter model of MoESD [1]_, equation by equation.

After a fit, the model describes one deployment. The rest of this library predicts deployments that
nobody has measured. As in the paper, the verify pass has ``batch_size x draft_length`` tokens.
Engines verify one more token per sequence.

References
----------
.. [1] Z. Huang et al., "MoESD: Unveil Speculative Decoding's Potential for Accelerating Sparse
   MoE," in Proc. NeurIPS, 2025, arXiv:2505.19645.
"""

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from specmodel.core.algebra import experts, speculation
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray, Numeric, check, unwrap


class MoESDParameters(Struct, frozen=True, kw_only=True):
    """The ten parameters of Algorithm 1, named as in the paper.

    Parameters
    ----------
    bias, k1, k2, k3
        Loading dense parameters, growth with tokens, loading an expert, growth with its tokens [s].
    draft_bias, draft_k, reject_bias, reject_k
        Loading the drafter, its growth with the batch, rejection, rejection per request [s].
    lam
        λ, share of the ridge point at which growth turns linear [-].
    s
        Base of the growth function, at least 1 [-].
    """

    bias: float
    k1: float
    k2: float
    k3: float
    draft_bias: float
    draft_k: float
    reject_bias: float
    reject_k: float
    lam: float
    s: float

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            check(name, value, minimum=1 if name == "s" else 0)


def growth(t: Numeric, threshold: Numeric, base: Numeric) -> FloatArray:
    r"""Return MoESD's growth of time with tokens: exponential, then linear, smooth in between.

    .. math:: G(t; \lambda RP, s) = \begin{cases} s^t & t \le \lambda RP \\
              s^{\lambda RP} (1 + \ln s\, (t - \lambda RP)) & t > \lambda RP \end{cases}

    Eq. 11 of MoESD.

    Parameters
    ----------
    t, threshold
        Tokens, of the pass or per expert, and λ RP, from which growth is linear [token].
    base
        s, at least 1; s to the power of `threshold` must not overflow [-].

    Returns
    -------
    FloatArray
        G(t; λRP, s) [-].

    Examples
    --------
    >>> growth([0, 2, 3], threshold=2, base=2).round(4).tolist()
    [1.0, 4.0, 6.7726]
    """
    t = check("t", t, minimum=0)
    threshold = check("threshold", threshold, minimum=0)
    base = check("base", base, minimum=1)
    if (threshold * np.log(base) > 700).any():
        raise InputError("base", base.tolist(), "base ** threshold below 1e304")
    exponential = base ** np.minimum(t, threshold)
    return np.asarray(exponential * (1 + np.log(base) * np.maximum(t - threshold, 0)))


def forward_time(
    num_tokens: Numeric,
    parameters: MoESDParameters,
    *,
    ridge_point: Numeric,
    num_experts: Numeric,
    experts_per_token: Numeric,
) -> FloatArray:
    r"""Return the time of a target pass.

    .. math:: T_T(t) = b + k_1 G(t) + k_2 N(t) + k_3 G(T_\mathrm{exp}(t))

    Algorithm 1 of MoESD.

    Parameters
    ----------
    num_tokens, parameters
        Tokens in the pass [token], and the ten parameters.
    ridge_point
        RP of the hardware [FLOP/B].
    num_experts, experts_per_token
        Routed experts of a layer, and the number that each token uses [-].

    Returns
    -------
    FloatArray
        T_T [s].
    """
    p = parameters
    threshold = p.lam * check("ridge_point", ridge_point, above=0)
    T_exp = experts.tokens_per_expert(num_tokens, num_experts, experts_per_token)
    return (
        p.bias
        + p.k1 * growth(num_tokens, threshold, p.s)
        + p.k2 * experts.active_experts(num_tokens, num_experts, experts_per_token)
        + p.k3 * growth(T_exp, threshold, p.s)
    )


def draft_pass_time(
    batch_size: Numeric, parameters: MoESDParameters, *, ridge_point: Numeric
) -> FloatArray:
    r"""Return the time of one pass of the drafter.

    .. math:: T_D = \mathrm{draft\_bias} + \mathrm{draft\_k}\, G(B)

    Algorithm 1 of MoESD.

    Parameters
    ----------
    batch_size, parameters, ridge_point
        Sequences in the batch [request], the ten parameters, and RP of the hardware [FLOP/B].

    Returns
    -------
    FloatArray
        T_D(B, 1) [s].
    """
    threshold = parameters.lam * check("ridge_point", ridge_point, above=0)
    B = check("batch_size", batch_size, above=0)
    return parameters.draft_bias + parameters.draft_k * growth(B, threshold, parameters.s)


def reject_time(batch_size: Numeric, parameters: MoESDParameters) -> FloatArray:
    r"""Return the time of rejection sampling.

    .. math:: T_\mathrm{reject} = \mathrm{reject\_bias} + \mathrm{reject\_k}\, B

    Algorithm 1 of MoESD.

    Parameters
    ----------
    batch_size, parameters
        Sequences in the batch [request], and the ten parameters.

    Returns
    -------
    FloatArray
        T_reject [s].
    """
    B = check("batch_size", batch_size, above=0)
    return unwrap(parameters.reject_bias + parameters.reject_k * B)


def speedup(
    batch_size: Numeric,
    draft_length: Numeric,
    step_efficiency: Numeric,
    parameters: MoESDParameters,
    *,
    ridge_point: Numeric,
    num_experts: Numeric,
    experts_per_token: Numeric,
) -> FloatArray:
    r"""Return the speedup that MoESD's model predicts.

    .. math:: \frac{\sigma (\gamma + 1)\, T_T(B)}{\gamma T_D + T_T(B \gamma) + T_\mathrm{reject}}

    This is Eq. 4. Line 11 of the printed Algorithm 1 has ``draft + ar + verify + reject`` as its
    denominator. That contradicts Eq. 4, which the comment of this line cites. It would also limit
    the speedup to ``σ (γ+1)/2``, which most measured cells of the paper exceed.

    Parameters
    ----------
    batch_size, draft_length
        Sequences in the batch [request] and tokens drafted [token].
    step_efficiency
        σ [-].
    parameters, ridge_point, num_experts, experts_per_token
        As for `forward_time` [FLOP/B] [-].

    Returns
    -------
    FloatArray
        Speedup [-].

    Examples
    --------
    >>> p = MoESDParameters(bias=1, k1=0, k2=0, k3=0, draft_bias=0.25, draft_k=0, reject_bias=0,
    ...                     reject_k=0, lam=0.5, s=1)
    >>> float(speedup(1, 4, 0.8, p, ridge_point=150, num_experts=64, experts_per_token=8))
    2.0
    """
    B = check("batch_size", batch_size, above=0)
    gamma = check("draft_length", draft_length, minimum=1)
    sigma = check("step_efficiency", step_efficiency, above=0, maximum=1)
    how = {"num_experts": num_experts, "experts_per_token": experts_per_token}
    how |= {"ridge_point": ridge_point}
    ar, verify = (forward_time(t, parameters, **how) for t in (B, B * gamma))
    draft = gamma * draft_pass_time(B, parameters, ridge_point=ridge_point)
    tokens = sigma * (gamma + 1)
    return speculation.speedup(tokens, ar, verify, draft, reject_time(B, parameters))
