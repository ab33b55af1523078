"""``specmodel best-draft-length``: the draft length with the largest speedup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specmodel.base.ranges import ranges_text
from specmodel.cli import answers, settings
from specmodel.show import report

if TYPE_CHECKING:
    import pandas as pd

    from specmodel.prediction.outcome import Prediction


@answers.command(
    settings.acceptance_options(), "context_length", "max_draft_length", batch_size="1:512:x2"
)
def best_draft_length(**options: Any) -> answers.Answer:
    """Find the best draft length.

    The one with the largest speedup, by batch size and context.

    \b
    Example:
      specmodel best-draft-length --target mixtral-8x7b --drafter eagle \\
          --hardware h100_sxm --tensor-parallel 2 --acceptance-rate 0.7 \\
          --context-length 512,4096,16384
    """
    from specmodel.answers.curves import best_draft_lengths

    p = answers.lengths_from(options)
    best = best_draft_lengths(p)
    return {"": p}, best, lambda: report.answer_page(p, verdict(best, p), table(best))


def verdict(best: pd.DataFrame, prediction: Prediction) -> str:
    """Return in a sentence which lengths are best."""
    pays, denial = report.verbs(prediction.deployment)
    rows = [row | {"draft_length": None} for row in report.records(answers.fitting(best))]
    top = max(rows, key=lambda row: row["speedup"])
    if round(top["speedup"], 2) <= 1:
        return f"Speculation {denial} with any draft length: at most {top['speedup']:.2f}x."
    lengths = [row["best_draft_length"] for row in rows]
    idle = lengths.count(0)
    none = f"; none {pays} at {idle} of {len(rows)} points" if idle else ""
    longest = " (the longest considered)" if max(lengths) == prediction.draft_length.max() else ""
    span = ranges_text([(min(filter(None, lengths)), max(lengths))])
    return (
        f"Best draft length {span}{longest}; most gained at {report.place(top, rows)}:"
        f" {top['speedup']:.2f}x with {top['best_draft_length']}{none}."
    )


def table(best: pd.DataFrame) -> str:
    """Return the largest speedup and its draft length where they fit, contexts across."""
    contexts = answers.fitting(best).groupby("context_length")
    columns = {f"context\n{context}": rows for context, rows in contexts}
    cells = answers.by_batch_size(best["batch_size"], columns, answers.speedup_cell)
    return f"Speedup (draft length):\n{cells}"
