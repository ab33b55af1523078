"""``specmodel compare``: whatever may be a list side by side, each at its best draft length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError, refuse_given
from specmodel.base.naming import counted
from specmodel.base.ranges import parse_numbers, parse_values
from specmodel.cli import settings
from specmodel.cli.answering import answering
from specmodel.cli.load import for_load_options, refuse_without_load
from specmodel.cli.predict import BATCH_SIZES
from specmodel.cli.where import where_options
from specmodel.prediction.table import Row
from specmodel.show import carried, compared, forms

if TYPE_CHECKING:
    from specmodel.answers.alternatives import Alternatives

_WHOLE = ("tensor_parallel", "data_parallel", "expert_parallel", "draft_length")
_TEXTS = ("target", "drafter", "hardware", "engine", "weight_dtype", "expert_dtype", "kv_dtype")
_LENGTHS = "Lengths to compare, each at all batch sizes.  [default: the best of each]"
_PRICES = "Price of a GPU for an hour: one for all, or one for each GPU."
_PREFILL = "together, apart:N, or both, in capacities: N servers prefill.  [default: together]"
_FOR_LOAD = "Simulate requests: the largest rate of each alternative within the targets."
_OF_LOADS = (*_TEXTS, *_WHOLE, "prefill", "num_gpus", "changes", "acceptance_rate", "may_not_fit")
"""What an alternative under a load has of its own."""
_LONGEST = 3
"""Longest draft of the schedules that are tried under a load [token]."""
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
    from specmodel.answers.alternatives import alternatives
    from specmodel.cli.options import arguments_from

    refuse_without_load(options, "tpot_target")
    if not options["for_load"]:
        refuse_given(options, ["prefill"], "--for-load with it")
        if options["tpot_target"] is None:
            refuse_given(options, ["gpu_hour_price"], "--tpot-target with it")
    lists = {name: _listed(name, options[name]) for name in (*_TEXTS, *_WHOLE, "prefill")}
    rates = options["acceptance_rate"]
    lists |= {"acceptance_rate": rates and parse_numbers("acceptance_rate", rates)}
    one = dict.fromkeys(lists)
    found = alternatives(arguments_from(options | one) | {n: v for n, v in lists.items() if v})
    return compared.answer(found, carried=_carried(found, options))


def _carried(found: Alternatives, options: dict[str, Any]) -> tuple[list[Row], str, str]:
    """Return what each alternative carries within targets, if any is given, and how to say it."""
    if not options["for_load"] and options["tpot_target"] is None:
        return [], "", ""
    by_gpu = _prices(options)
    prices = {n: by_gpu[told["hardware"]] for n, told in found.arguments.items() if by_gpu}
    if options["for_load"]:
        return _carried_load(found, options, prices)
    from specmodel.base.units import parse_seconds

    target = parse_seconds("tpot_target", options["tpot_target"])
    return carried.within_target(found, target, prices)


def _carried_load(
    found: Alternatives, options: dict[str, Any], prices: Mapping[str, float]
) -> tuple[list[Row], str, str]:
    """Return what each alternative carries under a simulated load, and how to say it."""
    from specmodel.cli.load import searching, trial_from
    from specmodel.cli.options import case_from
    from specmodel.serving import carried_by

    trials, none = {}, dict.fromkeys(("drafter", "host_speed", "proposal_rate", "num_gpus"))
    for name, told in found.arguments.items():
        case = options | none | {key: told[key] for key in _OF_LOADS if key in told}
        length = told.get("draft_length")
        policies = ["none", "schedule" if length is None else f"fixed:{length}"]
        longest = max(min(case_from(case).longest_draft(), _LONGEST), length or 1)
        trial, _ = trial_from(case | {"max_draft_length": longest}, policies, must_meet=False)
        trials[name] = trial, policies
    with searching(options, 2 * len(trials)) as how:
        rows = carried_by(trials, prices, **how)
    return rows, *carried.carried_table(rows, trial.targets, has_prices=bool(prices))


def _listed(name: str, text: str | None) -> list[Any]:
    """Return the values of a list, whole numbers where these are counts; none of none typed."""
    if text is None:
        return []
    if name in _WHOLE:
        return [int(value) for value in parse_values(name, text)]
    return [value.strip() for value in text.split(",")]


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
    return dict(zip(names, prices * (len(names) // len(prices)), strict=True))
