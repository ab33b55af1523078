"""Statistics of traces as text: prints nothing."""

from collections.abc import Sequence

from specmodel.base.text import Columns, align, wrap
from specmodel.replay.traces.statistics import DRAFT_LENGTHS, TraceStatistics

_FIGURES = {
    "proposal_share": "posi-\ntions",
    "autocorrelation": "\nr1",
    "window_correlation": "\nw",
    "smallest_tokens_per_step": "least\nmean",
    "largest_tokens_per_step": "most\nmean",
}


def statistics_text(names: Sequence[str], figures: Sequence[TraceStatistics]) -> str:
    """Return a row a trace.

    Parameters
    ----------
    names
        What the rows are called.
    figures
        Statistics, in that order.

    Returns
    -------
    str
        A table of at most 80 columns, and what its columns are.
    """
    columns: Columns = [("trace", [name[:26] for name in names])]
    for length in DRAFT_LENGTHS:
        by_length = [dict(zip(f.draft_lengths, f.tokens_per_step, strict=True)) for f in figures]
        columns.append((f"\n{length}", [_optional(each.get(length)) for each in by_length]))
    for name, title in _FIGURES.items():
        columns.append((title, [_optional(getattr(each, name)) for each in figures]))
    note = (
        "Tokens per step at each fixed draft length; share of positions with a proposal; at draft"
        " length 3: lag-1 autocorrelation, correlation of windows of 16 steps, and the means of"
        " the slowest and the fastest request."
    )
    return f"{align(columns, left=('trace',))}\n\n{wrap(note)}"


def _optional(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
