"""Show the answers of `simulate`: servers under load, and replays of draft-length policies."""

import textwrap
from collections.abc import Sequence
from typing import Any

from numpy import array

from specmodel import simulate
from specmodel.core.base.notes import Note
from specmodel.core.base.text import SCREEN
from specmodel.core.prediction.cautions import notes_of_run
from specmodel.core.prediction.table import Row
from specmodel.show import report
from specmodel.show.behind import behind
from specmodel.show.columns import units
from specmodel.show.facts import Fact, Facts, known, lines, picked
from specmodel.show.forms import Answer, plain_fields, records, text_table
from specmodel.show.glossary import PAGES
from specmodel.show.notes import in_words
from specmodel.simulate.facts import capacity_facts, drain_facts, rate_facts
from specmodel.simulate.load_question import Loaded
from specmodel.simulate.replay_question import Replayed
from specmodel.simulate.study import Study, not_carried

_LOADS, _REPLAYED = PAGES["loads"], PAGES["replayed"]
_OF_DRAINS = ("prompts", "samples", "servers", "finished")
_LONGEST_LABEL = 20


def load(loaded: Loaded) -> Answer:
    """Return the answer of a load in all forms: at given rates, the largest rate, or a drain."""
    study, rows, drain = loaded.study, loaded.rows, loaded.drain
    tidy, fields = loaded.tried or rows, dict[str, Any]()
    running, warnings = tidy, list[object]()
    if loaded.trial is None:
        warnings += notes_of_run(study.deployment, study.typical.longest)
    if drain is not None:
        kind, table, facts = "drain", "drains", drain_facts(drain, rows)
        fields["drain"] = {name: getattr(drain, name) for name in _OF_DRAINS}
        running = [*map(drain.at_peak, rows)]
    elif loaded.trial is not None:
        kind, table, facts = "capacity", "largest", capacity_facts(loaded.trial, rows)
        fields["rates_tried"] = loaded.tried
    else:
        kind, table, facts = "load", "loads", rate_facts(rows)
        if rates := ", ".join(f"{rate:.3g}" for rate in not_carried(rows)):
            warnings.append(_LOADS["not_carried"].format(rates=rates))
    case = report.heading(study.deployment)
    assumed = report.with_brief_source(in_words(loaded.assumed))
    warned = [*map(str, (*warnings, *graph_notes(study, running), *study.notes))]
    names = rows[0] | tidy[0]
    of = dict.fromkeys(names, "-") | units(names, "loads")
    always = {"case": case, "assumptions": assumed, "warnings": warned, "units": of, "rows": rows}
    fields = always | fields
    notes = [*_LOADS["notes"][kind], *[_LOADS["policies"]] * loaded.is_usual]

    def page() -> str:
        below, words = behind(study.deployment), lines(_LOADS["lines"][kind], facts)
        words = words or lines(_LOADS["none_sustained"], facts)
        parts = [text_table(rows, table)]
        return report.laid_out(case, below, assumed, warned, words, parts, notes)

    return Answer(
        page=page, facts=facts, fields=fields, rows=tidy, warnings=warned, case=case, figure=kind
    )


def graph_notes(study: Study, rows: Sequence[Row]) -> tuple[Note, ...]:
    """Return notes on rows whose mean running requests verify more tokens than a CUDA graph has."""
    sizes = array([row["running"] for row in rows]).round()
    tokens = array([row["drafted_tokens_per_step"] for row in rows]) + 1
    return study.deployment.graph_warnings(sizes.clip(1), tokens)


def replay_heading(question: Replayed) -> str:
    """Return the heading: the deployment, or the source of the times, and the requests."""
    where = question.deployment and report.heading(question.deployment)
    return f"{where or question.heading}; {question.requests}"


def replay(found: Replayed) -> Answer:
    """Return the answer of a replay of several policies, in all forms."""
    case = replay_heading(found)
    room = {} if found.fits is None else {"fits": found.fits}  # unknown for measured times
    rows = [row | room | {"assumed": row["assumed"] or ""} for row in records(found.summary)]
    warnings = [*map(str, found.warnings)]
    assumptions = in_words(found.assumed)
    names = [row["policy"] for row in rows]
    labels = {
        name: name if len(name) <= _LONGEST_LABEL else f"{name.partition(':')[0][:14]} [{number}]"
        for number, name in enumerate(names, 1)
    }
    labelled = [row | {"policy": labels[row["policy"]]} for row in rows]
    facts, shown = (_replay_facts(each, found.times) for each in (rows, labelled))
    gains = "best" in facts and facts["best_speedup"].value > 1
    headline = _REPLAYED[("best" if gains else "none") if "best" in facts else "bounds"]
    words = report.opening([headline, *_REPLAYED["lines"]], shown, found.fits is not False)
    in_short = {n: f"{v:g}" if isinstance(v, float) else v for n, v in assumptions.items()}
    sentences = behind(found.deployment) if found.deployment else []

    def page() -> str:
        table = _policy_table(labelled, labels)
        return report.laid_out(case, sentences, in_short, warnings, words, [table])

    fields = {"heading": case, "assumptions": assumptions, "warnings": warnings, **room}
    fields |= {"step_times": fields_of(found.times), "policies": rows}
    return Answer(page=page, facts=facts, fields=fields, rows=rows, warnings=warnings, case=case)


def _replay_facts(rows: list[Row], times: simulate.ReplayTimes) -> Facts:
    """Return the best policy that can be deployed, and the relative step times that decide it."""
    able = [row for row in rows if row["time_over_best"] is not None]
    best = max(able, key=lambda row: row["speedup"], default=Row())
    facts = {
        "forward_time": Fact(times.forward_time, "s"),
        "step_costs": Fact((times.step_time / times.forward_time).tolist()),
        "testing": Fact({row["policy"]: row["test_share"] for row in able if row["test_share"]}),
    }
    return known((facts | picked("best", best, "policy", speedup="speedup")).items())


def fields_of(times: simulate.ReplayTimes) -> Row:
    """Return step times for JSON; times of later tokens are a list of the same fields."""
    fields: Row = plain_fields(times)
    fields["later"] = [fields_of(row) for row in fields["later"]]
    return fields


def _policy_table(rows: list[Row], labels: dict[str, str]) -> str:
    """Return a text table with a row for each policy, and notes that explain its labels."""
    by_text: dict[str, list[str]] = {}
    for row in rows:
        is_online = row["time_over_best"] is not None
        text = row["assumed"] or ("" if is_online else _REPLAYED["hindsight"])
        by_text.setdefault(text, []).append(row["policy"])
    notes = [f"{label}: {name}" for name, label in labels.items() if label != name]
    notes += [f"{', '.join(names)}: {text}." for text, names in by_text.items() if text]
    # names that users type may be longer than a line, and are cut there
    filled = (textwrap.fill(note, SCREEN.get(), break_on_hyphens=False) for note in notes)
    return "\n".join([text_table(rows, "replayed"), *filled])
