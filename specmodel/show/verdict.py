"""Show ``predict``: whether speculation pays, how much, how surely, and the engine's options."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from specmodel.core.base.ranges import spans
from specmodel.core.base.text import VERBOSE
from specmodel.core.prediction.best import ALIKE
from specmodel.core.prediction.gains import sources_at
from specmodel.core.prediction.ground import CHANCES, place_of
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.table import Row
from specmodel.plan.advice import Verdict, better_layout, gain_of
from specmodel.plan.config_formats import start_options
from specmodel.plan.decision import Decision, decide
from specmodel.plan.within import LargestBatches
from specmodel.show import operator, report
from specmodel.show.behind import ground_facts, ground_texts
from specmodel.show.facts import Fact, Facts, known, lines, with_ends
from specmodel.show.forms import Answer
from specmodel.show.glossary import PAGES, limits_text
from specmodel.show.points import component_rows, component_tables, fields_of
from specmodel.show.turned import turned_answer

_TEXTS = PAGES["verdict"]
_ADVISED = {"on", "on where it pays", "off", "off below", "close", "depends", "typed"}
"""Headlines that advise; each is followed by how sure it is."""


def answer(
    prediction: Prediction,
    *,
    tpot_target: float | None = None,
    columns: str | None = None,
    interval: bool | None = None,
    components: bool = False,
) -> Answer:
    """Return the verdict on a prediction in all forms; `tpot_target` adds the largest batch.

    A prediction at best draft lengths is judged with the engine options that the page shows: one
    length, or a schedule. With `interval` None, intervals are shown if errors are known. All values
    are computed here; the forms only print them.
    """
    if prediction.turned:
        asked = {"tpot_target": tpot_target, "columns": columns}
        return turned_answer(prediction, prediction.turned, asked, components=components)
    at_best = prediction
    decision, prediction, within = _decided_within(prediction, tpot_target, interval is not False)
    prediction = report.with_ends(prediction, interval)
    kept: Callable[[Sequence[Row]], list[Row]] = within.kept if within else list
    every = report.with_room(operator.with_alike(prediction, prediction.rows()), prediction)
    shown = kept(every)
    every = shown or every
    judged = _judged(prediction, report.fitting(every))
    best = max(every, key=lambda row: (row["fits"], row["speedup"]))
    kind = _kind(judged, prediction, decision)
    paste = _paste(prediction, shown, decision)
    is_known = report.verbs(prediction)[0] == "pays" and any(row["fits"] for row in every)
    chances = CHANCES[judged.word or "may"] if judged.share_held else (None, None)
    every_fact = {
        "advice": Fact(_advice(judged, decision) if is_known else None),
        "how_sure": Fact(judged.word),
        "share_held": Fact(judged.share_held if is_known else None),
        "chance_from": Fact(chances[0]),
        "chance_to": Fact(chances[1]),
        **_facts(judged, prediction, best),
        **(decision.facts() if decision else {}),
        "engine_option": Fact(paste[0]),
        "paste_into": Fact(paste[1]),
        **(better_layout(at_best, shown) if report.is_at_best(at_best) else {}),
        "risk": Fact(operator.risk_cause(judged.risk, prediction) if judged.risk else None),
        "risk_at": Fact(judged.risk["batch_size"] if judged.risk else None, "request"),
        "fewest_gpus": Fact(operator.fewest_gpus(prediction)),
        **ground_facts(prediction.evaluation),
        **_measured_first(judged, prediction),
        **(within.facts() if within else {}),
    }
    facts = known(every_fact.items())
    texts = _texts(kind, judged, len(every))
    texts |= {"only_risk": facts["risk"]} if "risk" in facts and len(judged.rows) == 1 else {}
    texts |= {"best_at": Fact(best["batch_size"]), **report.behind_speedup(judged.best, prediction)}

    def page() -> str:
        """Return the verdict, the table, what to paste, and the basis of the answer."""
        shown_facts = facts | texts
        words = _words(kind, shown_facts)
        if judged.has_drafts and VERBOSE.get():
            words.append(f"{''.join(lines(_TEXTS['why'], shown_facts))}.")
        met = lines(PAGES["within"]["lines"], facts)
        parts = [operator.table(shown, columns=columns, target=tpot_target)] if shown else []
        parts += [component_tables(prediction)] if components else []
        notes = []
        if not columns:
            length = ". ".join(lines(_TEXTS["length"], shown_facts))
            parts += [operator.pasted(*paste, after=f"{length}. " if length else "")]
            limits = {row["limited_by"] for row in shown} if VERBOSE.get() else set()
            notes = [*lines([_TEXTS["layout"]], facts), limits_text(limits)]
            notes += [_TEXTS["best_lengths"].format(ALIKE)] * bool(limits and decision)
        stated = operator.with_tokens(prediction, best, has_length="one_length" in facts)
        vary = "speedup_by_task" in facts and "acceptance_spread" not in facts
        tasks = lines([_TEXTS["between_tasks"]], shown_facts) if vary else []
        words = [*met[:1], *words, *met[1:]]
        return report.page(stated, words, *parts, notes=filter(None, notes), tasks="".join(tasks))

    fields = fields_of(prediction, kept, components=components)
    rows = operator.chosen_rows(prediction, fields["rows"], columns)
    return Answer(
        page=page,
        facts=facts,
        fields=fields,
        rows=component_rows(prediction) if components else rows,
        header=() if rows else operator.chosen_rows(prediction, prediction.rows(1), columns)[0],
        warnings=prediction.warnings,
        case="" if columns else report.caption(prediction),
    )


def _decided_within(
    prediction: Prediction, target: float | None, has_interval: bool
) -> tuple[Decision | None, Prediction, LargestBatches | None]:
    """Return the decision on engine options, its prediction, and batches within a target [s]."""
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
        if decision.graphs and decision.graphs.first > last:  # no such batch runs
            decision = replace(decision, graphs=None)
        ends = 0 < last < prediction.batch_size.max()  # larger batches miss the target
        return replace(decision, largest=last if ends else None), pasted, within
    decision = decide(kept)
    return decision, decision.prediction if decision else kept, within


def _judged(prediction: Prediction, rows: list[Row]) -> Verdict:
    """Return the judgement of rows that fit in memory: where they pay and where they lose."""
    acceptance, points = prediction.evaluation.acceptance, prediction.evaluation.points
    return Verdict(
        rows=rows,
        is_typed=not acceptance.spread,
        place=place_of(prediction.deployment, points["context_length"].max()),
        is_published=bool(acceptance.source),
        proposal_rate=prediction.deployment.drafter.proposal_rate,
    )


def _paste(
    prediction: Prediction, rows: Sequence[Row], decision: Decision | None
) -> tuple[str, str]:
    """Return start options for the decision or the given length, and the program to start."""
    able = [row for row in rows if row["fits"]]
    if decision:
        return decision.paste if able else ("", "")
    lengths = {row["draft_length"] for row in able}
    has_one = len({*prediction.batch_size.flat}) == prediction.speedup.size
    is_given = not report.is_at_best(prediction) and has_one and len(lengths) == 1
    gains = any(row["speedup"] > 1 for row in able)
    return start_options(prediction, max(lengths)) if is_given and gains else ("", "")


def _kind(judged: Verdict, prediction: Prediction, decision: Decision | None) -> str:
    """Return the kind of headline, by its name in ``pages.toml``."""
    if not any(row["fits"] for row in judged.rows):
        take_turns = prediction.evaluation.at_once and prediction.max_batch_size.any()
        return "turns" if take_turns else "unfit"
    if not judged.has_drafts:
        if any(row["best_draft_length"] for row in judged.rows):
            return "idle"
        held = any(row["limited_by"] == "memory" for row in judged.rows)
        return "no room" if held else "no draft"
    if report.verbs(prediction)[0] != "pays":
        return "may" if round(judged.best["speedup"], 2) > 1 else "may not"
    advice = _advice(judged, decision)
    return "typed" if advice == "depends" and judged.is_typed else advice


def _advice(judged: Verdict, decision: Decision | None) -> str:
    """Return the advice; "on where it pays" if larger batches lose with every draft length."""
    ends = decision is not None and decision.most_requests is not None
    return "on where it pays" if ends and judged.advice == "on" else judged.advice


def _words(kind: str, facts: Facts) -> list[str]:
    """Return the headline and the lines below it."""
    (headline,) = lines([_TEXTS["headlines"][kind]], facts)
    if headline.endswith(" "):
        most, *_ = lines(_TEXTS["most"], facts)
        graphs = lines([_TEXTS["graphs"]], facts)
        headline += ". ".join([most, *lines(_TEXTS["gain"], facts), *graphs])
    fewest = f" {facts['fewest_gpus'].value}" if "fewest_gpus" in facts else ""
    below = [*_TEXTS["lines"], *ground_texts(facts), _TEXTS["measure_first"]]
    return [f"{headline}.{fewest}", *lines(below, facts)]


def _texts(kind: str, judged: Verdict, num_points: int) -> dict[str, Fact]:
    """Return the facts that only the page shows: places, and how often such advice was right."""
    points, best, risk, gain = judged.rows, judged.best, judged.risk, gain_of(judged.best)
    full = [row for row in points if row["limited_by"] == "memory" and judged.has_drafts]
    sure = judged.sure
    where = {"pays" if gain else "gains": sure if len(sure) < len(points) else []}
    where |= {"may_pay": judged.open, "loses": judged.lost, "no_draft": full}
    values = {
        "most_place": operator.place(best, points),
        "most_length": best["draft_length"],
        "open_chance": gain.chance if gain and gain.is_open else None,
        "points_that_fit": len(points) if len(points) < num_points else None,
        "points": num_points,
        "risk_place": operator.place(risk, points) if risk and len(points) > 1 else None,
        "risk_chance": risk["speedup_chance"] if risk else None,
        **{f"{n}_where": operator.places(rows, points) for n, rows in where.items() if rows},
    }
    if gain and kind in _ADVISED:
        values[f"share_that_{'lost' if gain.chance < 0.5 else 'gained'}"] = judged.share_held
    return {name: Fact(value) for name, value in values.items()}


def _facts(judged: Verdict, prediction: Prediction, best: Row) -> dict[str, Fact]:
    """Return the facts of the judgement, and the acceptance at row `best`."""
    sizes = sorted({row["batch_size"] for row in judged.rows})
    gain = gain_of(judged.best)
    between = operator.between_tasks(best, prediction)
    speedups = [best["speedup"] / best["tokens_per_step"] * tokens for tokens in between]

    def where(rows: Sequence[Row]) -> Fact:
        those = {row["batch_size"] for row in rows}
        ends = spans(sizes, (size in those for size in sizes))
        return Fact([*map(list, ends)], "request")

    return {
        "chance": Fact(gain.chance if gain else None),
        "needed_tokens_per_step": Fact(judged.needed if judged.has_drafts else None, "token"),
        "most": with_ends(judged.best, "speedup"),
        "most_at": Fact(judged.best["batch_size"], "request"),
        "least": with_ends(judged.worst, "speedup"),
        "least_at": Fact(judged.worst["batch_size"], "request"),
        "pays_at": where(judged.sure),
        "may_pay_at": where(judged.open),
        "loses_at": where(judged.lost),
        "loses_down_to": Fact(min((row["speedup"] for row in judged.lost), default=None)),
        "deployment": Fact(report.heading(prediction.deployment)),
        "tokens_per_step": Fact(best["tokens_per_step"], "token", *between),
        "tokens_by_task": Fact(operator.tokens_on_tasks(prediction, best) or None, "token"),
        "acceptance_spread": Fact(prediction.evaluation.acceptance.spread or None),
        "speedup_by_task": Fact(speedups),
    }


def _measured_first(judged: Verdict, prediction: Prediction) -> dict[str, Fact]:
    """Return the main cause of the interval of the best row, and the command that measures it."""
    is_shown = gain_of(judged.best) and judged.place.kind != "own" and judged.best["draft_length"]
    sources = sources_at(prediction, judged.best) if is_shown else {}
    if not sources:
        return {}
    name = max(sources, key=lambda source: sources[source])
    return {
        "measure_first": Fact(name),
        "measure_first_share": Fact(sources[name]),
        "measure_with": Fact(_TEXTS["measures"][name]),
    }
