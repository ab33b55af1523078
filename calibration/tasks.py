"""Fit how the acceptance of heads differs between data sets and kinds of tasks.

Usage: python calibration/tasks.py [--write]

`specmodel/core/drafters/data/acceptance.csv` has heads that were measured on several data sets. The
logit of an acceptance rate is modelled as the logit of the head plus a shift of the data set. The
fit uses least squares at the draft length that most data sets of a head share. The shift of a kind
of task is the mean over its data sets that were measured with enough heads. Heads are judged when
left out: tokens per step of one kind of task are predicted from those of another. --write writes
`task_shifts.csv`; the shift of random prompts does not change (`calibration/inferencex.py`).
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from specmodel.core.algebra.speculation import expected_tokens_per_step, solve_acceptance_rate
from specmodel.core.base.units import FloatArray
from specmodel.core.drafters.tasks import MIXED, MIXTURE, task_shifts

DATA = Path(__file__).parents[1] / "specmodel" / "drafters" / "data"
KINDS = [*MIXED, "agents"]
ENOUGH = 4
"""Heads from which on a data set counts for its kind of task [-]."""
PULLED = 0.1
"""Weight of the pull towards 0 for shifts, in units of one data set of one head [-]."""
HEADER = """\
# Logit of the acceptance rate of trained heads on a data set, or on a kind of task: the mean of its
# data sets that four heads and more were measured on. 0 is the mean of code, chat, maths and prose.
# Of a kind also the standard deviation of the rate between data sets of one head, and that of a
# rate derived from another kind. calibration/tasks.py fits them; calibration/inferencex.py the
# shift of random prompts.
"""


def logits_of(tokens_per_step: FloatArray, draft_length: FloatArray) -> FloatArray:
    """Return the logit of the acceptance rate that gives tokens per step at draft lengths [-]."""
    rate = solve_acceptance_rate(tokens_per_step, draft_length)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(rate) - np.log1p(-rate))


def tokens_of(logit: FloatArray, draft_length: FloatArray) -> FloatArray:
    """Return the tokens per step at draft lengths, by the logit of the acceptance rate [token]."""
    return np.asarray(expected_tokens_per_step(1 / (1 + np.exp(-logit)), draft_length))


def measured() -> pd.DataFrame:
    """Return logits of heads by data set, at the draft length that most of a head's share [-]."""
    rows = pd.read_csv(DATA / "acceptance.csv", comment="#")
    rows = rows[rows["task"].isin(KINDS)]
    rows["logit"] = logits_of(rows["tokens_per_step"].to_numpy(), rows["draft_length"].to_numpy())
    keys = ["name", "target", "drafter", "task", "data_set", "draft_length"]
    table = rows[np.isfinite(rows["logit"])].groupby(keys, as_index=False)["logit"].mean()
    sets = table.groupby(["name", "draft_length"], as_index=False)["data_set"].nunique()
    most = sets.sort_values(["name", "data_set", "draft_length"]).groupby("name").tail(1)
    kept: pd.DataFrame = most.loc[most["data_set"] > 1, ["name", "draft_length"]]
    return pd.merge(table, kept)


def fitted(table: pd.DataFrame) -> pd.Series:
    """Return shifts by data set and, under ``kind:``, by kind of task, of mean 0 over `MIXED`."""
    heads, sets = (pd.Index(table[column].unique()) for column in ("name", "data_set"))
    row, count = np.arange(len(table)), len(heads)
    design = np.zeros((len(table) + len(sets), count + len(sets)))
    design[row, heads.get_indexer(table["name"])] = 1
    design[row, count + sets.get_indexer(table["data_set"])] = 1
    design[len(table) :, count:] = PULLED * np.eye(len(sets))
    logits = np.append(table["logit"], np.zeros(len(sets)))
    shifts = pd.Series(np.linalg.lstsq(design, logits, rcond=None)[0][count:], sets)
    for kind in KINDS:
        heads_of = table[table["task"] == kind]["data_set"].value_counts()
        shifts[f"kind:{kind}"] = shifts[heads_of[heads_of >= ENOUGH].index].mean()
    return shifts - shifts[[f"kind:{kind}" for kind in MIXED]].mean()


def judged(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return the errors of tokens a step and of rates, derived from each other kind of task [-].

    Heads, or all heads of a target, are left out of the shifts that they are judged with.
    """
    found = []
    for left, some in table.groupby(by):
        shifts = fitted(table[table[by] != left])
        known = shifts.reindex(some["data_set"]).to_numpy()
        kinds = shifts[[f"kind:{kind}" for kind in some["task"]]].to_numpy()
        some = some.assign(shift=np.where(np.isnan(known), kinds, known))
        for name, own in some.groupby("name"):
            by_kind = dict(iter(own.groupby("task")))
            for first, given in by_kind.items():
                level = (given["logit"] - given["shift"]).mean()
                for second, asked in by_kind.items():
                    if first != second:
                        found.append(
                            (name, own["drafter"].iloc[0], first, second, *_errors(level, asked))
                        )
    return pd.DataFrame(found, columns=["name", "drafter", "known", "asked", "error", "of_rate"])


def _errors(level: float, asked: pd.DataFrame) -> tuple[float, float]:
    """Return the errors of the harmonic mean of tokens a step, and of the mean rate [-]."""
    lengths = asked["draft_length"].to_numpy(float)
    logits = np.array([asked["logit"], level + asked["shift"]])
    right, derived = 1 / (1 / tokens_of(logits, lengths)).mean(axis=1)
    rates = (1 / (1 + np.exp(-logits))).mean(axis=1)
    return derived / right - 1, rates[1] - rates[0]


def mixture_shift(table: pd.DataFrame, shifts: pd.Series) -> float:
    """Return the logit of equal shares of tokens on each of `MIXED`, at a median head [-]."""
    length = np.array(float(table["draft_length"].median()))
    level = float(table["logit"].median())
    kinds = level + shifts[[f"kind:{kind}" for kind in MIXED]].to_numpy()
    tokens = 1 / (1 / tokens_of(kinds, length)).mean()
    return float(logits_of(tokens, length)) - level


def spread_within(table: pd.DataFrame) -> dict[str, float]:
    """Return by kind the standard deviation of the rate between data sets of one head [-]."""
    rates = table.assign(rate=1 / (1 + np.exp(-table["logit"])))
    groups = rates.groupby(["name", "task"])["rate"]
    some = groups.agg(["var", "count"]).dropna().reset_index()
    return {
        str(kind): float(np.average(rows["var"], weights=rows["count"] - 1)) ** 0.5
        for kind, rows in some.groupby("task")
    }


def written(table: pd.DataFrame, errors: pd.DataFrame) -> str:
    """Return the table of shifts as a file."""
    shifts, within = fitted(table), spread_within(table)
    derived = errors.groupby("asked")["of_rate"].apply(lambda off: np.sqrt((off**2).mean()))
    random = task_shifts()["random"]
    lines = [f"{MIXTURE},,{mixture_shift(table, shifts):.3f},,"]
    lines += [f"random,,{random.shift:.3f},{random.spread:.3f},{random.derived_spread:.3f}"]
    for kind in KINDS:
        lines.append(f"{kind},,{shifts[f'kind:{kind}']:.3f},{within[kind]:.3f},{derived[kind]:.3f}")
        heads = table[table["task"] == kind]["data_set"].value_counts()
        sets = sorted(heads[heads >= ENOUGH].index)
        lines += [f"{kind},{name},{shifts[name]:.3f},," for name in sets]
    return HEADER + "\n".join(["task,data_set,shift,spread,derived_spread", *lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--write", action="store_true")
    table = measured()
    for by in ("name", "target"):
        errors = judged(table, by)
        mixed = errors[errors["known"].isin(MIXED) & errors["asked"].isin(MIXED)]
        told = {"each other kind": mixed, "code": mixed[mixed["known"] == "code"]}
        told["code, MTP"] = told["code"][told["code"]["drafter"] == "mtp"]
        for known, some in told.items():
            off, heads = some["error"], some["name"].nunique()
            print(f"{by} left out, from {known}: {off.abs().mean():.1%} in the mean,"
                  f" {off.abs().median():.1%} in the median of {len(off)} of {heads} heads,"
                  f" {off.mean():+.1%}")  # fmt: skip
    if parser.parse_args().write:
        path = DATA / "task_shifts.csv"
        path.write_text(written(table, judged(table, "name")), encoding="utf-8")


if __name__ == "__main__":
    main()
