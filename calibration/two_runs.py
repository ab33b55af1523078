"""Judge predictions for published hosts from two of their runs: one plain, one speculative.

Usage: python calibration/two_runs.py [TABLE] [--first-plain]. TABLE has the form that
`interval_judge.py` reads, and is by default our own table. For our table, the engines are fitted
without any row of the host; for others, they are the shipped ones. Each row with a speedup is
chosen in turn. Its two runs update the engine as in `specmodel fit engine`, and the speedups of the
other rows of the host are predicted. Runs with warnings are listed and left out. For each host, the
script prints the mean error with its first row chosen, and the smallest, mean and largest error
over all choices. It also prints how many of the other rows are on the right side of 1 under every
choice, and how many lose. With --first-plain, the plain run of a target is that of its first row,
whose batch size may differ.
"""

import argparse
from collections.abc import Sequence
from datetime import date

import numpy as np
import pandas as pd
from msgspec.structs import replace

import interval_judge
from engines import TABLE, engine_of_others, fit
from specmodel.calibrate.fit import update_engine
from specmodel.calibrate.fit.measured import judge_serving, read_serving
from specmodel.calibrate.fit.measured.tables import Served, ServingTable
from specmodel.core.machines.engine import EngineProfile, load_engine


def two_runs(row: Served, of_plain: Served) -> list[Served]:
    """Return a row's speculative step and a plain one, or its speedup if no steps are published."""
    if row.plain_step is None or row.tokens_per_step is None or of_plain.plain_step is None:
        return [row]
    points = {**of_plain.points, "draft_length": 0, "verify_tokens": 1}
    plain = replace(of_plain, quantity="step_time", points=points, measured=of_plain.plain_step)
    step = row.tokens_per_step * row.plain_step / row.measured
    return [plain, replace(row, quantity="step_time", measured=step)]


def others_judged(
    table: ServingTable, host: str, *, first_plain: bool = False, is_fitted: bool = True
) -> list[pd.DataFrame]:
    """Return, for each row of a host chosen in turn, predictions of the other rows of the host.

    `is_fitted` is true if the shipped engines were fitted to rows of the table.
    """
    strangers = [row for row in table.rows if row.labels["host"] != host]
    population, rows = fit(strangers) if is_fitted else None, speedups_of(table, host)
    first = {row.labels["model"]: row for row in reversed(rows)}
    found = []
    for row in rows:
        base = engine_of_others(population, row, strangers) if population else _shipped(row)
        base = base if isinstance(base, EngineProfile) else load_engine(base)
        runs = two_runs(row, first[row.labels["model"]] if first_plain else row)
        update = update_engine(runs, base, date=date.today().isoformat())
        if update.fit_warnings:
            print(f"{host}, {row.row}: {update.fit_warnings[0].found}")
            continue
        others = [
            replace(other, deployment={**other.deployment, "engine": update.profile})
            for other in rows
            if other is not row
        ]
        judged, refused = judge_serving(replace(table, rows=tuple(others)))
        assert not refused, refused  # noqa: S101 - a script
        found.append(judged)
    return found


def _shipped(row: Served) -> EngineProfile:
    """Return the engine of a row as it ships."""
    return load_engine(row.deployment["engine"])


def speedups_of(table: ServingTable, host: str) -> list[Served]:
    """Return the rows of a host that have a speedup."""
    own = [row for row in table.rows if row.labels["host"] == host]
    return [row for row in own if row.quantity == "speedup"]


def told(host: str, judged: Sequence[pd.DataFrame]) -> dict[str, object]:
    """Return a host's errors over all choices."""
    errors = [part["error"].abs().mean() for part in judged]
    right = [((part["predicted"] > 1) == (part["measured"] > 1)).sum() for part in judged]
    return {
        "host": host,
        "others": len(judged[0]),
        "first": errors[0],
        "least": min(errors),
        "mean": np.mean(errors),
        "most": max(errors),
        "right": min(right),
        "losing": (judged[0]["measured"] < 1).sum(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("table", nargs="?", default=TABLE, help="of pairs")
    parser.add_argument("--first-plain", action="store_true", help="of each target")
    options = parser.parse_args()
    is_fitted = options.table == TABLE
    table = read_serving(TABLE) if is_fitted else interval_judge.read(options.table)
    hosts = dict.fromkeys(row.labels["host"] for row in table.rows)
    known = [host for host in hosts if len(speedups_of(table, host)) > 1]
    judged = {
        host: others_judged(table, host, first_plain=options.first_plain, is_fitted=is_fitted)
        for host in known
    }
    found = pd.DataFrame(told(host, parts) for host, parts in judged.items() if parts)
    shares = dict.fromkeys(("first", "least", "mean", "most"), "{:.1%}".format)
    print(found.to_string(index=False, formatters=shares))
    hosts_of, others, right = len(found), found["others"].sum(), found["right"].sum()
    print(f"{hosts_of} hosts: {others} other rows, {right} on the right side of 1")


if __name__ == "__main__":
    main()
