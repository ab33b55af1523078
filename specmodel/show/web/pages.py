"""The page: fields, and what is answered to them, from the views of predictions."""

from __future__ import annotations

from functools import lru_cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from specmodel.algebra.acceptance import between_tasks
from specmodel.answers.alternatives import Alternatives
from specmodel.base.errors import InputError
from specmodel.models.architecture import load_architecture
from specmodel.prediction.case import Case, case_of, published_or_none, task_spread
from specmodel.prediction.outcome import Prediction
from specmodel.prediction.predicting import predicted
from specmodel.serving.scheduled import schedule
from specmodel.show import compared, report
from specmodel.show.forms import Answer
from specmodel.show.views import case as of_prediction, view
from specmodel.show.web import drawn
from specmodel.show.web.asked import Asked, choices, command_of, python_of
from specmodel.show.web.told import Link, in_words_of_page, labels, template, told

if TYPE_CHECKING:
    from collections.abc import Callable

    from markupsafe import Markup
    from matplotlib.figure import Figure

SCENARIOS = {
    "235B at 0.4x: graphs, not experts": "target=qwen3-235b-a22b&hardware=b200&num_gpus=8"
    "&drafter=eagle3&draft_length=3&context_length=8192&graph_limit=128&batch_size=64",
    "MTP at 64 users": "target=qwen3.5-397b-a17b&hardware=h200_sxm&num_gpus=8&drafter=mtp"
    "&batch_size=64",
    "Long context on a workstation": "target=gpt-oss-120b&hardware=rtx_pro_6000"
    "&context_length=131072&batch_size=2",
}
"""Addresses to start from."""
_NOT_OF_CURVES = ("batch_size", "tpot_target", "view")
_KEPT = 32
"""Settings and curves that are kept, as most controls leave either as it is [-]."""
_LENGTH = 3
"""Draft length at which tokens per step are told as a rate [token]."""


def page(asked: Asked) -> str:
    """Return the whole page of an address."""
    return whole(asked, **_answered(asked))


def fragment(asked: Asked) -> str:
    """Return the answers of a page as HTML, without its fields and the drawing of `waterfall`."""
    return template("answer.html").render(asked=asked, **_answered(asked))


def waterfall(asked: Asked) -> str:
    """Return the drawing of losses by cause, which a page fetches after the rest."""
    prediction = next(iter(settings_of(asked).values()))
    return str(_terms(_clicked(asked, prediction))["draw"]())


def refused(asked: Asked, error: InputError, *, is_whole: bool) -> str:
    """Return a message in place of an answer, in the whole page or alone."""
    label = labels().get(error.argument, error.argument.replace("_", " "))
    told = str(error).removeprefix(error.argument).replace("got None; expected", "needs", 1)
    message = in_words_of_page(label + told)
    make = whole if is_whole else template("answer.html").render
    return make(asked=asked, message=message)


def static_page(asked: Asked) -> str:
    """Return a page that needs no server."""
    css = files("specmodel.show.web").joinpath("static/explore.css").read_text("utf-8")
    return whole(asked, css=css, **_answered(asked, has_links=False))


def whole(asked: Asked, **shown: Any) -> str:
    """Return the whole page as HTML, its template filled with `shown`."""
    how = {"choices": choices(), "scenarios": SCENARIOS, "is_whole": True}
    return template("page.html").render(asked=asked, fields=asked.fields, **how | shown)


def prediction_of(asked: Asked, *, second: bool = False) -> Prediction:
    """Return the prediction of the first setting, or of the second."""
    return predicted(case_of(asked.arguments(second=second) | asked.points))


def verdict_of(asked: Asked) -> Answer:
    """Return the answer of ``specmodel predict`` to what is asked."""
    return view(prediction_of(asked), "verdict", **asked.target)


def model_of(asked: Asked) -> str:
    """Return the record of the model that is asked about, as TOML."""
    from specmodel.base.records import toml_text

    return toml_text(load_architecture(asked.read("target")))


def drawing_of(predictions: dict[str, Prediction]) -> Callable[[], Figure]:
    """Return a function that draws the curves; an InputError where no acceptance is known."""
    curves, memory = {}, None
    for name, prediction in predictions.items():
        if prediction.turned and not prediction.turned.heads:
            raise InputError("acceptance", None, "a rate, as too few heads are published")
        curves[name], ends = drawn.curve(of_prediction(prediction))
        memory = ends.get("memory") if len(predictions) == 1 else None
    dots = drawn.measured(next(iter(predictions.values())))
    return lambda: drawn.speedup(curves, memory, dots)


def _answered(asked: Asked, *, has_links: bool = True) -> dict[str, Any]:
    """Return the answers of a page, by the names in its template."""
    settings = settings_of(asked)
    prediction = next(iter(settings.values()))

    def link(size: str) -> str:
        return f"/?{asked.address(batch_size=size)}#terms"

    has_terms = not prediction.turned and asked.read("draft_length") != 0
    to = link if has_links and has_terms else None
    arguments, how = asked.arguments() | asked.points, asked.target
    size = asked.read("batch_size")
    clicked = _clicked(asked, prediction) if size or has_terms else prediction
    short = {} if prediction.turned else {"columns": "speedup"}  # one paragraph is read of it
    return {
        "verdict": told(view(prediction, "verdict", **how), to),
        "at_size": _first(told(view(clicked, "verdict", **short))[0]) if size else None,
        "published": _published(of_prediction(prediction)),
        **_curve(asked.without(*_NOT_OF_CURVES)),
        "terms": _terms(clicked) if has_terms else None,
        "more": _more(asked, prediction, to),
        "second": _second(asked, settings) if asked.has_second else None,
        "command": command_of("predict", arguments | how),
        "python": python_of("predict", arguments, how),
    }


@lru_cache(_KEPT)
def _curve(asked: Asked) -> dict[str, Any]:
    """Return the curve as HTML, and measured points by source; {} without an acceptance."""
    predictions = settings_of(asked)
    try:
        draw = drawing_of(predictions)
    except InputError:
        return {}
    prediction = next(iter(predictions.values()))
    words = f"Speedup over requests at once, {report.caption(prediction)}; the table has numbers."
    source = ["link", "engine", "num_gpus", "hardware", "draft_length", "published"]
    groups = drawn.measured(prediction).groupby(source)
    dots = [(*key, rows.to_dict("records")) for key, rows in groups]
    return {"curve": drawn.inline(draw, "curve", words), "dots": dots}


def _clicked(asked: Asked, prediction: Prediction) -> Prediction:
    """Return a prediction at the batch size clicked, or at the best."""
    size = asked.read("batch_size")
    if size is None:
        rows = report.fitting(prediction.rows())
        size = max(rows, key=lambda row: float(row["speedup"]))["batch_size"]
    return predicted(of_prediction(prediction).at(batch_size=[size]))


def _first(words: Markup) -> Markup:
    """Return the first of paragraphs."""
    return words.partition("</p>")[0]


def _terms(at: Prediction) -> dict[str, Any]:
    """Return the losses by cause at one batch size: drawing, tables and words, by name."""
    answer, (row,) = view(at, "terms"), at.rows()
    size = row["batch_size"]
    words = f"What takes how much of the speedup at batch size {size}; the table below has it."
    draw = partial(drawn.inline, lambda: drawn.waterfall(answer.to_frame()), "terms", words)
    total = at.deployment.target.num_experts if at.deployment.target.is_moe else 0
    lead, tables = told(answer)
    words_of = {"lead": _first(lead), "why": report.why(row, [row], at)}
    return {"draw": draw, "row": row, "total": total, "tables": tables, **words_of}


def _more(asked: Asked, prediction: Prediction, link: Link | None) -> Any:
    """Return the other answer that is asked for, if any."""
    if asked.read("view") == "lengths":
        return told(view(prediction, "lengths"), link)
    if asked.read("view") is None:
        return None
    arguments = asked.arguments()
    arguments.pop("draft_length", None)
    engine = prediction.deployment.engine.stack or "vllm"
    return told(schedule(config_format=engine, **arguments).view())


@lru_cache(_KEPT)
def settings_of(asked: Asked) -> dict[str, Prediction]:
    """Return the predictions of the settings, by the words in which they differ."""
    prediction = prediction_of(asked)
    if not asked.has_second:
        return {"": prediction}
    both = (prediction, prediction_of(asked, second=True))
    words = [_words(each) for each in both]
    differing = [i for i, pair in enumerate(zip(*words, strict=True)) if pair[0] != pair[1]]
    names = [" ".join(each[i] for i in differing) for each in words]
    return dict(zip(names if differing else ("first", "second"), both, strict=True))


def _words(prediction: Prediction) -> tuple[str, ...]:
    d = prediction.deployment
    gpus = f"{d.layout.num_gpus}x{d.hardware.name.removeprefix('NVIDIA ')}"
    return d.target.name, d.drafter.name, gpus, d.engine.name


def _second(asked: Asked, both: dict[str, Prediction]) -> dict[str, Any]:
    """Return the comparison of both settings as HTML, and the command of the second."""
    if any(p.turned for p in both.values()):
        raise InputError("acceptance", None, "a rate of yours, as none is published of both")
    found = Alternatives(predictions=both, prefill=dict.fromkeys(both), notes=[])
    arguments = asked.arguments(second=True) | asked.points
    return {"told": told(compared.answer(found)), "command": command_of("predict", arguments)}


def _published(case: Case) -> dict[str, Any] | None:
    """Return the rates between which acceptance is published; None where too little is."""
    known, heads = published_or_none(case.deployment), case.heads
    if known is not None:
        middle = _rate(known)
        low, high = map(float, between_tasks(middle, task_spread(case.deployment)))
        words = "of this model and drafter, between tasks"
    elif heads is not None:
        low, middle, high = map(_rate, heads.acceptance)
        words = "of heads of this kind"
    else:
        return None
    return {"low": max(low, 0.0), "middle": middle, "high": min(high, 1.0), "words": words}


def _rate(acceptance: Any) -> float:
    """Return the rate that gives as many tokens a step as an acceptance does [-]."""
    length = min(_LENGTH, int(acceptance.max_draft_length))
    return float(acceptance.measured_at(length).moved(length, 0.0).rate())
