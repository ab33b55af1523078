"""The batch sizes where speculation pays: a view of a prediction."""

from __future__ import annotations

from specmodel.answers.advice import gain_of
from specmodel.answers.curves import curve_of, sweet_spots_with_ends
from specmodel.base.errors import InputError
from specmodel.base.ranges import spans
from specmodel.prediction.table import Row
from specmodel.show import report
from specmodel.show.facts import AT, Fact, picked
from specmodel.show.forms import Answer, text_table
from specmodel.show.glossary import PAGES
from specmodel.show.views import case as case_of

_LINES = PAGES["sweet_spots"]["lines"]


def answer(prediction: report.Prediction, *, interval: bool | None = None) -> Answer:
    """Return where speculation pays, and where most, in all forms."""
    p = report.with_ends(prediction, interval)
    if case_of(p).draft_length is not None and not p.draft_length.all():
        raise InputError("draft_length", p.draft_length.tolist(), "at least 1")
    spots = sweet_spots_with_ends(p)
    return report.answer(
        p, spots, _LINES, lambda: [text_table(spots, "sweet_spots")], _facts(spots, p)
    )


def _facts(spots: list[Row], prediction: report.Prediction) -> dict[str, Fact]:
    """Return where most is gained, and where the curve there pays or may pay."""
    pays, denial = report.verbs(prediction)
    best = max(spots, key=lambda row: row["peak_speedup"])
    curve = curve_of(best, prediction)
    sizes = [row["batch_size"] for row in curve]
    gains = [gain_of(row) if row["draft_length"] else None for row in curve]
    peak = curve[sizes.index(best["peak_batch_size"])]
    gain = gain_of(peak)
    is_open, has_gain = bool(gain and gain.is_open), round(best["peak_speedup"], 2) > 1
    surely = [bool(g and g.low > 1) for g in gains] if gain else [r["speedup"] > 1 for r in curve]
    where = report.place(best | {"batch_size": best["peak_batch_size"]}, spots)
    return {
        "advice": Fact(("may pay or not" if is_open else pays) if has_gain else denial),
        **picked("most", peak | {"where": where}, "speedup", **AT, length="draft_length"),
        "pays_at": Fact(spans(sizes, surely), "request"),
        "may_pay_at": Fact(spans(sizes, (bool(g and g.is_open) for g in gains)), "request"),
        "largest_considered": Fact(best["largest_batch_size"], "request"),
    }
