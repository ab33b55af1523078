"""The batch sizes where speculation pays: a view of a prediction."""

from __future__ import annotations

from dataclasses import replace

from specmodel.answers.advice import gain_of
from specmodel.base.errors import InputError
from specmodel.base.ranges import ranges_text, spans
from specmodel.base.text import TABLE
from specmodel.prediction.table import Row, varies
from specmodel.show import forms, report
from specmodel.show.columns import chosen
from specmodel.show.views import case as case_of


def answer(prediction: report.Prediction, *, interval: bool | None = None) -> forms.Answer:
    """Return where speculation pays, and where most, in all forms."""
    from specmodel.answers.curves import sweet_spots_rows

    p = _without_misfits(prediction)
    if case_of(p).draft_length is not None and not p.draft_length.all():
        raise InputError("draft_length", p.draft_length.tolist(), "at least 1")
    p = report.with_ends(p, interval)
    spots = with_intervals(sweet_spots_rows(p), p) if p.intervals else sweet_spots_rows(p)
    return report.answer(p, spots, lambda: (verdict(spots, p), table(spots)))


def _without_misfits(p: report.Prediction) -> report.Prediction:
    """Return a prediction without the notes on points that do not fit, if some points fit."""
    if not p.fits.any():
        return p
    unfit = p.evaluation.memory.warnings(p.batch_size, p.evaluation.points["draft_length"])
    return replace(p, told=tuple(note for note in p.notes if note not in unfit))


def verdict(rows: list[Row], prediction: report.Prediction) -> str:
    """Return sentences on where speculation pays, and where most, with draft lengths if varied."""
    pays, denial = report.verbs(prediction)
    best = max(rows, key=lambda row: row["peak_speedup"])
    where = report.place(best | {"batch_size": best["peak_batch_size"]}, rows)
    if round(best["peak_speedup"], 2) <= 1:
        return f"Speculation {denial}: at most {best['peak_speedup']:.2f}x, at {where}."
    curve = _curve(best, prediction)
    sizes, gains = _sizes(curve), [*map(gain_of, curve)]
    gain = gains[sizes.index(best["peak_batch_size"])]
    if gain and gain.is_open:
        told = f"{best['peak_speedup']:.2f}x ({report.chances(gain)})"
        return f"Speculation may pay or not; most is gained at {where}: {told}."
    sure, at_best = report.ends(gain), report.is_at_best(prediction)
    sure += f" with {best['draft_length']} drafted" if at_best else ""
    each = ", with that length throughout" if varies("draft_length", rows) else ""
    each = ", with the best draft length of each" if at_best else each
    drafts = [gain if row["draft_length"] else None for row, gain in zip(curve, gains, strict=True)]
    told = report.paying(sizes, drafts) or f"{pays} at {best['paying']} by the central values"
    return (
        f"Speculation {pays} most at {where}: {best['peak_speedup']:.2f}x{sure}. It {told}{each}."
        f" Considered: up to {best['largest_batch_size']}."
    )


def _curve(spot: Row, prediction: report.Prediction) -> list[Row]:
    """Return the points of the curve of a sweet spot."""
    curve = ["context_length", *([] if report.is_at_best(prediction) else ["draft_length"])]
    rows = [row for row in prediction.rows() if all(row[name] == spot[name] for name in curve)]
    return report.fitting(rows)


def with_intervals(rows: list[Row], prediction: report.Prediction) -> list[Row]:
    """Return sweet spots with 80 % intervals of each peak, and where it surely pays."""
    from specmodel.prediction.gains import peak_at

    found = []
    for row in rows:
        curve = _curve(row, prediction)
        sizes, drafts = _sizes(curve), [point for point in curve if point["draft_length"]]
        peak = curve[sizes.index(row["peak_batch_size"])]
        sure = (bool(point["draft_length"]) and point["speedup_low"] > 1 for point in curve)
        at_low, at_high = peak_at(prediction, drafts)
        more: dict[str, Row] = {
            "peak_batch_size": {"peak_batch_size_low": at_low, "peak_batch_size_high": at_high},
            "peak_speedup": {f"peak_{end}": peak[end] for end in ("speedup_low", "speedup_high")},
            "paying": {"surely_paying": ranges_text(spans(sizes, sure))},
        }
        told: Row = {}
        for name, value in row.items():
            told |= {name: value} | more.get(name, {})
        found.append(told)
    return found


def _sizes(curve: list[Row]) -> list[int]:
    return [row["batch_size"] for row in curve]


def table(spots: list[Row]) -> str:
    """Return a row for each curve."""
    return forms.text_table(spots, chosen(_COLUMNS), width=TABLE.get(), left=_LEFT)


_COLUMNS = (
    *("context_length", "peak_speedup", "peak_speedup_low", "peak_batch_size"),
    *("peak_batch_size_low", "near_peak_first", "paying", "surely_paying"),
)
_LEFT = ("speedup\nabove 1 at", "surely\npays at")
