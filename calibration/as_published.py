"""Judge predictions that use published acceptance instead of the acceptance of the run.

Usage: python calibration/as_published.py TABLE ... Tables have the form that `interval_judge.py`
reads. Rows whose target and drafter have published acceptance are predicted with it, on mixed use,
as if the user had given no acceptance. The script prints errors, the share of rows inside
intervals, and how often each word on gains was right (HELD_PUBLISHED of
specmodel/core/prediction/gains.py): for all rows, then by table.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import interval_judge
from specmodel.calibrate.fit.measured.judge import Alike, told_of
from specmodel.core.base.errors import InputError
from specmodel.core.drafters.acceptance import measured_acceptance
from specmodel.core.drafters.by_name import drafter_kind
from specmodel.core.prediction.predicting import predict_deployed


def predicted(some: Alike) -> dict[str, Any]:
    """Return the speedups of rows as measured and predicted, by column; refuse what has none."""
    rows, deployment, assumed, points = some
    target = deployment.target
    kind = drafter_kind(deployment.drafter, target)
    acceptance = measured_acceptance(target.name, kind)
    if rows[0].quantity != "speedup" or acceptance is None:
        raise InputError("acceptance", None, "one that is published")
    acceptance = acceptance.continued(int(points["draft_length"].max()))
    found = predict_deployed(
        deployment, assumed, **points, acceptance=acceptance, max_draft_length=1, interval=True
    )
    interval = (found.intervals or {})["speedup"]
    return {
        "quantity": "speedup",
        "measured": [row.measured for row in rows],
        "predicted": found.speedup,
        "low": interval.low,
        "high": interval.high,
        "chance": np.asarray(interval.chance),
        "tokens": [row.tokens_per_step for row in rows],
        "published": found.tokens_per_step,
    }


def main(paths: list[str]) -> None:
    """Judge, and print."""
    tables = {Path(path).stem: interval_judge.read(path) for path in paths}
    found = []
    for name, table in tables.items():
        drafting = [row for row in table.rows if row.tokens_per_step is not None]
        rows, refused = told_of(drafting, predicted)
        found.append(pd.DataFrame(rows).assign(table=name))
        print(f"{name}: {len(rows)} rows, {len(refused)} not taken")
    every = pd.concat(found, ignore_index=True)
    for name in ("table", "host"):
        groups = [*every.groupby(name, sort=False), ("all", every)]
        shown = [{name: value, **interval_judge.told(rows)} for value, rows in groups]
        print(f"\n{pd.DataFrame(shown).round(3).to_string(index=False)}")
    off = np.log(every["published"] / every["tokens"])
    print(f"\ntokens a step, published over the run's: {off.mean():+.1%}, spread {off.std():.1%}")
    print(f"\n{interval_judge.by_word(every).round(3).to_string(index=False)}")


if __name__ == "__main__":
    main(sys.argv[1:])
