"""Summarise loads and drains: the policy to run, its gain, and its rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from specmodel.core.base.facts import Fact, known, with_ends
from specmodel.core.prediction.table import Row, seconds

if TYPE_CHECKING:
    from specmodel.plan.plans import Plan
    from specmodel.simulate.drains import Drain
    from specmodel.simulate.trial import Trial

_WORTH = 0.01
"""Smallest share of time that a policy must save to be reported as a gain [-]."""


def rate_facts(rows: list[Row]) -> dict[str, Fact]:
    """Return the policy that is fastest at most loads, its gains, and the unsustainable loads."""
    rates, users = ("request_rate", "requests/s", "request/s"), ("users", "users", "-")
    key, unit, of = rates if rows[0]["users"] is None else users
    times: dict[float, dict[str, float]] = {row[key]: {} for row in rows}
    for row in rows:
        if row["is_steady"]:
            times[row[key]][row["policy"]] = row["tpot"]
    # of times that are equal when printed, the first
    best = {at: min(own, key=lambda n: float(f"{own[n]:.3g}")) for at, own in times.items() if own}
    gains = [own["none"] / own[best[at]] for at, own in times.items() if own.get("none")]
    most = max(best.values(), key=[*best.values()].count, default=None)
    facts = {
        "unit": Fact(unit),
        "fastest": Fact(most and named(most)),
        "fastest_at": Fact([at for at, name in best.items() if name == most], of),
        "gain": Fact((min(gains), max(gains)) if gains else None),
        "not_carried_at": Fact([at for at in times if at not in best], of),
    }
    return known(facts.items())


def named(policy: str) -> str:
    """Return the name of a policy for use in a sentence: "plain decoding" for none."""
    return "plain decoding" if policy == "none" else policy


def within_targets(
    *, ttft: float | None = None, tpot: float | None = None, attainment: float = 1.0
) -> str:
    """Return targets [s], and the share of requests that should meet them [-], as text."""
    told = {"per token": tpot, "to the first token": ttft}
    times = " and ".join(f"{seconds(t)} {what}" for what, t in told.items() if t is not None)
    return f"{times} for {100 * attainment:.4g} % of requests"


def _best(rows: list[Row]) -> Row:
    """Return the row of the largest capacity, or of plain decoding if it is within 1 %."""
    best = max(rows, key=lambda row: row["capacity"])
    alike = (r for r in rows if r["policy"] == "none" and best["capacity"] < 1.01 * r["capacity"])
    return next(alike, best)


def capacity_facts(trial: Trial, rows: list[Row]) -> dict[str, Fact]:
    """Return the policy of the largest capacity, its gain, and the policies that are as good."""
    best, plain = _best(rows), next((row for row in rows if row["policy"] == "none"), None)
    low, rate = best["simulated_low"], best["capacity"]
    others = (row for row in rows if row is not best and low)
    alike = [row["policy"] for row in others if (row["simulated_high"] or 0) >= low]
    facts = {
        "within": Fact(within_targets(**asdict(trial.targets))),
        "carries_most": Fact(named(best["policy"])),
        "capacity": Fact(rate, "request/s", best["predicted_low"], best["predicted_high"]),
        "as_good": Fact(", ".join(alike)),
    }
    if plain and plain is not best:
        without = plain["capacity"]
        facts["capacity_plain"] = Fact(without or None, "request/s")
        facts["gain"] = Fact(rate / without if without else None)
    return known(facts.items())


def carried_facts(plan: Plan) -> dict[str, Fact]:
    """Return the capacities of the best policy, the best single length and no draft, if known."""
    if not plan.carried:
        return {}
    rates = {row["policy"]: row["capacity"] for row in plan.carried}
    best = max(rates, key=lambda name: rates[name])
    single = max(rate for name, rate in rates.items() if name.startswith("fixed"))
    return {
        "within": Fact(within_targets(**plan.targets)),
        "carries_most": Fact(named(best)),
        "capacity": Fact(rates[best], "request/s"),
        "capacity_fixed": Fact(single, "request/s"),
        "capacity_plain": Fact(rates["none"], "request/s"),
    }


def drain_facts(drain: Drain, rows: Sequence[Row]) -> dict[str, Fact]:
    """Return the best policy of a drain, its time and its gain."""
    plain = next((row for row in rows if row["policy"] == "none"), None)
    best = min(rows, key=lambda row: row["makespan"])
    if plain and best["makespan"] > (1 - _WORTH) * plain["makespan"]:
        best = plain
    share = f"{100 * drain.finished:g} % of " if drain.finished < 1 else ""
    facts = {
        "policy": Fact(named(best["policy"])),
        "asked": Fact(f"{share}{drain.prompts} prompts x {drain.samples} answers"),
        "makespan": with_ends(best, "makespan", "s"),
        "gpu_hours": Fact(best["gpu_hours"]),
        "preemptions": Fact(best.get("preemptions") or None),
    }
    if plain and plain is not best:
        facts["speedup"] = with_ends(best, "speedup")
        facts["makespan_plain"] = Fact(plain["makespan"], "s")
        facts["gpu_hours_plain"] = Fact(plain["gpu_hours"])
    return known(facts.items())
