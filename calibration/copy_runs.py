"""Compute copy runs in closed form, and fit them to the figures of measured traces.

At a fixed draft length, the steps of a request are a Markov chain of four states: a position in a
gap or at the start of a run, the position after a run, a position in a short run, and a position in
a long run. A geometric law has no memory: wherever a step begins in a run, the remaining length is
geometric. Figures of many requests are means over the gamma and beta laws, by quadrature.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.special import expit, logit, roots_genlaguerre, roots_jacobi

from specmodel.simulate.traces.copying import CopyProcess, CopyRuns
from specmodel.simulate.traces.statistics import (
    DRAFT_LENGTHS,
    REFERENCE_LENGTH,
    TraceStatistics,
    trace_statistics,
)
from specmodel.simulate.traces.synthetic import sample_trace

Array = NDArray[np.float64]

NODES = 24, 12
"""Nodes of the quadrature over how often runs start, and over the share of short ones [-]."""
MOST_CONCENTRATED = 500.0
"""Above this concentration, requests are treated as equal, because the quadrature overflows [-]."""
STARTS = (3.0, 30.0)
"""Concentrations of the beta law that the search begins with [-]."""
WEIGHTS = {"tokens": 100.0, "other": 20.0}
"""What the relative miss of tokens per step, and of any other figure, is multiplied by."""
BOUNDS = {
    "short_share": (0.05, 0.993), "short_stop": (0.02, 0.98), "long_stop": (0.003, 0.9),
    "start_chance": (0.003, 0.9), "start_shape": (0.4, 90.0), "wrong_in_gaps": (0.0004, 0.5),
    "share_concentration": (3.0, 400.0),
}  # fmt: skip
IN_UNIT = ("short_share", "short_stop", "long_stop", "start_chance", "wrong_in_gaps")
FIRST = {
    "short_share": 0.6, "short_stop": 0.4, "long_stop": 0.1, "start_chance": 0.08,
    "start_shape": 4.0, "wrong_in_gaps": 0.06, "share_concentration": 3.0,
}  # fmt: skip
"""Where the search begins."""
OUTPUTS = 256, 512
"""Lengths of the outputs that are drawn [token]; the study does not publish its own."""
DRAWN_TOKENS = 15e6
"""Output tokens that are drawn to see what closed forms leave out [token]."""


class Nodes(Struct, frozen=True):
    """Kinds of requests: chance that a run starts, share of short runs, and weight."""

    start: Array
    short: Array
    weight: Array

    @classmethod
    def of(cls, runs: CopyRuns) -> "Nodes":
        shape, share = runs.start_shape, runs.short_share
        x, of_x = (np.array([shape]), np.ones(1))
        if shape < 1e3:
            x, of_x = roots_genlaguerre(NODES[0], shape - 1)
        y, of_y = np.array([2 * share - 1]), np.ones(1)
        if runs.share_concentration < MOST_CONCENTRATED and 0 < share < 1:
            a, b = (runs.share_concentration * part for part in (share, 1 - share))
            y, of_y = roots_jacobi(NODES[1], b - 1, a - 1)
        starts = np.minimum(runs.start_chance * x / shape, 1)
        weight = np.outer(of_x / of_x.sum(), of_y / of_y.sum()).ravel()
        return cls(np.repeat(starts, len(y)), np.tile((y + 1) / 2, len(x)), weight)


class Walk:
    """Steps at a fixed draft length, by node: visits per step that begins in a gap, or at a run."""

    def __init__(self, runs: CopyRuns, nodes: Nodes, draft_length: int) -> None:
        self.stop = np.array([runs.short_stop, runs.long_stop])
        self.goes_on = 1 - self.stop
        kinds = np.stack([nodes.short, 1 - nodes.short])
        self.longest, self.entered = draft_length, nodes.start * kinds
        beyond = self.goes_on ** (draft_length + 1)
        self.in_runs = self.entered / (1 - beyond)[:, None]
        self.just_behind = self.stop * self.goes_on**draft_length
        self.behind = (self.in_runs * self.just_behind[:, None]).sum(axis=0)
        self.gaps = 1 - nodes.start
        self.steps = self.gaps + self.behind + self.in_runs.sum(axis=0)
        held = (1 - self.goes_on**draft_length) / self.stop
        self.accepted = (self.in_runs * held[:, None]).sum(axis=0)

    def proposing(self, runs: CopyRuns) -> Array:
        """Visits with a proposal."""
        wrong = self.behind * runs.wrong_at_end + self.gaps * runs.wrong_in_gaps
        return np.asarray(wrong + self.in_runs.sum(axis=0))

    def second_moments(self) -> tuple[Array, Array, Array]:
        """Return variance and covariance of successive accepted tokens, and the long-run variance.

        The last is the sum of the covariances at all distances, by the fundamental matrix of the
        chain.
        """
        k, q, s = self.longest, self.goes_on, self.stop
        size = len(self.steps)
        counts = np.arange(1, k + 1)
        fresh = np.stack([self.gaps, np.zeros(size), *self.entered], axis=1)
        moves, tokens = np.zeros((2, size, 4, 4))  # tokens: E[accepted; next state]
        moves[:, :2] = fresh[:, None]
        squares = np.zeros(size)
        for i in range(2):
            ends = s[i] * q[i] ** (counts - 1)  # the run ends within the draft
            moves[:, 2 + i] = fresh * ends.sum()
            tokens[:, 2 + i] = fresh * (ends @ counts)
            for state, chance in ((1, s[i] * q[i] ** k), (2 + i, q[i] ** (k + 1))):
                moves[:, 2 + i, state] += chance
                tokens[:, 2 + i, state] += k * chance
            squares += self.in_runs[i] * (ends @ counts**2 + q[i] ** k * k**2)
        share = np.stack([self.gaps, self.behind, *self.in_runs], axis=1) / self.steps[:, None]
        mean, expected = self.accepted / self.steps, tokens.sum(axis=2)
        first = np.einsum("ni,nij->nj", share, tokens)
        matrix = np.eye(4) - moves + share[:, None, :]
        ahead = np.linalg.solve(matrix, (expected - mean[:, None])[..., None])[..., 0]
        variance = squares / self.steps - mean**2
        following = np.einsum("nj,nj->n", first, expected) - mean**2
        tail = np.einsum("nj,nj->n", first - mean[:, None] * share, ahead)
        return variance, following, variance + 2 * tail


def expected_statistics(runs: CopyRuns, output_tokens: float) -> dict[str, Any]:
    """Return the figures of `TraceStatistics` of many requests of that length [token]."""
    nodes = Nodes.of(runs)
    weight = nodes.weight
    tokens = []
    for length in DRAFT_LENGTHS:
        walk = Walk(runs, nodes, length)
        tokens.append(1 / (weight @ (walk.steps / (walk.steps + walk.accepted))))
    walk = Walk(runs, nodes, REFERENCE_LENGTH)
    variance, following, long_run = walk.second_moments()
    mean = walk.accepted / walk.steps
    rate = 1 + mean
    spread = weight @ rate**2 - (weight @ rate) ** 2 + weight @ (long_run * rate) / output_tokens
    of_steps = weight / rate / (weight / rate).sum()
    pooled = of_steps @ mean
    above = of_steps @ (following + mean**2) - pooled**2
    below = of_steps @ (variance + mean**2) - pooled**2
    still = Walk(runs, nodes, 0)
    return {
        "tokens_per_step": np.array(tokens),
        "request_spread": np.sqrt(spread),
        "pooled_autocorrelation": above / below,
        "proposing_steps": of_steps @ (walk.proposing(runs) / walk.steps),
        "proposal_share": weight @ (still.proposing(runs) / still.steps),
    }


OTHERS = ("request_spread", "pooled_autocorrelation", "proposing_steps", "proposal_share")


def fit_copy_runs(
    measured: TraceStatistics,
    name: str,
    source: str,
    output_tokens: NDArray[np.int64] | None = None,
) -> CopyProcess:
    """Return the process whose drawn traces have the figures measured.

    Outputs are of the lengths given, or of those assumed for the study [token].
    """
    spread = np.arange(OUTPUTS[0], OUTPUTS[1] + 1)
    choices = spread if output_tokens is None else output_tokens
    # the spread over requests falls with the mean of 1 / length
    mean_length = 1 / float(np.mean(1 / choices))
    wanted = _figures({key: getattr(measured, key) for key in ("tokens_per_step", *OTHERS)})
    target, runs = wanted, None
    for seed in range(3):  # closed forms leave out how requests begin and end
        runs = _solve(target, mean_length, measured.wrong_endings or 0.0)
        process = CopyProcess(name=name, source=source, runs=runs, measured=measured)
        generator = np.random.default_rng(seed)
        size = int(DRAWN_TOKENS / np.mean(choices))
        lengths = generator.choice(choices, size)
        found = _figures(asdict(trace_statistics(sample_trace(process, size, lengths, generator))))
        off = found / wanted - 1
        if np.abs(off).max() < 0.003:
            break
        target = target / (1 + off)
    print(f"{name}: off by at most {np.abs(off[:7]).max():.2%}, {np.abs(off[7:]).max():.2%}")
    return process


def _solve(target: Array, output_tokens: float, wrong_at_end: float) -> CopyRuns:
    names, fixed = tuple(BOUNDS), {"wrong_at_end": wrong_at_end}
    weights = np.array([WEIGHTS["tokens"]] * len(DRAFT_LENGTHS) + [WEIGHTS["other"]] * len(OTHERS))

    def misses(point: Array) -> Array:
        runs = CopyRuns(**_numbers(names, point), **fixed)
        off = _figures(expected_statistics(runs, output_tokens)) / target - 1
        return np.asarray(off * weights)

    found = []
    for concentration in STARTS:
        start, low, high = _search(names, FIRST | {"share_concentration": concentration * 1.01})
        found.append(least_squares(misses, start, bounds=(low, high)))
    best = min(found, key=lambda each: each.cost)
    return CopyRuns(**_rounded(_numbers(names, best.x)), **fixed)


def _figures(found: Any) -> Array:
    return np.array([*found["tokens_per_step"], *(found[name] for name in OTHERS)], dtype=float)


def _search(names: Sequence[str], first: dict[str, float]) -> tuple[Array, Array, Array]:
    """Return start and bounds of a search over logits of shares, and logarithms of the others."""
    rows = [[first[name], *BOUNDS[name]] for name in names]
    points = [logit(row) if name in IN_UNIT else np.log(row) for name, row in zip(names, rows,
              strict=True)]  # fmt: skip
    start, low, high = np.array(points).T
    return start, low, high


def _numbers(names: Sequence[str], point: Array) -> dict[str, float]:
    values = [expit(x) if name in IN_UNIT else np.exp(x) for name, x in zip(names, point,
              strict=True)]  # fmt: skip
    return dict(zip(names, map(float, values), strict=True))


def _rounded(numbers: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in numbers.items()}
