"""Show parts of ``predict``: places, risks, the table below its verdict, and its acceptance.

It shows the acceptance that a user typed, in tokens per step, and by task.
"""

import re
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
from msgspec.structs import replace

from specmodel.core.algebra import acceptance
from specmodel.core.algebra.speculation import expected_tokens_per_step, solve_acceptance_rate
from specmodel.core.base.errors import InputError, nearest
from specmodel.core.base.ranges import among, ranges_text
from specmodel.core.base.text import SCREEN, VERBOSE, wrap
from specmodel.core.cost.layouts import HELD, num_gpus, smallest_layout
from specmodel.core.drafters.published import PRESET
from specmodel.core.prediction.accepted import task_spread
from specmodel.core.prediction.best import alike_places
from specmodel.core.prediction.case import Case
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.table import Row, filler, seconds
from specmodel.plan.advice import tokens_needed
from specmodel.show import notes, report
from specmodel.show.columns import of_table
from specmodel.show.facts import Fact, lines
from specmodel.show.forms import text_table
from specmodel.show.glossary import PAGES

_TASKS = PAGES["tasks"]["of"]
_PUBLISHED = PAGES["tasks"]["published"]


def _times(target: float, row: Row) -> str:
    """Return a cell with the times per token without and with speculation.

    A time that rounds to the target, but differs from it, has more digits.
    """
    is_near = seconds(row["tpot"]) != seconds(row["tpot"], target)
    return filler(f"{{forward_time:s}} -> {{tpot:s{'5' * is_near}}}")(row)


def with_alike(prediction: Prediction, rows: Sequence[Row]) -> list[Row]:
    """Return rows of best draft lengths, with the range of lengths that gain as much as text."""
    chains = prediction.evaluation.chains
    if chains is None:
        return list(rows)
    memory, lengths = chains.memory, np.ravel(chains.lengths).astype(int).tolist()
    has_room = chains.points["batch_size"] <= memory.max_batch_size
    has_room = has_room | ~has_room.any(axis=0)
    gains = np.broadcast_to(np.where(has_room, chains.speedup, 0.0), chains.shape)
    gains = gains.reshape(len(lengths), -1)
    found = []
    for row, own in zip(rows, gains.T, strict=True):
        best = int(row["best_draft_length"] or 0)
        place = lengths.index(best) if best else -1
        ends = [lengths[end] for end in alike_places(own, place)] if place >= 0 else [0, 0]
        found.append(row | {"alike": ranges_text([(ends[0], ends[1])])})
    return found


def table(rows: Sequence[Row], *, columns: str | None, target: float | None) -> str:
    """Return rows as a table of the usual columns, or of the named `columns`.

    Columns that do not fit on the screen are named below it. Times that would read like the
    `target` [s] have more digits.
    """
    shown = of_table("verdict", _chosen(columns, rows) if columns else ())
    if target is not None:
        shown = [replace(c, form=partial(_times, target)) if c.name == "tpot" else c for c in shown]
    if columns:  # all of them, at any width
        shown = [replace(c, spare=0, is_coordinate=False) for c in shown]
    elif "alike" in rows[0]:  # one length at all batch sizes adds nothing to it
        shown = [replace(c, is_coordinate=True) if c.name == "draft_length" else c for c in shown]
    return text_table(rows, shown, remedy="--columns chooses")


def chosen_rows(prediction: Prediction, rows: Sequence[Row], columns: str | None) -> list[Row]:
    """Return rows with the named columns only; all columns if `columns` is None."""
    if columns is None:
        return list(rows)
    names: list[str] = []
    for name in _chosen(columns, prediction.rows(1)):
        names += ["speedup_low", "speedup_high"] if name == "speedup_low" else [name]
    return [{name: row[name] for name in names} for row in rows]


def _chosen(columns: str, rows: Sequence[Row]) -> list[str]:
    names = [name.strip().replace("-", "_") for name in columns.split(",")]
    known = [*rows[0], *(["interval"] if "speedup_low" in rows[0] else [])]
    for name in names:
        if name not in known:
            raise InputError("columns", name, f"columns such as {nearest(name, known)}")
    if len({*names}) < len(names):
        raise InputError("columns", columns, "each column once")
    return ["speedup_low" if name == "interval" else name for name in names]


def risk_cause(row: Row, prediction: Prediction) -> str:
    """Return the likeliest cause of a loss at a row whose gain is not sure, as text."""
    drafter = prediction.deployment.drafter
    needed = tokens_needed(row, drafter.proposal_rate)
    least, *_ = between_tasks(row, prediction) or [0.0]
    if needed and 0 < least < needed:
        return f"acceptance below {needed:.2f} tokens per step with {row['draft_length']} drafted"
    if not row["in_graph"]:
        return "steps too large for CUDA graphs"
    if drafter.is_lookup:
        return "steps without CUDA graphs, or a slow host"
    return "steps without CUDA graphs, a drafter without CUDA graphs, or a slow host"


def place(row: Row, rows: list[Row]) -> str:
    """Return the place of a point as text, without a draft length that was chosen for it."""
    has_one = len({(r["batch_size"], r["context_length"]) for r in rows}) == len(rows)
    known = {"draft_length"} if has_one else set()
    return report.place({key: row[key] for key in row if key not in known}, rows)


def places(some: list[Row], rows: list[Row]) -> str:
    """Return the batch sizes of some rows as text, or their number if other inputs vary too."""
    sizes = sorted({row["batch_size"] for row in rows})
    if len(sizes) < len(rows):
        return f"{len(some)} of {len(rows)} points"
    those = {row["batch_size"] for row in some}
    return f"batch size{'s' if len(those) > 1 else ''} {among(sizes, those)}"


def fewest_gpus(prediction: Prediction) -> str:
    """Return a sentence on the fewest GPUs that fit a request; "" if a request fits now."""
    if prediction.max_batch_size.any() or prediction.deployment.hardware.kind == "cpu":
        return ""
    try:
        count = num_gpus(smallest_layout(prediction.deployment))
    except InputError as error:
        return f"Not one request fits in memory. {error.expected}"
    if count <= prediction.deployment.layout.num_gpus:
        context = f"{prediction.context_length.min():,.0f}"
        return f"Not one request fits in memory at a context of {context} tokens."
    held = "weights, drafter and {} requests of {:,} tokens".format(*HELD)
    return f"Not one request fits in memory: {held} need at least {count} GPUs."


def pasted(options: str, where: str, *, after: str = "") -> str:
    """Return a text, and an engine's start options as lines of a shell command, if any."""
    if not options:
        return wrap(after)
    own = " (DRAFTER: path of the head)" if "DRAFTER" in options else ""
    # a shell command may break lines only between options or within quotes
    whole = (each.replace("-config ", "-config\xa0") for each in re.split(r" (?=--)", options))
    shell = " \\\n".join(map(wrap, _together(whole)))
    return f"{wrap(f'{after}Paste into {where}{own}:')}\n{shell}"


def _together(options: Iterable[str]) -> list[str]:
    """Return lines of options, with as many options in a line as fit."""
    lines = [""]
    for each in options:
        is_full = len(lines[-1]) + len(each) > SCREEN.get() - 3
        lines = [*lines, each] if is_full and lines[-1] else [*lines[:-1], f"{lines[-1]} {each}"]
    return [line.strip() for line in lines]


def with_tokens(prediction: Prediction, best: Row, *, has_length: bool) -> Prediction:
    """Return a prediction whose assumed acceptance is a text in tokens per step at row `best`.

    The text has the draft length, unless the page `has_length` already. If draft lengths were
    given, `max_draft_length` is removed from the assumptions.
    """
    assumed = dict(prediction.assumptions)
    if not report.is_at_best(prediction) and prediction.evaluation.chains is None:
        assumed.pop("max_draft_length", None)
    if length := best["draft_length"]:
        text = f"{best['tokens_per_step']:.2f} tokens per step"
        text += "" if has_length else f" with {length} drafted"
        if by_task := tokens_on_tasks(prediction, best):
            text += _on_task(prediction.case, by_task)
        elif prediction.evaluation.acceptance.spread and (ends := between_tasks(best, prediction)):
            text += " ({:.2f} to {:.2f} by task)".format(*ends)
        assumed.pop("acceptance_by_position", None)
        source = assumed.get("acceptance")
        if source and by_task and not VERBOSE.get() and is_of_pair(prediction.case):
            source = _PUBLISHED + str(source).rpartition(")")[2]
        text += f", {report.brief_source(str(source))}" if source else _typed(prediction, length)
        assumed["acceptance"] = text
    return replace(prediction, assumptions=assumed, told=prediction.notes)


def tokens_on_tasks(prediction: Prediction, best: Row) -> dict[str, float]:
    """Return the published tokens per step at row `best` by kind of task; {} for none."""
    case, length = prediction.case, best["draft_length"]
    is_chain = bool(prediction.evaluation.is_chain.all())
    return case.tokens_by_task(length) if case and length and is_chain else {}


def _on_task(case: Case | None, by_task: dict[str, float]) -> str:
    """Return the kind of task as text; for mixed use, with tokens on two or all tasks."""
    template = _TASKS.get(case.accepted.tasks, _TASKS["shares"]) if case else ""
    ends = [end(by_task, key=by_task.__getitem__) for end in (min, max)]
    shown = {name: by_task[name] for name in (by_task if VERBOSE.get() else ends)}
    return " ".join(["", *lines([template], {"tokens_by_task": Fact(shown, "token")})])


def is_of_pair(case: Case | None) -> bool:
    """Return whether the acceptance is the published one of this target and drafter."""
    return case is not None and case.accepted.form.get("acceptance", PRESET) == PRESET


def between_tasks(row: Row, prediction: Prediction) -> list[float]:
    """Return the range of tokens per step that includes 80 % of the tasks of a head, at a row.

    [] for look-ups, trees and prefill, whose gain does not vary by task.
    """
    e, length = prediction.evaluation, row["draft_length"]
    if not length or e.deployment.drafter.is_lookup or e.prefill or not e.is_chain.all():
        return []
    rate = float(solve_acceptance_rate(row["tokens_per_step"], length))
    spread = e.acceptance.spread or task_spread(e.deployment)
    low, high = acceptance.between_tasks(rate, spread)
    ends = expected_tokens_per_step([max(low, 0.0), min(high, 1.0)], length)
    return [float(end) for end in ends]


def _typed(prediction: Prediction, length: int) -> str:
    """Return the acceptance that the user typed, in brackets, for drafts of `length` [token]."""
    case, rate = prediction.case, prediction.deployment.drafter.proposal_rate
    given = (case and case.acceptance) or prediction.evaluation.acceptance
    text = report.given_text(given).removeprefix("acceptance ")
    ways = case.accepted.ways if case else {}
    if len(ways) > 1 or any(way.startswith("cumulative") for way in ways):
        text = f"by position {notes.rates_read({'ways': ways, 'length': length, 'rate': rate})}"
    measured_at = prediction.evaluation.acceptance.measured_draft_length
    text += "" if measured_at is None else f" at draft length {measured_at:g}"
    share = f", a proposal in {100 * rate:g} % of steps" if rate < 1 else ""
    return f" ({text}{share})"
