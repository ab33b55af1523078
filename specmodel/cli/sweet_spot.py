"""``specmodel sweet-spot``: the batch sizes where speculation pays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specmodel.base.ranges import ranges_text
from specmodel.base.text import Columns, align
from specmodel.cli import answers, report, settings

if TYPE_CHECKING:
    import pandas as pd

    from specmodel.prediction.outcome import Prediction


@answers.command(
    settings.acceptance_options(), "context_length", batch_size="1:512", draft_length=None
)
def sweet_spot(**options: Any) -> answers.Answer:
    """Find the batch sizes where speculation pays.

    And where it pays most. Batch sizes that do not fit in memory are left out.

    \b
    Example:
      specmodel sweet-spot --target qwen3-30b-a3b --drafter eagle3 \\
          --hardware h200_sxm --engine sglang --draft-length 1,3,5 \\
          --acceptance-rate 0.7
    """
    from specmodel.answers.curves import sweet_spots

    p = answers.drafted_from(options)
    spots = sweet_spots(p)
    return {"": p}, spots, lambda: answers.page(p, verdict(spots, p), table(spots))


def verdict(spots: pd.DataFrame, prediction: Prediction) -> str:
    """Return in a sentence or two where speculation pays most."""
    pays, denial = report.verbs(prediction.deployment)
    rows = answers.records(spots)
    best = max(rows, key=lambda row: row["peak_speedup"])
    where = report.place(best | {"batch_size": best["peak_batch_size"]}, rows)
    if round(best["peak_speedup"], 2) <= 1:
        return f"Speculation {denial}: at most {best['peak_speedup']:.2f}x, at {where}."
    return (
        f"Speculation {pays} most at {where}: {best['peak_speedup']:.2f}x. It {pays} at"
        f" {best['paying']}, and by {best['peak_speedup'] / 2**0.5:.2f}x (peak/√2) or more at"
        f" {_near_peak(best)}. Considered: up to {best['largest_batch_size']}."
    )


def table(spots: pd.DataFrame) -> str:
    """Return the sweet spots, a row for each curve."""
    rows = answers.records(spots)
    near = [_near_peak(row) if row["peak_speedup"] > 1 else "-" for row in rows]
    columns: Columns = [
        ("draft\nlength", list(map(str, spots["draft_length"]))),
        ("context", list(map(str, spots["context_length"]))),
        ("peak\nspeedup", list(map("{:.2f}".format, spots["peak_speedup"]))),
        ("at batch\nsize", list(map(str, spots["peak_batch_size"]))),
        ("peak/√2\nat", near),
        ("pays at", [ranges or "-" for ranges in spots["paying"]]),
    ]
    return align(columns, left=["pays at"])


def _near_peak(row: dict[str, Any]) -> str:
    return ranges_text([(row["near_peak_first"], row["near_peak_last"])])
