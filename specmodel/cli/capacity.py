"""``specmodel capacity``: the largest rate within targets, with which setting, at what price."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError, install
from specmodel.cli import settings
from specmodel.cli.answering import answering, echo_warnings, told_progress
from specmodel.cli.loads import (
    LONGEST,
    NINETY,
    OPTIONS,
    USUAL_POLICIES,
    named,
    study_from,
    typed_law,
    typed_loads,
    typed_policies,
    typed_targets,
)
from specmodel.cli.serve import UNITS, requests_a_second
from specmodel.cli.settings import own
from specmodel.cli.where import where_options
from specmodel.prediction.table import Form, Row, seconds
from specmodel.show import report
from specmodel.show.forms import Answer, fitted_table

if TYPE_CHECKING:
    from specmodel.serving.capacity import Capacity
    from specmodel.serving.promises import Trial

ATTAINMENT = "Share of the requests that should meet both targets.  [default: 0.9]"
_RATES = "Tell what these rates do, 1,2,4 or 1:16:x2, in place of the largest one."
_FOR_RATE = "Requests a second for which replicas, GPUs and their price are told."
_REPLICATIONS = "Runs of other requests at each rate.  [default: 5; 2 of 1000 without numba]"
_TTFT, _SHARE = 1.0, 0.9
_RUNS = {True: (5, 2000), False: (2, 1000)}
"""What is taken where nothing is typed; runs at each rate and their requests, with numba or not."""
_RATES_TRIED = 11
"""Rates that are tried for a policy, about [-]."""
_STEEP = 1.2
"""How much more is carried with targets a tenth longer, from which that is told [-]."""
UNASKED = dict.fromkeys(("replications", "for_rate", "gpu_hour_price", *OPTIONS))
"""Options of a search that other commands do not have."""


WORKERS = ("workers", "scheduler")


def workers_options() -> settings.Add:
    """Add where searches for capacities are computed."""
    return settings.options(
        own("workers", int, "Processes that share the search.  [default: 1]"),
        own("scheduler", "ADDRESS", "A Dask cluster in their place."),
    )


def _between(low: str, high: str) -> Form:
    def cell(row: Row) -> str:
        ends = row[low], row[high]
        return "-" if None in ends or not row["capacity"] else "{:.3g}-{:.3g}".format(*ends)

    return cell


def _time(name: str) -> Form:
    return lambda row: "-" if row[name] is None else seconds(row[name])


_MET: dict[str, tuple[Form, str]] = {
    "running": ("{running:.0f}", "running"),
    "TPOT\n90 %": (_time("tpot_p90"), "tpot_p90"),
    "TTFT\n90 %": (_time("ttft_p90"), "ttft_p90"),
}
_PRICED: dict[str, tuple[Form, str]] = {
    "$/M\ntokens": ("{cost_per_million_tokens:.3g}", "cost_per_million_tokens"),
    "replicas": ("{replicas}", "replicas"),
    "GPUs": ("{gpus}", "gpus"),
    "$/h": ("{cost_per_hour:.4g}", "cost_per_hour"),
}
_CAPACITY: dict[str, tuple[Form, str]] = {
    "policy": ("{policy}", "policy"),
    "requests\n/s": (
        lambda row: f"{row['capacity']:.3g}" if row["capacity"] else "none",
        "capacity",
    ),
    "80 % by\nsimulation": (_between("simulated_low", "simulated_high"), "capacity"),
    "80 % by\nprediction": (_between("predicted_low", "predicted_high"), "predicted_low"),
    **_MET,
    **_PRICED,
}
_AT_LOADS: dict[str, tuple[Form, str]] = {
    "requests\n/s": ("{request_rate:.3g}", "request_rate"),
    "users": ("{users}", "users"),
    "policy": ("{policy}", "policy"),
    **_MET,
    "meet\nboth": ("{goodput:.0%}", "goodput"),
    "within\ntargets": (lambda row: "yes" if row["meets_targets"] else "no", "meets_targets"),
    **_PRICED,
}
"""Columns of tables for people, with the column of rows without which they are left out."""
_SPARE = ("running", "TTFT\n90 %", "TPOT\n90 %", "80 % by\nsimulation")
_INTERVALS = (
    "80 % by simulation: of runs with other requests; by prediction: of what predicted times may be"
    " off by, acceptance taken as exact."
)
_UNITS = UNITS | {
    **dict.fromkeys(("capacity", "simulated_low", "simulated_high"), "request/s"),
    **dict.fromkeys(("predicted_low", "predicted_high", "passes_again"), "request/s"),
    "capacity_if_looser": "request/s",
}


@settings.command()
@where_options()
@own("attainment", float, ATTAINMENT)
@own("request_rate", "RATES", _RATES)
@own("for_rate", float, _FOR_RATE)
@settings.price_option()
@workers_options()
@own("replications", int, _REPLICATIONS)
@settings.options(*(own(name, *told) for name, told in OPTIONS.items() if name != "request_rate"))
@settings.acceptance_options()
@settings.option("max_draft_length", words=LONGEST)
@settings.detail_options()
@own("seed", int, "Of all that is drawn.", default=0)
@answering(rows=", a row for each rate that was tried", figure="capacity")
def capacity(**options: Any) -> Answer:
    """Find the largest rate within targets, by policy, and what it costs.

    Rates are simulated as serve does, each with several runs of other requests: up by a quarter to
    the first at which too few requests meet both targets, then halved. The first interval is of
    these runs, the second of what predicted times may be off by.

    \b
    Examples:
      specmodel capacity qwen3-30b-a3b h100 --tpot-target 20ms
      specmodel capacity qwen3.5-397b 8xb200 --tpot-target 20ms \\
          --workload code --for-rate 40 --gpu-hour-price 4.5
      specmodel capacity gpt-oss-120b h200 --tpot-target 10ms \\
          --request-rate 1,2,4 --policy none,fixed:1,fixed:3,sglang
    """
    trial, policies, assumed = trial_from(options)
    is_asked = options["request_rate"] is not None or options["users"] is not None
    if is_asked and options["for_rate"] is not None:
        raise InputError("for_rate", options["for_rate"], "no rates or users, as it finds the rate")
    rows, tried = (_at_loads if is_asked else _found)(trial, policies, options)
    if options["for_rate"] is not None:
        _add_replicas(rows, options, trial)
    _add_costs([*rows, *([] if is_asked else tried)], options, trial)
    case = report.heading(trial.study.deployment)
    fields = {
        "case": case,
        "assumptions": assumed,
        "units": {name: _UNITS.get(name, "-") for name in {**rows[0], **tried[0]}},
        "rows": rows,
    } | ({} if is_asked else {"rates_tried": tried})
    notes = [USUAL_POLICIES] if options["policy"] is None else []
    return Answer(
        page=lambda: _page(trial, rows, assumed, notes, is_asked=is_asked),
        fields=lambda: fields,
        rows=lambda: tried,
        case=case,
    )


def trial_from(
    options: dict[str, Any], *, must_meet: bool = True
) -> tuple[Trial, list[str], dict[str, Any]]:
    """Return what is tried, under which policies, and what was assumed."""
    from specmodel.base.units import check
    from specmodel.serving.capacity import Targets
    from specmodel.serving.promises import Trial, check_alone
    from specmodel.serving.requests import Arrivals

    if options["for_rate"] is not None:
        check("for_rate", options["for_rate"], above=0)
    if options["gpu_hour_price"] is not None:
        check("gpu_hour_price", options["gpu_hour_price"], minimum=0)
    policies = typed_policies(options)
    ttft, tpot = typed_targets(options)
    told: dict[str, Any] = {}
    if ttft is None and tpot is not None:
        ttft, told["ttft_target"] = _TTFT, seconds(_TTFT)
    if options["attainment"] is None:
        told["attainment"] = _SHARE
    share = _SHARE if options["attainment"] is None else options["attainment"]
    targets = Targets(ttft=ttft, tpot=tpot, attainment=share)
    study, assumed = study_from(options | {"requests": None, "arrivals": None}, policies)
    runs, requests = _RUNS[_is_fast()]
    runs = runs if options["replications"] is None else options["replications"]
    requests = requests if options["requests"] is None else options["requests"]
    study = replace(study, num_requests=requests)
    told["requests"] = f"{study.num_requests} and more, {runs} times"
    law = Arrivals(request_rate=1.0, **typed_law(options["arrivals"]))
    trial = Trial(study=study, targets=targets, replications=runs, arrivals=law)
    if must_meet:
        check_alone(trial, policies)
    return trial, policies, assumed | told


def _is_fast() -> bool:
    return find_spec("numba") is not None


def searched(pieces: list[tuple[Trial, str]], options: dict[str, Any]) -> list[Capacity]:
    """Return the capacity of a policy in each trial; say first if that will take minutes."""
    from specmodel.serving.promises import capacities

    workers, client = options["workers"], options["scheduler"]
    if not _is_fast():
        usual = "2 runs of 1000 requests at each rate by default, not 5 of 2000"
        echo_warnings([f"without numba this takes minutes, with {usual}: {install('fast')}"])
    with told_progress(_RATES_TRIED * len(pieces), "Serving", "rates tried") as tell:
        how = {"workers": 1 if workers is None else workers, "client": client}
        return capacities(pieces, progress=tell, **how)


def _found(
    trial: Trial, policies: list[str], options: dict[str, Any]
) -> tuple[list[Row], list[Row]]:
    """Return the capacity of each policy, and each rate that was tried."""
    from specmodel.serving.promises import capacity_row, load_row

    rows, tried = [], []
    every = searched([(trial, name) for name in policies], options)
    for name, found in zip(policies, every, strict=True):
        rows.append(capacity_row(trial, name, found))
        ends = {key: rows[-1][key] for key in (*_OF_POLICY, "passes_again")}
        tried += [
            {"request_rate": load.rate, **load_row(trial, name, load), **ends}
            for load in found.loads
        ]
    if not any(row["capacity"] for row in rows):
        expected = "less: at no rate so many requests meet the targets"
        raise InputError("attainment", trial.targets.attainment, expected)
    return rows, tried


_OF_POLICY = ("capacity", "simulated_low", "simulated_high", "predicted_low", "predicted_high")


def _at_loads(
    trial: Trial, policies: list[str], options: dict[str, Any]
) -> tuple[list[Row], list[Row]]:
    """Return what requests meet at the loads that were typed, twice."""
    from specmodel.serving.promises import load_row

    asked, rows = typed_loads(options, trial.study.lengths), []
    with told_progress(len(asked) * len(policies), "Serving", "runs") as tell:
        for load in asked:
            for name in policies:
                met = trial.load(name, load)
                key = {"request_rate": load.request_rate or None, "users": load.users or None}
                rows.append(key | load_row(trial, name, met))
                tell(1)
    return rows, rows


def num_gpus(trial: Trial) -> int:
    """Return the GPUs of a replica, those that prefill apart included [-]."""
    return trial.study.deployment.layout.num_gpus * (1 + trial.study.prefill_servers)


def _add_replicas(rows: list[Row], options: dict[str, Any], trial: Trial) -> None:
    for row in rows:
        count = math.ceil(options["for_rate"] / row["capacity"]) if row["capacity"] else None
        row["replicas"], row["gpus"] = count, count and count * num_gpus(trial)


def _add_costs(rows: list[Row], options: dict[str, Any], trial: Trial) -> None:
    from specmodel.algebra.money import cost_per_million_tokens

    price = options["gpu_hour_price"]
    for row in rows if price is not None else ():
        made = row["throughput"]
        cost = float(cost_per_million_tokens(price, num_gpus(trial), made)) if made else None
        row["cost_per_million_tokens"] = cost
        if "gpus" in row:
            row["cost_per_hour"] = None if row["gpus"] is None else row["gpus"] * price


def _page(
    trial: Trial, rows: list[Row], assumed: dict[str, Any], notes: list[str], *, is_asked: bool
) -> str:
    """Return the page for people: one sentence, the table, what was assumed."""
    deployment = trial.study.deployment
    columns, verdict = (_AT_LOADS, _verdict_at_loads) if is_asked else (_CAPACITY, _verdict)
    kept = [
        (title, form)
        for title, (form, name) in columns.items()
        if any(row.get(name) is not None for row in rows)
    ]
    again = [
        f"{row['policy']} meets the targets again at {row['passes_again']:.3g} requests/s."
        for row in rows
        if row.get("passes_again")
    ]
    return report.laid_out(
        report.heading(deployment),
        report.behind(deployment),
        assumed,
        (),
        [verdict(trial, rows) + ("" if is_asked else _alike(rows))],
        [fitted_table(rows, kept, _SPARE, left=("policy",))],
        [*again, *notes, *([] if is_asked else [_INTERVALS]), NINETY],
    )


def within_targets(trial: Trial) -> str:
    """Say the targets, and the share of requests that should meet them."""
    targets = trial.targets
    told = {"a token": targets.tpot, "to the first": targets.ttft}
    times = " and ".join(f"{seconds(t)} {what}" for what, t in told.items() if t is not None)
    return f"{times} for {100 * targets.attainment:.4g} % of requests"


def _best(rows: list[Row]) -> Row:
    """Return the row of the policy that carries most; of plain decoding, if none carries more."""
    best = max(rows, key=lambda row: row["capacity"])
    alike = (r for r in rows if r["policy"] == "none" and best["capacity"] < 1.01 * r["capacity"])
    return next(alike, best)


def _alike(rows: list[Row]) -> str:
    """Say which policies may carry as much as the best one."""
    best = _best(rows)
    names, name = report.alike(best, rows, "simulated"), named(best["policy"])
    return f" Runs with other requests do not tell {name} and {names} apart." if names else ""


def _verdict(trial: Trial, rows: list[Row]) -> str:
    """Say what is carried without and with speculation, and which setting carries most."""
    plain = next((row for row in rows if row["policy"] == "none"), None)
    best = _best(rows)
    ends = best["predicted_low"], best["predicted_high"]
    sure = "" if None in ends else " (80 % interval {:.3g} to {:.3g})".format(*ends)
    text = f"Within {within_targets(trial)}, {named(best['policy'])} carries most:"
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


def _verdict_at_loads(trial: Trial, rows: list[Row]) -> str:
    """Say which policies meet the targets at the largest load, with which shares."""
    rate, users = (rows[-1][name] for name in ("request_rate", "users"))
    own = (r for r in rows if (r["request_rate"], r["users"]) == (rate, users))
    told = [(r["meets_targets"], f"{named(r['policy'])} ({r['goodput']:.0%})") for r in own]
    met, unmet = (", ".join(t for is_met, t in told if is_met == it) for it in (True, False))
    where = requests_a_second(rate) if rate else f"{users} users"
    text = f"{where} can be carried with {met or 'none of these'}"
    ends = f"{'; not with ' if met else ': '}{unmet}" if unmet else ""
    return f"Within {within_targets(trial)}, {text}{ends}."
