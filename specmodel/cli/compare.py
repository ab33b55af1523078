"""``specmodel compare``: whatever may be a list side by side, each at its best draft length."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from specmodel import answers
from specmodel.base.errors import InputError
from specmodel.base.naming import counted
from specmodel.base.ranges import parse_numbers, parse_values
from specmodel.cli import settings
from specmodel.cli.answering import answering
from specmodel.cli.load import for_load_options, refuse_without_load
from specmodel.cli.predict import BATCH_SIZES
from specmodel.cli.taken import drafter_of
from specmodel.cli.where import where_options
from specmodel.prediction.table import Row, seconds
from specmodel.show import compared, forms, report
from specmodel.show.assumed import CHANGES
from specmodel.show.within import Within

_LISTS = ("target", "drafter", "hardware", "engine", *settings.COMPARED, "prefill", "draft_length")
"""Options that may be lists here."""
_SHORT = {"tensor_parallel": "TP", "data_parallel": "DP", "expert_parallel": "EP"}
_SHORT |= {"draft_length": "length", "expert_dtype": "experts", "kv_dtype": "KV"}
_SHORT |= {"prefill": "prefill"}
"""What stands before a value in the name of an alternative."""
_WHOLE = ("tensor_parallel", "data_parallel", "expert_parallel")
_REPLICAS = ("tensor_parallel", "data_parallel")
"""Degrees whose product is the number of GPUs."""
_LENGTHS = "Lengths to compare, each at all batch sizes.  [default: the best of each]"
_PRICES = "Price of a GPU for an hour: one for all, or one for each GPU."
_PREFILL = "together, apart:N, or both, in capacities: N servers prefill.  [default: together]"
_FOR_LOAD = "Simulate requests: the largest rate of each alternative within the targets."
_LONGEST = 3
"""Longest draft of the schedules that are tried under a load [token]."""
_MOST_SEARCHED = 1024
"""Largest batch size among which one within a target is looked for, at least [request]."""
_RATES = "P(token accepted, all before it were): one for all, or one for each drafter."


@settings.command()
@where_options(has_start=True)
@settings.option("batch_size", default=BATCH_SIZES)
@settings.own("draft_length", "LIST", _LENGTHS)
@settings.option("acceptance")
@settings.own("acceptance_rate", "VALUES", _RATES)
@settings.option("proposal_rate")
@settings.spread_option()
@settings.own("context_length", "VALUE", "KV entries before the step.  [default: 1024]")
@settings.load_options()
@settings.option("max_draft_length")
@settings.detail_options(lists=settings.COMPARED)
@for_load_options(_FOR_LOAD)
@settings.own("prefill", "LIST", _PREFILL)
@settings.own("gpu_hour_price", "VALUES", _PRICES)
@answering()
def compare(**options: Any) -> forms.Answer:
    """Compare models, GPUs, layouts, dtypes, engines, drafters or draft lengths.

    Each may be a list; every combination is an alternative, with its best draft length unless
    lengths are given. Without a list, the layouts of several GPUs are compared.

    \b
    Examples:
      specmodel compare deepseek-v3 8xh200
      specmodel compare deepseek-v3 8xh200 --tensor-parallel 8,4
      specmodel compare qwen3-30b-a3b h100,h200 --drafter ngram,eagle3 \\
          --acceptance-rate 0.4,0.7
      specmodel compare qwen3.5-397b 8xb200 --weight-dtype fp8,nvfp4 \\
          --tpot-target 10ms
    """
    refuse_without_load(options, "tpot_target")
    if not options["for_load"]:
        settings.refuse_given(options, ["prefill"], "--for-load with it")
        if options["tpot_target"] is None:
            settings.refuse_given(options, ["gpu_hour_price"], "--tpot-target with it")
    predictions, cases, notes = alternatives_from(options, has_layouts=True)
    if len({context for p in predictions.values() for context in p.context_length.ravel()}) > 1:
        raise InputError("context_length", options["context_length"], "one context length")
    best = answers.compare(predictions, may_idle=options["draft_length"] is None)
    rows, told, part = _carried(predictions, cases, options)
    for column in (name for name in (rows or [{}])[0] if name != "alternative"):
        best[column] = best["alternative"].map({r["alternative"]: r[column] for r in rows})
    best = _with_gains(predictions, best)

    def page() -> str:
        ranking = compared.Ranking(best)
        counts = {p.deployment.layout.num_gpus for p in predictions.values()}
        models = {
            (p.deployment.target.name, p.assumptions.get(CHANGES)) for p in predictions.values()
        }
        kind = {"is_even": len(counts) == 1, "is_of_models": len(models) > 1}
        words = [told, compared.verdict(ranking, **kind), *notes]
        rooms = {name: int(p.max_batch_size.max()) for name, p in predictions.items()}
        parts = filter(None, [part, compared.tables(ranking, rooms, _of_layouts(predictions))])
        return compared.page(
            predictions, " ".join(filter(None, words)), *parts, notes=_held(predictions, best)
        )

    return report.comparison(predictions, best, page)


def _held(predictions: Mapping[str, report.Prediction], best: forms.DataFrame) -> dict[str, str]:
    """Say of each alternative where CUDA graphs, and not acceptance, end its drafts."""
    found = {}
    for name, p in predictions.items():
        rows = report.fitting(best)
        most = p.draft_length.max()
        drafts = rows[(rows["alternative"] == name) & (rows["best_draft_length"] < most)]
        sizes, lengths = (drafts[key].to_numpy() for key in ("batch_size", "best_draft_length"))
        found[name] = p.deployment.graph_note(sizes, lengths + 1.0)
    return found


def _of_layouts(predictions: Mapping[str, report.Prediction]) -> list[str]:
    """Say how vLLM is told of layouts, where they differ and it is vLLM."""
    layouts = {(p.deployment.layout, p.deployment.expert_parallel) for p in predictions.values()}
    engines = {p.deployment.engine.stack for p in predictions.values()}
    told = (
        "For vLLM, TP4 is -tp 4, DP2 -dp 2, EP8 --enable-expert-parallel. Batch sizes are of all"
        " replicas together."
    )
    return [told] if len(layouts) > 1 and engines == {"vllm"} else []


def _carried(
    predictions: Mapping[str, report.Prediction],
    cases: Mapping[str, dict[str, Any]],
    options: dict[str, Any],
) -> tuple[list[Row], str, str]:
    """Return what each alternative carries within targets, if any is given, and how to say it."""
    if not options["for_load"] and options["tpot_target"] is None:
        return [], "", ""
    by_gpu = _prices(options)
    prices = {name: by_gpu[case["hardware"]] for name, case in cases.items() if by_gpu}
    if options["for_load"]:
        return _carried_load(cases, options, prices)
    from specmodel.base.units import parse_seconds

    target = parse_seconds("tpot_target", options["tpot_target"])
    rows = [
        {"alternative": name} | _within(predictions[name], case, target).row(prices.get(name))
        for name, case in cases.items()
    ]
    return rows, *compared.within_table(rows, seconds(target))


def _carried_load(
    cases: Mapping[str, dict[str, Any]], options: dict[str, Any], prices: Mapping[str, float]
) -> tuple[list[Row], str, str]:
    """Return what each alternative carries under a simulated load, and how to say it."""
    from specmodel.cli.load import searching, trial_from
    from specmodel.cli.options import longest_draft
    from specmodel.serving import carried_by

    trials = {}
    for name, case in cases.items():
        length = None if case["draft_length"] is None else int(case["draft_length"])
        policies = ["none", "schedule" if length is None else f"fixed:{length}"]
        longest = max(min(longest_draft(case), _LONGEST), length or 1)
        case = case | {"max_draft_length": longest}
        trial, _ = trial_from(case, policies, must_meet=False)
        trials[name] = trial, policies
    with searching(options, 2 * len(trials)) as how:
        rows = carried_by(trials, prices, **how)
    return rows, *compared.carried_table(rows, trial.targets, has_prices=bool(prices))


def _within(prediction: report.Prediction, case: dict[str, Any], target: float) -> Within:
    """Return the largest batches of an alternative that meet a time per token [s]."""
    from specmodel.cli.options import best_from, predict_from

    most = max(_MOST_SEARCHED, int(prediction.batch_size.max()))
    make = best_from if case["draft_length"] is None else predict_from
    return Within(target=target, prediction=make(case | {"batch_size": f"1:{most}"}))


def _with_gains(
    predictions: Mapping[str, report.Prediction], best: forms.DataFrame
) -> forms.DataFrame:
    """Return the rows with the 80 % interval of each speedup, where all alternatives know theirs.

    None where nothing is drafted.
    """
    from specmodel.prediction.gains import gains_at

    rows = forms.records(best)
    ends: list[tuple[float, float] | None] = [None] * len(rows)
    for name, prediction in predictions.items():
        places = [
            i for i, r in enumerate(rows) if r["alternative"] == name and r["best_draft_length"]
        ]
        points = [rows[i] | {"draft_length": rows[i]["best_draft_length"]} for i in places]
        for i, gain in zip(places, gains_at(prediction, points), strict=True):
            if gain is None:
                return best
            ends[i] = gain.low, gain.high
    low, high = zip(*(pair or (math.nan, math.nan) for pair in ends), strict=True)
    return best.assign(speedup_low=low, speedup_high=high)


def alternatives_from(
    options: dict[str, Any], *, has_layouts: bool = False
) -> tuple[dict[str, report.Prediction], dict[str, dict[str, Any]], list[str]]:
    """Return a prediction for each combination, named by what differs between combinations.

    With them go the options of each by the same name, and what to say of combinations left out and
    of the number of GPUs. With `has_layouts`, one combination alone stands for all its layouts.
    """
    cases = _cases(options)
    if has_layouts and len(cases) == 1:
        cases = _laid_out(*cases.items())
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

    lists = {name: _listed(name, options[name]) for name in _LISTS}
    if not {*LOOKUPS} & {*lists["drafter"]}:
        settings.refuse_given(options, LOOKUP, "the drafter ngram or suffix with it")
    rates = _rates(options, lists["drafter"])
    labels = {name: _labels(name, values) for name, values in lists.items()}
    has_ideal = "ideal" in lists["engine"] and lists["engine"] != ["ideal"]
    found = {}
    what_ifs = itertools.product(*map(_changes, options["changes"]))
    for chosen, changes in itertools.product(itertools.product(*lists.values()), [*what_ifs]):
        named = dict(zip(_LISTS, chosen, strict=True))
        varied = {name: labels[name][named[name]] for name in _LISTS if len(lists[name]) > 1}
        varied |= {
            each: each.partition(".")[2]
            for each, typed in zip(changes, options["changes"], strict=True)
            if each != typed
        }
        count, hardware = counted(named["hardware"])
        case = options | named | {"may_not_fit": True, "acceptance_rate": rates[named["drafter"]]}
        case |= {"hardware": hardware, "num_gpus": count or options["num_gpus"]}
        case["changes"] = changes
        if named["drafter"] is None:
            case |= drafter_of(named["target"])
        if case["drafter"] not in LOOKUPS:
            case |= dict.fromkeys(LOOKUP)
        if has_ideal and named["engine"] == "ideal":
            case["host_speed"] = None  # which only engines with a host have
        found[_name(varied) or labels["target"][named["target"]]] = case
    return found


def _changes(setting: str) -> list[str]:
    """Return the settings of KEY=VALUE,VALUE: one for each value."""
    key, has_value, values = setting.partition("=")
    listed = [value.strip() for value in values.split(",")]
    if len({*listed}) < len(listed):
        raise InputError(f"set {key}", values, "alternatives, each once")
    return [f"{key}{has_value}{value}" for value in listed]


def _laid_out(case: tuple[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the layouts of the GPUs of a case that keep the degrees typed; itself if one does."""
    from specmodel.cli.options import deployment_from
    from specmodel.cost.layouts import layouts_of

    name, options = case
    found = {
        _name({key: f"{_SHORT[key]}{n}" for key, n in degrees.items() if n > 1}): options | degrees
        for degrees in layouts_of(deployment_from(options)[0])
        if all(options[key] in (None, degree) for key, degree in degrees.items())
    }
    return found if len(found) > 1 else {name: options}


def _name(varied: Mapping[str, str]) -> str:
    """Return the labels of what varies as a name, degrees in one word each."""
    groups = itertools.groupby(varied, key=lambda name: name in _WHOLE)
    return ", ".join(
        (" " if are_degrees else ", ").join(varied[name] for name in names)
        for are_degrees, names in groups
    )


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
    is_whole = name in (*_WHOLE, "draft_length")
    values = parse_values(name, text) if is_whole else text.split(",")
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
        space = "" if name in _WHOLE else " "
        return {value: f"{_SHORT[name]}{space}{value}" for value in values}
    short = {value: Path(value).stem if value and is_path(value) else value for value in values}
    return short if len(set(short.values())) == len(values) else {v: v for v in values}
