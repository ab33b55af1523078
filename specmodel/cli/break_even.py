"""``specmodel break-even``: the acceptance rate from which speculation pays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specmodel.cli import answers
from specmodel.show import report

if TYPE_CHECKING:
    import pandas as pd

    from specmodel.prediction.outcome import Prediction


@answers.command("proposal_rate", "context_length", batch_size="1:512:x2", draft_length="1:8")
def break_even(**options: Any) -> answers.Answer:
    """Find the acceptance that is needed.

    The acceptance rate from which speculation pays, by batch size and draft length.

    \b
    Example:
      specmodel break-even --target qwen3-30b-a3b --drafter eagle3 \\
          --hardware h100_sxm --engine sglang
    """
    from specmodel.answers import curves

    # the rate that is needed does not depend on the one predicted with: any will do
    p = answers.drafted_from(options | {"acceptance_rate": 0.0})
    least = curves.break_even(p)
    return {"": p}, least, lambda: report.answer_page(p, verdict(least, p), table(least))


def verdict(least: pd.DataFrame, prediction: Prediction) -> str:
    """Return in a sentence or two what is needed at the easiest and the hardest points."""
    pays, _ = report.verbs(prediction.deployment)
    kept = answers.fitting(least).rename(columns={"break_even_acceptance_rate": "rate"})
    least_rates = kept.groupby(["batch_size", "context_length"])["rate"].min()
    easiest = least_rates.reset_index().assign(draft_length=None)
    rows, able = report.records(easiest), report.records(easiest.dropna(subset="rate"))
    if not able:
        return "No acceptance rate makes speculation pay."
    low, high = (f(able, key=lambda row: row["rate"]) for f in (min, max))
    told = (
        f"With the easiest draft length, speculation {pays} from an acceptance rate of"
        f" {low['rate']:.2f} at {report.place(low, rows)}"
    )
    if high != low:
        told += f" to one of {high['rate']:.2f} at {report.place(high, rows)}"
    hopeless = len(rows) - len(able)
    return f"{told}." + (f" None {pays} at {hopeless} of {len(rows)} points." if hopeless else "")


def table(least: pd.DataFrame) -> str:
    """Return the least acceptance rate by batch size where it fits, draft lengths across."""
    kept, blocks = answers.fitting(least), []
    for context, rows in kept.groupby("context_length"):
        title = f"context {context}\n" if kept["context_length"].nunique() > 1 else ""
        columns = {f"length\n{length}": cells for length, cells in rows.groupby("draft_length")}
        blocks.append(title + answers.by_batch_size(least["batch_size"], columns, _rate))
    return "\n\n".join(blocks)


def _rate(row: Any) -> str:
    rate = row.break_even_acceptance_rate
    return "-" if rate != rate else f"{rate:.2f}"
