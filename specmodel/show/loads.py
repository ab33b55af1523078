"""Servers under load in words and tables: what rates do, and the largest within targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from specmodel.base.text import SCREEN, listed
from specmodel.prediction.table import Column, Row, seconds
from specmodel.show import report
from specmodel.show.behind import behind
from specmodel.show.columns import ALTERNATIVES, LOADS, chosen, units
from specmodel.show.facts import Fact
from specmodel.show.forms import Answer, text_table
from specmodel.show.notes import in_words

if TYPE_CHECKING:
    from specmodel.answers import Plan
    from specmodel.answers.alternatives import Alternatives
    from specmodel.base.notes import Note
    from specmodel.serving.asked import Loaded
    from specmodel.serving.capacity import Targets
    from specmodel.serving.study import Study
    from specmodel.serving.trial import Trial

USUAL_POLICIES = (
    "Policies: fixed:K drafts K tokens in each step, schedule as many as are best for the requests"
    " that run, none never."
)
"""What is said where no policies were named."""
_NINETY = "90 % of requests stay below the columns so named."
_MOST_TOLD = 4
"""Loads that the headline tells one by one [-]."""
_STEEP = 1.2
"""How much more is carried with targets a tenth longer, from which that is told [-]."""
_PRICED = ("cost_per_million_tokens", "replicas", "gpus", "cost_per_hour")
_AT_RATES = (
    *("request_rate", "users", "policy", "running", "tpot", "tpot_closed", "tpot_p90"),
    *("ttft_p50", "ttft_p90", "goodput", "is_steady", *_PRICED),
)
_LARGEST = (
    *("policy", "capacity", "simulated_low", "predicted_low", "running", "tpot_p90", "ttft_p90"),
    *_PRICED,
)
"""Columns of tables for people."""
_TOGETHER = (
    "Users start together. Where all lengths are alike and nothing is drafted, prompts that share a"
    " step stay together, and a token waits for those of other steps alone; by formula, as in"
    " predict, they are spread out, and it waits for all of the others'."
)
_SPARE = ("tpot_p90", "ttft_p90", "tpot_closed")
_SPARE_LARGEST = ("running", "ttft_p90", "tpot_p90", "simulated_low")
"""Those that are dropped from a table that is too wide, in this order."""
_INTERVALS = (
    "80 % by simulation: of runs with other requests; by prediction: of what predicted times may be"
    " off by, acceptance taken as exact."
)


def answer(loaded: Loaded) -> Answer:
    """Return the answer of a load in all forms: at the rates asked for, or the largest rate."""
    notes = [USUAL_POLICIES] if loaded.is_usual else []
    return _largest(loaded, loaded.trial, notes) if loaded.trial else _at_rates(loaded, notes)


def framed(
    study: Study,
    assumed: Mapping[str, Any],
    warnings: Iterable[object],
    page: Callable[[], tuple[str, str, Sequence[str]]],
    *,
    said: Mapping[str, Any],
    **how: Any,
) -> Answer:
    """Return an answer whose `page` gives verdict, table and notes; its fields begin alike."""
    case, told = report.heading(study.deployment), in_words(assumed)
    warned = [*map(str, warnings)]

    def text() -> str:
        verdict, table, notes = page()
        sentences = behind(study.deployment)
        return report.laid_out(case, sentences, told, warned, [verdict], [table], notes)

    fields = {"case": case, "assumptions": told, "warnings": warned, **said}
    return Answer(page=text, fields=lambda: fields, warnings=warned, case=case, **how)


def _at_rates(loaded: Loaded, notes: Sequence[str]) -> Answer:
    """Return the answer at the loads asked for, in all forms."""
    from specmodel.prediction.cautions import notes_of_run
    from specmodel.serving.limits import usual_scheduler
    from specmodel.serving.study import not_carried

    study, rows = loaded.study, loaded.rows
    warnings = [
        *notes_of_run(study.deployment, study.typical.longest),
        *(_not_carried(rate, most) for rate, most in not_carried(rows).items()),
        *(*graph_notes(study, rows), *study.notes),
    ]
    scheduler = asdict(usual_scheduler(study.deployment, study.max_draft_length))
    limits = dict(study.limits)
    told = {**loaded.assumed, **{n: v for n, v in scheduler.items() if n not in limits}}
    if study.first_token_time:
        added = f"{seconds(study.first_token_time)} (HTTP, tokenization, as fitted)"
        told["first_token_time"] = added
    asked = dict(zip(("ttft_p90", "tpot_p90"), loaded.targets, strict=True))
    spare = sorted(_SPARE, key=lambda name: asked.get(name) is not None)
    all_carried = all(row["is_steady"] for row in rows)
    shown = [name for name in _AT_RATES if name != "is_steady" or not all_carried]
    notes = [f"TPOT counts each token once; {_NINETY}", *notes]
    notes += [_TOGETHER] if rows[0]["users"] else []
    return framed(
        study,
        told,
        warnings,
        lambda: (_fastest(rows), table_of(rows, shown, spare), notes),
        said={"scheduler": scheduler, "units": units_of(rows[0]), "rows": rows},
        rows=lambda: rows,
        figure="load",
    )


def graph_notes(study: Study, rows: Sequence[Row]) -> tuple[Note, ...]:
    """Return notes on mean running requests whose verified tokens no CUDA graph holds."""
    from numpy import array

    sizes = array([row["running"] for row in rows]).round()
    return study.deployment.graph_warnings(
        sizes.clip(1), array([row["drafted_tokens_per_step"] for row in rows]) + 1
    )


def units_of(columns: Iterable[str]) -> dict[str, str]:
    """Return the units of all columns of a row."""
    return dict.fromkeys(columns, "-") | units(columns, LOADS)


def table_of(rows: list[Row], names: Sequence[str | Column], spare: Sequence[str]) -> str:
    """Return rows as a table, without columns of which no row has a value."""
    ranks = {name: rank for rank, name in enumerate(spare, 1)}
    columns = [replace(c, spare=ranks.get(c.name, 0)) for c in chosen(names, LOADS)]
    return text_table(rows, columns, width=SCREEN.get(), left=("policy",))


def _fastest(rows: list[Row]) -> str:
    """Return a sentence on the fastest policies at each load; of many loads, at three."""
    key = "request_rate" if rows[0]["users"] is None else "users"
    loads = [*dict.fromkeys(row[key] for row in rows)]
    told = list[str]()
    if len(loads) > _MOST_TOLD:
        carried = [row[key] for row in rows if row["is_steady"]]
        loads = [*dict.fromkeys((loads[0], *carried[-1:], loads[-1]))]
    for load in loads:
        own = [row for row in rows if row[key] == load]
        steady = [row for row in own if row["is_steady"]]
        where = _a_second(load) if key == "request_rate" else f"{load} users"
        if not steady:
            told.append(f"{where} are not carried")
            continue
        least = min(row["tpot"] for row in steady)
        best = [row["policy"] for row in steady if seconds(row["tpot"]) == seconds(least)]
        verb = "is" if len(best) == 1 else "are"
        text = f"at {where} {listed([*map(named, best)])} {verb} fastest, {seconds(least)} a token"
        plain = next((row for row in own if row["policy"] == "none"), None)
        if plain is not None and "none" not in best:
            how = f"{plain['tpot'] / least:.2f}x faster than without drafts"
            text += f", {how if plain['is_steady'] else 'a load not carried without drafts'}"
            late = min(row["tpot_p90"] for row in steady if row["policy"] in best)
            if plain["is_steady"] and late > plain["tpot_p90"]:
                text += f", though one request in ten takes more than {seconds(late)}"
                text += f" ({seconds(plain['tpot_p90'])} without)"
        told.append(text)
    text = "; ".join(told)
    return f"{text[0].upper()}{text[1:]}."


def _not_carried(rate: float, most: float) -> str:
    """Return a warning that no policy sustains `rate`; about `most` is sustained [request/s]."""
    if rate >= most:
        told = f"{_a_second(rate)} are not carried by any policy: at most about {most:.3g}"
        return f"{told}, above which requests wait ever longer"
    formula = f"though about {most:.3g} are carried by formula; more --requests tell"
    return f"at {_a_second(rate)} requests wait ever longer under all policies here, {formula}"


def _a_second(rate: float) -> str:
    return f"{rate:.3g} request{'' if rate == 1 else 's'}/s"


def named(policy: str) -> str:
    """Return the name of a policy for use in a sentence: "plain decoding" for none."""
    return "plain decoding" if policy == "none" else policy


def _largest(loaded: Loaded, trial: Trial, notes: Sequence[str]) -> Answer:
    """Return the largest rate of each policy and the rates that were tried, in all forms."""
    study, rows, tried = trial.study, loaded.rows, loaded.tried
    again = [
        f"{row['policy']} meets the targets again at {row['passes_again']:.3g} requests/s."
        for row in rows
        if row["passes_again"]
    ]
    notes = [*again, *notes, _INTERVALS, _NINETY]

    def page() -> tuple[str, str, Sequence[str]]:
        verdict = _carries_most(trial, rows) + _alike(rows)
        return verdict, table_of(rows, _LARGEST, _SPARE_LARGEST), notes

    return framed(
        study,
        loaded.assumed,
        (*study.notes, *graph_notes(study, tried)),
        page,
        said={"units": units_of({**rows[0], **tried[0]}), "rows": rows, "rates_tried": tried},
        rows=lambda: tried,
        figure="capacity",
    )


def within_targets(targets: Targets) -> str:
    """Return as text the targets, and the share of requests that should meet them."""
    told = {"a token": targets.tpot, "to the first": targets.ttft}
    times = " and ".join(f"{seconds(t)} {what}" for what, t in told.items() if t is not None)
    return f"{times} for {100 * targets.attainment:.4g} % of requests"


def _best(rows: list[Row]) -> Row:
    """Return the row of the largest capacity; of plain decoding, if that is within 1 % of it."""
    best = max(rows, key=lambda row: row["capacity"])
    alike = (r for r in rows if r["policy"] == "none" and best["capacity"] < 1.01 * r["capacity"])
    return next(alike, best)


def _alike(rows: list[Row]) -> str:
    """Return a sentence on policies not told apart from the best one; "" if there are none."""
    best = _best(rows)
    low, others = best["simulated_low"], (row for row in rows if row is not best)
    names = listed([r["policy"] for r in others if low and (r["simulated_high"] or 0) >= low])
    name = named(best["policy"])
    return f" Runs with other requests do not tell {name} and {names} apart." if names else ""


def _carries_most(trial: Trial, rows: list[Row]) -> str:
    """Return sentences on the policy of the largest capacity, beside plain decoding."""
    plain = next((row for row in rows if row["policy"] == "none"), None)
    best = _best(rows)
    ends = best["predicted_low"], best["predicted_high"]
    sure = "" if None in ends else " (80 % interval {:.3g} to {:.3g})".format(*ends)
    text = f"Within {within_targets(trial.targets)}, {named(best['policy'])} carries most:"
    text += f" {best['capacity']:.3g} requests/s{sure}"
    if plain is None or best is plain:
        others = [f"{row['policy']} {row['capacity']:.3g}" for row in rows if row is not best]
        return f"{text}{'; ' * bool(others)}{', '.join(others)}."
    if not plain["capacity"]:
        time = seconds(trial.alone("none")[1])
        return f"{text}; without speculation a request alone takes {time} a token."
    gain = best["capacity"] / plain["capacity"]
    text += f", {gain:.2g}x the {plain['capacity']:.3g} without speculation."
    if plain["capacity_if_looser"] < _STEEP * plain["capacity"]:
        return text
    most, without = best["capacity_if_looser"], plain["capacity_if_looser"]
    return (
        f"{text} That holds for this target alone: with one a tenth longer it is"
        f" {most / without:.2g}x, as {without:.3g} are carried without speculation."
    )


OF_SCHEDULES = (
    "Within {within}: {carries_most} carries most, {capacity:.3g} requests/s; the best fixed length"
    " {capacity_fixed:.3g}, none {capacity_plain:.3g}."
)


def of_schedules(plan: Plan) -> dict[str, Fact]:
    """Return the capacities of the schedule, the best single length, and none, where simulated."""
    from specmodel.serving.capacity import Targets

    if not plan.carried:
        return {}
    rates = {row["policy"]: row["capacity"] for row in plan.carried}
    best = max(rates, key=lambda name: rates[name])
    single = max(rate for name, rate in rates.items() if name.startswith("fixed"))
    return {
        "within": Fact(within_targets(Targets(**plan.targets))),
        "carries_most": Fact(best),
        "capacity": Fact(rates[best], "request/s"),
        "capacity_fixed": Fact(single, "request/s"),
        "capacity_plain": Fact(rates["none"], "request/s"),
    }


def of_alternatives(found: Alternatives) -> tuple[str, str]:
    """Return a sentence and a table of the capacities of alternatives within targets."""
    from specmodel.serving.capacity import Targets

    best = max(found.carried, key=lambda row: row["capacity_per_gpu"])
    within = within_targets(Targets(**found.targets))
    told = f"Within {within}, {best['alternative']} carries most per GPU."
    names = ("alternative", "capacity_plain", "capacity", "capacity_per_gpu")
    columns = chosen([*names, *_PRICED[:1]], ALTERNATIVES, capacity="requests/s\nat best")
    return told, text_table(found.carried, columns, left=["alternative"])
