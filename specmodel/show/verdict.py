"""The page of ``predict``: whether speculation pays, how much and how sure, and what to paste."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from specmodel.answers.advice import BetterLayout, Verdict, better_layout, gain_of, start_options
from specmodel.answers.decision import Decision, decide
from specmodel.answers.within import LargestBatches
from specmodel.base.ranges import spans
from specmodel.base.text import VERBOSE, wrap
from specmodel.prediction.gains import sources_at
from specmodel.prediction.ground import place_of
from specmodel.prediction.outcome import Prediction
from specmodel.prediction.table import Row
from specmodel.show import defaults, forms, glossary, operator, report
from specmodel.show.components import component_rows, component_tables, fields_of
from specmodel.show.facts import Fact, known, lines, with_ends
from specmodel.show.glossary import PAGES
from specmodel.show.grounds import ground_facts, ground_lines
from specmodel.show.within import told_within

_TEXTS = PAGES["verdict"]
_MOST, _DRAFTED, _ENDS = "{most:.2f}x at {most_place}", " with {one_length} drafted", "{most.ends}"
"""Of the gain that a headline has, its draft length and its interval."""
_ADVISED = {"on", "on where it pays", "off", "off below", "close", "depends", "typed"}
"""Headlines that advise, beside which it stands how sure they are."""


def answer(
    prediction: Prediction,
    *,
    tpot_target: float | None = None,
    columns: str | None = None,
    interval: bool | None = None,
    components: bool = False,
) -> forms.Answer:
    """Return the verdict on a prediction in all forms; `tpot_target` adds the largest batch.

    A prediction at best draft lengths is judged as what is pasted: one length, or a schedule.
    `interval` says whether to show intervals; None shows them where errors are known. All that is
    computed is computed here: the forms only tell it.
    """
    if prediction.turned:
        from specmodel.show.turned import turned_answer

        judged = {"tpot_target": tpot_target, "columns": columns}
        return turned_answer(prediction, prediction.turned, judged, components=components)
    at_best = prediction
    decision, prediction, within = _decided_within(prediction, tpot_target, interval is not False)
    prediction = report.with_ends(prediction, interval)

    def kept(rows: list[Row]) -> list[Row]:
        return rows if within is None else within.kept(rows)

    shown = _shown(prediction, kept, decision, within, at_best)
    facts = _facts(shown, prediction)
    fields = fields_of(prediction, kept, components=components)
    rows = operator.chosen_rows(prediction, fields["rows"], columns)
    return forms.Answer(
        page=lambda: _page(shown, prediction, facts, columns, components=components),
        facts=facts,
        paste=shown.paste[0],
        fields=fields,
        rows=component_rows(prediction) if components else rows,
        header=() if rows else operator.chosen_rows(prediction, prediction.rows(1), columns)[0],
        warnings=prediction.warnings,
        case="" if columns else report.caption(prediction),
    )


def _decided_within(
    prediction: Prediction, target: float | None, has_interval: bool
) -> tuple[Decision | None, Prediction, LargestBatches | None]:
    """Return what is pasted, its prediction, and what meets a target [s] with it."""
    if target is None:
        decision = decide(prediction)
        return decision, decision.prediction if decision else prediction, None
    searched = partial(LargestBatches.searched, target=target, has_interval=has_interval)
    kept, within = searched(prediction)
    largest = within.largest["batch_size"] if within.largest else None
    decision = decide(prediction, largest)
    if decision and decision.plan is None:
        pasted, within = searched(decision.prediction)
        last = within.largest["batch_size"] if within.largest else 0
        if decision.graphs and decision.graphs.first > last:  # which does not run
            decision = replace(decision, graphs=None)
        return decision, pasted, within
    decision = decide(kept)
    return decision, decision.prediction if decision else kept, within


class _Shown(Struct, frozen=True, kw_only=True, eq=False):
    """What the page of a prediction tells: its rows, and what was made of them.

    `every` are all that have room, `kept` those of them within a target, `judged` those of them
    that fit.
    """

    every: Sequence[Row]
    kept: Sequence[Row]
    judged: Verdict
    decision: Decision | None
    paste: tuple[str, str]
    layout: BetterLayout | None
    within: LargestBatches | None
    met: list[str]
    best: Row


def _shown(
    prediction: Prediction,
    kept: Callable[[list[Row]], list[Row]],
    decision: Decision | None,
    within: LargestBatches | None,
    at_best: Prediction,
) -> _Shown:
    """Return what the page tells of a prediction, whose layouts are compared `at_best` lengths."""
    rows = operator.with_alike(prediction, prediction.rows())
    rows = report.with_room(rows, prediction)
    shown = kept(rows)
    every = shown or rows
    is_typed = not prediction.evaluation.acceptance.spread
    return _Shown(
        every=every,
        kept=shown,
        judged=Verdict(
            rows=report.fitting(every),
            is_typed=is_typed,
            place=place_of(
                prediction.deployment, prediction.evaluation.points["context_length"].max()
            ),
            is_published=bool(prediction.evaluation.acceptance.source),
        ),
        decision=decision,
        paste=_paste(prediction, shown, decision),
        layout=better_layout(at_best, shown) if report.is_at_best(at_best) else None,
        within=within,
        met=told_within(within.facts()) if within else [],
        best=max(every, key=lambda row: (row["fits"], row["speedup"])),
    )


def _paste(
    prediction: Prediction, rows: Sequence[Row], decision: Decision | None
) -> tuple[str, str]:
    """Return the start options that were decided on, or of the length given, and the program."""
    able = [row for row in rows if row["fits"]]
    if decision:
        return decision.paste if able else ("", "")
    lengths = {row["draft_length"] for row in able}
    has_one = len({*prediction.batch_size.flat}) == prediction.speedup.size
    is_given = not report.is_at_best(prediction) and has_one and len(lengths) == 1
    gains = any(row["speedup"] > 1 for row in able)
    return start_options(prediction, max(lengths)) if is_given and gains else ("", "")


def _page(
    shown: _Shown,
    prediction: Prediction,
    facts: dict[str, Fact],
    columns: str | None,
    *,
    components: bool,
) -> str:
    """Return the page: the verdict, the table, what to paste, and what it rests on."""
    words = _verdict(shown, prediction, facts)
    words = [*shown.met[:1], *words, *shown.met[1:]]
    rows = shown.kept
    how: dict[str, Any] = {"columns": columns, "target": shown.within and shown.within.target}
    parts = [operator.table(rows, **how)] if rows else []
    parts += [component_tables(prediction)] if components else []
    is_long = VERBOSE.get() and not columns
    notes = [glossary.limits_told({row["limited_by"] for row in rows} if is_long else set())]
    if not columns:
        length = "; ".join(lines(_TEXTS["length"], facts | _beside(shown.decision)))
        length = wrap(f"{length}.") if length else ""
        parts += ["\n".join(filter(None, [length, operator.pasted(*shown.paste)]))]
        notes = [*lines([_TEXTS["layout"]], facts), *notes]
    told = defaults.with_tokens(prediction, shown.best, is_told="one_length" in facts)
    tasks = defaults.tasks_told(prediction, shown.best)
    return report.page(told, words, *parts, notes=filter(None, notes), tasks=tasks)


def _beside(decision: Decision | None) -> dict[str, Fact]:
    """Return by how much recipes are slower or faster."""
    gain = round(decision.recipe_gain, 2) if decision else 0.0
    if not gain:
        return {"as_fast": Fact("as fast")}
    return {"faster" if gain > 0 else "slower": Fact(abs(gain))}


def _kind(shown: _Shown, prediction: Prediction) -> str:
    """Return the kind of headline, by its name in ``pages.toml``."""
    judged = shown.judged
    if not any(row["fits"] for row in judged.rows):
        return "turns" if prediction.evaluation.at_once else "unfit"
    if not judged.has_drafts:
        if any(row["best_draft_length"] for row in judged.rows):
            return "idle"
        held = any(row["limited_by"] == "memory" for row in judged.rows)
        return "no room" if held else "no draft"
    if report.verbs(prediction)[0] != "pays":
        return "may" if round(judged.best["speedup"], 2) > 1 else "may not"
    advice = _advice(shown)
    return "typed" if advice == "depends" and judged.is_typed else advice


def _advice(shown: _Shown) -> str:
    """Return the advice of the verdict; where a loss ends the batch, that it pays up to there."""
    ends = shown.decision is not None and shown.decision.most_requests is not None
    return "on where it pays" if ends and shown.judged.advice == "on" else shown.judged.advice


def _verdict(shown: _Shown, prediction: Prediction, facts: dict[str, Fact]) -> list[str]:
    """Return the headline, the facts beside it, a line each, and why if `VERBOSE`."""
    judged, points, kind = shown.judged, shown.judged.rows, _kind(shown, prediction)
    gain, best = gain_of(judged.best), judged.best
    is_several = judged.has_drafts and len(points) > 1
    full = [row for row in points if row["limited_by"] == "memory" and judged.has_drafts]
    sure, unsure, lost = judged.where("pays"), judged.where("open"), judged.lost
    where = {"pays": sure if len(sure) < len(points) else [], "may_pay": unsure}
    where |= {"loses": lost, "no_draft": full}
    told = {
        "most_place": operator.place(best, points),
        "most_length": best["draft_length"],
        "least_place": operator.place(judged.worst, points) if is_several else None,
        "open_chance": gain.chance if gain and gain.is_open else None,
        "how_often": _how_often(judged) if kind in _ADVISED else None,
        "points_that_fit": len(points) if len(points) < len(shown.every) else None,
        "points": len(shown.every),
        "risk_place": operator.place(judged.risk, points) if judged.risk else None,
        **{f"{n}_where": operator.places(rows, points) for n, rows in where.items() if rows},
    }
    named = known({**facts, **{name: Fact(value) for name, value in told.items()}}.items())
    (headline,) = lines([_TEXTS["headlines"][kind]], named)
    if headline.endswith(" "):
        most = _MOST + _DRAFTED * ("one_length" in facts) + _ENDS
        headline += "; ".join(lines([most, *_TEXTS["gain"]], named))
    fewest = f" {facts['fewest_gpus'].value}" if "fewest_gpus" in facts else ""
    first = lines([_TEXTS["measure_first"]], named)
    is_told = judged.has_drafts and VERBOSE.get()
    why = [report.why(best, points, prediction, told["most_place"])] if is_told else []
    labelled = [*lines(_TEXTS["lines"], named), *ground_lines(named), *first]
    return [f"{headline}.{fewest}", *labelled, *why]


def _how_often(judged: Verdict) -> str | None:
    """Return how often published cases told the same came true, if any were."""
    gain, share = gain_of(judged.best), judged.share_held
    if gain is None or share is None:
        return None
    kind = "loss" if gain.chance < 0.5 else "may" if judged.word == "may" else "gain"
    return str(_TEXTS["how_often"][kind]).format(word=judged.word, share=share)


def _facts(shown: _Shown, prediction: Prediction) -> dict[str, Fact]:
    """Return what the page tells, by name."""
    judged = shown.judged
    sizes = sorted({row["batch_size"] for row in judged.rows})

    def where(rows: Sequence[Row]) -> Fact:
        those = {row["batch_size"] for row in rows}
        ends = spans(sizes, (size in those for size in sizes))
        return Fact([*map(list, ends)], "request")

    is_known = report.verbs(prediction)[0] == "pays" and any(row["fits"] for row in shown.every)
    gain, risk, layout = gain_of(judged.best), judged.risk, shown.layout
    tokens = defaults.tokens_by_task(prediction, shown.best)
    facts = {
        "advice": Fact(_advice(shown) if is_known else None),
        "how_sure": Fact(judged.word),
        "share_held": Fact(judged.share_held if is_known else None),
        "chance": Fact(gain.chance if gain else None),
        "needed_tokens_per_step": Fact(judged.needed if judged.has_drafts else None, "token"),
        "most": with_ends(judged.best, "speedup"),
        "most_at": Fact(judged.best["batch_size"], "request"),
        "least": with_ends(judged.worst, "speedup"),
        "least_at": Fact(judged.worst["batch_size"], "request"),
        "pays_at": where(judged.where("pays")),
        "may_pay_at": where(judged.where("open")),
        "loses_at": where(judged.lost),
        "loses_down_to": Fact(min((row["speedup"] for row in judged.lost), default=None)),
        "deployment": Fact(report.heading(prediction.deployment)),
        "tokens_per_step": Fact(shown.best["tokens_per_step"], "token", *tokens),
        "tokens_by_task": Fact(defaults.tokens_on_tasks(prediction, shown.best) or None, "token"),
        "acceptance_spread": Fact(prediction.evaluation.acceptance.spread or None),
        "speedup_by_task": Fact(defaults.speedups_by_task(prediction, shown.best)),
        **(_decided(shown.decision) if shown.decision else {}),
        "engine_option": Fact(shown.paste[0]),
        "paste_into": Fact(shown.paste[1]),
        "layout": Fact(layout.name if layout else None),
        "layout_carries_more": Fact(layout.more if layout else None),
        "layout_at": Fact(layout.batch_size if layout else None, "request"),
        "risk": Fact(operator.risk_cause(risk, prediction) if risk else None),
        "risk_at": Fact(risk["batch_size"] if risk else None, "request"),
        "fewest_gpus": Fact(operator.would_hold(prediction).strip()),
        **ground_facts(prediction.evaluation),
        **(_measured_first(judged, prediction) if gain else {}),
    }
    facts |= shown.within.facts() if shown.within else {}
    return known(facts.items())


def _measured_first(judged: Verdict, prediction: Prediction) -> dict[str, Fact]:
    """Return what most of the interval of the most comes of, and the command that measures it."""
    is_told = judged.place.kind != "own" and judged.best["draft_length"]
    sources = sources_at(prediction, judged.best) if is_told else {}
    if not sources:
        return {}
    name = max(sources, key=lambda source: sources[source])
    return {
        "measure_first": Fact(name),
        "measure_first_share": Fact(sources[name]),
        "measure_with": Fact(_TEXTS["measures"][name]),
    }


def _decided(decision: Decision) -> dict[str, Fact]:
    """Return the facts of what is pasted."""
    graphs, first, last = decision.graphs, *decision.as_good
    starts = graphs.first if graphs and graphs.first < graphs.batch_size else None
    return {
        "one_length": Fact(None if decision.plan else decision.length, "token"),
        "longest_of_schedule": Fact(decision.length if decision.plan else None, "token"),
        "schedule": Fact([*map(list, decision.plan.schedule.ranges)] if decision.plan else []),
        "as_good": Fact([[first, last]] if first < last else None, "token"),
        "gives_away": Fact(decision.gives_away if decision.gives_away >= 0.005 else None),
        "no_room_at": Fact([[size, size] for size in decision.no_room_at], "request"),
        "graphs_option": Fact(graphs.option if graphs else None),
        "graphs_from": Fact(starts, "request"),
        "without_graphs": Fact(graphs.speedup if graphs else None),
        "without_graphs_at": Fact(graphs.batch_size if graphs else None, "request"),
        "most_requests": Fact(decision.most_requests, "request"),
        "recipe": Fact([[*decision.recipe]] if decision.recipe else None, "token"),
        "recipe_gain": Fact(decision.recipe_gain if decision.recipe else None),
    }
