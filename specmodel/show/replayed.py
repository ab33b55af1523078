"""Show replays of policies in words and tables, and their times as JSON."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from specmodel import simulate
from specmodel.core.base.text import SCREEN
from specmodel.core.prediction.table import Row
from specmodel.show import report
from specmodel.show.behind import behind
from specmodel.show.facts import Fact, Facts, known, picked
from specmodel.show.forms import Answer, plain_fields, records, text_table
from specmodel.show.glossary import PAGES
from specmodel.show.notes import in_words

if TYPE_CHECKING:
    from specmodel.simulate.replay_question import Replayed

_TEXTS = PAGES["replayed"]
_LONGEST_LABEL = 20


def heading(question: Replayed) -> str:
    """Return the heading: the deployment, or the source of the times, and the requests."""
    where = question.deployment and report.heading(question.deployment)
    return f"{where or question.heading}; {question.requests}"


def answer(found: Replayed) -> Answer:
    """Return the answer of a replay of several policies, in all forms."""
    case = heading(found)
    room = {} if found.fits is None else {"fits": found.fits}  # unknown of measured times
    rows = [row | room | {"assumed": row["assumed"] or ""} for row in records(found.summary)]
    warnings = [*map(str, found.warnings)]
    assumptions = in_words(found.assumed)
    names = [row["policy"] for row in rows]
    labels = {
        name: name if len(name) <= _LONGEST_LABEL else f"{name.partition(':')[0][:14]} [{number}]"
        for number, name in enumerate(names, 1)
    }
    labelled = [row | {"policy": labels[row["policy"]]} for row in rows]
    facts, shown = (_facts(each, found.times) for each in (rows, labelled))
    gains = "best" in facts and facts["best_speedup"].value > 1
    headline = _TEXTS[("best" if gains else "none") if "best" in facts else "bounds"]
    words = report.opening([headline, *_TEXTS["lines"]], shown, found.fits is not False)
    in_short = {n: f"{v:g}" if isinstance(v, float) else v for n, v in assumptions.items()}
    sentences = behind(found.deployment) if found.deployment else []

    def page() -> str:
        table = _table(labelled, labels)
        return report.laid_out(case, sentences, in_short, warnings, words, [table])

    fields = {"heading": case, "assumptions": assumptions, "warnings": warnings, **room}
    fields |= {"step_times": fields_of(found.times), "policies": rows}
    return Answer(page=page, facts=facts, fields=fields, rows=rows, warnings=warnings, case=case)


def _facts(rows: list[Row], times: simulate.ReplayTimes) -> Facts:
    """Return the best policy that can be deployed, and the relative step times, which decide."""
    able = [row for row in rows if row["time_over_best"] is not None]
    best = max(able, key=lambda row: row["speedup"], default=Row())
    facts = {
        "forward_time": Fact(times.forward_time, "s"),
        "step_costs": Fact((times.step_time / times.forward_time).tolist()),
        "testing": Fact({row["policy"]: row["test_share"] for row in able if row["test_share"]}),
    }
    return known((facts | picked("best", best, "policy", speedup="speedup")).items())


def fields_of(times: simulate.ReplayTimes) -> Row:
    """Return times for JSON, the later ones as a list of the same fields."""
    fields: Row = plain_fields(times)
    fields["later"] = [fields_of(row) for row in fields["later"]]
    return fields


def _table(rows: list[Row], labels: dict[str, str]) -> str:
    """Return a text table with a row for each policy, and notes that explain its labels."""
    by_text: dict[str, list[str]] = {}
    for row in rows:
        text = row["assumed"] or ("" if row["time_over_best"] is not None else _TEXTS["hindsight"])
        by_text.setdefault(text, []).append(row["policy"])
    notes = [f"{label}: {name}" for name, label in labels.items() if label != name]
    notes += [f"{', '.join(names)}: {text}." for text, names in by_text.items() if text]
    # longer words than a line, which users type, are cut
    filled = (textwrap.fill(note, SCREEN.get(), break_on_hyphens=False) for note in notes)
    return "\n".join([text_table(rows, "replayed"), *filled])
