"""Sweet spots in words and as a table."""

from __future__ import annotations

from specmodel.base.ranges import ranges_text
from specmodel.prediction.table import Form, Row, varies
from specmodel.show import forms, report


def verdict(spots: forms.DataFrame, prediction: report.Prediction, *, at_best: bool = False) -> str:
    """Say where speculation pays, and where most; with which lengths if not with one throughout."""
    from specmodel.prediction.gains import gains_at

    pays, denial = report.verbs(prediction.deployment)
    rows = forms.records(spots)
    best = max(rows, key=lambda row: row["peak_speedup"])
    where = report.place(best | {"batch_size": best["peak_batch_size"]}, rows)
    if round(best["peak_speedup"], 2) <= 1:
        return f"Speculation {denial}: at most {best['peak_speedup']:.2f}x, at {where}."
    (gain,) = gains_at(prediction, [best | {"batch_size": best["peak_batch_size"]}])
    if gain and gain.is_open:
        told = f"{best['peak_speedup']:.2f}x ({report.chances(gain)})"
        return f"Speculation may pay or not; most is gained at {where}: {told}."
    sure = f" (80 % interval {gain.low:.2f} to {gain.high:.2f})" if gain else ""
    sure += f" with {best['draft_length']} drafted" if at_best else ""
    each = ", with that length throughout" if varies("draft_length", rows) else ""
    each = ", with the best draft length of each" if at_best else each
    near = f"{best['peak_speedup'] / 2**0.5:.2f}x (0.71 of the peak) or more at"
    return (
        f"Speculation {pays} most at {where}: {best['peak_speedup']:.2f}x{sure}. It {pays}"
        f" at {best['paying']}{each}, and by {near}"
        f" {_near_peak(best)}. Considered: up to {best['largest_batch_size']}."
    )


def table(spots: forms.DataFrame, *, at_best: bool = False) -> str:
    """Return a row for each curve."""
    titles = {"draft\nlength": "length\nat peak"} if at_best else {}
    shown = {titles.get(title, title): form for title, form in _COLUMNS.items()}
    if "peak_speedup_low" not in spots:
        del shown[_INTERVAL]
    return forms.table(forms.records(spots), shown, left=["pays at"])


def with_intervals(spots: forms.DataFrame, prediction: report.Prediction) -> forms.DataFrame:
    """Return sweet spots with the 80 % interval of each peak, where errors are known."""
    from specmodel.prediction.gains import gains_at

    rows = [row | {"batch_size": row["peak_batch_size"]} for row in forms.records(spots)]
    gains = gains_at(prediction, rows)
    if not all(gains):
        return spots
    place = [*spots].index("peak_speedup") + 1
    told = spots.copy()
    told.insert(place, "peak_speedup_low", [gain.low for gain in gains if gain])
    told.insert(place + 1, "peak_speedup_high", [gain.high for gain in gains if gain])
    return told


def _near_peak(row: Row) -> str:
    return ranges_text([(row["near_peak_first"], row["near_peak_last"])])


_INTERVAL = "80 %\ninterval"
_COLUMNS: dict[str, Form] = {
    "draft\nlength": "{draft_length}",
    "context": "{context_length}",
    "peak\nspeedup": "{peak_speedup:.2f}",
    _INTERVAL: "{peak_speedup_low:.2f}-{peak_speedup_high:.2f}",
    "at batch\nsize": "{peak_batch_size}",
    "0.71 of\npeak at": lambda row: _near_peak(row) if row["peak_speedup"] > 1 else "-",
    "pays at": lambda row: row["paying"] or "-",
}
