"""``specmodel serve``: a deployment under load, simulated request by request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError
from specmodel.base.text import listed, wrap
from specmodel.cli import settings
from specmodel.cli.answering import answering, told_progress
from specmodel.cli.loads import (
    LIMITS,
    LONGEST,
    NINETY,
    OPTIONS,
    USUAL_POLICIES,
    named,
    study_from,
    typed_loads,
    typed_policies,
    typed_targets,
)
from specmodel.cli.settings import own
from specmodel.cli.where import where_options
from specmodel.prediction.table import Form, Row, seconds
from specmodel.show import report
from specmodel.show.forms import Answer, fitted_table

if TYPE_CHECKING:
    from specmodel.serving.requests import Arrivals
    from specmodel.serving.study import Study

_CELLS: dict[str, Form] = {
    "requests\n/s": lambda row: (
        "-" if row["request_rate"] is None else f"{row['request_rate']:.3g}"
    ),
    "users": lambda row: "-" if row["users"] is None else f"{row['users']}",
    "policy": "{policy}",
    "running": "{running:.1f}",
    "\nTPOT": lambda row: seconds(row["tpot"]),
    "TPOT by\nformula": lambda row: _or_dash(row["tpot_closed"]),
    "TPOT\n90 %": lambda row: seconds(row["tpot_p90"]),
    "TTFT\nmedian": lambda row: seconds(row["ttft_p50"]),
    "TTFT\n90 %": lambda row: seconds(row["ttft_p90"]),
    "meet\nboth": lambda row: "-" if row["goodput"] is None else f"{row['goodput']:.0%}",
    "carried": lambda row: "yes" if row["is_steady"] else "no",
}
"""Columns of the table for people."""
_TIMES = ("tpot", "tpot_p90", "ttft", "ttft_p50", "ttft_p90", "interval_p99")
UNITS = {
    **dict.fromkeys((*_TIMES, "tpot_closed", "ttft_closed", "time", "step_time"), "s"),
    **dict.fromkeys(("running", "running_closed", "users", "waiting", "decoding"), "request"),
    **dict.fromkeys(("request_rate", "carried_rate", "largest_rate_closed"), "request/s"),
    **dict.fromkeys(("tokens_per_step", "drafted_tokens_per_step"), "token"),
    **dict.fromkeys(("draft_length", "emitted_tokens"), "token"),
    "throughput": "token/s",
}
_MOST_STEPS = 300_000
"""Steps that are logged [-]."""
_MOST_TOLD = 4
"""Loads that the headline tells one by one [-]."""
_SPARE = ("TPOT\n90 %", "TTFT\n90 %", "TPOT by\nformula")


@settings.command()
@where_options()
@settings.options(*(own(name, *told) for name, told in OPTIONS.items()))
@settings.acceptance_options()
@settings.option("max_draft_length", words=LONGEST)
@settings.detail_options()
@own("seed", int, "Of all that is drawn.", default=0)
@own("steps", bool, "Tell of each step, the first 300,000, of one load and policy.")
@answering()
def serve(**options: Any) -> Answer:
    """Simulate a server under load: running batch, TPOT and TTFT by rate and policy.

    Requests come at random, wait, and are batched continuously as vLLM 0.33 schedules them; each
    policy meets the same requests and the same luck. Beside it stands TPOT in the steady state by
    formula. Where requests wait ever longer, a row says that its load is not carried.

    \b
    Examples:
      specmodel serve qwen3-30b-a3b h100 --request-rate 1,2,4
      specmodel serve qwen3.5-397b 8xb200 --request-rate 2:16:x2 \\
          --workload code --policy none,fixed:1,fixed:3,sglang \\
          --ttft-target 1s --tpot-target 20ms
      specmodel serve gpt-oss-120b h200 --users 32 --prompt-length 1000 \\
          --output-length 500
    """
    from specmodel.serving.study import not_carried, under_load

    policies = typed_policies(options)
    study, assumed = study_from(options, policies)
    loads = typed_loads(options, study.lengths)
    targets = typed_targets(options)
    if options["steps"]:
        return _steps(study, policies, loads)
    with told_progress(len(loads) * len(policies), "Serving", "runs") as tell:
        rows = under_load(study, loads, policies, targets, tell)
    warnings = [_not_carried(rate, most) for rate, most in not_carried(rows).items()]
    used = study.scheduler(drafts=True)
    said = {name: getattr(used, name) for name in LIMITS}
    assumed |= {name: value for name, value in said.items() if options[name] is None}
    if study.first_token_time:
        added = f"{seconds(study.first_token_time)} (HTTP, tokenization, as fitted)"
        assumed["first_token_time"] = added
    notes = [USUAL_POLICIES] if options["policy"] is None else []
    fields = {
        "case": report.heading(study.deployment),
        "assumptions": assumed,
        "warnings": warnings,
        "scheduler": said,
        "units": {name: UNITS.get(name, "-") for name in rows[0]},
        "rows": rows,
    }
    return Answer(
        page=lambda: report.laid_out(
            report.heading(study.deployment),
            report.behind(study.deployment),
            assumed,
            warnings,
            [_verdict(rows)],
            [_table(rows, targets)],
            [f"TPOT counts each token once; {NINETY}", *notes],
        ),
        fields=lambda: fields,
        rows=lambda: rows,
        warnings=warnings,
        case=report.heading(study.deployment),
    )


def _steps(study: Study, policies: list[str], loads: list[Arrivals]) -> Answer:
    """Return the steps of one run; a page says how many, and the most of what ran."""
    if len(policies) * len(loads) > 1:
        raise InputError("steps", True, "one load, and one policy with --policy")
    rows = study.run(policies[0], loads[0], log_steps=_MOST_STEPS).step_rows
    running, waiting, used = (max(r[n] for r in rows) for n in ("running", "waiting", "kv_use"))
    told = f"{len(rows)} steps in {seconds(rows[-1]['time'])}, with at most {running:.0f} requests"
    told += f" running, {waiting:.0f} waiting and {used:.0%} of KV blocks in use."
    fields = {
        "case": report.heading(study.deployment),
        "units": {name: UNITS.get(name, "-") for name in rows[0]},
        "rows": rows,
    }
    page = wrap(f"{told} --csv has a row a step, which plot steps draws.")
    return Answer(page=lambda: page, fields=lambda: fields, rows=lambda: rows)


def _table(rows: list[Row], targets: tuple[float | None, float | None]) -> str:
    """Return a row for each load and policy."""
    left_out = {"users" if rows[0]["users"] is None else "requests\n/s"}
    left_out |= {"meet\nboth"} if rows[0]["goodput"] is None else set()
    left_out |= {"carried"} if all(row["is_steady"] for row in rows) else set()
    forms = [(title, form) for title, form in _CELLS.items() if title not in left_out]
    asked = dict(zip(("TTFT\n90 %", "TPOT\n90 %"), targets, strict=True))
    spare = sorted(_SPARE, key=lambda title: asked.get(title) is not None)
    return fitted_table(rows, forms, spare, left=("policy",))


def _verdict(rows: list[Row]) -> str:
    """Say which policies take the least time per token at each load, of many at three."""
    key = "request_rate" if rows[0]["users"] is None else "users"
    loads = [*dict.fromkeys(row[key] for row in rows)]
    told, last = list[str](), ""
    if len(loads) > _MOST_TOLD:
        carried = [row[key] for row in rows if row["is_steady"]]
        loads = [*dict.fromkeys((loads[0], *carried[-1:], loads[-1]))]
    for load in loads:
        own = [row for row in rows if row[key] == load]
        steady = [row for row in own if row["is_steady"]]
        where = requests_a_second(load) if key == "request_rate" else f"{load} users"
        if not steady:
            told, last = [*told, f"{where} are not carried"], ""
            continue
        least = min(row["tpot"] for row in steady)
        best = [row["policy"] for row in steady if seconds(row["tpot"]) == seconds(least)]
        fastest = f"{listed([*map(named, best)])} {'is' if len(best) == 1 else 'are'} fastest"
        text = f"at {where} {'likewise' if fastest == last else fastest}, {seconds(least)} a token"
        plain = next((row for row in own if row["policy"] == "none"), None)
        if plain is not None and "none" not in best:
            how = f"{plain['tpot'] / least:.2f}x faster than without drafts"
            text += f", {how if plain['is_steady'] else 'a load not carried without drafts'}"
        told, last = [*told, text], fastest
    text = "; ".join(told)
    return f"{text[0].upper()}{text[1:]}."


def _not_carried(rate: float, most: float) -> str:
    """Say that no policy carries a rate, and about how much is carried [request/s]."""
    if rate >= most:
        told = f"{requests_a_second(rate)} are not carried by any policy: at most about {most:.3g}"
        return f"{told}, above which requests wait ever longer"
    formula = f"though about {most:.3g} are carried by formula; more --requests tell"
    where = f"at {requests_a_second(rate)} requests wait ever longer under all policies here"
    return f"{where}, {formula}"


def requests_a_second(rate: float) -> str:
    """Return a rate in words."""
    return f"{rate:.3g} request{'' if rate == 1 else 's'}/s"


def _or_dash(value: float | None) -> str:
    return "-" if value is None else seconds(value)
