"""``specmodel compare``: targets, drafters, GPUs or engines, each with its best draft length."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specmodel.base.errors import InputError
from specmodel.base.ranges import parse_numbers, ranges_text, runs
from specmodel.base.text import wrap
from specmodel.cli import answers
from specmodel.show import report

if TYPE_CHECKING:
    import pandas as pd

    from specmodel.prediction.outcome import Prediction


@answers.command(
    "acceptance",
    click.option(
        "--acceptance-rate",
        metavar="VALUES",
        help="P(token accepted, all before it were): one for all, or one for each drafter.",
    ),
    "proposal_rate",
    click.option(
        "--context-length", metavar="VALUE", help="KV entries before the step.  [default: 1024]"
    ),
    "max_draft_length",
    batch_size="1:512:x2",
)
def compare(**options: Any) -> answers.Answer:
    """Compare targets, drafters, GPUs or engines.

    Each may be a list; every alternative has its best draft length.

    \b
    Example:
      specmodel compare --target qwen3-30b-a3b --drafter ngram,eagle3 \\
          --acceptance-rate 0.4,0.7 --hardware h100_sxm,h200_sxm
    """
    from specmodel.answers import curves

    predictions = alternatives_from(options)
    if len({context for p in predictions.values() for context in p.context_length.ravel()}) > 1:
        raise InputError("context_length", options["context_length"], "one context length")
    best = curves.compare(predictions)
    return predictions, best, lambda: page(predictions, verdict(best), table(best))


def alternatives_from(options: dict[str, Any]) -> dict[str, Prediction]:
    """Return a prediction for each combination, by those of its names that others do not share."""
    from specmodel.cost.deploying import LOOKUP
    from specmodel.drafters.names import LOOKUPS

    names = ("target", "drafter", "hardware", "engine")
    lists = {name: _listed(name, options[name]) for name in names}
    for name in LOOKUP:
        if options[name] is not None and not {*LOOKUPS} & {*lists["drafter"]}:
            expected = "the drafter ngram or suffix with it"
            raise InputError(name, options[name], expected)
    rates = _rates(options, lists["drafter"])
    labels = {name: _labels(values) for name, values in lists.items()}
    idle = _without_host(lists["engine"])
    found = {}
    for chosen in itertools.product(*lists.values()):
        named = dict(zip(names, chosen, strict=True))
        told = [labels[name][named[name]] for name in names if len(lists[name]) > 1]
        case = options | named | {"acceptance_rate": rates[named["drafter"]]}
        if named["drafter"] not in LOOKUPS:
            case |= dict.fromkeys(LOOKUP)
        case |= idle.get(named["engine"], {})
        found[", ".join(told) or labels["target"][named["target"]]] = answers.lengths_from(case)
    return found


def _listed(name: str, text: str | None) -> list[Any]:
    values = [word.strip() for word in text.split(",")] if text is not None else [None]
    if len(set(values)) < len(values):
        raise InputError(name, text, "alternatives, each once")
    return values


def _without_host(engines: list[str | None]) -> dict[str | None, dict[str, None]]:
    """Return what differs of engines without overheads: no host, if another one has a host."""
    idle = {name for name in engines if name in (None, "ideal")}
    return {} if idle == {*engines} else {name: {"host_speed": None} for name in idle}


def _rates(options: dict[str, Any], drafters: list[str]) -> dict[str, float | None]:
    """Return the acceptance rate of each drafter; none if that is taken which is published."""
    text = options["acceptance_rate"]
    if (text is None) == (options["acceptance"] is None):
        given = None if text is None else ["--acceptance", "--acceptance-rate"]
        raise InputError("acceptance", given, "exactly one of --acceptance, --acceptance-rate")
    if text is None:
        return dict.fromkeys(drafters)
    rates = parse_numbers("acceptance_rate", text)
    if len(rates) not in (1, len(drafters)):
        expected = f"one rate, or one for each of {len(drafters)} drafters"
        raise InputError("acceptance_rate", rates, expected)
    return dict(zip(drafters, itertools.cycle(rates), strict=False))


def _labels(values: list[Any]) -> dict[Any, str]:
    """Return what to call each: a name, or the stem of a path if no other has the same."""
    from specmodel.base.records import is_path

    short = {value: Path(value).stem if value and is_path(value) else value for value in values}
    return short if len(set(short.values())) == len(values) else {v: v for v in values}


def page(predictions: Mapping[str, Prediction], verdict: str, table: str) -> str:
    """Return a comparison: what all alternatives rest on, then what only one of them does."""
    told = {
        name: [*report.behind(p.deployment), *(f"Warning: {warning}." for warning in p.warnings)]
        for name, p in predictions.items()
    }
    assumed = {name: p.assumptions.items() for name, p in predictions.items()}
    shared, common = _in_all(told), dict(_in_all(assumed))
    alone = []
    for number, name in enumerate(predictions, 1):
        lines = [line for line in told[name] if line not in shared]
        rest = [f"{key}\xa0{value}" for key, value in assumed[name] if key not in common]
        lines += [f"Assumed: {', '.join(rest)}."] if rest else []
        alone += [wrap(f"[{number}] {line}").replace("\xa0", " ") for line in lines]
    parts = ["\n".join(map(wrap, [verdict, *shared])), table, "\n".join(alone)]
    return "\n\n".join(filter(None, [*parts, report.assumed_text(common)]))


def _in_all(items: Mapping[str, Collection[Any]]) -> list[Any]:
    """Return the items of the first alternative that all others have too."""
    first, *others = items.values()
    return [item for item in first if all(item in other for other in others)]


def verdict(best: pd.DataFrame) -> str:
    """Return which alternative gains most, and which is fastest, by batch size."""
    sizes, gains, times = [], [], []
    for size, rows in answers.fitting(best).groupby("batch_size"):
        sizes.append(int(str(size)))
        top = rows.iloc[int(rows["speedup"].argmax())]
        gains.append(top["alternative"] if round(top["speedup"], 2) > 1 else "none")
        fastest = rows[rows["tpot"] <= rows["tpot"].min() * (1 + 1e-9)]["alternative"]
        times.append(" or ".join(fastest))
    gain, time = _by_size(gains, sizes), _by_size(times, sizes)
    if gain == time:
        return f"Largest speedup and least time per token: {gain}."
    return f"Largest speedup: {gain}. Least time per token: {time}."


def _by_size(winners: list[str], sizes: list[int]) -> str:
    """Name the winner of each run of batch sizes."""
    found = runs(winners)
    if len(found) == 1:
        return f"{winners[0]} at every batch size"
    return "; ".join(f"{name} at {ranges_text([(sizes[i], sizes[j])])}" for i, j, name in found)


def table(best: pd.DataFrame) -> str:
    """Return alternatives side by side: speedup, best length, time per token; numbered."""
    numbers = {name: f"[{i}]" for i, name in enumerate(best["alternative"].unique(), 1)}
    kept = answers.fitting(best)
    columns = {number: kept[kept["alternative"] == name] for name, number in numbers.items()}
    legend = [f"{number} {name}" for name, number in numbers.items()]
    cells = answers.by_batch_size(best["batch_size"], columns, _cell)
    return "\n".join([*legend, "Speedup (draft length) and time per token:", cells])


def _cell(row: Any) -> str:
    return f"{answers.speedup_cell(row)} {report.seconds(row.tpot)}"
