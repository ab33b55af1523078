"""The columns of a prediction: ``columns.toml`` declares them, and this module has their values."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from specmodel.core.base.files import toml_tables
from specmodel.core.prediction.evaluate import LIMITS, LOAD, Evaluation
from specmodel.core.prediction.table import Column, Row

Array = np.ndarray[Any, np.dtype[Any]]


def _throughputs(row: Row) -> str:
    """Return the throughput without and with speculation."""
    return f"{row['batch_size'] / row['forward_time']:.0f} -> {row['throughput']:.0f}"


def _in_graph(e: Evaluation) -> Array:
    limit, batch_size = e.deployment.graph_limit, e.running
    if limit is None:
        return np.ones((), dtype=bool)
    tokens = batch_size * e.points["verify_tokens"]
    return ~limit.is_beyond(batch_size, tokens, e.deployment.layout.replicas)


def _max_graph_batch_size(e: Evaluation, *, is_plain: bool = False) -> Array:
    limit, verify_tokens = e.deployment.graph_limit, e.points["verify_tokens"].astype(float)
    if limit is None:
        return np.full(verify_tokens.shape, np.nan)
    tokens = np.ones_like(verify_tokens) if is_plain else verify_tokens
    return limit.most_requests(tokens, e.deployment.layout.replicas)


def _point(name: str) -> Callable[[Evaluation], Array]:
    return lambda e: e.points[name]


_POINTS = ("batch_size", "draft_length", "verify_tokens", "context_length", *LOAD)
_SOURCES: dict[str, Callable[[Evaluation], Array]] = {
    **{name: _point(name) for name in _POINTS},
    "step_efficiency": lambda e: e.tokens_per_step / (e.points["draft_length"] + 1),
    "active_experts": lambda e: e.times.active_experts,
    "active_experts_verify": lambda e: e.times.active_experts_verify,
    "utility": lambda e: e.speedup,
    "tpot": lambda e: e.step_time / e.tokens_per_step,
    "throughput": lambda e: e.points["batch_size"] * e.tokens_per_step / e.step_time,
    "limited_by": lambda e: e.limit,
    "in_graph": _in_graph,
    "max_graph_batch_size": _max_graph_batch_size,
    "max_graph_batch_size_plain": partial(_max_graph_batch_size, is_plain=True),
    "memory_bytes": lambda e: e.memory.total_bytes(e.points["batch_size"]),
    "max_batch_size": lambda e: e.memory.max_batch_size,
    "fits": lambda e: np.asarray(e.points["batch_size"] <= e.memory.max_batch_size),
    "prefill_time": lambda e: e.prefill.total_time if e.prefill else np.full((), np.nan),
    "largest_share": lambda e: e.largest_of_plain,
}
"""Values of columns that are not attributes of an evaluation."""

_FORMS: dict[str, Callable[[Row], str]] = {
    "draft_length": lambda row: str(row["draft_length"] or "none"),
    "throughput": _throughputs,
    "fits": lambda row: "yes" if row["fits"] else "no",
}
"""Functions for cells without a template."""

_WORDS = dict.fromkeys(("limited_by", "largest_share"), LIMITS)
_TABLES = toml_tables(Path(__file__).with_suffix(".toml"))


def _columns(table: str) -> tuple[Column, ...]:
    """Return the columns of a table of ``columns.toml``."""
    rows = {n: _TABLES["predicted"].get(n, {}) | own for n, own in _TABLES[table].items()}
    return tuple(
        Column(
            n, source=_SOURCES.get(n), words=_WORDS.get(n, ()), **{"form": _FORMS.get(n, ""), **row}
        )
        for n, row in rows.items()
    )


COLUMNS = _columns("predicted")
"""In the order of tables."""

LOAD_COLUMNS = _columns("load")
"""Further columns if steps carry prefill."""

DECODE_COLUMNS = _columns("decoded")
"""Columns of decoding without speculation, in the order of tables."""

(COST,) = _columns("priced")
"""Further column with a price of a GPU."""


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
    form = f"{{{low}:s}} -> {{{high}:s}}" if is_time else f"{{{low}:.2f}}-{{{high}:.2f}}"
    meaning = "ends of the central 80 % interval"
    return Column(low, "s" if is_time else "-", meaning, title="80 %\ninterval", form=form, spare=8)


WITH_INTERVAL = tuple(column.name for column in (*COLUMNS, *LOAD_COLUMNS) if column.has_interval)
"""Columns that can have a central interval."""


def with_ends(names: Iterable[str]) -> list[str]:
    """Return columns, each followed by the ends of its interval if it can have one."""
    all_parts = (with_interval(name) if name in WITH_INTERVAL else (name,) for name in names)
    return [part for parts in all_parts for part in parts]


COLUMN_UNITS = {column.name: column.unit for column in COLUMNS}
"""Columns of a prediction in their order, and their units."""
