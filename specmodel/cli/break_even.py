"""``specmodel break-even``: the acceptance rate from which speculation pays."""

from __future__ import annotations

from functools import partial
from typing import Any

from specmodel import answers
from specmodel.cli import settings
from specmodel.cli.answering import answering
from specmodel.cli.where import where_options
from specmodel.prediction.table import Row
from specmodel.show import forms, report


@settings.command()
@where_options(has_start=True)
@settings.option("batch_size", default="1:512:x2")
@settings.option("draft_length", words=settings.DRAFTED, default="1:8")
@settings.options("proposal_rate", "context_length")
@settings.detail_options()
@answering()
def break_even(**options: Any) -> forms.Answer:
    """Find the acceptance that is needed.

    The acceptance rate from which speculation pays, by batch size and draft length, and what a
    drafter that gets 0.1 tokens a step more accepted would gain.

    \b
    Example:
      specmodel break-even qwen3-30b-a3b h100 --drafter eagle3 --engine sglang
    """
    from specmodel.cli.options import drafted_from
    from specmodel.prediction.predicting import with_known_intervals

    # the rate that is needed does not depend on the one predicted with: any will do
    p = with_known_intervals(drafted_from(options | {"acceptance_rate": 0.0}))
    least = answers.break_even(p)
    parts = partial(verdict, least, p), *(partial(part, least) for part in (table, sure, worth))
    return report.answer(p, least, lambda: tuple(part() for part in parts))


def verdict(least: forms.DataFrame, prediction: report.Prediction) -> str:
    """Say which acceptance is needed at the easiest and at the hardest point."""
    pays, _ = report.verbs(prediction.deployment)
    names = {"break_even_acceptance_rate": "rate", "draft_length": "drafted"}
    kept = report.fitting(least).rename(columns=names).sort_values("rate")  # none pays: the last
    kept["tokens"] = 1 / kept["speedup_per_token"]
    easiest = kept.groupby(["batch_size", "context_length"], as_index=False).first()
    rows, able = forms.records(easiest), forms.records(easiest.dropna(subset="rate"))
    if not able:
        return "No acceptance rate makes speculation pay."
    low, high = (f(able, key=lambda row: row["rate"]) for f in (min, max))
    told = (
        f"With the easiest draft length, speculation {pays} from an acceptance rate of"
        f" {_needed(low, rows)}"
    )
    if high != low:
        told += f" to one of {_needed(high, rows)}"
    hopeless = len(rows) - len(able)
    return f"{told}." + (f" None {pays} at {hopeless} of {len(rows)} points." if hopeless else "")


def _needed(row: Row, rows: list[Row]) -> str:
    tokens = f"{row['tokens']:.2f} tokens a step of {row['drafted']} drafted"
    sure = f"; {_surely(row)}" if "sure_acceptance_rate" in row else ""
    return f"{row['rate']:.2f} at {report.place(row, rows)} ({tokens}{sure})"


def _surely(row: Row) -> str:
    """Say from which rate the interval of the speedup is above 1."""
    rate = row["sure_acceptance_rate"]
    return "surely at no rate" if rate is None else f"surely from a rate of {rate:.2f}"


def table(least: forms.DataFrame) -> str:
    """Return the acceptance rate needed, batch sizes down and draft lengths across."""
    cells = _by_length(least, "Acceptance rate needed", "{break_even_acceptance_rate:.2f}")
    kept = report.fitting(least)
    sizes, lengths = kept["batch_size"].nunique(), kept["draft_length"].nunique()
    has_gaps = len(kept) < sizes * lengths * kept["context_length"].nunique()
    why = ["no acceptance rate pays"] if kept["break_even_acceptance_rate"].isna().any() else []
    why += ["the batch does not fit in memory"] if has_gaps else []
    return cells + (f"\n-: {', or '.join(why)}." if why else "") + report.left_out(least)


def sure(least: forms.DataFrame) -> str:
    """Return the rate from which it surely pays, laid out likewise; "" if no error is known."""
    if "sure_acceptance_rate" not in least:
        return ""
    cells = _by_length(least, "Acceptance rate that surely pays", "{sure_acceptance_rate:.2f}")
    return f"{cells}\nSurely: the 80 % interval of the speedup is above 1. -: it is at no rate."


def worth(least: forms.DataFrame) -> str:
    """Return what 0.1 tokens a step more add to the speedup, laid out likewise."""
    gain = least.assign(gain=least["speedup_per_token"] / 10)
    return _by_length(gain, "Speedup that 0.1 tokens a step more add", "+{gain:.3f}")


def _by_length(found: forms.DataFrame, title: str, form: str) -> str:
    """Return a column as a table, batch sizes down and draft lengths across, for each context."""
    kept, blocks = report.fitting(found), []
    for context, rows in kept.groupby("context_length"):
        of = f", context {context}" if kept["context_length"].nunique() > 1 else ""
        lengths = rows.groupby("draft_length")
        columns = {str(length): forms.records(group) for length, group in lengths}
        cells = forms.by_batch_size(kept["batch_size"], columns, form)
        blocks.append(f"{title}, by draft length{of}:\n{cells}")
    return "\n\n".join(blocks)
