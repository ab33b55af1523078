"""``specmodel compare``: whatever may be a list side by side, each at its best draft length."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from specmodel import answers
from specmodel.base.errors import InputError
from specmodel.base.ranges import parse_numbers, parse_values, ranges_text, runs
from specmodel.base.text import wrap
from specmodel.cli import settings
from specmodel.cli.answering import answering
from specmodel.cli.capacity import ATTAINMENT, WORKERS, workers_options
from specmodel.cli.loads import OPTIONS
from specmodel.cli.scheduling import LOAD
from specmodel.cli.taken import drafter_of
from specmodel.cli.where import where_options
from specmodel.cli.words import counted
from specmodel.show import forms, report
from specmodel.show.assumed import assumed_text, what_if_text

_LISTS = (
    *("tensor_parallel", "data_parallel", "expert_parallel", "weight_dtype", "expert_dtype"),
    *("attention_dtype", "kv_dtype", "activation_dtype"),
)
"""Options of detail that may be lists here."""
_SHORT = {"tensor_parallel": "TP", "data_parallel": "DP", "expert_parallel": "EP"}
_SHORT |= {"draft_length": "length", "expert_dtype": "experts", "kv_dtype": "KV"}
_SHORT |= {"attention_dtype": "attention", "activation_dtype": "activations", "prefill": "prefill"}
"""What stands before a value in the name of an alternative."""
_WHOLE = ("tensor_parallel", "data_parallel", "expert_parallel")
_REPLICAS = ("tensor_parallel", "data_parallel")
"""Degrees whose product is the number of GPUs."""
_LENGTHS = "Lengths to compare, each at all batch sizes.  [default: the best of each]"
_PRICES = "Price of a GPU for an hour: one for all, or one for each GPU."
_PREFILL = "together, apart:N, or both, in capacities: N servers prefill.  [default: together]"
_RATES = "P(token accepted, all before it were): one for all, or one for each drafter."


@settings.command()
@where_options(has_start=True)
@settings.option("batch_size", default="1:512:x2")
@settings.own("draft_length", "LIST", _LENGTHS)
@settings.option("acceptance")
@settings.own("acceptance_rate", "VALUES", _RATES)
@settings.option("proposal_rate")
@settings.own("context_length", "VALUE", "KV entries before the step.  [default: 1024]")
@settings.load_options()
@settings.option("max_draft_length")
@settings.detail_options(lists=_LISTS)
@settings.options(*(settings.own(name, *OPTIONS[name]) for name in LOAD))
@settings.own("attainment", float, ATTAINMENT)
@settings.own("prefill", "LIST", _PREFILL)
@settings.own("gpu_hour_price", "VALUES", _PRICES)
@workers_options()
@answering()
def compare(**options: Any) -> forms.Answer:
    """Compare models, GPUs, layouts, dtypes, engines, drafters or draft lengths.

    Each may be a list; every combination is an alternative, with its best draft length unless
    lengths are given.

    \b
    Examples:
      specmodel compare qwen3-30b-a3b h100,h200 --drafter ngram,eagle3 \\
          --acceptance-rate 0.4,0.7
      specmodel compare qwen3.5-397b 8xh200,8xb200 --weight-dtype bf16,fp8
      specmodel compare deepseek-v3 8xh200 --tensor-parallel 8,1 \\
          --data-parallel 1,8
    """
    is_loaded = settings.given(options, LOAD[1:])
    if not is_loaded:
        others = ("workload", "attainment", "gpu_hour_price", "prefill", *WORKERS)
        settings.refuse_given(options, others, "--tpot-target with it")
    predictions, cases, notes = alternatives_from(options)
    if len({context for p in predictions.values() for context in p.context_length.ravel()}) > 1:
        raise InputError("context_length", options["context_length"], "one context length")
    best = answers.compare(predictions)
    shown = table(best)
    if is_loaded:
        from specmodel.cli.compared_load import carried_by

        rows, told = carried_by(cases, options, _prices(options))
        shown = f"{shown}\n\n{told}"
        for column in (name for name in rows[0] if name != "alternative"):
            best[column] = best["alternative"].map({r["alternative"]: r[column] for r in rows})
    words = " ".join([verdict(best), *notes])
    return report.comparison(predictions, best, lambda: page(predictions, words, shown))


def alternatives_from(
    options: dict[str, Any],
) -> tuple[dict[str, report.Prediction], dict[str, dict[str, Any]], list[str]]:
    """Return a prediction for each combination, named by what differs between combinations.

    With them go the options of each by the same name, and what to say of combinations left out and
    of the number of GPUs.
    """
    cases = _cases(options)
    found = {name: _predicted(case) for name, case in cases.items()}
    kept = {name: p for name, p in found.items() if p is not None} or _none_of(options)
    out = [f"{name} ({_gpus_of(cases[name])})" for name in found if name not in kept]
    notes = [f"Left out: {'; '.join(out)}."] if out else []
    even = _on_as_many_gpus(cases, kept)
    kept |= even
    counts = {p.deployment.layout.num_gpus for p in kept.values()}
    if len(counts) == 1:
        (num,) = counts
        why = ", as the largest alternative needs" if even else ""
        notes.insert(0, f"{'All on' if len(kept) > 1 else 'On'} {gpus_told(num)}{why}.")
        cases = {name: case | {"num_gpus": num} for name, case in cases.items()} if even else cases
    names = {name: _with_gpus(name, p, kept) for name, p in kept.items()}
    predictions = {names[name]: p for name, p in kept.items()}
    return predictions, {names[name]: cases[name] for name in kept}, notes


def _on_as_many_gpus(
    cases: Mapping[str, dict[str, Any]], kept: Mapping[str, report.Prediction]
) -> dict[str, report.Prediction]:
    """Return predictions on as many GPUs as the largest alternative needs, where none are typed.

    Nothing if all need as many, or if one cannot be cut that way.
    """
    counts = {p.deployment.layout.num_gpus for p in kept.values()}
    if len(counts) == 1 or not all("gpus" in p.assumptions for p in kept.values()):
        return {}
    most = max(counts)
    try:
        even = {name: _predicted(cases[name] | {"num_gpus": most}) for name in kept}
    except InputError:
        return {}
    told = {"gpus": f"{most} (the fewest that hold the largest alternative)"}
    return {name: replace(p, assumptions=told | {**p.assumptions}) for name, p in even.items() if p}


def _cases(options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the options of each combination by its name."""
    from specmodel.cost.deploying import LOOKUP
    from specmodel.drafters.names import LOOKUPS

    names = ("target", "drafter", "hardware", "engine", *_LISTS, "prefill", "draft_length")
    lists = {name: _listed(name, options[name]) for name in names}
    if not {*LOOKUPS} & {*lists["drafter"]}:
        settings.refuse_given(options, LOOKUP, "the drafter ngram or suffix with it")
    rates = _rates(options, lists["drafter"])
    labels = {name: _labels(name, values) for name, values in lists.items()}
    has_ideal = "ideal" in lists["engine"] and lists["engine"] != ["ideal"]
    found = {}
    for chosen in itertools.product(*lists.values()):
        named = dict(zip(names, chosen, strict=True))
        told = [labels[name][named[name]] for name in names if len(lists[name]) > 1]
        count, hardware = counted(named["hardware"])
        case = options | named | {"may_not_fit": True, "acceptance_rate": rates[named["drafter"]]}
        case |= {"hardware": hardware, "num_gpus": count or options["num_gpus"]}
        if named["drafter"] is None:
            case |= drafter_of(named["target"])
        if case["drafter"] not in LOOKUPS:
            case |= dict.fromkeys(LOOKUP)
        if has_ideal and named["engine"] == "ideal":
            case["host_speed"] = None  # which only engines with a host have
        found[", ".join(told) or labels["target"][named["target"]]] = case
    return found


def _with_gpus(
    name: str, prediction: report.Prediction, others: Mapping[str, report.Prediction]
) -> str:
    """Return a name with how many GPUs were taken, if alternatives differ in that."""
    num = prediction.deployment.layout.num_gpus
    is_alike = all(other.deployment.layout.num_gpus == num for other in others.values())
    return name if is_alike or f"{num}x" in name else f"{name} on {gpus_told(num)}"


def gpus_told(num: int) -> str:
    """Return a number of GPUs in words."""
    return f"{num} GPU{'s' if num > 1 else ''}"


def _listed(name: str, text: str | None) -> list[Any]:
    """Return the values of a list, whole numbers where these are counts."""
    if text is None:
        return [None]
    values = parse_values(name, text) if name in _WHOLE else text.split(",")
    listed = [value.strip() if isinstance(value, str) else int(value) for value in values]
    if len({*listed}) < len(listed):
        raise InputError(name, text, "alternatives, each once")
    return listed


def _predicted(case: dict[str, Any]) -> report.Prediction | None:
    """Return the prediction of one alternative; None for degrees that are not the count of GPUs."""
    from specmodel.cli.options import lengths_from, predict_from

    degrees = [case[name] for name in _REPLICAS]
    if case["num_gpus"] and all(degrees) and math.prod(degrees) != case["num_gpus"]:
        return None
    return lengths_from(case) if case["draft_length"] is None else predict_from(case)


def _gpus_of(case: Mapping[str, Any]) -> str:
    """Say how many GPUs degrees make, which are not those that were typed."""
    num = math.prod(case[name] for name in _REPLICAS)
    return f"{gpus_told(num)}, not {case['num_gpus']}"


def _none_of(options: dict[str, Any]) -> dict[str, report.Prediction]:
    degrees = f"{options['tensor_parallel']} and --data-parallel {options['data_parallel']}"
    expected = f"degrees with the product of {options['hardware']}"
    raise InputError("tensor_parallel", degrees, expected)


def _rates(options: dict[str, Any], drafters: list[str]) -> dict[str, float | None]:
    """Return the acceptance rate of each drafter; None where the published one is taken."""
    text = options["acceptance_rate"]
    if text is not None and options["acceptance"] is not None:
        both = ["--acceptance", "--acceptance-rate"]
        raise InputError("acceptance", both, "at most one of --acceptance, --acceptance-rate")
    if text is None:
        return dict.fromkeys(drafters)
    rates = parse_numbers("acceptance_rate", text)
    if len(rates) not in (1, len(drafters)):
        expected = f"one rate, or one for each of {len(drafters)} drafters"
        raise InputError("acceptance_rate", rates, expected)
    return dict(zip(drafters, itertools.cycle(rates), strict=False))


def _prices(options: dict[str, Any]) -> dict[str, float]:
    """Return the price of each GPU by its name; none where none is typed."""
    from specmodel.base.units import check

    if options["gpu_hour_price"] is None:
        return {}
    prices = parse_numbers("gpu_hour_price", options["gpu_hour_price"])
    for price in prices:
        check("gpu_hour_price", float(price), minimum=0)
    names = [counted(name)[1] for name in _listed("hardware", options["hardware"])]
    if len(prices) not in (1, len(names)):
        expected = f"one price, or one for each of {len(names)} GPUs"
        raise InputError("gpu_hour_price", options["gpu_hour_price"], expected)
    return dict(zip(names, itertools.cycle(prices), strict=False))


def _labels(name: str, values: list[Any]) -> dict[Any, str]:
    """Return the labels of alternatives: names, or the stems of paths if these differ."""
    from specmodel.base.records import is_path

    if name in _SHORT:
        return {value: f"{_SHORT[name]} {value}" for value in values}
    short = {value: Path(value).stem if value and is_path(value) else value for value in values}
    return short if len(set(short.values())) == len(values) else {v: v for v in values}


def page(predictions: Mapping[str, report.Prediction], verdict: str, table: str) -> str:
    """Return the page: warnings of all alternatives above the table, what holds for one below."""
    warnings = {
        n: [f"Warning: {warning}." for warning in p.warnings] for n, p in predictions.items()
    }
    behind = {name: report.behind(p.deployment) for name, p in predictions.items()}
    assumed = {name: p.assumptions.items() for name, p in predictions.items()}
    warned, shared, common = _in_all(warnings), _in_all(behind), dict(_in_all(assumed))
    owners: dict[str, list[int]] = {}
    for number, name in enumerate(predictions, 1):
        lines = [line for line in warnings[name] if line not in warned]
        lines += [line for line in behind[name] if line not in shared]
        rest = [f"{key}\xa0{value}" for key, value in assumed[name] if key not in common]
        lines += [f"Assumed: {', '.join(rest)}."] if rest else []
        for line in lines:
            owners.setdefault(line, []).append(number)
    alone = [
        wrap(f"{''.join(f'[{number}]' for number in numbers)} {line}").replace("\xa0", " ")
        for line, numbers in owners.items()
    ]
    parts = [
        "\n".join(map(wrap, [verdict, *what_if_text(common)])),
        *map(wrap, warned),
        table,
        "\n".join(alone),
        "\n".join([*map(wrap, shared), assumed_text(common)]),
    ]
    return "\n\n".join(filter(None, parts))


def _in_all(items: Mapping[str, Collection[Any]]) -> list[Any]:
    """Return the items that all alternatives have."""
    first, *others = items.values()
    return [item for item in first if all(item in other for other in others)]


def verdict(best: forms.DataFrame) -> str:
    """Say which alternative has the largest speedup, and which is fastest, by batch size."""
    sizes, gains, times = [], [], []
    for size, rows in report.fitting(best).groupby("batch_size"):
        sizes.append(int(str(size)))
        top = rows.iloc[int(rows["speedup"].argmax())]
        gains.append(top["alternative"] if round(top["speedup"], 2) > 1 else "none")
        fastest = rows[rows["tpot"] <= rows["tpot"].min() * (1 + 1e-9)]["alternative"]
        times.append(" or ".join(fastest))
    gain, time = _by_size(gains, sizes), _by_size(times, sizes)
    told = f"Largest speedup: {gain}. Least time per token: {time}."
    if gain == time:
        told = f"Largest speedup and least time per token: {gain}."
    return f"{told}{_unfit(best)}" if best["fits"].any() else report.if_it_fitted(told)


def _unfit(best: forms.DataFrame) -> str:
    """Say which alternatives do not fit in memory everywhere, and so could not be the best."""
    told = []
    for name, rows in best.groupby("alternative", sort=False):
        if not rows["fits"].any():
            told.append(f"{name} nowhere")
        elif not rows["fits"].all():
            told.append(f"{name} up to {rows['batch_size'][rows['fits']].max()}")
    held = best[best["limited_by"] == "memory"]
    ends = [
        f"{name} at {ranges_text([(rows['batch_size'].min(), rows['batch_size'].max())])}"
        for name, rows in held.groupby("alternative", sort=False)
    ]
    words = [f" In memory fit: {'; '.join(told)}." if told else ""]
    words += [f" No draft fits in memory: {'; '.join(ends)}." if ends else ""]
    return "".join(words)


def _by_size(winners: list[str], sizes: list[int]) -> str:
    """Name the winners, neighbouring batch sizes with the same one together."""
    found = runs(winners)
    if len(found) == 1:
        return f"{winners[0]} at every batch size"
    return "; ".join(f"{name} at {ranges_text([(sizes[i], sizes[j])])}" for i, j, name in found)


def table(best: forms.DataFrame) -> str:
    """Return numbered alternatives side by side: speedup, best draft length, time per token."""
    numbers = {name: f"[{i}]" for i, name in enumerate(best["alternative"].unique(), 1)}
    kept = report.fitting(best)
    rows = {n: forms.records(kept[kept["alternative"] == name]) for name, n in numbers.items()}
    able = {*best["alternative"][best["fits"]]}
    legend = [
        f"{number} {name}{'' if name in able else ' (does not fit in memory)'}"
        for name, number in numbers.items()
    ]
    cells = forms.by_batch_size(kept["batch_size"], rows, report.SPEEDUP + " {tpot:s}")
    told = [*legend, "Speedup (draft length) and time per token:", cells]
    return "\n".join(told) + report.left_out(best)
