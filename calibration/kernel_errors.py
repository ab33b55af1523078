"""Print errors of the shipped kernels on published timings of shapes that were not fitted.

Usage: python calibration/kernel_errors.py (needs the extra `datasets`; half a minute). The script
prints a line for each stack and dtype, the range of each column over stacks, and the share of
points of those shapes inside 80 % intervals with the errors of kernels alone. All values are in per
cent. For experts read from memory, they are the mean over shapes (`experts`) and the median over
points (`median`) with balanced routing, and the mean of both under power laws (`power`). For other
kinds, they are medians over points.
"""

import numpy as np
import pandas as pd

from published.tables import STACKS, published_measurements
from specmodel.calibrate.fit.timed_work import ALL_ROWS, error_table, predict_measured
from specmodel.calibrate.measure.measurements import check_measurements
from specmodel.core.layers.kinds import MAIN_KINDS
from specmodel.core.machines.hardware import load_hardware
from specmodel.core.machines.kernels import FittedStack, fitted_dtype

PER_CENT_80 = 1.2815515594
"""Half the width of a central 80 % interval [standard deviation]."""

MEDIANS = ("gemm", "attention", "latent_attention", "recurrence")


def errors_of(judged: pd.DataFrame) -> pd.DataFrame:
    """Return the errors of a stack, a row for each dtype [%]."""
    table = error_table(judged).set_index(["rows", "component", "dtype"])
    columns = {
        "experts": table.loc["balanced"].loc["experts"]["mean_error"],
        "median": table.loc["balanced"].loc["experts"]["median_error"],
        "power": _power_law(table),
    }
    medians = table.loc[ALL_ROWS]["median_error"]
    columns |= {kind: medians[kind] for kind in MEDIANS if kind in medians}
    return 100 * pd.DataFrame(columns).rename_axis("dtype")


def _power_law(table: pd.DataFrame) -> pd.Series:
    """Return the mean error of experts under both power laws, by dtype [-]."""
    errors = table.loc[[row for row in table.index if row[0].startswith("power_law")], "mean_error"]
    means: pd.Series = errors.groupby("dtype").mean()
    return means


def held_of(judged: pd.DataFrame, stack: FittedStack) -> dict[str, float]:
    """Return the share of points of each kind, mostly in bf16, that are inside intervals [%]."""
    missed, found = (judged["latency"] / judged["predicted"]).map(np.log).abs(), {}
    for kind in MAIN_KINDS:
        own = (judged["component"] == kind) & (judged["dtype"] == fitted_dtype(kind))
        fit = stack.of_kind(kind).get(fitted_dtype(kind))
        if own.any() and fit is not None:
            half = PER_CENT_80 * np.hypot(fit.shape_spread, fit.row_spread)
            found[kind] = 100 * float((missed[own] <= half).mean())
    return found


def main() -> None:
    errors, held = {}, {}
    for hardware, name, version in STACKS:
        device = load_hardware(hardware)
        rows = check_measurements(published_measurements(hardware, name, version))
        judged = predict_measured(rows, device, name)
        errors[hardware, name] = errors_of(judged)
        held[hardware, name] = held_of(judged, device.fitted[name])
    table = pd.concat(errors, names=["hardware", "stack"])
    print(table.to_string(float_format="{:.1f}".format, na_rep="-", sparsify=False))
    by_dtype = table.groupby("dtype")
    print("\nleast and largest over stacks")
    for dtype, ends in by_dtype.agg(["min", "max"]).iterrows():
        told = ends.unstack().dropna().iterrows()
        print(dtype, *(f"{kind} {low:.1f}-{high:.1f}" for kind, (low, high) in told))
    shares = pd.DataFrame(held).T
    print("\n80 % intervals hold, least and largest over stacks")
    for kind in shares:
        print(f"{kind} {shares[kind].min():.0f}-{shares[kind].max():.0f}")


if __name__ == "__main__":
    main()
