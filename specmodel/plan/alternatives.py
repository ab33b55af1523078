"""Predict alternatives: each combination of the arguments that are lists."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from specmodel.core.base.errors import InputError, refuse_given
from specmodel.core.base.naming import model_name
from specmodel.core.base.ranges import check_points
from specmodel.core.base.records import is_path
from specmodel.core.base.text import Viewed
from specmodel.core.base.units import LARGEST_PRICE, Numeric, check, parse_seconds
from specmodel.core.cost.deploying import LOOKUP, OF_LOOKUPS
from specmodel.core.cost.layouts import layouts_of
from specmodel.core.cost.where import ARGUMENTS, USUAL, Manner, literal, where_of
from specmodel.core.drafters.measured_heads import NAMES as TYPICAL
from specmodel.core.drafters.names import is_lookup
from specmodel.core.prediction.case import LONGEST_SEARCHED, Case, case_of
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.predicting import predicted, with_known_intervals
from specmodel.core.prediction.table import Row
from specmodel.plan.curves import compared_rows
from specmodel.plan.ranking import Ranking
from specmodel.plan.within import largest_batches

LISTS = (
    *("target", "drafter", "hardware", "engine", "tensor_parallel", "data_parallel"),
    *("expert_parallel", "weight_dtype", "expert_dtype", "kv_dtype", "prefill", "draft_length"),
)
"""Arguments that may be lists, each value an alternative."""
_SHORT = {"tensor_parallel": "TP", "data_parallel": "DP", "expert_parallel": "EP", "kv_dtype": "KV"}
_SHORT |= {"draft_length": "length", "expert_dtype": "experts", "prefill": "prefill"}
"""Prefix of an argument's value in the name of an alternative."""
_WHOLE = ("tensor_parallel", "data_parallel", "expert_parallel")
_USUAL = "usual"
"""Word for the published acceptance, or the typical one if none is published."""


class Alternatives(Viewed, Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Predictions of alternatives by name; the name contains what differs between them.

    Parameters
    ----------
    predictions
        Predictions at the best draft length of each point, or at given draft lengths.
    prefill
        How each alternative prefills in a simulated load; None for the default.
    notes
        Notes on alternatives that were left out, and on the number of GPUs.
    prices
        Price of each alternative's GPU for an hour, if you gave prices [-].
    targets, carried
        If a load was simulated, fields of the `simulate.Targets` that requests should meet, and the
        load that each alternative sustains within them.
    """

    room = "planned:comparison"

    predictions: dict[str, Prediction]
    prefill: dict[str, str | None]
    notes: list[str]
    prices: Mapping[str, float] = field(default_factory=dict)
    targets: Mapping[str, Any] = field(default_factory=dict)
    carried: Sequence[Row] = ()

    @property
    def cases(self) -> dict[str, Case]:
        """The case of each alternative, by its name."""
        return {name: p.case for name, p in self.predictions.items() if p.case}

    @cached_property
    def within(self) -> Sequence[Row]:
        """What each alternative sustains within the targets: a load, or the largest batch."""
        if self.carried or not self.targets:
            return self.carried
        return largest_batches(self.cases, self.targets["tpot"], self.prices)

    @cached_property
    def ranking(self) -> Ranking:
        """Ranking of the alternatives by batch size; its rows include the columns of `within`."""
        contexts = {c for p in self.predictions.values() for c in p.context_length.ravel()}
        if len(contexts) > 1:
            raise InputError("context_length", sorted(map(int, contexts)), "one context length")
        carried = {row["alternative"]: row for row in self.within}
        asked = {f"{n}_target": self.targets[n] for n in ("tpot", "ttft") if self.targets.get(n)}
        predictions = {name: with_known_intervals(p) for name, p in self.predictions.items()}
        rows = compared_rows(predictions)
        rows = [{**row, **carried.get(row["alternative"], {}), **asked} for row in rows]
        return Ranking(rows, {name: p.deployment for name, p in predictions.items()})

    @property
    def rooms(self) -> dict[str, int]:
        """Requests that fit in memory with the given draft length, or else with 1 [request]."""
        memory = {name: p.evaluation.memory for name, p in self.predictions.items()}
        for name, case in self.cases.items():
            if case.draft_length is None:
                memory[name] = replace(memory[name], verify_tokens=2.0)
        return {name: int(each.max_batch_size.max()) for name, each in memory.items()}


def alternatives(arguments: Mapping[str, Any], manner: Manner = USUAL) -> Alternatives:
    """Return a prediction for each combination of the arguments that are lists.

    A single combination gives one prediction for each layout of its GPUs.

    Parameters
    ----------
    arguments
        The arguments of `specmodel.predict`. Those in `LISTS` may be lists, and `changes` may be
        texts ``KEY=VALUE,VALUE``. `acceptance` or `acceptance_rate` may have a value for each
        drafter, where "usual" means published or else typical acceptance. `tpot_target` adds the
        largest batch within that time, and `gpu_hour_price` its cost, with one price or one for
        each GPU.
    manner
        How the user passed the arguments.
    """
    names = ("tpot_target", "gpu_hour_price")
    target, price = map(arguments.get, names)
    asked = _asked({n: v for n, v in arguments.items() if n not in names})
    able = {name: told for name, told in asked.items() if _is_count(told)} or asked
    out = [name for name in asked if name not in able]
    notes = [f"Left out, as they need another number of GPUs: {'; '.join(out)}."] if out else []
    prefill = {name: told.pop("prefill", None) for name, told in able.items()}
    drafters = listed("drafter", arguments.get("drafter"))
    manner = manner._replace(may_not_fit=True)
    cases = {name: _case(told, manner) for name, told in able.items()}
    cases, told = _with_acceptance(cases, drafters)
    notes += told
    if len(asked) == 1:
        cases = _laid_out(*cases.items())
        prefill = dict.fromkeys(cases, *prefill.values())
    points = max(math.prod(map(np.size, case.points.values())) for case in cases.values())
    check_points("batch_size", {"alternatives": len(cases), "points": points * LONGEST_SEARCHED})
    kept = {name: predicted(case) for name, case in cases.items()}
    even = _on_as_many_gpus(cases, kept)
    kept |= even
    gpus = {name: p.deployment.layout.num_gpus for name, p in kept.items()}
    full, counts = {name: name for name in kept}, {*gpus.values()}
    if len(counts) == 1:
        why = ", as the largest alternative needs" if even else ""
        notes.insert(0, f"All alternatives run on {gpus_told(*counts)}{why}.")
    else:
        full |= {n: f"{n} on {gpus_told(num)}" for n, num in gpus.items() if f"{num}x" not in n}
    for name, label in full.items():
        replicas = kept[name].deployment.layout.replicas
        if replicas > 1 and " DP" not in label:  # follows from the number of GPUs
            full[name] = re.sub(r"\bTP\d+", rf"\g<0> DP{replicas}", label)
    hardware = listed("hardware", arguments["hardware"])
    gpu_of = {name: able[name]["hardware"] if name in able else hardware[0] for name in kept}
    prices = _prices(price, hardware, [*gpu_of.values()])
    return Alternatives(
        predictions={full[name]: p for name, p in kept.items()},
        prefill={full[name]: prefill[name] for name in kept},
        notes=notes,
        prices=dict(zip(full.values(), prices, strict=False)),
        targets={} if target is None else {"tpot": parse_seconds("tpot_target", target)},
    )


def _case(arguments: Mapping[str, Any], manner: Manner) -> Case:
    """Return the case of an alternative, with draft length 0 if it has no drafter.

    If you asked for a typical acceptance and its kind of drafter has none, the case has none.
    """
    try:
        case = case_of(arguments, manner)
    except InputError as error:
        if error.argument != "acceptance" or str(arguments.get("acceptance")) not in TYPICAL:
            raise
        case = case_of({**arguments, "acceptance": None}, manner)
    if case.deployment.has_drafter:
        return case
    return replace(case, draft_length=0, max_draft_length=1)


def _with_acceptance(
    cases: Mapping[str, Case], drafters: Sequence[Any]
) -> tuple[dict[str, Case], list[str]]:
    """Return the cases with an acceptance, typical if none is published, and notes to print.

    Cases with a drafter for which neither acceptance is known are left out.
    """
    unknown = [n for n, c in cases.items() if c.deployment.has_drafter and c.acceptance is None]
    found = {name: case.with_typical() for name, case in cases.items()}
    typical = [name for name in unknown if found[name].acceptance]
    lacking = {name: found.pop(name) for name in unknown if name not in typical}
    if not found:
        _ = next(iter(lacking.values())).known_acceptance  # refuses
    told = [f"{'; '.join(typical)}: typical acceptance, as none is published."] if typical else []
    if lacking:
        names = {case.where.named.get("drafter") for case in lacking.values()}
        words = ",".join("0.4" if drafter in names else _USUAL for drafter in drafters)
        told.append(
            f"Left out, as no acceptance is published: {'; '.join(lacking)}; give one acceptance"
            f" for each drafter: {words}, with your rate in place of 0.4."
        )
    return found, told


def _on_as_many_gpus(
    cases: Mapping[str, Case], kept: Mapping[str, Prediction]
) -> dict[str, Prediction]:
    """Return predictions on as many GPUs as the largest alternative needs.

    The result is {} if you gave a number of GPUs, if all alternatives need the same number, or if
    one cannot be split over that number.
    """
    counts = {p.deployment.layout.num_gpus for p in kept.values()}
    if len(counts) == 1 or not all("gpus" in p.assumptions for p in kept.values()):
        return {}
    most = max(counts)
    try:
        even = {name: predicted(case.elsewhere(num_gpus=most)) for name, case in cases.items()}
    except InputError:
        return {}
    told = {"gpus": f"{most} (the fewest that hold the largest alternative)"}
    return {name: replace(p, assumptions=told | {**p.assumptions}) for name, p in even.items()}


def _asked(arguments: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the arguments of each combination, by its name."""
    given = {name: value for name, value in arguments.items() if value is not None}
    lists = {name: listed(name, given.get(name)) for name in LISTS}
    if not any(map(is_lookup, lists["drafter"])):
        refuse_given(given, LOOKUP, OF_LOOKUPS)
    accepted = _accepted(given, len(lists["drafter"]))
    labelled = [[*zip(lists[name], _labels(name, lists[name]), strict=True)] for name in LISTS]
    has_ideal = "ideal" in lists["engine"] and lists["engine"] != ["ideal"]
    changes, found = list(given.get("changes", ())), {}
    what_ifs = itertools.product(*map(_changes, changes))
    for chosen, changed in itertools.product(itertools.product(*labelled), what_ifs):
        named = {name: value for name, (value, _) in zip(LISTS, chosen, strict=True)}
        labels = {name: label for name, (_, label) in zip(LISTS, chosen, strict=True)}
        varied = {name: label for name, label in labels.items() if len(lists[name]) > 1}
        others = (each for each, typed in zip(changed, changes, strict=True) if each != typed)
        varied |= {each: each.partition(".")[2] or each for each in others}
        case = given | {name: value for name, value in named.items() if value is not None}
        case |= accepted[lists["drafter"].index(named["drafter"])] | {"changes": changed}
        dropped = [] if is_lookup(named["drafter"]) else [*LOOKUP]
        dropped += ["host_speed"] if has_ideal and named["engine"] == "ideal" else []
        case = {name: value for name, value in case.items() if name not in dropped}
        found[_name(varied) or labels["target"]] = case
    return found


def _changes(setting: str) -> list[str]:
    """Return the settings of KEY=VALUE,VALUE: one for each value."""
    key, has_value, values = setting.partition("=")
    listed = [value.strip() for value in values.split(",")]
    if len({*listed}) < len(listed):
        raise InputError(f"changes {key}", values, "each alternative once")
    return [f"{key}{has_value}{value}" for value in listed]


def _laid_out(asked: tuple[str, Case]) -> dict[str, Case]:
    """Return a case in each layout of its GPUs with the given degrees; only itself if one has."""
    name, case = asked
    found = {
        _name({key: f"{_SHORT[key]}{n}" for key, n in degrees.items() if n > 1}): degrees
        for degrees in layouts_of(case.deployment)
        if all(case.where.named.get(key, degree) == degree for key, degree in degrees.items())
    }
    if len(found) < 2:
        return {name: case}
    return {layout: case.laid_out(degrees) for layout, degrees in found.items()}


def _name(varied: Mapping[str, str]) -> str:
    """Return a name from the labels of the varied arguments, with blanks between degrees."""
    groups = itertools.groupby(varied, key=lambda name: name in _WHOLE)
    ends = {True: " ", False: ", "}
    return ", ".join(ends[whole].join(varied[n] for n in names) for whole, names in groups)


def gpus_told(num: int) -> str:
    """Return a number of GPUs as text."""
    return f"{num} GPU{'s' if num > 1 else ''}"


def listed(name: str, values: Any) -> list[Any]:
    """Return a value or list as a list; refuse an empty list and repeated values."""
    values = np.ravel(values).tolist() if isinstance(values, np.ndarray) else values
    listed = list(values) if isinstance(values, list | tuple | range) else [values]
    if not listed or len({*map(str, listed)}) < len(listed):
        raise InputError(name, values, "each alternative once")
    return listed


def _is_count(arguments: Mapping[str, Any]) -> bool:
    """Return whether the degrees multiply to `num_gpus`; True if any of them was not given."""
    where = where_of({n: value for n, value in arguments.items() if n in ARGUMENTS})
    named, count = where.named, where.num_gpus
    degrees = [named.get("tensor_parallel"), named.get("data_parallel")]
    are_whole = count and all(isinstance(degree, int) for degree in degrees)
    return not are_whole or math.prod(filter(None, degrees)) == count


def _accepted(given: Mapping[str, Any], drafters: int) -> list[dict[str, Any]]:
    """Return the acceptance of each drafter as an argument: one value for all, or one for each."""
    typed = {name: given[name] for name in ("acceptance", "acceptance_rate") if name in given}
    if not typed:
        return [{}] * drafters
    if len(typed) > 1:
        raise InputError("acceptance", [*typed], "`acceptance` or `acceptance_rate`, not both")
    ((name, value),) = typed.items()
    values = value.split(",") if isinstance(value, str) else value
    values = np.ravel(values).tolist() if isinstance(values, np.ndarray) else values
    values = [*values] if isinstance(values, Sequence) else [values]
    if len(values) not in (1, drafters):
        raise InputError(name, value, f"one for all, or one for each of {drafters} drafters")
    words = [literal(each.strip()) if isinstance(each, str) else each for each in values]
    found = [{name: None if each == _USUAL else each} for each in words]
    return found * (drafters // len(found))


def _prices(price: Numeric | None, hardware: list[Any], gpus: Sequence[Any]) -> list[float]:
    """Return the price of each GPU in `gpus`: one for all, or one for each in `hardware`."""
    if price is None:
        return []
    prices = np.ravel(check("gpu_hour_price", price, minimum=0, maximum=LARGEST_PRICE)).tolist()
    if len(prices) not in (1, len(hardware)):
        expected = f"one price, or one for each of {len(hardware)} GPUs"
        raise InputError("gpu_hour_price", price, expected)
    return [prices[hardware.index(gpu) % len(prices)] for gpu in gpus]


def _labels(name: str, values: list[Any]) -> list[str]:
    """Return the labels of an argument's values: names, or the stems of paths if they differ."""
    if name in _SHORT:
        space = "" if name in _WHOLE else " "
        return [f"{_SHORT[name]}{space}{value}" for value in values]
    texts = [str(getattr(value, "name", value)) for value in values]
    short = [_stem(Path(each)) if is_path(each) else each for each in texts]
    return short if len({*short}) == len(short) else texts


def _stem(path: Path) -> str:
    """Return the stem of a path, or the name of the model of a ``config.json``."""
    return model_name(path) if path.name == "config.json" else path.stem
