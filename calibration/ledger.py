"""Split each published decode time into terms, and find which term could explain its error.

Usage: python calibration/ledger.py FILE [ROWS]. FILE is a table of measured engines in the form
that `specmodel fit check --serving` reads. With ROWS, the ledger of all rows is written to a CSV of
that name. Terms are the component times of the pass, the time that the host adds, and the time that
prompts of other requests add. The script prints groups by model, engine, GPU and dtype, and the
relation between the share of each term and the error: in all rows, and with each model left out in
turn. A cause is plausible if the sign is the same without any of the models. Runs that contradict
other runs of the table are listed and left out.
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from specmodel.calibrate.fit.measured import read_serving
from specmodel.calibrate.fit.measured.judge import Alike, told_of
from specmodel.calibrate.fit.measured.tables import Served
from specmodel.core.machines.hardware import load_hardware
from specmodel.core.prediction.decoding import decode_deployed

GROUP = ["model", "engine", "hardware", "dtype"]

TERMS = {
    "attention_projections": "projections",
    "attention_core": "attention",
    "routed_experts": "experts",
    "shared_experts": "shared",
    "dense_ffn": "dense ffn",
    "all_reduce": "messages",
    "norms": "norms",
}
"""Names of terms that models share; other components of a pass are one term."""

MOST = 2.0
"""Times as long as on a GPU that reads no faster, above which a run is left out [-]."""

OTHER, HOST, PROMPTS = "other", "host", "prompts"


def main(path: str, rows: str | None = None) -> None:
    """Print the ledger of a table."""
    ledger = ledger_of(path)
    if rows:
        ledger.to_csv(rows, index=False)
    terms = [*dict.fromkeys(TERMS.values()), OTHER, HOST, PROMPTS]
    print("Share of the predicted time [%], by group; `error` is the mean, signs counted:")
    groups = ledger.groupby(GROUP)[["error", *terms]].mean().mul(100).round(0).astype(int)
    groups.insert(0, "rows", ledger.groupby(GROUP).size())
    print(groups.to_string())
    print(
        "\nChange of one term alone that meets the time in the median [%]; - beyond half or double:"
    )
    print(changes(ledger, terms).to_string())
    print("\nCorrelation of the error with the share of a term:")
    print(correlations(ledger, terms).round(2).to_string())


def contradicted(rows: Sequence[Served], most: float = MOST) -> dict[str, float]:
    """Return by row the ratio of a time to that on a GPU that reads no faster [-].

    The rows are those of a deployment and lengths of which one needs more than `most` times as long
    as the same run, with the same engine and layout, on the other GPU.
    """
    runs = pd.DataFrame([_identity(row) for row in rows])
    both = runs.merge(runs, on=["run", "lengths", "batch_size"], suffixes=("", "_of_other"))
    both = both[both["bandwidth_of_other"] <= both["bandwidth"]]
    times = (both["measured"] / both["measured_of_other"]).groupby(both["row"]).max()
    runs["times"] = runs["row"].map(times)
    worst = runs.groupby(["run", "lengths", "hardware"])["times"].transform("max")
    return dict(runs[worst > most].set_index("row")["times"])


def _identity(row: Served) -> dict[str, Any]:
    """Return what ran, how it is loaded, on which GPU, and the time."""
    run = {name: value for name, value in row.deployment.items() if name != "hardware"}
    lengths = {name: value for name, value in row.points.items() if name != "batch_size"}
    hardware = row.labels["hardware"]
    return {
        "row": row.row,
        "run": str((sorted(run.items()), row.labels["model"], row.labels["engine"])),
        "lengths": str(sorted(lengths.items())),
        "batch_size": row.points["batch_size"],
        "hardware": hardware,
        "bandwidth": load_hardware(hardware).memory.peak_bytes_per_s,
        "measured": row.measured,
    }


def ledger_of(path: str) -> pd.DataFrame:
    """Return each plain row of a table with its error and the share of each term [-]."""
    table = read_serving(path)
    plain = [row for row in table.rows if row.tokens_per_step is None]
    without = contradicted(plain)
    if without:
        told = ", ".join(f"{row} ({times:.1f}x)" for row, times in without.items())
        print(f"Left out, as another GPU of the table contradicts them: {told}.\n")
    plain = [row for row in plain if row.row not in without]
    found, _ = told_of(plain, entries)
    return pd.DataFrame(found).fillna(0.0)


def entries(some: Alike) -> dict[str, Any]:
    """Return errors of rows of one deployment, and the share of each term."""
    rows, deployment, assumed, points = some
    predicted = decode_deployed(deployment, assumed, **points)
    alone = {name: points[name] for name in ("batch_size", "context_length")}
    forward = decode_deployed(deployment, assumed, **alone).times.forward
    seconds = dict.fromkeys([*TERMS.values(), OTHER], np.zeros(len(rows)))
    for name, time in forward.components.items():
        term = TERMS.get(name, OTHER)
        seconds[term] = seconds[term] + time.total_time
    seconds[HOST] = forward.total_time - sum(seconds.values())
    seconds[PROMPTS] = predicted.tpot - forward.total_time
    measured = np.array([row.measured for row in rows])
    shares = {term: time / predicted.tpot for term, time in seconds.items()}
    return {"measured": measured, "error": predicted.tpot / measured - 1} | shares


def changes(ledger: pd.DataFrame, terms: list[str]) -> pd.DataFrame:
    """Return by group the change of each term alone that would meet the measured time [%]."""
    needed = 1 / (1 + ledger["error"]) - 1
    alone = ledger[GROUP].copy()
    for term in terms:
        alone[term] = needed / ledger[term].where(ledger[term] > 0)
    medians = alone.groupby(GROUP)[terms].median()
    is_likely = (medians >= -0.5) & (medians <= 1)
    told = medians.mul(100).where(is_likely)
    return told.map(lambda value: "-" if pd.isna(value) else f"{value:+.0f}")


def correlations(ledger: pd.DataFrame, terms: list[str]) -> pd.DataFrame:
    """Return how shares of terms go with errors: in all rows, and without each model [-]."""
    without = {"all": ledger}
    for model in ledger["model"].unique():
        without[f"without {model}"] = ledger[ledger["model"] != model]
    return pd.DataFrame(
        {name: part[terms].corrwith(part["error"]) for name, part in without.items()}
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
