"""The page of ``predict``: whether speculation pays, how much, and how sure that is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import refuse_given
from specmodel.base.ranges import ranges_text
from specmodel.base.text import TABLE, VERBOSE
from specmodel.prediction.table import Column, Row, text_table, varies
from specmodel.show import defaults, forms, glossary, operator, report
from specmodel.show.columns import chosen, units as units_of
from specmodel.show.components import component_rows, component_tables, fields_of
from specmodel.show.operator import ends, place, places
from specmodel.show.views import case as case_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specmodel.prediction.outcome import Prediction, Turned


def answer(
    prediction: Prediction,
    *,
    tpot_target: float | None = None,
    columns: str | None = None,
    interval: bool | None = None,
    components: bool = False,
) -> forms.Answer:
    """Return the verdict on a prediction in all forms; `tpot_target` adds the largest batch.

    `interval` says whether to show intervals; None shows them where errors are known.
    """
    if prediction.turned:
        judged = {"tpot_target": tpot_target, "columns": columns}
        return turned_answer(prediction, prediction.turned, judged, components=components)
    within = None
    if tpot_target is not None:
        from specmodel.show.within import within_target

        has_interval = interval is not False
        prediction, within = within_target(prediction, tpot_target, has_interval=has_interval)
    at_best = report.is_at_best(prediction)
    prediction = report.with_ends(prediction, interval)

    def kept(rows: list[Row]) -> list[Row]:
        return rows if within is None else within.kept(rows)

    def page() -> str:
        rows = prediction.rows()
        rows = operator.with_alike(prediction, rows) if at_best and not columns else rows
        rows = report.with_room(rows, prediction)
        judged = kept(rows) or rows
        words = operator.verdict(prediction, judged)
        told = within.told() if within else ""
        words[0] = f"{told} {words[0]}{operator.would_hold(prediction)}".lstrip()
        best = max(judged, key=lambda row: (row["fits"], row["speedup"]))
        shown = defaults.with_tokens(prediction, best)
        tasks = defaults.tasks_told(prediction, best)
        rows = kept(rows)
        how: dict[str, Any] = {"columns": columns, "target": within and within.target}
        parts = [operator.table(rows, width=TABLE.get(), **how)] if rows else []
        parts += [component_tables(prediction)] if components else []
        is_long = VERBOSE.get() and not columns
        limits = glossary.limits_told({row["limited_by"] for row in rows} if is_long else set())
        layout = "" if columns or not at_best else _layout(prediction, rows)
        ended = report.ended(report.fitting(rows), prediction) if at_best else ""
        # one line for what changes most, all in full
        notes = [layout, ended] if VERBOSE.get() else [layout or ended]
        if not columns:
            notes = [*_to_paste(prediction, rows), *notes]
        return report.page(shown, words, *parts, notes=filter(None, [*notes, limits]), tasks=tasks)

    def rows() -> list[Row]:
        if components:
            return component_rows(prediction)
        return operator.chosen_rows(prediction, kept(prediction.rows()), columns)

    return forms.Answer(
        page=page,
        fields=lambda: fields_of(prediction, kept, components=components),
        rows=rows,
        header=lambda: operator.chosen_rows(prediction, prediction.rows(1), columns)[0],
        warnings=prediction.warnings,
        case="" if columns else report.caption(prediction),
    )


def _to_paste(prediction: Prediction, rows: list[Row]) -> list[str]:
    """Return sentences on the length that serves all rows best, or was given, and its options.

    [] where contexts vary, no row has a draft, or the given length gains nowhere.
    """
    case = prediction.case
    drafts = {row["draft_length"] for row in rows if row["fits"]}
    has_one = len(set(prediction.batch_size.flat)) == prediction.speedup.size
    if case is None or not has_one or not any(drafts):
        return []
    if case.draft_length is not None:
        gains = any(row["speedup"] > 1 for row in rows if row["fits"])
        return [_paste(prediction, *drafts)] if len(drafts) == 1 and gains else []
    length, alike, lost, held = _single_length(prediction)
    if not length:
        return []
    words, beside = f"One length for all: {length}", []
    beside += [f"{ranges_text([alike])} as good"] if len({*alike}) > 1 else []
    beside += [f"no room at {ranges_text([held])}"] if held else []
    words += f" ({'; '.join(beside)})" if beside else ""
    words += f", {lost:.0%} below best on average" if lost >= 0.005 else ""
    return [f"{words}.", _paste(prediction, length)]


def _layout(prediction: Prediction, rows: list[Row]) -> str:
    """Return a sentence on a layout with more tokens/s at the largest batch size; else "".

    Only one is tried, as all would take too long: of the layouts with experts spread over all GPUs,
    the middle one, if the largest batch fits in its memory.
    """
    from specmodel.cost.deploying import GPU_DEGREES
    from specmodel.cost.layouts import layouts_of
    from specmodel.prediction.best import ALIKE
    from specmodel.prediction.predicting import predicted

    case, fitting = prediction.case, [row for row in rows if row["fits"]]
    if case is None or not fitting or varies("context_length", rows):
        return ""
    spread = [d for d in layouts_of(case.deployment) if d["expert_parallel"] > 1]
    if not spread or any(case.given.get(degree) is not None for degree in GPU_DEGREES):
        return ""
    own = max(fitting, key=lambda row: int(row["batch_size"]))
    degrees = spread[len(spread) // 2]
    laid = case.laid_out(degrees).at(batch_size=[own["batch_size"]])
    memory = replace(prediction.evaluation.memory, deployment=laid.deployment)
    if memory.max_batch_size.max() < own["batch_size"]:
        return ""
    other = predicted(laid)
    more = other.throughput.item(0) / own["throughput"] - 1  # one value at all other points
    if not other.fits.item(0) or more < ALIKE:
        return ""
    named = zip(("TP", "DP", "EP"), degrees.values(), strict=True)
    name = " ".join(f"{word}{n}" for word, n in named if n > 1)
    at = f"{more:.0%} more tokens/s at {own['batch_size']}"
    return f"Layout: {name} carries {at} (specmodel compare)."


def _single_length(
    prediction: Prediction,
) -> tuple[int, tuple[int, int], float, tuple[int, int] | None]:
    """Return the best single length [token], the range as good, its loss, and sizes without room.

    The loss is the share of the best speedup given up, in the mean over batch sizes where the
    length fits [-]; the last are batch sizes where only other lengths fit, None for none.
    """
    import numpy as np

    from specmodel.prediction.best import alike_places

    known, longest = prediction.evaluation, prediction.max_draft_length
    lengths = np.arange(longest + 1.0).reshape(-1, *(1,) * len(known.shape))
    p = replace(prediction, evaluation=(known.chains or known).at_lengths(lengths))
    fits = p.fits.reshape(len(lengths), -1)
    able = fits.any(axis=0)
    gains = np.where(fits, p.speedup.reshape(fits.shape), 0.0)[:, able]
    share = gains / gains.max(axis=0)
    means = share.mean(axis=1)
    place = int(means.argmax())
    sizes = np.ravel(prediction.batch_size)[able]
    served = share[place] > 0
    lost, held = 1 - share[place, served], sizes[~served].astype(int).tolist()
    ends = (held[0], held[-1]) if held else None
    return place, alike_places(means, place), float(lost.mean()), ends


def _paste(prediction: Prediction, length: int) -> str:
    """Return a sentence with the engine's start options for a length; "" if there are none."""
    from specmodel.answers.config_formats import one_length
    from specmodel.drafters.by_name import drafter_kind

    d = prediction.deployment
    if d.tree_width > 1 or d.engine.stands_for:  # options are of chains, and of what is modelled
        return ""
    modules = max(len(d.drafter.parts), 1)
    kind = drafter_kind(d.drafter, d.target)
    options, where = one_length(d.engine.stack or "", kind, length, modules)
    own = " (DRAFTER: path of the head)" if "DRAFTER" in options else ""
    whole = options.replace("-config ", "-config\xa0")  # a shell ends a command where a line ends
    return f"Paste into {where}{own}: {whole}" if options else ""


_TAKEN = ("batch_size", "draft_length", "context_length", "forward_time", "limited_by", "fits")


def turned_answer(
    prediction: Prediction, turned: Turned, judged: Mapping[str, Any], *, components: bool
) -> forms.Answer:
    """Return the break-even acceptance in all forms, for a prediction without an acceptance.

    Components and arguments in `judged`, such as a target, are refused: they need one.
    """
    refuse_given(judged, judged, "an acceptance with it")
    if components:
        _ = case_of(prediction).known_acceptance  # refuses
    rows = turned_rows(prediction, turned)

    def page() -> str:
        able = report.with_room(rows, prediction)
        words = turned_verdict(prediction, turned, able)
        words[0] += operator.would_hold(prediction)
        table = turned_table(able, turned, TABLE.get())
        paying = [row for row in able if row["fits"] and row["break_even_tokens_per_step"]]
        drafts = [row["draft_length"] for row in paying if row["draft_length"]]
        usual = max(drafts, key=drafts.count, default=0) if turned.heads else 0
        paste = _paste(prediction, int(usual)) if usual else ""
        told = f"Measure it with {usual:.0f} drafted. {paste}"
        return report.page(prediction, words, table, notes=[told] if paste else [])

    units = prediction.units() | units_of(rows[0])
    return forms.Answer(
        page=page,
        fields=lambda: (
            report.case_fields(prediction)
            | {"units": {n: units.get(n, "-") for n in rows[0]}, "rows": rows}
        ),
        rows=lambda: rows,
        warnings=prediction.warnings,
        case=report.caption(prediction),
    )


def turned_rows(prediction: Prediction, turned: Turned) -> list[Row]:
    """Return rows with the break-even acceptance, and the speedups of published heads."""
    import numpy as np

    needed = {
        "break_even_acceptance_rate": turned.rate_needed,
        "break_even_tokens_per_step": turned.tokens_needed,
    }
    needed |= {_column(level): values for level, values in turned.speedups.items()}
    columns = {name: np.ravel(values).tolist() for name, values in needed.items()}
    return [
        {name: row[name] for name in _TAKEN[:4]}
        | {name: None if np.isnan(values[i]) else values[i] for name, values in columns.items()}
        | {name: row[name] for name in _TAKEN[4:]}
        for i, row in enumerate(prediction.rows())
    ]


def _column(level: str) -> str:
    return f"speedup_{level.replace(' ', '_')}"


def turned_table(rows: Sequence[Row], turned: Turned, width: int) -> str:
    """Return the table of a question turned round."""
    needed = "{break_even_tokens_per_step:.2f} of {draft_length:.0f}"
    pays = Column("break_even_tokens_per_step", "", "", title="pays from\ntokens/step", form=needed)
    heads = [
        Column(
            _column(level),
            "-",
            "",
            title=level.replace(" ", "\n") if " " in level else f"heads'\n{level}",
            form=".2f",
            spare=6 + i,
        )
        for i, level in enumerate(turned.speedups)
    ]
    names = ("batch_size", "context_length", "forward_time", pays, "break_even_acceptance_rate")
    shown = chosen(
        [*names, *heads, "fits", "limited_by"],
        forward_time="TPOT\nplain",
        break_even_acceptance_rate="or rate",
    )
    ranks = ("limited_by", "break_even_acceptance_rate", "forward_time", "fits")
    spare = {name: rank for rank, name in enumerate(ranks, 1)}
    shown = [replace(c, spare=spare.get(c.name, c.spare)) for c in shown]
    return text_table(rows, shown, width=width, remedy="--csv has all")


def turned_verdict(prediction: Prediction, turned: Turned, rows: list[Row]) -> list[str]:
    """Return sentences on the break-even tokens a step, and where published heads would gain."""
    able = [row for row in rows if row["fits"] and row["break_even_tokens_per_step"]]
    able = able or [row for row in rows if row["break_even_tokens_per_step"]]
    if not able:
        return ["No acceptance makes speculation pay at any of these points."]
    low, high = (f(able, key=_needed) for f in (min, max))
    best = "" if turned.heads else " With the easiest draft length,"
    best += " speculation" if best else " Speculation"
    opening = f"Acceptance is not known.{best} {report.verbs(prediction)[0]} from"
    opening += f" {_needed(low):.2f} tokens a step ({_where(low, rows)})"
    if _needed(high) - _needed(low) > 0.005:
        opening += f" up to {_needed(high):.2f} ({_where(high, rows)})"
    heads = turned.heads
    if heads is None:
        others = case_of(prediction).heads
        why = "Too few heads of this kind are published to say what one gains."
        if others:
            why = f"Published heads of this kind draft chains of at most {others.max_draft_length}."
        return [f"{opening}. {why}"]
    extremes = [_paying(able, _column(heads.levels[i]), rows) for i in (0, 2)]
    told = (
        f"Heads of this kind as published ({heads.drafter} of {heads.num_targets} targets,"
        f" November 2026): the {heads.levels[0]} gains {extremes[0]}, the {heads.levels[2]}"
        f" {extremes[1]}; {_middle(able, prediction, rows)}."
        " No measurement of this target and drafter ships: give yours (specmodel acceptance)."
    )
    return [f"{opening}.", told]


def _middle(able: list[Row], prediction: Prediction, rows: list[Row]) -> str:
    """Return as text the largest speedup of the median head, its place and its interval."""
    from specmodel.prediction.gains import gains_at

    name = _column("median")
    best = max(able, key=lambda row: row[name])
    (gain,) = gains_at(prediction, [best])
    return f"the median at most {best[name]:.2f} times, at {place(best, rows)}{ends(gain)}"


def _needed(row: Row) -> float:
    return float(row["break_even_tokens_per_step"])


def _where(row: Row, rows: list[Row]) -> str:
    return f"{row['draft_length']:.0f} drafted, {place(row, rows)}"


def _paying(able: list[Row], name: str, rows: list[Row]) -> str:
    """Return as text the speedups above 1 in column `name`, and where; "nowhere" for none."""
    paying = [row for row in able if round(row[name], 2) > 1]
    if not paying:
        return "nowhere"
    gains = sorted(row[name] for row in paying)
    span = f"{gains[0]:.2f} to {gains[-1]:.2f} times" if len(gains) > 1 else f"{gains[0]:.2f} times"
    return f"{span} {'everywhere' if len(paying) == len(rows) else f'at {places(paying, rows)}'}"
