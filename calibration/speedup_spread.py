"""How wide intervals of speedups must be, learned from published hosts that were left out.

Usage: python calibration/speedup_spread.py [TABLE ...]. Judges `tables/engine_pairs.csv` by engines
that were fitted without each row's host, and further tables of pairs by the engines as they ship,
none of whose hosts was used. Prints by host how many intervals hold, and the further spread of a
step at which 80 % would, MOE_STEP_SPREAD of specmodel/prediction/intervals.py: of the class of the
target, all hosts weighing the same, and with each host left out of it.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from engines import TABLE, judge_left_out
from specmodel.base.units import FloatArray
from specmodel.cost.deploying import resolve
from specmodel.fit.measured import judge_serving, read_serving
from specmodel.fit.measured.tables import ServingTable
from specmodel.prediction import intervals

Z = 1.2816
"""Standard deviations from the middle of a normal law to its deciles [-]."""
SPREADS = np.linspace(0.0, 0.4, 81)


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Pairs as measured and predicted: ln of the ratio, and of the ends of intervals over Z [-]."""

    host: np.ndarray
    is_moe: np.ndarray
    log_error: FloatArray
    below: FloatArray
    above: FloatArray

    def of(self, chosen: np.ndarray) -> "Rows":
        return Rows(**{name: values[chosen] for name, values in vars(self).items()})

    def held(self, spread: float) -> np.ndarray:
        """Return which rows lie inside of their intervals if these have a further spread."""
        own = np.where(self.log_error < 0, self.below, self.above)
        return np.asarray(np.abs(self.log_error) <= Z * np.hypot(own, spread))

    def coverage(self, spread: float) -> float:
        """Return the share of rows that are held, the mean over hosts."""
        return float(pd.Series(self.held(spread)).groupby(self.host).mean().mean())

    def spread(self) -> float:
        """Return the least of `SPREADS` at which 80 % are held, or the largest."""
        enough = (s for s in SPREADS if self.coverage(s) >= intervals.CENTRAL)
        return float(next(enough, SPREADS[-1]))


def main(paths: list[str]) -> None:
    """Judge, and print."""
    intervals.MOE_STEP_SPREAD = 0.0
    own = read_serving(TABLE)
    judged = [_with_class(judge_left_out(own), own)]
    for path in paths:
        table = read_serving(Path(path))
        judged.append(_with_class(judge_serving(table)[0], table))
    pairs = pd.concat(judged, ignore_index=True)
    low, middle, high = (np.log(pairs[name]) for name in ("low", "predicted", "high"))
    rows = Rows(
        host=pairs["host"].to_numpy(),
        is_moe=pairs["is_moe"].to_numpy(),
        log_error=(np.log(pairs["measured"]) - middle).to_numpy(),
        below=((middle - low) / Z).to_numpy(),
        above=((high - middle) / Z).to_numpy(),
    )
    for name, part in (("dense", rows.of(~rows.is_moe)), ("moe", rows.of(rows.is_moe))):
        print(f"{name}: {len(part.host)} rows, spread {part.spread():.3f}")
        found = pd.DataFrame(_left_out(part))
        print(found.round(3).to_string(index=False))
        by_row = np.average(found["left_out"], weights=found["rows"])
        print(f"left out: {by_row:.1%} of the rows, {found['left_out'].mean():.1%} by host\n")


def _with_class(judged: pd.DataFrame, table: ServingTable) -> pd.DataFrame:
    """Return the rows with whether their targets are MoEs."""
    targets = {row.row: resolve(row.deployment)[0].target for row in table.rows}
    return judged.assign(is_moe=[targets[row].is_moe for row in judged["row"]])


def _left_out(rows: Rows) -> list[dict[str, object]]:
    """Return by host how many intervals hold without a further spread, and with that of others."""
    found = list[dict[str, object]]()
    for host in dict.fromkeys(rows.host):
        part, spread = rows.of(rows.host == host), rows.of(rows.host != host).spread()
        shares = {"as_is": part.held(0.0).mean(), "left_out": part.held(spread).mean()}
        found.append({"host": host, "rows": len(part.host), "spread": spread, **shares})
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
