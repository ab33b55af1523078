"""The page of ``predict``: whether speculation pays, how much, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specmodel.answers.advice import (
    BetterLayout,
    SingleLength,
    Verdict,
    better_layout,
    gain_of,
    single_length,
    start_options,
)
from specmodel.base.classes import dataclass
from specmodel.base.ranges import ranges_text, spans
from specmodel.base.text import TABLE, VERBOSE
from specmodel.show import defaults, forms, glossary, operator, report
from specmodel.show.components import component_rows, component_tables, fields_of
from specmodel.show.facts import Fact, known
from specmodel.show.within import Within, within_target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specmodel.prediction.outcome import Prediction
    from specmodel.prediction.table import Row


def answer(
    prediction: Prediction,
    *,
    tpot_target: float | None = None,
    columns: str | None = None,
    interval: bool | None = None,
    components: bool = False,
) -> forms.Answer:
    """Return the verdict on a prediction in all forms; `tpot_target` adds the largest batch.

    `interval` says whether to show intervals; None shows them where errors are known. All that is
    computed is computed here: the forms only tell it.
    """
    if prediction.turned:
        from specmodel.show.turned import turned_answer

        judged = {"tpot_target": tpot_target, "columns": columns}
        return turned_answer(prediction, prediction.turned, judged, components=components)
    within = None
    if tpot_target is not None:
        has_interval = interval is not False
        prediction, within = within_target(prediction, tpot_target, has_interval=has_interval)
    prediction = report.with_ends(prediction, interval)

    def kept(rows: list[Row]) -> list[Row]:
        return rows if within is None else within.kept(rows)

    shown = _shown(prediction, kept, columns, within)
    facts = _facts(shown, prediction)
    listed = component_rows(prediction) if components else None
    fields = fields_of(prediction, kept, components=components)

    def rows() -> list[Row]:
        return listed or operator.chosen_rows(prediction, kept(prediction.rows()), columns)

    return forms.Answer(
        page=lambda: _page(shown, prediction, columns, components=components),
        facts=facts,
        paste=shown.paste[0],
        fields=lambda: fields,
        rows=rows,
        header=lambda: operator.chosen_rows(prediction, prediction.rows(1), columns)[0],
        warnings=prediction.warnings,
        case="" if columns else report.caption(prediction),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Shown:
    """What the page of a prediction tells: its rows, and what was made of them.

    `rows` are all that have room, `kept` those of them within a target.
    """

    rows: Sequence[Row]
    kept: Sequence[Row]
    judged: Verdict
    single: SingleLength | None
    paste: tuple[str, str]
    layout: BetterLayout | None
    graphs: str
    fewest: str
    within: Within | None
    met: list[str]
    best: Row


def _shown(
    prediction: Prediction,
    kept: Callable[[list[Row]], list[Row]],
    columns: str | None,
    within: Within | None,
) -> _Shown:
    """Return what the page tells of a prediction."""
    at_best = report.is_at_best(prediction)
    rows = prediction.rows()
    rows = operator.with_alike(prediction, rows) if at_best and not columns else rows
    rows = report.with_room(rows, prediction)
    shown = kept(rows)
    judged = shown or rows
    drafts = {row["draft_length"] for row in shown if row["fits"]}
    single = single_length(prediction) if at_best and any(drafts) else None
    return _Shown(
        rows=judged,
        kept=shown,
        judged=Verdict(
            rows=report.fitting(judged), is_typed=not prediction.evaluation.acceptance.spread
        ),
        single=single,
        paste=_start(prediction, shown, drafts, single),
        layout=better_layout(prediction, shown) if at_best else None,
        graphs=report.ended(report.fitting(shown), prediction) if at_best else "",
        fewest=operator.would_hold(prediction),
        within=within,
        met=within.told() if within else [],
        best=max(judged, key=lambda row: (row["fits"], row["speedup"])),
    )


def _start(
    prediction: Prediction, rows: Sequence[Row], drafts: set[int], single: SingleLength | None
) -> tuple[str, str]:
    """Return the start options of the one length, found or given, and the program; "" for none."""
    case = prediction.case
    if single:
        length = single.length
    elif case is None or case.draft_length is None or len(drafts) != 1:
        return "", ""
    else:
        has_one = len({*prediction.batch_size.flat}) == prediction.speedup.size
        gains = any(row["speedup"] > 1 for row in rows if row["fits"])
        length = max(drafts) if has_one and gains else 0
    return start_options(prediction, length)


def _page(shown: _Shown, prediction: Prediction, columns: str | None, *, components: bool) -> str:
    """Return the page: the verdict, the table, what to paste, and what it rests on."""
    words = operator.verdict(shown.judged, prediction, shown.rows)
    words[0] += shown.fewest
    words = [*shown.met[:1], *words, *shown.met[1:]]
    rows = shown.kept
    how: dict[str, Any] = {"columns": columns, "target": shown.within and shown.within.target}
    parts = [operator.table(rows, width=TABLE.get(), **how)] if rows else []
    parts += [component_tables(prediction)] if components else []
    is_long = VERBOSE.get() and not columns
    limits = glossary.limits_told({row["limited_by"] for row in rows} if is_long else set())
    layout = _layout(shown.layout) if shown.layout and not columns else ""
    # one line for what changes most, all in full
    notes = [layout, shown.graphs] if VERBOSE.get() else [layout or shown.graphs]
    if not columns:
        notes = [_single(shown.single), operator.pasted(*shown.paste), *notes]
    told = defaults.with_tokens(prediction, shown.best)
    tasks = defaults.tasks_told(prediction, shown.best)
    return report.page(told, words, *parts, notes=filter(None, [*notes, limits]), tasks=tasks)


def _facts(shown: _Shown, prediction: Prediction) -> dict[str, Fact]:
    """Return what the page tells, by name."""
    judged, single, layout = shown.judged, shown.single, shown.layout
    sizes = sorted({row["batch_size"] for row in judged.rows})

    def gained(row: Row) -> Fact:
        return Fact(row["speedup"], "-", row.get("speedup_low"), row.get("speedup_high"))

    def where(rows: Sequence[Row]) -> Fact:
        those = {row["batch_size"] for row in rows}
        return Fact(
            [list(ends) for ends in spans(sizes, (size in those for size in sizes))], "request"
        )

    is_known = report.verbs(prediction)[0] == "pays" and any(row["fits"] for row in shown.rows)
    gain, risk = gain_of(judged.best), judged.risk
    tokens = defaults.tokens_by_task(prediction, shown.best)
    facts = {
        "advice": Fact(judged.advice if is_known else None),
        "how_sure": Fact(gain.word if gain else None),
        "share_held": Fact(gain.share_held if gain and is_known else None),
        "chance": Fact(gain.chance if gain else None),
        "needed_tokens_per_step": Fact(judged.needed if judged.has_drafts else None, "token"),
        "most": gained(judged.best),
        "most_at": Fact(judged.best["batch_size"], "request"),
        "least": gained(judged.worst),
        "least_at": Fact(judged.worst["batch_size"], "request"),
        "pays_at": where(judged.where("pays")),
        "may_pay_at": where(judged.where("open")),
        "loses_at": where(judged.lost),
        "deployment": Fact(report.heading(prediction.deployment)),
        "tokens_per_step": Fact(shown.best["tokens_per_step"], "token", *tokens),
        "acceptance_spread": Fact(prediction.evaluation.acceptance.spread or None),
        "speedup_by_task": Fact(defaults.speedups_by_task(prediction, shown.best)),
        "one_length": Fact(single.length if single else None, "token"),
        "as_good": Fact([*single.as_good] if single else None, "token"),
        "gives_away": Fact(single.gives_away if single else None),
        "no_room_at": Fact(list((single and single.no_room_at) or ()), "request"),
        "engine_option": Fact(shown.paste[0]),
        "paste_into": Fact(shown.paste[1]),
        "layout": Fact(layout.name if layout else None),
        "layout_carries_more": Fact(layout.more if layout else None),
        "layout_at": Fact(layout.batch_size if layout else None, "request"),
        "risk": Fact(operator.risk_cause(risk, prediction) if risk else None),
        "risk_at": Fact(risk["batch_size"] if risk else None, "request"),
        "graphs": Fact(shown.graphs),
        "fewest_gpus": Fact(shown.fewest.strip()),
    }
    facts |= shown.within.facts() if shown.within else {}
    return known(facts.items())


def _single(single: SingleLength | None) -> str:
    """Return a sentence on the one length for all batch sizes, and what it gives up."""
    if single is None or not single.length:
        return ""
    beside = [f"{ranges_text([single.as_good])} as good"] if len({*single.as_good}) > 1 else []
    beside += [f"no room at {ranges_text([single.no_room_at])}"] if single.no_room_at else []
    told = f" ({'; '.join(beside)})" if beside else ""
    lost = f", {single.gives_away:.0%} below best on average" if single.gives_away >= 0.005 else ""
    return f"One length for all: {single.length}{told}{lost}."


def _layout(layout: BetterLayout) -> str:
    at = f"{layout.more:.0%} more tokens/s at {layout.batch_size}"
    return f"Layout: {layout.name} carries {at} (specmodel compare)."
