"""The columns of a prediction, each declared once: name, unit, meaning, value, how it prints."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specmodel.cost.deployment import Deployment
from specmodel.prediction.evaluate import LIMITS, Evaluation

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a prediction, wherever columns appear: attributes, tables, JSON, CSV, sweeps.

    Parameters
    ----------
    name, unit, meaning
        Name, unit without brackets, and meaning in a few words.
    of
        Function that takes its values from an evaluation.
    has_interval
        Whether it has a central interval where those are asked for.
    is_whole
        Whether its numbers are whole.
    words
        Words that its values are indices into, where it is a column of words.
    title
        Head of its column in the printed table, which it is not in without one.
    form
        How a cell reads: "s" or "B" for a number with a metric prefix and that unit, or a template
        such as ``{:.2f}``.
    beside
        Columns whose values are in the same cell; throughput_plain is that without speculation.
    is_shown
        Whether the printed table of a deployment has it, if it has a title.
    """

    name: str
    unit: str
    meaning: str
    of: Callable[[Evaluation], Array]
    has_interval: bool = False
    is_whole: bool = False
    words: tuple[str, ...] = ()
    title: str = ""
    form: str = "{}"
    beside: tuple[str, ...] = ()
    is_shown: Callable[[Deployment], bool] = lambda _: True


def _point(name: str, unit: str, meaning: str, title: str = "") -> Column:
    return Column(
        name=name,
        unit=unit,
        meaning=meaning,
        of=lambda e: e.points[name],
        is_whole=True,
        title=title,
    )


def _time(name: str, meaning: str, of: Callable[[Evaluation], Array], **shown: Any) -> Column:
    has_interval = name != "reject_time"
    return Column(
        name=name, unit="s", meaning=meaning, of=of, has_interval=has_interval, form="s", **shown
    )


COLUMNS = (
    _point("batch_size", "request", "sequences decoded together", "batch\nsize"),
    _point("draft_length", "token", "drafted per sequence and step", "draft\nlength"),
    _point("verify_tokens", "token", "of each sequence in the verify pass"),
    _point("context_length", "token", "KV entries of each sequence before the step", "context"),
    Column(
        name="tokens_per_step",
        unit="token",
        meaning="emitted per sequence and step, the target's own included",
        of=lambda e: e.tokens_per_step,
    ),
    Column(
        name="step_efficiency",
        unit="-",
        meaning="tokens per step over draft length + 1, MoESD's σ",
        of=lambda e: e.tokens_per_step / (e.points["draft_length"] + 1),
    ),
    Column(
        name="active_experts",
        unit="-",
        meaning="distinct experts per layer that a plain pass loads",
        of=lambda e: e.times.forward.active_experts,
        title="experts\nloaded",
        form="{:.0f}>{:.0f}",
        beside=("active_experts_verify",),
        is_shown=lambda d: d.target.is_moe,
    ),
    Column(
        name="active_experts_verify",
        unit="-",
        meaning="distinct experts per layer that a verify pass loads",
        of=lambda e: e.times.active_experts_verify,
    ),
    _time(
        "forward_time",
        "plain pass, which is the time per output token without speculation",
        lambda e: e.forward_time,
        title="TPOT\nplain>with",
        beside=("tpot",),
    ),
    _time("verify_time", "verify pass", lambda e: e.verify_time),
    _time("draft_time", "all drafting of a step", lambda e: e.draft_time),
    _time("reject_time", "rejection sampling of a step", lambda e: e.times.reject_time),
    _time("step_time", "drafting, verification and rejection", lambda e: e.step_time),
    Column(
        name="target_efficiency",
        unit="-",
        meaning="plain pass over verify pass: 1 = verifying is free",
        of=lambda e: e.target_efficiency,
        has_interval=True,
        title="target\neff.",
        form="{:.3f}",
    ),
    Column(
        name="relative_step_time",
        unit="-",
        meaning="step over plain pass, Cascade's cost",
        of=lambda e: e.relative_step_time,
        has_interval=True,
    ),
    Column(
        name="utility",
        unit="-",
        meaning="tokens per step over relative step time",
        of=lambda e: e.speedup,
        has_interval=True,
    ),
    Column(
        name="speedup",
        unit="-",
        meaning="time without over time with speculation for the same tokens",
        of=lambda e: e.speedup,
        has_interval=True,
        title="speedup",
        form="{:.2f}",
    ),
    Column(
        name="tpot",
        unit="s",
        meaning="time per output token of a request",
        of=lambda e: e.step_time / e.tokens_per_step,
        has_interval=True,
    ),
    Column(
        name="throughput",
        unit="token/s",
        meaning="output tokens of all requests",
        of=lambda e: e.points["batch_size"] * e.tokens_per_step / e.step_time,
        has_interval=True,
        title="tokens/s\nplain>with",
        form="{1:.0f}>{0:.0f}",
        beside=("throughput_plain",),
    ),
    Column(
        name="limited_by",
        unit="-",
        meaning="what lengthens the step most, by Shapley value",
        of=lambda e: e.limit,
        words=LIMITS,
        title="limited\nby",
    ),
    Column(
        name="break_even_acceptance_rate",
        unit="-",
        meaning="rate from which speculation pays; NaN where none does",
        of=lambda e: e.break_even_acceptance_rate,
        title="break\neven",
        form="{:.2f}",
    ),
    Column(
        name="best_draft_length",
        unit="token",
        meaning="draft length with the largest speedup, 0 for none",
        of=lambda e: e.best_draft_length,
        is_whole=True,
        title="best\ndraft",
    ),
    Column(
        name="memory_bytes",
        unit="B",
        meaning="memory needed on the fullest GPU",
        of=lambda e: e.memory.total_bytes(e.points["batch_size"]),
    ),
    Column(
        name="max_batch_size",
        unit="request",
        meaning="largest batch that fits in memory",
        of=lambda e: e.memory.max_batch_size,
        is_whole=True,
    ),
)
"""In the order of tables."""

LOAD_COLUMNS = (
    _point("prompt_length", "token", "of a prompt that is prefilled", "prompt"),
    _point("output_length", "token", "made by each request", "output"),
    _time(
        "prefill_time",
        "pass of one prompt; steps carry their shares of it",
        lambda e: e.prefill.total_time if e.prefill else np.full((), np.nan),
        title="prefill",
    ),
)
"""What an answer has beside where steps carry prefill."""


def _plain(name: str, **changes: Any) -> Column:
    column = next(column for column in COLUMNS if column.name == name)
    return replace(column, **({"beside": ()} | changes))


DECODE_COLUMNS = (
    _plain("batch_size"),
    _plain("context_length"),
    _plain("active_experts", form="{:.0f}", meaning="distinct experts per layer that a pass loads"),
    _plain("tpot", title="TPOT", form="s"),
    _plain("throughput", title="tokens/s", form="{:.0f}"),
    _plain(
        "limited_by",
        meaning="what takes the largest share of a pass",
        of=lambda e: e.limit_of_plain,
    ),
    _plain("memory_bytes", title="memory", form="B"),
    _plain("max_batch_size", title="largest\nbatch"),
)
"""Of decoding without speculation, in the order of tables."""

WITH_INTERVAL = tuple(column.name for column in COLUMNS if column.has_interval)
"""Columns that have an interval."""

BY_NAME = {column.name: column for column in COLUMNS}
COLUMN_UNITS = {column.name: column.unit for column in COLUMNS}
"""Columns of a prediction in their order, and their units."""
