"""The acceptance from which speculation pays: a view of a prediction."""

from __future__ import annotations

from dataclasses import replace

from specmodel.base.text import SCREEN
from specmodel.prediction.table import Row, varies
from specmodel.show import forms, report
from specmodel.show.columns import chosen
from specmodel.show.facts import Fact, picked

UNITS = {
    "tokens": ("Tokens a step", "tokens_per_step"),
    "rate": ("Acceptance rate", "acceptance_rate"),
}
"""By what tables tell, its title and the end of its columns."""
_KINDS = {"break_even": "pays", "sure": "surely pays"}
"""What holds from there on, by the beginning of columns."""
_DASH = "-: no acceptance rate pays, or the batch does not fit in memory."
_SURE = "Surely: the 80 % interval of the speedup is above 1."
_COLUMNS = (
    *("batch_size", "context_length", "break_even_tokens_per_step", "sure_tokens_per_step"),
    *("break_even_acceptance_rate", "sure_acceptance_rate", "speedup_per_token"),
)
"""Of one draft length."""

_AT = "{@:.2f} tokens a step (rate {@_rate:.2f}, {@_length} drafted) at {@_where}."
_TOLD = (
    "Speculation {verb} from " + _AT.replace("@", "pays_from"),
    "It {verb} everywhere from " + _AT.replace("@", "pays_everywhere"),
    "It {verb} at no rate: at {pays_nowhere} of {points} points.",
    "It surely pays from " + _AT.replace("@", "surely_from"),
    "It surely pays everywhere from " + _AT.replace("@", "surely_everywhere"),
    "It surely pays at no rate: at {surely_nowhere} of {points} points.",
    "Each 0.1 tokens a step more: {tenth_adds:.3f} of speedup, with {usual_length} drafted.",
    "Published of this pair: {published:.2f} of {usual_length} ({published_by}).",
    "With yours: pays at {yours_pays} of {points} points.",
)
"""The headline, and the facts below it."""
_NONE = "No acceptance rate makes speculation pay."

_USUAL = 3
"""Draft length at which published acceptance is told, or the nearest considered [token]."""


def answer(prediction: report.Prediction, *, unit: str = "tokens") -> forms.Answer:
    """Return the acceptance from which speculation pays, and surely pays, in all forms.

    `unit` is what tables by draft length tell, one of `UNITS`. Whatever acceptance it was predicted
    with changes nothing, unless it is by context.
    """
    from specmodel.answers.curves import break_even_rows, published_tokens
    from specmodel.prediction.predicting import with_known_intervals

    p = with_known_intervals(prediction)
    least = break_even_rows(p)
    is_own = "speedup" in least[0]
    near = p.evaluation.acceptance.measured_draft_length if is_own else _USUAL
    usual = min({row["draft_length"] for row in least}, key=lambda length: abs(length - near))
    tokens, source = (0.0, "") if is_own else published_tokens(p, usual)
    facts = _facts(least, p, usual)
    if tokens:
        facts |= {"published": Fact(tokens, "token"), "published_by": Fact(source)}
    words = _TOLD if "pays_from" in facts else [_NONE]
    found = report.answer(p, least, words, lambda: [table(least, unit, usual, tokens)], facts)
    return found if is_own else replace(found, case=report.heading(p.deployment))


def _facts(least: list[Row], prediction: report.Prediction, usual: int) -> dict[str, Fact]:
    """Return the acceptance needed at the easiest and at the hardest point, and what more adds.

    `usual` is the draft length for which the gain from a better head is stated [token].
    """
    kept = report.fitting(least)
    at_usual = [row for row in kept if row["draft_length"] == usual]
    worth = [row["speedup_per_token"] / 10 for row in at_usual]
    facts = {
        "verb": Fact(report.verbs(prediction)[0]),
        "usual_length": Fact(usual, "token"),
        "tenth_adds": Fact([(min(worth), max(worth))]),
        **_needed(kept, "break_even", "pays"),
        **_needed(kept, "sure", "surely"),
    }
    if "speedup" in kept[0]:  # of one draft length
        facts["yours_pays"] = Fact(sum(row["speedup"] > 1 for row in at_usual))
    return facts


def _needed(kept: list[Row], kind: str, name: str) -> dict[str, Fact]:
    """Return the least acceptance of `kind`, at the easiest and at the hardest point, by `name`.

    `kind` is "break_even" or "sure".
    """
    from specmodel.answers.curves import easiest_points
    from specmodel.show import operator  # which imports what help does not need

    rate = f"{kind}_acceptance_rate"
    others = {"rate": rate, "length": "draft_length", "where": "where"}
    if rate not in kept[0]:
        return {}
    easiest = easiest_points(kept, rate)
    able = [row for row in easiest if row[rate] is not None]
    facts = {
        "points": Fact(len(easiest)),
        f"{name}_nowhere": Fact(len(easiest) - len(able) or None),
    }
    for end, row in zip(("from", "everywhere"), [*able[:1], *able[1:][-1:]], strict=False):
        placed = row | {"where": operator.place(row, easiest)}
        facts |= picked(f"{name}_{end}", placed, f"{kind}_tokens_per_step", **others)
    return facts


def table(least: list[Row], unit: str, usual: int, published: float) -> str:
    """Return the table of the usual draft length, and one of the acceptance needed by length.

    `published` are the tokens a step published at the usual length, 0 for none [token].
    """
    kept = report.fitting(least)
    cells = _of_one_length([row for row in kept if row["draft_length"] == usual], published)
    if varies("draft_length", kept):
        cells = f"With {usual} drafted:\n{cells}\n\n{_by_length(kept, unit)}"
    notes = [_DASH] if "-" in cells.split() else []
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
