"""The acceptance from which speculation pays: a view of a prediction."""

from __future__ import annotations

from specmodel import answers
from specmodel.base.text import SCREEN
from specmodel.prediction.table import text_table
from specmodel.show import forms, report
from specmodel.show.columns import chosen

UNITS = {
    "tokens": ("Tokens a step", "tokens_per_step"),
    "rate": ("Acceptance rate", "acceptance_rate"),
}
"""By what tables tell, its title and the end of its columns."""
_KINDS = {"break_even": "pays", "sure": "surely pays"}
"""What holds from there on, by the beginning of columns."""
_SURE = "Surely: the 80 % interval of the speedup is above 1."
_COLUMNS = (
    *("batch_size", "context_length", "break_even_tokens_per_step", "sure_tokens_per_step"),
    *("break_even_acceptance_rate", "sure_acceptance_rate", "speedup_per_token"),
)
"""Of one draft length."""


_USUAL = 3
"""Draft length at which published acceptance is told, or the nearest considered [token]."""


def answer(prediction: report.Prediction, *, unit: str = "tokens") -> forms.Answer:
    """Return the acceptance from which speculation pays, and surely pays, in all forms.

    `unit` is what tables by draft length tell, one of `UNITS`. Whatever acceptance it was predicted
    with changes nothing, unless it is by context.
    """
    from specmodel.prediction.predicting import with_known_intervals

    p = with_known_intervals(prediction)
    least = answers.break_even(p)
    is_own = "speedup" in least
    told = p.evaluation.acceptance.measured_draft_length if is_own else _USUAL
    usual = min({*least["draft_length"]}, key=lambda length: abs(length - told))
    tokens, source = (0.0, "") if is_own else _published(p, usual)

    def parts() -> tuple[str, str]:
        known = f" Published of this pair: {tokens:.2f} of {usual} ({source})." * bool(tokens)
        known += _own(least[least["draft_length"] == usual]) if is_own else ""
        return verdict(least, p, usual) + known, table(least, unit, usual, tokens)

    return report.answer(p, least, parts)


def _published(prediction: report.Prediction, length: int) -> tuple[float, str]:
    """Return the tokens a step published of this very target and drafter, and their source."""
    from specmodel.prediction.case import published_or_none

    found = published_or_none(prediction.deployment)
    if found is None or length > found.max_draft_length:
        return 0.0, ""
    return float(found.expected_tokens_per_step(length)), found.source


def _own(at_usual: forms.DataFrame) -> str:
    """Say what the acceptance by context that was given gains at one draft length."""
    rows = sorted(forms.records(report.fitting(at_usual)), key=lambda row: row["speedup"])
    ends = (f"{row['speedup']:.2f}x at {report.place(row, rows)}" for row in (rows[0], rows[-1]))
    paying = sum(row["speedup"] > 1 for row in rows)
    return (
        f" Yours gives {' to '.join(dict.fromkeys(ends))}: it pays at {paying} of {len(rows)}"
        " points."
    )


def verdict(least: forms.DataFrame, prediction: report.Prediction, usual: int) -> str:
    """Say which acceptance is needed at the easiest and at the hardest point.

    `usual` is the draft length at which is told what a better head is worth.
    """
    pays, _ = report.verbs(prediction.deployment)
    kept = report.fitting(least)
    if kept["break_even_acceptance_rate"].isna().all():
        return "No acceptance rate makes speculation pay."
    lengths = kept["draft_length"].unique()
    drafted = "the easiest draft length" if len(lengths) > 1 else f"{lengths[0]} drafted"
    told = f"With {drafted}, speculation {pays} {_from(kept, 'break_even')}."
    if "sure_acceptance_rate" in kept:
        told += f" It surely pays {_from(kept, 'sure')}."
    at_usual = kept[kept["draft_length"] == usual]["speedup_per_token"]
    worth = sorted({f"{worth / 10:.3f}" for worth in at_usual})
    added = " to ".join(dict.fromkeys([worth[0], worth[-1]]))
    return (
        f"{told} The speedup is tokens a step divided by those needed: with {usual} drafted, 0.1"
        f" more add {added}."
    )


def _from(kept: forms.DataFrame, kind: str) -> str:
    """Say from which acceptance something holds, at the easiest and at the hardest point."""
    names = {"draft_length": "drafted", f"{kind}_acceptance_rate": "rate"}
    ordered = kept.rename(columns=names).sort_values("rate")  # at no rate: the last
    easiest = ordered.groupby(["batch_size", "context_length"], as_index=False).first()
    rows, able = forms.records(easiest), forms.records(easiest.dropna(subset="rate"))
    if not able:
        return "at no acceptance rate"
    ends = [end(able, key=lambda row: row["rate"]) for end in (min, max)]
    told = []
    for row in ends[: 1 + (ends[0] != ends[1])]:
        drafted = f", {row['drafted']} drafted" if kept["draft_length"].nunique() > 1 else ""
        tokens = f"{row[f'{kind}_tokens_per_step']:.2f} tokens a step"
        told.append(f"{tokens} (rate {row['rate']:.2f}{drafted}) at {report.place(row, rows)}")
    lacking = len(rows) - len(able)
    return f"from {' to '.join(told)}" + (
        f", and at no rate at {lacking} of {len(rows)} points" if lacking else ""
    )


def table(least: forms.DataFrame, unit: str, usual: int, published: float) -> str:
    """Return all that is told of the usual draft length, and what is needed at each of several.

    `published` are the tokens a step published at the usual length, 0 for none [token].
    """
    kept = report.fitting(least)
    sizes, lengths = kept["batch_size"].nunique(), kept["draft_length"].nunique()
    cells = _of_one_length(kept[kept["draft_length"] == usual], published)
    if lengths > 1:
        cells = f"With {usual} drafted:\n{cells}\n\n{_by_length(kept, unit)}"
    needed = kept.filter(regex="acceptance_rate")
    has_gaps = len(kept) < sizes * lengths * kept["context_length"].nunique()
    why = ["no acceptance rate pays"] if needed.isna().any(axis=None) else []
    why += ["the batch does not fit in memory"] if has_gaps else []
    notes = [f"-: {', or '.join(why)}."] if why else []
    notes += [_SURE] if "sure_acceptance_rate" in kept else []
    return "\n".join([cells, *notes]) + report.left_out(least)


def _by_length(kept: forms.DataFrame, unit: str) -> str:
    what, column = UNITS[unit]
    return "\n\n".join(
        report.by_length(kept, f"{what} from which it {pays}", f"{{{kind}_{column}:.2f}}")
        for kind, pays in _KINDS.items()
        if f"{kind}_{column}" in kept
    )


def _of_one_length(kept: forms.DataFrame, published: float) -> str:
    if published:
        kept = kept.assign(speedup=published * kept["speedup_per_token"])
    rows = forms.records(kept)
    names = [*_COLUMNS, *(["speedup"] if "speedup" in kept else [])]
    titles = {"break_even_acceptance_rate": "or rate\npays"}
    at = f"{published:.2f}" if published else "yours"
    columns = chosen(names, **titles, speedup=f"speedup\nat {at}")
    return text_table(rows, columns, width=SCREEN.get())
