"""The acceptance from which speculation pays: a view of a prediction."""

from __future__ import annotations

from msgspec.structs import replace

from specmodel.answers.curves import break_even_rows, easiest_points, published_tokens
from specmodel.prediction.predicting import with_known_intervals
from specmodel.prediction.table import Row, varies
from specmodel.show import forms, operator, report
from specmodel.show.columns import of_table
from specmodel.show.facts import Fact, picked
from specmodel.show.glossary import PAGES

_KINDS = {"break_even_tokens_per_step": "pays", "sure_tokens_per_step": "surely pays"}
"""What holds from there on, by column."""
_DASH = "-: no acceptance rate pays, or the batch does not fit in memory."
_LINES = PAGES["break_even"]["lines"]
_NONE = "No acceptance rate makes speculation pay."

_USUAL = 3
"""Draft length at which published acceptance is told, or the nearest considered [token]."""


def answer(prediction: report.Prediction) -> forms.Answer:
    """Return the acceptance from which speculation pays, and surely pays, in all forms.

    Whatever acceptance it was predicted with changes nothing, unless it is by context.
    """
    p = with_known_intervals(prediction)
    least = break_even_rows(p)
    kept, is_own = report.fitting(least), "speedup" in least[0]
    near = p.evaluation.acceptance.measured_draft_length if is_own else _USUAL
    usual = min({row["draft_length"] for row in least}, key=lambda length: abs(length - near))
    at_usual = [row for row in kept if row["draft_length"] == usual]
    tokens, source = (0.0, "") if is_own else published_tokens(p, usual)
    worth = [row["speedup_per_token"] / 10 for row in at_usual]
    gains = [row["speedup"] > 1 for row in at_usual if is_own]
    facts = {
        "verb": Fact(report.verbs(prediction)[0]),
        "usual_length": Fact(usual, "token"),
        "tenth_adds": Fact([(min(worth), max(worth))]),
        **_needed(kept, "break_even", "pays"),
        **_needed(kept, "sure", "surely"),
        "yours_pays": Fact(sum(gains) if is_own else None),
        "published": Fact(tokens or None, "token"),
        "published_by": Fact(report.brief_source(source)),
    }
    if tokens:
        at_usual = [row | {"speedup": tokens * row["speedup_per_token"]} for row in at_usual]
    words = _LINES if "pays_from" in facts else [_NONE]

    def tables() -> list[str]:
        title = f"speedup\nat {tokens:.2f}" if tokens else "speedup\nat yours"
        cells = forms.text_table(at_usual, of_table("break_even", speedup=title))
        if varies("draft_length", kept):
            cells = f"With {usual} drafted:\n{cells}\n\n{_by_length(kept)}"
        dash = f"\n{_DASH}" * ("-" in cells.split())
        return [cells + dash + report.left_out(least)]

    found = report.answer(p, least, words, tables, facts)
    return found if is_own else replace(found, case=report.heading(p.deployment))


def _needed(kept: list[Row], kind: str, name: str) -> dict[str, Fact]:
    """Return the least acceptance of `kind`, at the easiest and at the hardest point, by `name`.

    `kind` is "break_even" or "sure".
    """
    rate = f"{kind}_acceptance_rate"
    others = {"rate": rate, "length": "draft_length", "where": "where"}
    if rate not in kept[0]:
        return {}
    easiest = easiest_points(kept, rate)
    able = [row for row in easiest if row[rate] is not None]
    nowhere = Fact(len(easiest) - len(able) or None)
    facts = {"points": Fact(len(easiest)), f"{name}_nowhere": nowhere}
    for end, row in zip(("from", "everywhere"), [*able[:1], *able[1:][-1:]], strict=False):
        placed = row | {"where": operator.place(row, easiest)}
        facts |= picked(f"{name}_{end}", placed, f"{kind}_tokens_per_step", **others)
    return facts


def _by_length(kept: list[Row]) -> str:
    """Return the tables of the tokens a step needed, by draft length."""
    columns = {name: pays for name, pays in _KINDS.items() if name in kept[0]}
    return "\n\n".join(
        report.by_length(kept, f"Tokens a step from which it {pays}", f"{{{name}:.2f}}")
        for name, pays in columns.items()
    )
