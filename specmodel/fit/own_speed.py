"""The speed of each published host by its own rows, and the errors that remain at that speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from specmodel.cost.deploying import resolve
from specmodel.fit.measured.tables import Served
from specmodel.fit.steps import measured_steps
from specmodel.machines.engine import Overheads

SPEEDS = np.geomspace(0.1, 10.0, 401)  # factors tried on the host speed of the profile [-]


def own_speeds(rows: Sequence[Served]) -> pd.DataFrame:
    """Return the host speed, beside the profile's, that meets each host's rows best, with errors.

    Hosts with a single row are left out: any speed meets it.
    """
    pairs = [row for row in rows if row.tokens_per_step is not None and "host" in row.labels]
    hosts = [row.labels["host"] for row in pairs]
    found = []
    for host in dict.fromkeys(hosts):
        own = [row for row, name in zip(pairs, hosts, strict=True) if name == host]
        if len(own) < 2:  # one row is met by any speed
            continue
        errors = _errors(own)
        best = int(np.abs(errors).mean(axis=1).argmin())
        found.append(
            {
                "host": host,
                "rows": len(own),
                "host_speed": float(SPEEDS[best]),
                "mean_error": float(np.abs(errors[best]).mean()),
                "bias": float(errors[best].mean()),
            }
        )
    return pd.DataFrame(found)


def _errors(rows: Sequence[Served]) -> np.ndarray:
    """Return errors, shape (speeds, rows) [-]."""
    engines = [resolve(row.deployment)[0].engine.overheads for row in rows]
    names = Overheads.__dataclass_fields__
    own = {name: np.array([getattr(engine, name) for engine in engines]) for name in names}
    overheads, steps = Overheads(**own), measured_steps(rows)
    tried = [replace(overheads, host_speed=overheads.host_speed * speed) for speed in SPEEDS]
    return np.array([steps.predicted(engine) / steps.measured - 1 for engine in tried])
