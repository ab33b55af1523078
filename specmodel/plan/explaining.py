"""Explain the gain of speculation by waterfalls of ratios and the components of each pass."""

from __future__ import annotations

from math import factorial
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from specmodel.core.base.units import FloatArray, rows_of
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.passes import ComponentTime
from specmodel.core.layers.work import CAUSES, CAUSES_OF_SOME, Work
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.table import Row

if TYPE_CHECKING:
    import pandas as pd

VERIFY_TERMS = CAUSES[: CAUSES.index("drafting")]
"""Causes that can make a verify pass longer than a plain pass: all except drafting, the last."""

SPEEDUP_TERMS = (*CAUSES, "rejection")
"""Causes that can lower the speedup: all causes, and the rejection of drafted tokens."""

CHUNK = 8_192
"""Points explained at a time [-]."""

_COORDINATES = ("batch_size", "draft_length", "context_length")


class Explanation(Struct, frozen=True, kw_only=True, eq=False):
    """Two waterfalls for each point: losses of target efficiency, and of speedup.

    Parameters
    ----------
    prediction
        The explained points.
    target_efficiency
        Contribution of each of `VERIFY_TERMS` to the difference between the target efficiency and
        1, its value if a verify pass is as fast as a decode step. State and index are absent if no
        layer has them [-].
    ideal_speedup, speedup
        Speedup if all drafted tokens were accepted and a step were as fast as a decode step.
        Contribution of each of `SPEEDUP_TERMS` to the difference between speedup and ideal [-].
    """

    prediction: Prediction
    target_efficiency: dict[str, FloatArray]
    ideal_speedup: FloatArray
    speedup: dict[str, FloatArray]

    @property
    def waterfalls(self) -> dict[str, dict[str, FloatArray]]:
        """Steps of both waterfalls by quantity and term, from ideal to predicted [-]."""
        p = self.prediction
        ends = {
            "target_efficiency": (np.ones_like(p.speedup), self.target_efficiency),
            "speedup": (self.ideal_speedup, self.speedup),
        }
        return {
            quantity: {"ideal": ideal} | terms | {"predicted": getattr(p, quantity)}
            for quantity, (ideal, terms) in ends.items()
        }

    @property
    def largest(self) -> list[dict[str, float]]:
        """The two terms that reduce the speedup most at each point, and by how much [-]."""
        losses = zip(*((-values.ravel()).tolist() for values in self.speedup.values()), strict=True)
        terms = (zip(self.speedup, own, strict=True) for own in losses)
        two = (sorted(each, key=lambda term: -term[1])[:2] for each in terms)
        return [{name: loss for name, loss in each if loss > 0.005} for each in two]

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each point, quantity and step of the waterfall, including both ends."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def rows(self) -> list[Row]:
        """Return the table of `to_frame` as plain rows."""
        p = self.prediction
        steps = [
            {"quantity": quantity, "term": term, "value": np.ravel(values).tolist()}
            for quantity, terms in self.waterfalls.items()
            for term, values in terms.items()
        ]
        points = {name: getattr(p, name).astype(int) for name in _COORDINATES}
        points |= {"tokens_per_step": p.tokens_per_step, "fits": p.fits}
        rows = enumerate(rows_of(points))
        return [point | step | {"value": step["value"][i]} for i, point in rows for step in steps]


def explain(prediction: Prediction) -> Explanation:
    """Return how much each cause reduces target efficiency and speedup.

    Contributions are Shapley values: the mean change when a cause is added, over all orders of
    adding causes one by one. They are computed twice: first in seconds, by
    `StepTimes.growth_by_cause`; then in the ratios ``tokens / (1 + s)``, where s is the time that
    causes add, in units of a decode step. The value of a set of causes depends only on its sum s,
    and on whether the set contains rejection, which reduces the tokens. Therefore 2^8 sets replace
    8! orders (2^10 sets if layers have state and index). If only a share r of the steps has a
    proposal, the ideal is ``1 + r draft_length``. If a verify pass is faster than a decode step,
    the efficiency is 1, and no cause reduces it.

    Parameters
    ----------
    prediction
        Points to explain.

    Returns
    -------
    Explanation
        Contributions, whose sum is exact.

    Examples
    --------
    >>> from specmodel import predict
    >>> p = predict(target="mixtral-8x7b", hardware="h100_sxm", drafter="ngram", draft_length=3,
    ...             batch_size=1, acceptance=0.6, tensor_parallel=2, stack="datasheet")
    >>> terms = explain(p).speedup
    >>> {name: float(value.round(2)) for name, value in terms.items() if abs(value) > 0.005}
    {'experts': -0.28, 'rejection': -0.33}
    """
    evaluation, shape = prediction.evaluation, prediction.speedup.shape
    growth, plain = evaluation.growth_by_cause(), evaluation.forward_time
    relative = np.stack([np.broadcast_to(growth[c] / plain, shape) for c in CAUSES])
    of_pass = relative[: len(VERIFY_TERMS)].copy()
    after_verify = evaluation.times.reject_time + evaluation.replay_time
    of_pass[VERIFY_TERMS.index("overhead")] -= after_verify / plain
    ideal = 1 + prediction.deployment.drafter.proposal_rate * prediction.draft_length
    one = np.ones(shape)
    efficiency = _contributions(of_pass, one, one)[:-1]  # none of them is rejection
    efficiency = np.where(efficiency.sum(axis=0) > 0, 0.0, efficiency)  # it is at most 1
    speedup = _contributions(relative, ideal, prediction.tokens_per_step)
    return Explanation(
        prediction=prediction,
        target_efficiency=_of_layers(prediction, VERIFY_TERMS, efficiency),
        ideal_speedup=ideal,
        speedup=_of_layers(prediction, SPEEDUP_TERMS, speedup),
    )


def _of_layers(
    prediction: Prediction, names: tuple[str, ...], values: FloatArray
) -> dict[str, FloatArray]:
    """Return values by name of a term, without terms that the layers of the model lack."""
    missing = set(CAUSES_OF_SOME) - {*prediction.times.forward.causes.values()}
    return {n: value for n, value in zip(names, values, strict=True) if n not in missing}


def _contributions(costs: FloatArray, ideal: FloatArray, tokens: FloatArray) -> FloatArray:
    """Return the Shapley values of causes, and of rejection, in ``tokens / (1 + costs)`` [-].

    Rejection reduces the `ideal` tokens to `tokens`. Some points are computed at a time, as each
    needs up to 2^10 numbers. Causes without any cost are left out, as their values are 0.
    """
    acts = costs.any(axis=tuple(range(1, costs.ndim)))
    columns = np.concatenate([[ideal, tokens], costs[acts]]).reshape(2 + acts.sum(), -1)
    parts = []
    for start in range(0, columns.shape[1], CHUNK):
        part = columns[:, start : start + CHUNK]
        cost = 1 + coalition_sums(part[2:])
        parts.append(shapley_values(np.concatenate([part[0] / cost, part[1] / cost])))
    found = np.zeros((len(costs) + 1, *ideal.shape))
    found[np.append(acts, True)] = np.concatenate(parts, axis=1).reshape(-1, *ideal.shape)
    return found


def coalition_sums(terms: FloatArray) -> FloatArray:
    """Return the sums of all 2^n subsets of n terms; bit i of an index is 1 if term i is in it."""
    sums = np.zeros((1, *terms.shape[1:]))
    for term in terms:
        sums = np.concatenate([sums, sums + term])
    return sums


def shapley_values(values: FloatArray) -> FloatArray:
    """Return the Shapley value of each player: the mean gain over all orders of joining [-]."""
    # L. S. Shapley, "A Value for n-Person Games," in Contributions to the Theory of Games II,
    # Princeton Univ. Press, 1953, pp. 307-317, Eq. 2, exact. The first axis has the 2^n coalitions;
    # bit i of an index is 1 if player i is a member. Of all n! orders, s! (n - 1 - s)! have exactly
    # the s members of a coalition before a player: the weight of the coalition.
    players = len(values).bit_length() - 1
    coalitions = np.arange(len(values))
    sizes = np.array([int(c).bit_count() for c in coalitions])
    weights = np.array([factorial(s) * factorial(players - 1 - s) for s in range(players)])
    weights = weights / factorial(players)
    found = []
    for player in range(players):
        without = coalitions[coalitions >> player & 1 == 0]
        joined = values[without | 1 << player] - values[without]
        found.append(np.tensordot(weights[sizes[without]], joined, axes=1))
    return np.stack(found)


def pass_components(prediction: Prediction) -> pd.DataFrame:
    """Return the work, time and limits of each component of each pass, on each GPU.

    Parameters
    ----------
    prediction
        Points whose passes to split into components.

    Returns
    -------
    pandas.DataFrame
        A row for each point, pass (forward, verify, draft pass) and component: batch_size,
        draft_length, context_length, fits, pass, component, kind, dtype; time, with launches and
        communication, and hidden_time, which overlaps with other components [s]; peak_share, the
        larger share of the data sheet's bandwidth or arithmetic over both times [-]; flop [FLOP]
        and bytes of device memory [B]; arithmetic_intensity [FLOP/B] and achieved flops_per_s
        [FLOP/s]; peak_flops_per_s [FLOP/s] and peak_bytes_per_s [B/s] of the data sheet, and both
        multiplied by the efficiencies of the kernels (fitted_flops_per_s, fitted_bytes_per_s). Host
        time is a component named host. Undefined values are NaN.

    Examples
    --------
    >>> from specmodel import predict
    >>> p = predict(target="mixtral-8x7b", hardware="h200_sxm", drafter="eagle", draft_length=3,
    ...             batch_size=1, acceptance=0.6, stack="datasheet")
    >>> verify = pass_components(p).query("`pass` == 'verify'")
    >>> bool(np.isclose(verify["time"].sum(), p.verify_time))
    True
    """
    import pandas as pd

    p, shape = prediction, prediction.batch_size.shape
    coordinates = {"draft_length": np.zeros(shape)} | p.values  # plain decoding drafts nothing
    points: dict[str, Any] = {n: np.ravel(coordinates[n]).astype(int) for n in _COORDINATES}
    points |= {"fits": np.ravel(p.fits), "point": np.arange(p.batch_size.size)}
    parts = []
    for label, time in p.evaluation.passes.items():
        columns = {
            name: _columns(part, time.components[name], p.deployment)
            for name, part in time.work().components.items()
        }
        if np.any(time.host_time):
            of_host = {"kind": "host", "time": time.host_time, "hidden_time": 0.0, "flop": 0.0}
            columns["host"] = of_host
        for component, values in columns.items():
            flat = {n: np.ravel(np.broadcast_to(v, shape)) for n, v in values.items()}
            parts.append(pd.DataFrame(points | {"pass": label, "component": component} | flat))
    table = pd.concat(parts, ignore_index=True)
    return table.sort_values("point", kind="stable", ignore_index=True).drop(columns="point")


def _columns(work: Work, time: ComponentTime, deployment: Deployment) -> dict[str, Any]:
    """Return the columns of a component: time, work, rates, and the limits of the rates."""
    seconds, own = time.total_time, time.own_time
    kernels = deployment.kernels.parameters(work.kind, work.stored_dtype, work.dtype)
    peak_bytes = deployment.hardware.memory.peak_bytes_per_s
    arithmetic = deployment.kernels.arithmetic(work.kind, work.stored_dtype, work.dtype)
    peak_flops = deployment.hardware.peak_flops_per_s(arithmetic)
    fitted_flops = kernels.compute_efficiency * peak_flops  # above the peak with a faster dtype
    peak_flops = max(peak_flops, float(fitted_flops))
    moved = np.asarray(work.weight_bytes + work.activation_bytes + work.cache_bytes)
    flop = np.asarray(work.flop)
    is_cached = (kernels.activation_efficiency or 0.0) > 1  # activations come from the L2 cache
    read = moved - is_cached * np.asarray(work.activation_bytes)
    with np.errstate(divide="ignore", invalid="ignore"):
        intensity, attained = flop / moved, flop / own
        of_peak = np.maximum(read / (own * peak_bytes), flop / (own * peak_flops))
    return {
        "kind": work.kind,
        "dtype": work.dtype,
        "time": seconds,
        "hidden_time": time.hidden_time,
        "peak_share": of_peak,
        "flop": flop,
        "bytes": moved,
        "arithmetic_intensity": np.where(moved > 0, intensity, np.nan),
        "flops_per_s": attained,
        "peak_flops_per_s": peak_flops,
        "peak_bytes_per_s": peak_bytes,
        "fitted_flops_per_s": fitted_flops,
        "fitted_bytes_per_s": kernels.memory_efficiency * peak_bytes,
    }
