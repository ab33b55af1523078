"""The acceptance from which speculation pays: a view of a prediction."""

from __future__ import annotations

import math
from dataclasses import replace

from specmodel.base.text import SCREEN
from specmodel.prediction.table import Row, varies
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
    from specmodel.answers.curves import break_even_rows
    from specmodel.prediction.predicting import with_known_intervals

    p = with_known_intervals(prediction)
    least = break_even_rows(p)
    is_own = "speedup" in least[0]
    told = p.evaluation.acceptance.measured_draft_length if is_own else _USUAL
    usual = min({row["draft_length"] for row in least}, key=lambda length: abs(length - told))
    tokens, source = (0.0, "") if is_own else _published(p, usual)

    def parts() -> tuple[str, str]:
        known = f" Published of this pair: {tokens:.2f} of {usual} ({source})." * bool(tokens)
        known += _own([row for row in least if row["draft_length"] == usual]) if is_own else ""
        return verdict(least, p, usual) + known, table(least, unit, usual, tokens)

    found = report.answer(p, least, parts)
    return found if is_own else replace(found, case=report.heading(p.deployment))


def _published(prediction: report.Prediction, length: int) -> tuple[float, str]:
    """Return the tokens a step published of this very target and drafter, and their source."""
    from specmodel.prediction.case import named_head, published_or_none

    named = named_head(prediction.case.given) if prediction.case else ""
    found = published_or_none(prediction.deployment, named)
    if found is None or length > found.max_draft_length:
        return 0.0, ""
    return float(found.expected_tokens_per_step(length)), found.source


def _own(at_usual: list[Row]) -> str:
    """Return a sentence on the number of points where the given acceptance by context pays."""
    rows = report.fitting(at_usual)
    paying = sum(row["speedup"] > 1 for row in rows)
    return f" With yours it pays at {paying} of {len(rows)} points."


def verdict(least: list[Row], prediction: report.Prediction, usual: int) -> str:
    """Return sentences on the acceptance needed at the easiest and at the hardest point.

    `usual` is the draft length for which they state the gain from a better head [token].
    """
    pays, _ = report.verbs(prediction)
    kept = report.fitting(least)
    if all(row["break_even_acceptance_rate"] is None for row in kept):
        return "No acceptance rate makes speculation pay."
    is_one = not varies("draft_length", kept)
    drafted = f"{kept[0]['draft_length']} drafted" if is_one else "the easiest draft length"
    told = f"With {drafted}, speculation {pays} {_from(kept, 'break_even')}."
    if "sure_acceptance_rate" in kept[0]:
        told += f" It surely pays {_from(kept, 'sure')}."
    at_usual = [row for row in kept if row["draft_length"] == usual]
    worth = sorted({f"{row['speedup_per_token'] / 10:.3f}" for row in at_usual})
    added = " to ".join(dict.fromkeys([worth[0], worth[-1]]))
    return (
        f"{told} The speedup is tokens a step divided by those needed: with {usual} drafted, 0.1"
        f" more add {added}."
    )


def _from(kept: list[Row], kind: str) -> str:
    """Return as text the least acceptance of `kind`, at the easiest and at the hardest point.

    `kind` is "break_even" or "sure".
    """
    rate, easiest = f"{kind}_acceptance_rate", dict[tuple[int, int], Row]()
    able = sorted((row for row in kept if row[rate] is not None), key=lambda row: row[rate])
    for row in (*able, *kept):  # at no rate: the last
        easiest.setdefault((row["batch_size"], row["context_length"]), row)
    rows = [easiest[place] for place in sorted(easiest)]
    able = [row for row in rows if row[rate] is not None]
    if not able:
        return "at no acceptance rate"
    ends = [end(able, key=lambda row: row[rate]) for end in (min, max)]
    told = []
    for row in ends[: 1 + (ends[0] != ends[1])]:
        drafted = f", {row['draft_length']} drafted" if varies("draft_length", kept) else ""
        tokens = f"{row[f'{kind}_tokens_per_step']:.2f} tokens a step"
        told.append(f"{tokens} (rate {row[rate]:.2f}{drafted}) at {report.place(row, rows)}")
    lacking = len(rows) - len(able)
    return f"from {' to '.join(told)}" + (
        f", and at no rate at {lacking} of {len(rows)} points" if lacking else ""
    )


def table(least: list[Row], unit: str, usual: int, published: float) -> str:
    """Return the table of the usual draft length, and one of the acceptance needed by length.

    `published` are the tokens a step published at the usual length, 0 for none [token].
    """
    kept = report.fitting(least)
    places = ("batch_size", "draft_length", "context_length")
    counts = [len({row[name] for row in kept}) for name in places]
    cells = _of_one_length([row for row in kept if row["draft_length"] == usual], published)
    if varies("draft_length", kept):
        cells = f"With {usual} drafted:\n{cells}\n\n{_by_length(kept, unit)}"
    rates = [name for name in kept[0] if "acceptance_rate" in name]
    has_gaps = len(kept) < math.prod(counts)
    is_never = any(row[name] is None for row in kept for name in rates)
    why = ["no acceptance rate pays"] if is_never else []
    why += ["the batch does not fit in memory"] if has_gaps else []
    notes = [f"-: {', or '.join(why)}."] if why else []
    notes += [_SURE] if "sure_acceptance_rate" in kept[0] else []
    return "\n".join([cells, *notes]) + report.left_out(least)


def _by_length(kept: list[Row], unit: str) -> str:
    what, column = UNITS[unit]
    return "\n\n".join(
        report.by_length(kept, f"{what} from which it {pays}", f"{{{kind}_{column}:.2f}}")
        for kind, pays in _KINDS.items()
        if f"{kind}_{column}" in kept[0]
    )


def _of_one_length(rows: list[Row], published: float) -> str:
    if published:
        rows = [row | {"speedup": published * row["speedup_per_token"]} for row in rows]
    names = [*_COLUMNS, *(["speedup"] if "speedup" in rows[0] else [])]
    titles = {"break_even_acceptance_rate": "or rate\npays"}
    at = f"{published:.2f}" if published else "yours"
    columns = chosen(names, **titles, speedup=f"speedup\nat {at}")
    return forms.text_table(rows, columns, width=SCREEN.get())
