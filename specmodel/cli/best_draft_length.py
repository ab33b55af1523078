"""``specmodel best-draft-length``: the draft length with the largest speedup."""

from __future__ import annotations

from typing import Any

from specmodel import answers
from specmodel.base.ranges import ranges_text
from specmodel.base.text import wrap
from specmodel.cli import settings
from specmodel.cli.answering import answering
from specmodel.cli.where import where_options
from specmodel.prediction.table import Form, Row, varies
from specmodel.show import forms, report

_MOST_JUDGED = 256
"""Points of which all have their interval; of more, the best alone [-]."""
_POINT = ("context_length", "batch_size")
_COLUMNS: dict[str, Form] = {
    "batch\nsize": "{batch_size}",
    "context": "{context_length}",
    "best draft\nlength": lambda row: (
        str(row["best_draft_length"] or "none") if row["tpot"] else "-"
    ),
    "speedup": "{speedup:.2f}",
    "80 %\ninterval": "{speedup_low:.2f}-{speedup_high:.2f}",
    "speedup\n1 less": "{speedup_shorter:.2f}",
    "speedup\n1 more": "{speedup_longer:.2f}",
    "TPOT\nplain>with": "{tpot_plain:s}>{tpot:s}",
}


@settings.command()
@where_options(has_start=True)
@settings.option("batch_size", default="1:512:x2")
@settings.acceptance_options()
@settings.option("context_length")
@settings.load_options()
@settings.option("max_draft_length")
@settings.detail_options()
@answering()
def best_draft_length(**options: Any) -> forms.Answer:
    """Find the best draft length.

    The one with the largest speedup, by batch size and context, and what its neighbours gain.

    \b
    Example:
      specmodel best-draft-length --target mixtral-8x7b --drafter eagle \\
          --hardware h100_sxm --tensor-parallel 2 --acceptance-rate 0.7 \\
          --context-length 512,4096,16384
    """
    from specmodel.cli.options import lengths_from

    p = lengths_from(options)
    best = answers.best_draft_lengths(p)
    return report.answer(p, best, lambda: (*_judged(best, p), _held(best, p)))


def _held(best: forms.DataFrame, prediction: report.Prediction) -> str:
    """Say where a CUDA graph, and not acceptance, ends the drafts."""
    kept = report.fitting(best)
    drafts = kept[kept["best_draft_length"].between(0, prediction.draft_length.max() - 1)]
    sizes, lengths = (drafts[name].to_numpy() for name in ("batch_size", "best_draft_length"))
    return wrap(prediction.deployment.graph_note(sizes, lengths + 1.0))


def _judged(best: forms.DataFrame, prediction: report.Prediction) -> tuple[str, str]:
    """Return the verdict and the table, with how sure the gains are."""
    from specmodel.prediction.gains import gains_at

    rows = forms.records(report.fitting(best))
    drafts = [row for row in rows if row["best_draft_length"]]
    judged = drafts if len(drafts) <= _MOST_JUDGED else [max(drafts, key=_speedup)]
    points = [row | {"draft_length": row["best_draft_length"]} for row in judged]
    for row, gain in zip(judged, gains_at(prediction, points), strict=True):
        row["gain"] = gain
        row |= {"speedup_low": gain.low, "speedup_high": gain.high} if gain else {}
    left_out = forms.records(best[~best["fits"]]) if best["fits"].any() else []
    empty = [dict.fromkeys(row) | {name: row[name] for name in _POINT} for row in left_out]
    shown = sorted([*rows, *empty], key=lambda row: [row[name] for name in _POINT])
    return verdict(rows, prediction), table(shown)


def verdict(rows: list[Row], prediction: report.Prediction) -> str:
    """Say in one sentence which draft lengths are best, and where they gain most."""
    pays, denial = report.verbs(prediction.deployment)
    top = max(rows, key=_speedup)
    if round(top["speedup"], 2) <= 1:
        return f"Speculation {denial} with any draft length: at most {top['speedup']:.2f}x."
    gain = top.get("gain")
    sure = f" ({report.may_pay(gain)})" if gain and gain.is_open else ""
    lengths = [row["best_draft_length"] for row in rows]
    idle = lengths.count(0)
    none = f"; none {pays} at {idle} of {len(rows)} points" if idle else ""
    longest = " (the longest considered)" if max(lengths) == prediction.draft_length.max() else ""
    span = ranges_text([(min(filter(None, lengths)), max(lengths))])
    return (
        f"Best draft length {span}{longest}; most gained at {report.place(top, rows)}:"
        f" {top['speedup']:.2f}x with {top['best_draft_length']}{sure}{none}."
    )


def table(rows: list[Row]) -> str:
    """Return a row for each point: the best length, how sure its gain is, what neighbours gain."""
    lacking = set() if varies("context_length", rows) else {"context"}
    lacking |= set() if any("speedup_low" in row for row in rows) else {"80 %\ninterval"}
    shown = {title: form for title, form in _COLUMNS.items() if title not in lacking}
    ends = dict.fromkeys(("speedup_low", "speedup_high"))
    return forms.table([ends | row for row in rows], shown)


def _speedup(row: Row) -> float:
    return float(row["speedup"])
