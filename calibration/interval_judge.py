"""Judge intervals of speedups and words on gains with published hosts that were left out.

Usage: python calibration/interval_judge.py TABLE ... [--without-own]. Tables have pairs with and
without speculation, in the form that `specmodel fit check --serving` reads. The script fits the law
of differences between hosts (HOST_SHARE, RECURRENT_SPREAD, UNSEEN_CHANCE and UNSEEN_COST of
specmodel/core/prediction/intervals.py) to all hosts, and for each host to the others. It prints the
constants to ship, and then errors and intervals by table, class and host, each host with the law of
the others, and how gains and losses were called. Engines are the shipped ones, to which some of the
hosts contributed. With --without-own, hosts of `tables/engine_pairs.csv` have engines fitted
without them, which needs minutes.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from msgspec import Struct
from msgspec.structs import asdict, replace
from scipy import optimize, special, stats

from engines import TABLE, engine_of_others, fit, rows_for, runs
from specmodel.calibrate.fit.measured import judge_serving, read_serving
from specmodel.calibrate.fit.measured.tables import Served, ServingTable
from specmodel.core.algebra.acceptance import mean_tokens_per_step
from specmodel.core.base.units import NORMAL_80, FloatArray
from specmodel.core.cost.deploying import resolve
from specmodel.core.drafters.kinds.models import pard_drafter
from specmodel.core.models.architecture import Architecture, list_architectures, load_architecture
from specmodel.core.prediction import intervals
from specmodel.core.prediction.best import ALIKE
from specmodel.core.prediction.ground import LIKELY, SURELY

CONSTANTS = ("HOST_SHARE", "RECURRENT_SPREAD", "UNSEEN_CHANCE", "UNSEEN_COST")
FIRST = (0.5, 0.06, 0.05, 0.6)
"""Where the search for them begins."""
LOSS, GAIN = 1.0, 1.1
"""Measured speedups below are losses, above are gains that must not be called losses [-]."""
_COLUMNS = {
    "tp": "tensor_parallel",
    "ep": "expert_parallel",
    "batch": "batch_size_or_concurrency",
    "context": "context_length",
    "base_tpot": "base_tpot_ms",
    "spec_tpot": "spec_tpot_ms",
}
"""Other names of columns."""
_NOTED = {"temperature": r"^temperature (\d+)", "proposal_rate": r"proposal_rate=([\d.]+)"}
"""Columns that are in the notes of rows."""


class Errors(Struct, frozen=True, kw_only=True, eq=False):
    """Logarithms of measured over predicted speedups, and variances that are not sought [-]."""

    host: np.ndarray
    is_recurrent: np.ndarray
    log_error: FloatArray
    of_host: FloatArray
    others: FloatArray

    def of(self, chosen: np.ndarray) -> "Errors":
        return Errors(**{name: values[chosen] for name, values in asdict(self).items()})

    def law(self) -> list[float]:
        """Return the constants at which the errors are likeliest; a host weighs as its root."""
        sizes = pd.Series(self.host).map(pd.Series(self.host).value_counts())
        weights = sizes.to_numpy(dtype=float) ** -0.5

        def unlikeliness(scaled: FloatArray) -> float:
            return float(-(weights * np.log(self._density(*_unscaled(scaled)))).sum())

        first = [*np.log(FIRST[:2]), special.logit(FIRST[2]), np.log(FIRST[3])]
        found = optimize.minimize(unlikeliness, first, method="Nelder-Mead").x
        return _unscaled(found)

    def _density(self, share: float, recurrent: float, chance: float, cost: float) -> FloatArray:
        further = np.where(self.is_recurrent, recurrent, 0.0)
        spread = np.sqrt(share**2 * self.of_host + self.others + further**2)
        unseen = stats.exponnorm.pdf(-self.log_error, cost / spread, 0.0, spread)
        usual = stats.norm.pdf(self.log_error, 0.0, spread)
        return np.asarray((1 - chance) * usual + chance * unseen)


def _unscaled(scaled: FloatArray) -> list[float]:
    share, recurrent, chance, cost = scaled.tolist()
    return [np.exp(share), np.exp(recurrent), float(special.expit(chance)), np.exp(cost)]


def main(words: list[str]) -> None:
    """Judge, and print."""
    pd.options.display.width = 160
    pd.options.display.max_columns = None
    paths = [word for word in words if not word.startswith("--")]
    tables = {Path(path).stem: read(path) for path in paths}
    if "--without-own" in words:
        tables = without_own(tables)
    errors = errors_of(tables)
    for name, value in zip(CONSTANTS, errors.law(), strict=True):
        print(f"{name} = {value:.3f}  (ships {getattr(intervals, name):g})")
    found = judged_left_out(tables, errors)
    for name in ("table", "class", "host"):
        groups = [*found.groupby(name, sort=False), ("all", found)]
        print(f"\n{pd.DataFrame({name: value, **told(rows)} for value, rows in groups).round(3)}")
    print(f"\n{by_word(found).round(3).to_string(index=False)}")
    print(f"\n{in_order(found).round(3).to_string(index=False)}")


def read(path: str) -> ServingTable:
    """Return the pairs of a table, under other names of columns and with drafters not shipped."""
    frame = pd.read_csv(path).rename(columns=_COLUMNS)
    if "profile" in frame:  # of an engine that is none of ours
        frame["engine"] = frame["profile"].where(frame["engine"] == "atom", frame["engine"])
    if "variant" in frame:  # acceptance that is not the run's own judges nothing
        frame = frame[frame["variant"] != "tau assumed"].copy()
    if "notes" in frame:
        for name, told in _NOTED.items():
            if name not in frame and (found := frame["notes"].str.extract(told)[0]).notna().any():
                frame[name] = found
    models = frame["drafter"].isin(list_architectures())
    frame.loc[models, "drafter"] = "draft model: " + frame["drafter"]
    frame["target"] = frame["target"].str.replace(r"hf_configs/Qwen__(.*)/.*", r"\1", regex=True)
    renamed = Path(path).name
    table = _read_frame(frame, renamed)
    model = pard_drafter(load_architecture("qwen3-0.6b"))
    named = [name for name in ("drafter", "variant", "dataset") if name in frame]
    cells = frame.set_index("id")[named].fillna("").astype(str).agg(" ".join, axis=1)

    def taken(row: Served) -> Served:
        own = {"drafter": model} if row.deployment["drafter"] == "pard" else {}
        labels = {**row.labels, "cell": cells[row.row]}
        tokens, rate = row.tokens_per_step, row.deployment.get("proposal_rate")
        if rate is not None and row.deployment["engine"] == "vllm":
            # its acceptance length counts steps with a draft alone (`make_spec_decoding_stats`)
            tokens = float(mean_tokens_per_step(tokens or 1.0, rate))
        deployment = {**row.deployment, **own}
        return replace(row, deployment=deployment, labels=labels, tokens_per_step=tokens)

    return replace(table, rows=tuple(map(taken, table.rows)))


def _read_frame(frame: pd.DataFrame, name: str) -> ServingTable:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        frame.to_csv(path := Path(folder) / name, index=False)
        return read_serving(path)


def without_own(tables: dict[str, ServingTable]) -> dict[str, ServingTable]:
    """Return tables whose hosts have engines that were fitted without them."""
    ours = runs(TABLE).rows
    engines = dict[tuple[str, str], object]()

    def engine(row: Served) -> object:
        name, host = str(row.deployment["engine"]), row.labels["host"]
        if (name, host) not in engines:
            others = [other for other in ours if other.labels["host"] != host]
            is_own = len(others) < len(ours)
            population = fit(rows_for(name, others)) if is_own else None
            engines[name, host] = engine_of_others(population, row, others) if population else name
        return engines[name, host]

    def changed(row: Served) -> Served:
        return replace(row, deployment={**row.deployment, "engine": engine(row)})

    return {
        name: replace(table, rows=tuple(map(changed, table.rows))) for name, table in tables.items()
    }


def judged(tables: dict[str, ServingTable]) -> pd.DataFrame:
    """Return all rows with predictions, and step times as their inverses, in which gains grow."""
    found = []
    for name, table in tables.items():
        rows = judge_serving(table)[0]
        deployments = {row.row: row.deployment for row in table.rows}
        targets = [resolve(deployments[row])[0].target for row in rows["row"]]
        is_step = rows["quantity"] == "step_time"
        ends = ("measured", "predicted", "low", "high")
        values = {end: rows[end].where(~is_step, 1 / rows[end]) for end in ends}
        low, high = (np.where(is_step, values[a], values[b]) for a, b in (ends[:1:-1], ends[2:]))
        classes = {"table": name, "class": [*map(class_of, targets)]}
        found.append(rows.assign(**values | {"low": low, "high": high} | classes))
    return pd.concat(found, ignore_index=True)


def class_of(target: Architecture) -> str:
    """Return the class of a target: what its tokens share in a verify pass."""
    recurrent = any(mixer.is_recurrent for mixer in target.mixers)
    return ("recurrent " if recurrent else "") + ("MoE" if target.is_moe else "dense")


def errors_of(tables: dict[str, ServingTable]) -> Errors:
    """Return the errors of all rows, with the variances without the fitted law."""
    with_host, without = (
        _variances(_at_law(tables, [share, 0.0, 0.0, 0.0])) for share in (1.0, 0.0)
    )
    rows = _at_law(tables, [1.0, 0.0, 0.0, 0.0])
    return Errors(
        host=rows["host"].to_numpy(),
        is_recurrent=np.array(["recurrent" in name for name in rows["class"]]),
        log_error=np.asarray(np.log(rows["measured"] / rows["predicted"])),
        of_host=np.maximum(with_host - without, 0.0),
        others=without,
    )


def _variances(rows: pd.DataFrame) -> FloatArray:
    """Return the variances of that side of an interval on which the measured speedup lies [-]."""
    is_below = rows["measured"] < rows["predicted"]
    end = rows["low"].where(is_below, rows["high"])
    return np.asarray((np.log(end / rows["predicted"]) / NORMAL_80) ** 2)


def _at_law(tables: dict[str, ServingTable], law: list[float]) -> pd.DataFrame:
    """Return the rows as judged with other constants."""
    shipped = [getattr(intervals, name) for name in CONSTANTS]
    try:
        for name, value in zip(CONSTANTS, law, strict=True):
            setattr(intervals, name, value)
        return judged(tables)
    finally:
        for name, value in zip(CONSTANTS, shipped, strict=True):
            setattr(intervals, name, value)


def judged_left_out(tables: dict[str, ServingTable], errors: Errors) -> pd.DataFrame:
    """Return the rows of each host as judged by the law of the others."""
    found = []
    for host in dict.fromkeys(errors.host):
        own = {
            name: replace(table, rows=rows)
            for name, table in tables.items()
            if (rows := tuple(row for row in table.rows if row.labels["host"] == host))
        }
        found.append(_at_law(own, errors.of(errors.host != host).law()))
    return pd.concat(found, ignore_index=True)


def told(rows: pd.DataFrame) -> dict[str, object]:
    """Return errors of rows, shares inside intervals, and how gains and losses were called."""
    log_error = np.log(rows["predicted"] / rows["measured"])
    speedups = rows[rows["quantity"] == "speedup"]
    losses = speedups[speedups["measured"] < LOSS]
    gains = speedups[speedups["measured"] > GAIN]
    return {
        "rows": len(rows),
        "mean_error": np.abs(log_error).mean(),
        "bias": log_error.mean(),
        "inside": rows["measured"].between(rows["low"], rows["high"]).mean(),
        "losses": len(losses),
        "called": (losses["chance"] < 0.5).mean(),
        "gains": len(gains),
        "called losses": (gains["chance"] < 0.5).mean(),
    }


def by_word(rows: pd.DataFrame) -> pd.DataFrame:
    """Return how often the word for a chance was right, for gains and for losses."""
    speedups = rows[rows["quantity"] == "speedup"]
    likelier = np.maximum(speedups["chance"], 1 - speedups["chance"])
    speedups = speedups.assign(
        word=np.select([likelier >= SURELY, likelier >= LIKELY], ["surely", "likely"], "may"),
        said=np.where(speedups["chance"] < 0.5, "loss", "gain"),
        held=(speedups["measured"] > LOSS) == (speedups["chance"] >= 0.5),
    )
    groups = speedups.groupby(["said", "word"])["held"]
    return groups.agg(rows="size", held="mean").reset_index()


def in_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Return how often two draft lengths of one load are as predicted, near each other or apart."""
    loads = ["cell", "host", "model", "tensor_parallel", "batch_size", "context_length"]
    own = rows[[*loads, "draft_length", "predicted", "measured"]]
    both = own.merge(own, on=loads, suffixes=("", "_longer"))
    both = both[both["draft_length"] < both["draft_length_longer"]]
    gaps = {name: np.log(both[f"{name}_longer"] / both[name]) for name in ("predicted", "measured")}
    told = pd.DataFrame(
        {
            "alike": np.abs(gaps["predicted"]) < -np.log(1 - ALIKE),
            "in order": (gaps["predicted"] > 0) == (gaps["measured"] > 0),
        }
    )
    return told.groupby("alike")["in order"].agg(pairs="size", share="mean").reset_index()


if __name__ == "__main__":
    main(sys.argv[1:])
