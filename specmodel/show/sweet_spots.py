"""Sweet spots in words and as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specmodel.base.ranges import ranges_text
from specmodel.base.text import Columns, align
from specmodel.show.report import place, records, verbs

if TYPE_CHECKING:
    import pandas as pd

    from specmodel.prediction.outcome import Prediction


def verdict(spots: pd.DataFrame, prediction: Prediction) -> str:
    """Return in a sentence or two where speculation pays most."""
    pays, denial = verbs(prediction.deployment)
    rows = records(spots)
    best = max(rows, key=lambda row: row["peak_speedup"])
    where = place(best | {"batch_size": best["peak_batch_size"]}, rows)
    if round(best["peak_speedup"], 2) <= 1:
        return f"Speculation {denial}: at most {best['peak_speedup']:.2f}x, at {where}."
    return (
        f"Speculation {pays} most at {where}: {best['peak_speedup']:.2f}x. It {pays} at"
        f" {best['paying']}, and by {best['peak_speedup'] / 2**0.5:.2f}x (peak/√2) or more at"
        f" {_near_peak(best)}. Considered: up to {best['largest_batch_size']}."
    )


def table(spots: pd.DataFrame) -> str:
    """Return the sweet spots, a row for each curve."""
    rows = records(spots)
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
