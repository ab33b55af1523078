"""Fit the shipped acceptance processes to measured ones.

Usage: python calibration/presets.py [NAME ...]. Reads acceptance.csv of calibration/tables
and writes specmodel/simulate/traces/presets/*.toml. The numbers are the same every time.

Look-ups are copy runs (`copy_runs`). For heads, three parameters (shares of requests and regimes,
length of regimes) are fitted to the autocorrelation and the spread over requests. For each trial,
the survival is solved so that walks of all seven draft lengths emit the measured tokens per step.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import brentq, minimize

from copy_runs import OUTPUTS, fit_copy_runs
from specmodel.core.base.files import write_text
from specmodel.core.base.records import toml_text
from specmodel.simulate.traces.record import Trace
from specmodel.simulate.traces.statistics import DRAFT_LENGTHS, TraceStatistics, trace_statistics
from specmodel.simulate.traces.synthetic import FOLDER, AcceptanceProcess, Process, sample_trace

TABLE = Path(__file__).parent / "tables/acceptance.csv"
SHORTEST, LONGEST = OUTPUTS
SEARCH_SETS, FINAL_SETS = 10, 60
"""How many times as many requests as the study has are drawn: in the search, and for the survival
that ships."""
STARTS = (0.5, 0.5, 12.0), (0.27, 0.73, 50.0), (0.12, 0.12, 1.6)
"""Where the search begins, three times: the part of the latent's variance that tokens of a request
share, how much of that the request has throughout, and how many tokens a regime lasts [token]."""
ROUNDING_WEIGHT = 1e-3
"""What it costs to leave a published figure by 0.0001, within its rounding; a bend in the decay of
the gains costs its square."""
REGIME_WEIGHT = 0.05
"""Penalty of longer regimes, by their logarithm. Similar requests with long regimes fit about as
well as different requests with short regimes; the penalty decides between them."""
TOLERANCES = {"pooled_autocorrelation": 0.005, "request_spread": 0.005}
"""What the miss of each figure is divided by: a few hundredths of it."""


FIGURES = (
    "proposing_steps", "request_spread", "pooled_autocorrelation", "autocorrelation_within",
    "proposal_share", "wrong_endings",
)  # fmt: skip
"""Further columns of the table, after tokens per step."""


def measured_statistics(row: pd.Series) -> TraceStatistics:
    return TraceStatistics(
        num_requests=int(row["num_requests"]),
        draft_lengths=list(DRAFT_LENGTHS),
        tokens_per_step=[float(row[str(length)]) for length in DRAFT_LENGTHS],
        **{name: float(row[name]) for name in FIGURES if np.isfinite(row[name])},
    )


def unrounded(tokens_per_step: list[float]) -> np.ndarray:
    """Return tokens per step that round to the published ones and increase as smoothly as possible.

    Taken literally, 1.18, 1.18, 1.19 would mean that no sixth token is ever accepted, but an eighth
    is. Smooth means that the rate at which the gain of a further token decays changes as little as
    possible.
    """
    published = np.array(tokens_per_step)
    ends = np.append(0, DRAFT_LENGTHS)
    middles = (ends[1:] + ends[:-1] + 1) / 2

    def roughness(off: np.ndarray) -> float:
        gains = np.maximum(np.diff(published + off / 10_000, prepend=1) / np.diff(ends), 1e-6)
        decay = -np.diff(np.log(gains)) / np.diff(middles)
        return float(np.square(np.diff(decay)).sum() + ROUNDING_WEIGHT * np.square(off).sum())

    start = np.linspace(-4, 4, len(published))
    best = minimize(roughness, start, method="L-BFGS-B", bounds=[(-4.9, 4.9)] * len(start))
    return np.asarray(published + best.x / 10_000)


def survival(gains: np.ndarray, highest: float) -> list[float]:
    """Return P(at least i accepted) with given sums between successive draft lengths.

    Only the sums are known. Between two lengths, the survival falls geometrically to the start of
    the next range.
    """
    levels = [min(gains[0], highest)]
    for gain, width in zip(gains[1:], np.diff(DRAFT_LENGTHS), strict=True):
        last, powers = levels[-1], np.arange(1, width + 1)
        ratio = 1.0
        if gain < last * width:
            ratio = brentq(lambda c, last=last, powers=powers, gain=gain:
                           last * (c**powers).sum() - gain, 0, 1)  # fmt: skip
        levels += (last * ratio**powers).tolist()
    return [float(f"{level:.6g}") for level in levels]


SOURCE = (
    "calibration/presets.py on Llama-3.1-8B-Instruct, greedy, traces of a benchmark without"
    f" requests of 8,000 tokens and more; outputs of {SHORTEST} to {LONGEST} tokens"
)


class Fit:
    """Search for the process of one row of a head."""

    def __init__(self, row: pd.Series) -> None:
        self.row, self.measured = row, measured_statistics(row)
        self.target = unrounded(self.measured.tokens_per_step)
        self.gains = np.diff(self.target, prepend=1)
        self.tried: list[tuple[float, AcceptanceProcess]] = []

    def process(
        self, request_share: float, regime_share: float, tokens: float
    ) -> AcceptanceProcess:
        return AcceptanceProcess(
            name=f"{self.row['data']}, {self.row['drafter']}",
            source=SOURCE,
            survival=survival(self.gains, self.measured.proposal_share or 1),
            proposal_share=self.measured.proposal_share or 1,
            request_share=float(f"{request_share:.4g}"),
            regime_share=float(f"{regime_share:.4g}"),
            regime_tokens=float(f"{tokens:.4g}"),
            measured=self.measured,
        )

    def solve(
        self, shape: tuple[float, float, float], sets: int, within: float, seed: int
    ) -> tuple[AcceptanceProcess, Trace, TraceStatistics]:
        """Scale the sums of the survival until the walks emit the measured tokens per step."""
        num_requests = sets * self.measured.num_requests
        lengths = np.random.default_rng(seed).integers(SHORTEST, LONGEST + 1, num_requests)
        wanted = np.diff(self.target, prepend=1)
        for _ in range(30):
            process = self.process(*shape)
            trace = sample_trace(process, num_requests, lengths, np.random.default_rng(seed + 1))
            found = trace_statistics(trace)
            if np.abs(found.tokens_per_step / self.target - 1).max() < within:
                break
            gained = np.diff(found.tokens_per_step, prepend=1)
            self.gains = np.where(
                gained > 0, self.gains * wanted / np.maximum(gained, 1e-9), wanted
            )
        return process, trace, found

    def miss(self, point: np.ndarray) -> float:
        """Return the squared misses at a point, and keep them with the process."""
        shared, of_requests = 1 / (1 + np.exp(-point[:2]))
        shape = shared * of_requests, shared * (1 - of_requests), 1 + np.exp(min(point[2], 9))
        process, trace, found = self.solve(shape, SEARCH_SETS, within=2e-3, seed=1)
        size = self.measured.num_requests
        sets = [
            trace_statistics(trace.part(i * size, (i + 1) * size), ()) for i in range(SEARCH_SETS)
        ]
        misses = [
            (np.mean([getattr(part, name) for part in sets]) - getattr(self.measured, name)) / scale
            for name, scale in TOLERANCES.items()
        ]
        off = np.abs(found.tokens_per_step / self.target - 1).max()
        total = float(np.square(misses).sum() + (max(0, off - 0.002) / 0.005) ** 2)
        total += REGIME_WEIGHT * float(np.log(process.regime_tokens))
        self.tried.append((total, process))
        return total

    def run(self) -> AcceptanceProcess:
        for shared, of_requests, tokens in STARTS:
            self.gains = np.diff(self.target, prepend=1)
            start = [np.log(p / (1 - p)) for p in (shared, of_requests)] + [np.log(tokens - 1)]
            simplex = np.array([start, *(start + np.eye(3))])
            options = {"maxfev": 60, "xatol": 0.02, "fatol": 0.02, "initial_simplex": simplex}
            minimize(self.miss, start, method="Nelder-Mead", options=options)
        total, best = min(self.tried, key=lambda tried: tried[0])
        shape = best.request_share, best.regime_share, best.regime_tokens
        process, _, found = self.solve(shape, FINAL_SETS, within=3e-4, seed=3)
        off = np.abs(found.tokens_per_step / self.target - 1).max()
        print(
            f"{self.row['name']}: misses {total:.2f}, tokens per step off by {off:.2%}", flush=True
        )
        return process


def fit(row: pd.Series) -> Process:
    name, measured = str(row["name"]), measured_statistics(row)
    if name.endswith("-ngram"):
        return fit_copy_runs(measured, f"{row['data']}, {row['drafter']}", SOURCE)
    return Fit(row).run()


def main(names: list[str]) -> None:
    rows = pd.read_csv(TABLE, comment="#").set_index("name", drop=False)
    for name, row in (rows.loc[names] if names else rows).iterrows():
        write_text(FOLDER / f"{name}.toml", toml_text(fit(row)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
