"""Sweet spots in words and as a table."""

from __future__ import annotations

from specmodel.base.ranges import ranges_text
from specmodel.prediction.table import Form, Row, varies
from specmodel.show import forms, operator, report

_MOST_JUDGED = 1000
"""Points of a curve that are told one by one as sure or open [-]."""


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
    sure = operator.ends(gain)
    sure += f" with {best['draft_length']} drafted" if at_best else ""
    each = ", with that length throughout" if varies("draft_length", rows) else ""
    each = ", with the best draft length of each" if at_best else each
    told = _paying(best, prediction, at_best=at_best)
    told = told or f"{pays} at {best['paying']} by the central values"
    near = f"{best['peak_speedup'] / 2**0.5:.2f}x (0.71 of the peak) or more at"
    return (
        f"Speculation {pays} most at {where}: {best['peak_speedup']:.2f}x{sure}. It"
        f" {told}{each}; its speedup is {near}"
        f" {_near_peak(best)}. Considered: up to {best['largest_batch_size']}."
    )


def _paying(best: Row, prediction: report.Prediction, *, at_best: bool) -> str:
    """Say where the gain of a curve is sure and where it is open; "" if that is not known."""
    from specmodel.prediction.gains import gains_at

    curve = ["context_length", *([] if at_best else ["draft_length"])]
    rows = [row for row in prediction.rows() if all(row[name] == best[name] for name in curve)]
    rows = [row for row in rows if row["fits"]] or rows
    drafts = [row for row in rows if row["draft_length"]]
    if len(drafts) > _MOST_JUDGED:
        return ""
    gains = dict(zip(map(_size, drafts), gains_at(prediction, drafts), strict=True))
    return report.paying([*map(_size, rows)], [gains.get(_size(row)) for row in rows])


def _size(row: Row) -> int:
    return int(row["batch_size"])


def table(spots: forms.DataFrame, *, at_best: bool = False) -> str:
    """Return a row for each curve."""
    titles = {"draft\nlength": "length\nat peak"} if at_best else {}
    shown = {titles.get(title, title): form for title, form in _COLUMNS.items()}
    if "peak_speedup_low" not in spots:
        del shown[_INTERVAL]
    return forms.table(forms.records(spots), shown, left=["speedup\nabove 1 at"])


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
    "speedup\nabove 1 at": lambda row: row["paying"] or "-",
}
