"""How wide intervals of speedups must be, learned from published hosts that were left out.

Usage: python calibration/speedup_spread.py [TABLE ...]. Judges `tables/engine_pairs.csv` by engines
that were fitted without each row's host, and further tables of pairs by the engines as they ship,
none of whose hosts was used. Prints by host how many intervals hold, and the further spread of a
step at which 80 % would, MOE_STEP_SPREAD of specmodel/prediction/intervals.py: of the class of the
target, all hosts weighing the same, and with each host left out of it. Then, with the spread that
ships, errors and signs by host, and how losses are called.
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
from specmodel.models.architecture import Architecture
from specmodel.prediction import intervals

SURE = 0.03
"""From 1, beyond which a measured speedup is a gain or a loss [-]."""
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
    pd.options.display.width = 160
    pd.options.display.max_columns = None
    shipped = intervals.MOE_STEP_SPREAD
    tables = [read_serving(path) for path in (TABLE, *map(Path, paths))]
    intervals.MOE_STEP_SPREAD = 0.0
    _spreads(_judged(tables))
    intervals.MOE_STEP_SPREAD = shipped
    found = _judged(tables)
    for name in ("host", "class", "head", "profile", "batch"):
        groups = [*found.groupby(name, sort=False), ("all", found)]
        print(pd.DataFrame({name: value, **_told(rows)} for value, rows in groups).round(3))
        print()


def _judged(tables: list[ServingTable]) -> pd.DataFrame:
    """Return all rows as predicted without their hosts; the first table is that of our own."""
    own, *others = tables
    judged = [_with_class(judge_left_out(own), own)]
    judged += [_with_class(judge_serving(table)[0], table) for table in others]
    return pd.concat(judged, ignore_index=True)


def _told(rows: pd.DataFrame) -> dict[str, object]:
    """Return the errors of rows, how many signs are right, and losses told as gains."""
    gains = rows[rows["quantity"] == "speedup"]
    sure = gains[(gains["measured"] - 1).abs() > SURE]
    right = (sure["predicted"] > 1) == (sure["measured"] > 1)
    losses = gains[gains["measured"] < 1 - SURE]
    return {
        "rows": len(rows),
        "mean_error": rows["error"].abs().mean(),
        "bias": rows["error"].mean(),
        "inside": rows["measured"].between(rows["low"], rows["high"]).mean(),
        "signs": right.mean(),
        "of": len(sure),
        "losses": len(losses),
        "above 1": (losses["predicted"] > 1).sum(),
        "called": (losses["low"] > 1).sum(),
        "chance > 0.7": (losses["chance"] > 0.7).sum(),
    }


def _spreads(pairs: pd.DataFrame) -> None:
    """Print by class of targets the spread, and how many intervals hold with that of others."""
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
    """Return the rows with the classes of their targets, drafters, engines and batch sizes."""
    deployments = {row.row: row.deployment for row in table.rows}
    found = [resolve(deployments[row])[0] for row in judged["row"]]
    profiles = [deployments[row]["engine"] for row in judged["row"]]
    batch = pd.cut(judged["batch_size"], [0, 1, 8, 32, np.inf], labels=["1", "2-8", "9-32", "33-"])
    return judged.assign(
        **{"class": [_class_of(deployment.target) for deployment in found]},
        is_moe=[deployment.target.is_moe for deployment in found],
        head=[deployment.drafter.kind for deployment in found],
        profile=profiles,
        batch=batch.astype(str),
    )


def _class_of(target: Architecture) -> str:
    """Return the class of a target: what its tokens share in a verify pass."""
    recurrent = any(mixer.is_recurrent for mixer in target.mixers)
    return ("recurrent " if recurrent else "") + ("MoE" if target.is_moe else "dense")


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
