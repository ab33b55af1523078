"""Build the page from the fields of an address; templates show its answers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, Template
from matplotlib.figure import Figure

from specmodel.core.algebra.acceptance import between_tasks
from specmodel.core.base.errors import InputError
from specmodel.core.models.architecture import load_architecture
from specmodel.core.prediction.accepted import published_or_none, task_spread
from specmodel.core.prediction.case import Case, case_of
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.predicting import predicted
from specmodel.core.prediction.table import Column, Row, columns_of, seconds, with_values
from specmodel.plan.config_formats import format_of_engine
from specmodel.plan.decision import decide
from specmodel.show import report
from specmodel.show.columns import of_table
from specmodel.show.facts import in_words
from specmodel.show.forms import Answer
from specmodel.show.glossary import PAGES
from specmodel.show.views import case as of_prediction, view
from specmodel.show.web import figures
from specmodel.show.web.address import START, Address, choices, command_of, python_of
from specmodel.simulate.scheduled import schedule

SCENARIOS: dict[str, str] = PAGES["scenarios"]
"""Addresses to start from."""
_KEPT = 32
"""Number of cached settings and curves, as most controls change only one of them [-]."""
_LENGTH = 3
"""Draft length at which tokens per step are converted to a rate [token]."""
Table = list[list[tuple[str, str]]]
"""Rows of cells, each with its title."""


def page(address: Address, css: str = "") -> str:
    """Return the whole page of an address; with `css`, the page needs no server."""
    predictions = settings_of(address)
    first = next(iter(predictions.values()))
    each = enumerate(predictions.items())
    settings = [_setting(address, *named, is_second=i > 0) for i, named in each]
    has_schedule = address.read("view") and not first.turned
    shown = {
        "settings": settings,
        "tables": _tables(settings),
        "published": _published(of_prediction(first)),
        "schedule": _schedule(address, first) if has_schedule else None,
        "python": python_of(address.arguments() | address.points, address.within),
    }
    curve = _curve(address.without("batch_size", "tpot_target", "view"))
    return _whole(address, css=css, **shown, **curve)


def refused(address: Address, error: InputError) -> str:
    """Return the page with a message in place of an answer."""
    return _whole(address, error=error)


def static_page(address: Address) -> str:
    """Return a page that needs no server."""
    return page(address, files(__package__).joinpath("static/explore.css").read_text("utf-8"))


def verdict_of(address: Address) -> Answer:
    """Return the answer of ``specmodel predict`` to the address."""
    return view(_predicted(address), "verdict", **address.within)


def model_of(address: Address) -> str:
    """Return the record of the model as TOML."""
    from specmodel.core.base.records import toml_text

    return toml_text(load_architecture(address.read("target")))


def drawing_of(predictions: dict[str, Prediction]) -> Callable[[], Figure]:
    """Return a function that draws the curves; an InputError if no acceptance is known."""
    curves, memory = {}, None
    for name, prediction in predictions.items():
        if prediction.turned and not prediction.turned.heads:
            expected = "Too few heads of this kind are published. Give your own rate."
            raise InputError("acceptance", None, expected)
        decision = decide(prediction)
        pasted = decision.prediction if decision and not decision.plan else prediction
        curves[name], ends = figures.curve(of_prediction(pasted))
        memory = ends.get("memory") if len(predictions) == 1 else None
    dots = figures.measured(next(iter(predictions.values())))
    return lambda: figures.speedup(curves, memory, dots)


@lru_cache(_KEPT)
def settings_of(address: Address) -> dict[str, Prediction]:
    """Return the predictions of the settings, by the words that differ between them."""
    both = [_predicted(address, is_second=i > 0) for i in range(1 + address.has_second)]
    if len(both) == 1:
        return {"": both[0]}
    first, second = (_words(each) for each in both)
    name = " ".join(word for word in first if word not in second) or "first"
    other = " ".join(word for word in second if word not in first) or "second"
    return {name: both[0], other: both[1]}


def _predicted(address: Address, *, is_second: bool = False) -> Prediction:
    return predicted(case_of(address.arguments(is_second=is_second) | address.points))


def _words(prediction: Prediction) -> tuple[str, ...]:
    d = prediction.deployment
    gpus = f"{d.layout.num_gpus}x{d.hardware.name.removeprefix('NVIDIA ')}"
    return d.target.name, d.drafter.name, gpus, d.engine.name


def _setting(address: Address, name: str, every: Prediction, *, is_second: bool) -> dict[str, Any]:
    """Return the values that the template shows for a setting, at the given or best batch size."""
    size, within = address.read("batch_size"), address.within
    asked = address.arguments(is_second=is_second) | address.points | within
    whole = answer = view(every, "verdict", **within)
    if size:
        answer = view(predicted(of_prediction(every).at(batch_size=[size])), "verdict", **within)
    best = answer.facts.get("most_at", answer.facts.get("pays_from_at"))
    rows = answer.rows or every.rows()
    row = next((row for row in rows if best and row["batch_size"] == best.value), rows[0])
    told = {"name": name, "prediction": every, "answer": answer, "row": row}
    return {**told, "rows": whole.rows, "command": command_of(asked)}


def _tables(settings: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Return tables by batch size: of settings with an acceptance, and of settings without."""
    rows = [{"alternative": s["name"] or None, **row} for s in settings for row in s["rows"]]
    rows = sorted(report.fitting(rows), key=lambda row: int(row["batch_size"]))
    known = [row for row in rows if "speedup" in row]
    turned = [row for row in rows if "speedup" not in row]
    names = dict.fromkeys(n for row in turned for n in row if n.startswith("speedup_"))
    heads = (Column(n, "-", "", n.replace("speedup_", "heads' "), ".2f") for n in names)
    *first, limit = of_table("web_turned")
    return [_cells(known, of_table("web")), _cells(turned, [*first, *heads, limit])]


def _cells(rows: Sequence[Row], columns: Iterable[Column]) -> Table:
    """Return rows as cells with their titles, without empty columns; "-" for a missing value."""
    rows = [dict.fromkeys(name for each in rows for name in each) | row for row in rows]
    shown = with_values(rows, columns)
    titles = [" ".join(each.heading.replace("_", " ").split()) for each in shown]
    cells = columns_of(rows, zip(titles, (each.cell for each in shown), strict=True))
    return [list(zip(titles, row, strict=True)) for row in zip(*(c for _, c in cells), strict=True)]


def _schedule(address: Address, prediction: Prediction) -> dict[str, Any]:
    """Return the ranges of the schedule for the engine of a prediction, and its plan."""
    asked = {n: v for n, v in address.arguments().items() if n != "draft_length"}
    engine = prediction.deployment.engine
    plan = schedule(config_format=format_of_engine(engine if engine.stack else None), **asked)
    return {"table": _cells(plan.ranges(), of_table("ranges")), "plan": plan}


@lru_cache(_KEPT)
def _curve(address: Address) -> dict[str, Any]:
    """Return the curve as HTML, and measured points by source; {} without an acceptance."""
    predictions = settings_of(address)
    try:
        draw = drawing_of(predictions)
    except InputError:
        return {}
    prediction = next(iter(predictions.values()))
    words = f"Speedup by requests at once, {report.caption(prediction)}; the table has numbers."
    source = ["link", "engine", "num_gpus", "hardware", "draft_length", "published"]
    groups = figures.measured(prediction).groupby(source)
    dots = [(*key, rows.to_dict("records")) for key, rows in groups]
    return {"curve": figures.inline(draw, words), "dots": dots}


def _published(case: Case) -> dict[str, Any] | None:
    """Return the range of published acceptance rates; None if too few are published."""
    known, heads = published_or_none(case.deployment, task=case.accepted.tasks), case.heads
    if known is not None:
        middle = _rate(known)
        low, high = map(float, between_tasks(middle, task_spread(case.deployment)))
        words = "for this model and drafter, depending on the task"
    elif heads is not None:
        low, middle, high = map(_rate, heads.acceptance)
        words = "for similar heads"
    else:
        return None
    return {"low": max(low, 0.0), "middle": middle, "high": min(high, 1.0), "words": words}


def _rate(acceptance: Any) -> float:
    """Return the acceptance rate that gives the same tokens per step [-]."""
    length = min(_LENGTH, int(acceptance.max_draft_length))
    return float(acceptance.measured_at(length).moved(length, 0.0).rate())


def _whole(address: Address, **shown: Any) -> str:
    """Return the whole page as HTML, its template filled with `shown`."""
    how = {"address": address, "fields": {**START, **address.fields}, "choices": choices()}
    return _template("page.html").render(scenarios=SCENARIOS, **how, **shown)


@cache
def _template(name: str) -> Template:
    loader = PackageLoader("specmodel.show.web", "static")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"fact": in_words, "seconds": seconds}
    return environment.get_template(name)
