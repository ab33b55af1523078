"""The columns of a prediction, each declared once: name, unit, meaning, value, how it prints."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np

from specmodel.cost.deployment import Deployment
from specmodel.prediction.evaluate import LIMITS, Evaluation
from specmodel.prediction.table import Form, Row

Array = np.ndarray[Any, np.dtype[Any]]
_Source: TypeAlias = Callable[[Evaluation], Array] | None


@dataclass(frozen=True)
class Column:
    """One column of a prediction, wherever columns appear: attributes, tables, JSON, CSV, sweeps.

    In a column of `words`, values are indices into these. `title` heads it in the printed table,
    which lacks columns without one; coordinates and `fits` are in it only where they vary. `form`
    is how a cell reads, as in `prediction.table`; plainly if empty. `spare` is when the column is
    dropped from a table that is too wide: 1 first, 0 never [-].
    """

    name: str
    unit: str
    meaning: str
    source: _Source = None
    has_interval: bool = False
    is_whole: bool = False
    words: tuple[str, ...] = ()
    title: str = ""
    form: Form = ""
    is_shown: Callable[[Deployment], bool] = lambda _: True
    is_coordinate: bool = False
    spare: int = 0

    @cached_property
    def of(self) -> Callable[[Evaluation], Array]:
        """What gives its values of an evaluation: the same name, unless it has another source."""
        return self.source or attrgetter(self.name)


def _point(name: str, unit: str, meaning: str, title: str = "") -> Column:
    return Column(
        name,
        unit,
        meaning,
        lambda e: e.points[name],
        is_whole=True,
        title=title,
        is_coordinate=name != "batch_size",
    )


def _uncertain(name: str, unit: str, meaning: str, source: _Source = None, **shown: Any) -> Column:
    return Column(name, unit, meaning, source, has_interval=True, **shown)


def _throughputs(row: Row) -> str:
    """Return the throughput without and with speculation."""
    return f"{row['batch_size'] / row['forward_time']:.0f}>{row['throughput']:.0f}"


def _in_graph(e: Evaluation) -> Array:
    limit, batch_size = e.deployment.graph_limit, e.points["batch_size"]
    if limit is None:
        return np.ones((), dtype=bool)
    tokens = batch_size * e.points["verify_tokens"]
    return ~limit.is_beyond(batch_size, tokens, e.deployment.layout.replicas)


COLUMNS = (
    _point("batch_size", "request", "sequences decoded together", "batch\nsize"),
    _point("draft_length", "token", "drafted per sequence and step", "draft\nlength"),
    _point("verify_tokens", "token", "of each sequence in the verify pass"),
    _point("context_length", "token", "KV entries of each sequence before the step", "context"),
    Column("tokens_per_step", "token", "emitted per sequence and step, the target's own included"),
    Column(
        "step_efficiency",
        "-",
        "tokens per step over draft length + 1, MoESD's σ",
        lambda e: e.tokens_per_step / (e.points["draft_length"] + 1),
    ),
    Column(
        "active_experts",
        "-",
        "distinct experts per layer that a plain pass loads",
        lambda e: e.times.active_experts,
        title="experts\nloaded",
        form="{active_experts:.0f}>{active_experts_verify:.0f}",
        spare=1,
        is_shown=lambda d: d.target.is_moe,
    ),
    Column(
        "active_experts_verify",
        "-",
        "distinct experts per layer that a verify pass loads",
        lambda e: e.times.active_experts_verify,
    ),
    _uncertain(
        "forward_time",
        "s",
        "plain pass, which is the time per output token without speculation",
        title="TPOT\nplain>with",
        form="{forward_time:s}>{tpot:s}",
        spare=7,
    ),
    _uncertain("verify_time", "s", "verify pass"),
    _uncertain("draft_time", "s", "all drafting of a step, and what it waits for the host"),
    Column("reject_time", "s", "rejection sampling of a step", lambda e: e.times.reject_time),
    _uncertain("step_time", "s", "drafting, verification and rejection"),
    _uncertain(
        "target_efficiency",
        "-",
        "plain pass over verify pass: 1 = verifying is free",
        title="target\neff.",
        form="{target_efficiency:.3f}",
        spare=3,
    ),
    _uncertain("relative_step_time", "-", "step over plain pass, Cascade's cost"),
    _uncertain("utility", "-", "tokens per step over relative step time", lambda e: e.speedup),
    _uncertain(
        "speedup",
        "-",
        "time without over time with speculation for the same tokens",
        title="speedup",
        form="{speedup:.2f}",
    ),
    _uncertain(
        "tpot", "s", "time per output token of a request", lambda e: e.step_time / e.tokens_per_step
    ),
    _uncertain(
        "throughput",
        "token/s",
        "output tokens of all requests",
        lambda e: e.points["batch_size"] * e.tokens_per_step / e.step_time,
        title="tokens/s\nplain>with",
        form=_throughputs,
        spare=5,
    ),
    Column(
        "limited_by",
        "-",
        "what lengthens the step most, by Shapley value",
        lambda e: e.limit,
        words=LIMITS,
        title="limited\nby",
        spare=4,
    ),
    Column(
        "in_graph",
        "-",
        "whether a CUDA graph of the engine holds the verify pass, where it has any",
        _in_graph,
    ),
    Column(
        "break_even_acceptance_rate",
        "-",
        "rate from which speculation pays; NaN where none does",
        title="break\neven",
        form="{break_even_acceptance_rate:.2f}",
        spare=2,
    ),
    Column(
        "best_draft_length",
        "token",
        "draft length with the largest speedup, 0 for none",
        is_whole=True,
        title="best\ndraft",
        spare=6,
    ),
    Column(
        "memory_bytes",
        "B",
        "memory needed on the fullest GPU",
        lambda e: e.memory.total_bytes(e.points["batch_size"]),
    ),
    Column(
        "max_batch_size",
        "request",
        "largest batch that fits in memory",
        lambda e: e.memory.max_batch_size,
        is_whole=True,
    ),
    Column(
        "fits",
        "-",
        "whether the batch fits in memory",
        lambda e: np.asarray(e.points["batch_size"] <= e.memory.max_batch_size),
        title="fits",
        form=lambda row: "yes" if row["fits"] else "no",
        is_coordinate=True,
    ),
)
"""In the order of tables."""

LOAD_COLUMNS = (
    _point("prompt_length", "token", "of a prompt that is prefilled", "prompt"),
    _point("output_length", "token", "made by each request", "output"),
    _uncertain(
        "prefill_time",
        "s",
        "pass of one prompt; steps carry their shares of it",
        lambda e: e.prefill.total_time if e.prefill else np.full((), np.nan),
        title="prefill",
        form="{prefill_time:s}",
    ),
)
"""Further columns of an answer where steps carry prefill."""


def with_interval(name: str) -> tuple[str, ...]:
    """Return a column that has an interval, its ends, and of a speedup the chance of a gain.

    >>> with_interval("speedup")
    ('speedup', 'speedup_low', 'speedup_high', 'speedup_chance')
    """
    parts = ("", "_low", "_high", "_chance") if name == "speedup" else ("", "_low", "_high")
    return tuple(f"{name}{part}" for part in parts)


def interval_of(column: Column) -> Column:
    """Return how the interval of a column prints."""
    low, high = f"{column.name}_low", f"{column.name}_high"
    is_time = column.unit == "s"
    form = f"{{{low}:s}}>{{{high}:s}}" if is_time else f"{{{low}:.2f}}-{{{high}:.2f}}"
    return replace(column, title="80 %\ninterval", form=form, spare=8)


def _plain(name: str, **changes: Any) -> Column:
    column = next(column for column in COLUMNS if column.name == name)
    return replace(column, **changes)


DECODE_COLUMNS = (
    _plain("batch_size"),
    _plain("context_length"),
    _plain(
        "active_experts",
        form="{active_experts:.0f}",
        meaning="distinct experts per layer that a pass loads",
    ),
    _plain("tpot", title="TPOT", form="{tpot:s}"),
    _plain("throughput", title="tokens/s", form="{throughput:.0f}"),
    _plain(
        "limited_by",
        meaning="what takes the largest share of a pass",
        source=lambda e: e.limit_of_plain,
    ),
    _plain("memory_bytes", title="memory", form="{memory_bytes:B}"),
    _plain("max_batch_size", title="largest\nbatch"),
    _plain("fits"),
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
