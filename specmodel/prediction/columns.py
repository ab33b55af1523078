"""The columns of a prediction, each declared once: name, unit, meaning, value, how it prints."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
from msgspec.structs import replace

from specmodel.prediction.evaluate import LIMITS, Evaluation
from specmodel.prediction.table import Column, Row

Array = np.ndarray[Any, np.dtype[Any]]
_Source: TypeAlias = Callable[[Evaluation], Array] | None


def _point(name: str, unit: str, meaning: str, title: str = "", **shown: Any) -> Column:
    how: dict[str, Any] = {"source": lambda e: e.points[name], "is_whole": True, **shown}
    return Column(name, unit, meaning, title, **how)


def _uncertain(name: str, unit: str, meaning: str, source: _Source = None, **shown: Any) -> Column:
    return Column(name, unit, meaning, source=source, has_interval=True, **shown)


def _throughputs(row: Row) -> str:
    """Return the throughput without and with speculation."""
    return f"{row['batch_size'] / row['forward_time']:.0f}>{row['throughput']:.0f}"


def _in_graph(e: Evaluation) -> Array:
    limit, batch_size = e.deployment.graph_limit, e.running
    if limit is None:
        return np.ones((), dtype=bool)
    tokens = batch_size * e.points["verify_tokens"]
    return ~limit.is_beyond(batch_size, tokens, e.deployment.layout.replicas)


def _max_graph_batch_size(e: Evaluation) -> Array:
    limit, verify_tokens = e.deployment.graph_limit, e.points["verify_tokens"].astype(float)
    if limit is None:
        return np.full(verify_tokens.shape, np.nan)
    return limit.most_requests(verify_tokens, e.deployment.layout.replicas)


COLUMNS = (
    _point("batch_size", "request", "sequences decoded together", "batch\nsize"),
    _point(
        "draft_length",
        "token",
        "drafted per sequence and step",
        "draft\nlength",
        form=lambda row: str(row["draft_length"] or "none"),
        spare=10,
    ),
    _point("verify_tokens", "token", "of each sequence in the verify pass"),
    _point(
        "context_length",
        "token",
        "KV entries of each sequence before the step",
        "context",
        is_coordinate=True,
    ),
    Column("tokens_per_step", "token", "emitted per sequence and step, the target's own included"),
    Column(
        "step_efficiency",
        "-",
        "tokens per step over draft length + 1, MoESD's σ",
        source=lambda e: e.tokens_per_step / (e.points["draft_length"] + 1),
    ),
    Column(
        "active_experts",
        "-",
        "distinct experts per layer that a decode step loads",
        source=lambda e: e.times.active_experts,
        title="experts\nloaded",
        form="{active_experts:.0f}>{active_experts_verify:.0f}",
        spare=1,
    ),
    Column(
        "active_experts_verify",
        "-",
        "distinct experts per layer that a verify pass loads",
        source=lambda e: e.times.active_experts_verify,
    ),
    _uncertain(
        "forward_time", "s", "decode step, which is the time per output token without speculation"
    ),
    _uncertain("verify_time", "s", "verify pass"),
    _uncertain("draft_time", "s", "all drafting of a step, and what it waits for the host"),
    Column("reject_time", "s", "rejection sampling of a step"),
    _uncertain("step_time", "s", "drafting, verification and rejection"),
    _uncertain(
        "target_efficiency",
        "-",
        "decode step over verify pass: 1 = verifying is free",
        title="target\neff.",
        form=".3f",
        spare=3,
    ),
    _uncertain("relative_step_time", "-", "step over decode step, Cascade's cost"),
    _uncertain("utility", "-", "tokens per step over relative step time", lambda e: e.speedup),
    _uncertain(
        "speedup",
        "-",
        "time without over time with speculation for the same tokens",
        title="speedup",
        form=".2f",
    ),
    _uncertain(
        "tpot",
        "s",
        "time per output token of a request",
        lambda e: e.step_time / e.tokens_per_step,
        title="TPOT\nplain>with",
        form="{forward_time:s}>{tpot:s}",
        spare=7,
    ),
    _uncertain(
        "throughput",
        "token/s",
        "output tokens of all requests",
        lambda e: e.points["batch_size"] * e.tokens_per_step / e.step_time,
        title="tokens/s\nplain>with",
        form=_throughputs,
        spare=6,
    ),
    Column(
        "limited_by",
        "-",
        "what lengthens the step most, by Shapley value",
        source=lambda e: e.limit,
        words=LIMITS,
        title="limited\nby",
        spare=5,
    ),
    Column(
        "in_graph",
        "-",
        "whether a CUDA graph of the engine holds the verify pass, where it has any",
        source=_in_graph,
    ),
    Column(
        "max_graph_batch_size",
        "request",
        "largest batch whose verify pass a CUDA graph holds; NaN without a limit",
        source=_max_graph_batch_size,
    ),
    Column(
        "break_even_acceptance_rate",
        "-",
        "rate from which speculation pays; NaN where none does",
        title="break\neven",
        form=".2f",
        spare=2,
    ),
    Column(
        "best_draft_length",
        "token",
        "draft length with the largest speedup, 0 for none",
        is_whole=True,
        title="best\ndraft",
        spare=4,
    ),
    Column(
        "memory_bytes",
        "B",
        "memory needed on the fullest GPU",
        source=lambda e: e.memory.total_bytes(e.points["batch_size"]),
    ),
    Column(
        "max_batch_size",
        "request",
        "largest batch that fits in memory",
        source=lambda e: e.memory.max_batch_size,
        is_whole=True,
    ),
    Column(
        "fits",
        "-",
        "whether the batch fits in memory",
        source=lambda e: np.asarray(e.points["batch_size"] <= e.memory.max_batch_size),
        title="fits",
        form=lambda row: "yes" if row["fits"] else "no",
        spare=9,
    ),
)
"""In the order of tables."""

LOAD_COLUMNS = (
    _point("prompt_length", "token", "of a prompt that is prefilled", "prompt", is_coordinate=True),
    _point("output_length", "token", "made by each request", "output", is_coordinate=True),
    _uncertain(
        "prefill_time",
        "s",
        "pass of one prompt; steps carry their shares of it",
        lambda e: e.prefill.total_time if e.prefill else np.full((), np.nan),
        title="prefill",
    ),
)
"""Further columns of an answer where steps carry prefill."""


def with_interval(name: str) -> tuple[str, ...]:
    """Return the names of a column and its interval's ends, for a speedup also of the chance.

    >>> with_interval("speedup")
    ('speedup', 'speedup_low', 'speedup_high', 'speedup_chance')
    """
    parts = ("", "_low", "_high", "_chance") if name == "speedup" else ("", "_low", "_high")
    return tuple(f"{name}{part}" for part in parts)


def interval_of(name: str, *, is_time: bool = False) -> Column:
    """Return the column that shows the interval of the column `name`.

    >>> interval_of("speedup").form
    '{speedup_low:.2f}-{speedup_high:.2f}'
    """
    low, high = f"{name}_low", f"{name}_high"
    form = f"{{{low}:s}}>{{{high}:s}}" if is_time else f"{{{low}:.2f}}-{{{high}:.2f}}"
    meaning = "ends of the central 80 % interval"
    return Column(low, "s" if is_time else "-", meaning, title="80 %\ninterval", form=form, spare=8)


def _plain(name: str, **changes: Any) -> Column:
    column = next(column for column in COLUMNS if column.name == name)
    return replace(column, **changes)


DECODE_COLUMNS = (
    _plain("batch_size"),
    _plain("context_length"),
    _plain("active_experts", form=".0f", meaning="distinct experts per layer that a pass loads"),
    _plain("tpot", title="TPOT", form="", spare=0),
    _plain("throughput", title="tokens/s", form=""),
    Column(
        "largest_share",
        "-",
        "what takes most of a decode step",
        source=lambda e: e.largest_of_plain,
        words=LIMITS,
        title="largest\nshare",
        spare=5,
    ),
    _plain("memory_bytes", title="memory"),
    _plain("max_batch_size", title="largest\nbatch"),
    _plain("fits", is_coordinate=True),
)
"""Columns of decoding without speculation, in the order of tables."""

WITH_INTERVAL = tuple(column.name for column in (*COLUMNS, *LOAD_COLUMNS) if column.has_interval)
"""Columns that have a central interval where intervals are asked for."""


def with_ends(names: Iterable[str]) -> list[str]:
    """Return columns, each followed by the ends of its interval if it can have one."""
    all_parts = (with_interval(name) if name in WITH_INTERVAL else (name,) for name in names)
    return [part for parts in all_parts for part in parts]


COLUMN_UNITS = {column.name: column.unit for column in COLUMNS}
"""Columns of a prediction in their order, and their units."""
