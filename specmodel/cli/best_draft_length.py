"""``specmodel best-draft-length``: the draft length with the largest speedup."""

from __future__ import annotations

from typing import Any

from specmodel import answers
from specmodel.base.ranges import ranges_text
from specmodel.cli import settings
from specmodel.cli.answering import answering
from specmodel.cli.where import where_options
from specmodel.show import forms, report


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

    The one with the largest speedup, by batch size and context.

    \b
    Example:
      specmodel best-draft-length --target mixtral-8x7b --drafter eagle \\
          --hardware h100_sxm --tensor-parallel 2 --acceptance-rate 0.7 \\
          --context-length 512,4096,16384
    """
    from specmodel.cli.options import lengths_from

    p = lengths_from(options)
    best = answers.best_draft_lengths(p)
    return report.answer(p, best, lambda: (verdict(best, p), table(best)))


def verdict(best: forms.DataFrame, prediction: report.Prediction) -> str:
    """Say in one sentence which draft lengths are best, and where they gain most."""
    from specmodel.prediction.gains import gains_at

    pays, denial = report.verbs(prediction.deployment)
    rows = [row | {"draft_length": None} for row in forms.records(report.fitting(best))]
    top = max(rows, key=lambda row: row["speedup"])
    if round(top["speedup"], 2) <= 1:
        return f"Speculation {denial} with any draft length: at most {top['speedup']:.2f}x."
    (gain,) = gains_at(prediction, [top | {"draft_length": top["best_draft_length"]}])
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


def table(best: forms.DataFrame) -> str:
    """Return the largest speedup and its draft length, batch sizes down and contexts across."""
    contexts = report.fitting(best).groupby("context_length")
    columns = {f"context\n{context}": forms.records(rows) for context, rows in contexts}
    cells = forms.by_batch_size(best["batch_size"], columns, report.SPEEDUP)
    return f"Speedup (draft length):\n{cells}"
