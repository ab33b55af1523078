"""Read tables of measured engines: each row's deployment and result, or why it is not used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct, field
from msgspec.structs import replace

from specmodel.calibrate.fit.measured import aliases
from specmodel.calibrate.fit.measured.records import Cells, check_milliseconds
from specmodel.core.base.errors import InputError
from specmodel.core.base.tables import as_number, need_columns, read_table
from specmodel.core.cost.deployment import PREFILLS_FIRST
from specmodel.core.machines.engine import load_engine
from specmodel.core.machines.hardware import load_hardware
from specmodel.core.models.architecture import load_architecture

MOST_QUEUED = 0.3  # with more time in queues, a row measures no batch of its size [-]
MOST_UNEQUAL = 0.01  # share by which the lengths of lockstep differ from the longest at most [-]
DEFAULT_CONTEXT = 1000  # context where a table of pairs has no lengths [token]

_COLUMNS = aliases.TABLES["served"]
_MOST_ROWS = 20_000
"""Most rows, of which each is predicted [-]."""
_SPEEDUPS = 0.01, 100.0
"""Least and most speedup of anything measured: beyond, a cell has something else [-]."""
_MOST = 10_000_000
"""Most requests, tokens or GPUs of a row [-]."""


class Served(Struct, frozen=True, kw_only=True):
    """One row: the deployment and point that ran, and the measured quantity."""

    row: str  # its name or number
    labels: Mapping[str, str]  # model, dtype and engine in the table's words; profile of the GPU
    deployment: Mapping[str, Any]  # as `cost.deploying.resolve` takes it
    points: Mapping[str, float]  # batch size, lengths and, of a pair, draft and verify tokens
    tokens_per_step: float | None = None  # of a pair
    quantity: str  # tpot or step_time [s], or speedup [-]
    measured: float
    first_token: float | None = None  # time to the first token of plain decoding [s]
    plain_step: float | None = None  # time of a pair's step without speculation [s]
    noise: float = 0.0  # standard error of `measured` by its repeats; 0 if not known [-]
    notes: tuple[str, ...] = ()  # what is to be known of the run


class ServingTable(Struct, frozen=True, kw_only=True):
    """Rows of a table that can be predicted, and why the others cannot.

    Parameters
    ----------
    rows
        Those that are taken.
    not_taken
        Why others are not, by the name or number of the row.
    assumed
        What was assumed where the table says nothing.
    """

    rows: tuple[Served, ...]
    not_taken: Mapping[str, str]
    assumed: Mapping[str, str] = field(default_factory=dict)


class _NotTaken(Exception):  # noqa: N818 - no error: the row is counted
    """Why a row is not predicted."""


class _Row(Cells, frozen=True):
    """A row of measured engines; what it needs and does not have is a reason not to take it."""

    prefix: str = "serving."

    def said(self, name: str) -> str:
        """Return the text of a cell; "" for a blank one, or without the column."""
        cell = self.values.get(name)
        return "" if cell is None or pd.isna(cell) else str(cell)

    def is_said(self, name: str, usual: bool) -> bool:
        """Return whether a cell says true; what is usual without the column."""
        return str(self.values.get(name, usual)).lower() == "true"

    def needed(self, name: str) -> str:
        """Return the text of a cell that is not blank."""
        text = self.said(name)
        if not text.strip(" :"):
            raise _NotTaken(f"it has no {name}")
        return text

    def known(self, name: str, usual: float | None = None) -> float:
        """Return a number, `usual` where the cell is empty or there is no column."""
        number = self.number(name)
        number = usual if number is None else number
        if number is None:
            raise _NotTaken(f"it has no {name}")
        return number

    def whole(self, name: str, usual: float | None = None) -> int:
        """Return a whole number from 1."""
        number = self.known(name, usual)
        if not 1 <= number <= _MOST or number != int(number):
            raise InputError(f"serving.{name}", number, f"whole numbers from 1 to {_MOST:,}")
        return int(number)


def read_serving(path: str | Path) -> ServingTable:
    """Return the rows of a table of measured engines.

    Parameters
    ----------
    path
        CSV or Parquet with a row for each run. For plain decoding it has the columns `plain` of
        ``tables.toml`` and measured_tpot_ms; for pairs with and without speculation, its `pairs`
        and speedup or spec_step_ms. An InputError says which column is missing, or in another unit;
        a row that cannot be is not taken.

    Notes
    -----
    Rows of plain decoding are not taken if mtp is not off, clean is not true, or queued_share is
    above `MOST_QUEUED`; pairs are not taken if usable is not true. Those of look-ups may have a
    proposal_rate, and any pair a temperature, 0 if left out, and a context_length, which is that of
    its ``isl`` and ``osl`` if left out. ``isl`` and ``osl`` of plain rows are the longest lengths
    that were drawn; predictions are for the mean lengths, by mean_context. Where it says that all
    are as long, requests go in lockstep under engines that prefill before they decode, as SGLang
    does.
    """
    table = read_table(path, _COLUMNS["texts"], "serving", comments=False)
    if "measured_tpot_ms" in table:
        need_columns(table, _COLUMNS["plain"], argument="serving")
        check_milliseconds(table["measured_tpot_ms"], "serving.measured_tpot_ms")
        return _rows(table, _plain_row, "row")
    if {"speedup", "spec_step_ms"} & set(table):
        need_columns(table, _COLUMNS["pairs"], argument="serving")
        if "spec_step_ms" in table:
            check_milliseconds(table["spec_step_ms"], "serving.spec_step_ms")
        assumed = {"context_length": f"{DEFAULT_CONTEXT} where lengths and context are empty"}
        return replace(_rows(table, _pair_row, "id"), assumed=assumed)
    expected = "a column measured_tpot_ms, speedup or spec_step_ms"
    raise InputError("serving", ", ".join(map(str, table.columns[:20])), expected)


def _rows(table: pd.DataFrame, read: Callable[[_Row, str], Served], name: str) -> ServingTable:
    if not 0 < len(table) <= _MOST_ROWS:
        raise InputError("serving", f"{len(table)} rows", f"1 to {_MOST_ROWS:,} rows")
    rows, not_taken, labels = list[Served](), dict[str, str](), set[str]()
    for place, values in enumerate(table.to_dict("records")):
        row = _Row({str(column): value for column, value in values.items()})
        label = row.said(name) or str(place)
        label = f"{label} (row {place})" if label in labels else label
        labels.add(label)
        try:
            rows.append(read(row, label))
        except (_NotTaken, InputError) as reason:
            not_taken[label] = str(reason)
    return ServingTable(rows=tuple(rows), not_taken=not_taken)


def _plain_row(row: _Row, label: str) -> Served:
    """Return a row of plain decoding; pass over those that measure something else of a batch."""
    if str(row.values.get("mtp", "off")).lower() not in ("off", "false", "nan"):
        raise _NotTaken("it speculates (mtp), at an acceptance that the table does not have")
    if not row.is_said("clean", True):
        raise _NotTaken("its column clean is not true")
    if row.known("queued_share", 0.0) > MOST_QUEUED:
        raise _NotTaken(f"its requests queue too long: queued_share is above {MOST_QUEUED:g}")
    isl, osl, gpus = map(row.whole, ("isl", "osl", "gpus"))
    spread = row.whole("expert_parallel", 1)
    context = row.known("mean_context", isl + osl / 2)
    shorter = context / (isl + osl / 2)
    is_equal = "mean_context" in row.values and abs(shorter - 1) < MOST_UNEQUAL
    model, system, backend = map(row.needed, ("model", "system", "backend"))
    labels, where = _where(row, model, system, backend, row.said("dtype"))
    first_token = row.number("measured_ttft_ms")
    told = row.said("backend_version") or row.said("date")
    profile, changes = aliases.profile_of(backend, told)
    for name in ("fuses_norms", "all_reduces"):
        key = f"engine.{name}"
        where[key] = changes.get(key, getattr(load_engine(profile), name))
    return Served(
        row=label,
        labels=labels,
        deployment=where | _layout(gpus, spread, row.is_said("attention_data_parallel", False)),
        points={
            "batch_size": row.whole("concurrency"),
            "context_length": round(context),
            "prompt_length": max(round(isl * shorter), 1),
            "output_length": max(round(osl * shorter), 1),
            "lockstep": is_equal and aliases.stack_of(backend) == PREFILLS_FIRST,
        },
        quantity="tpot",
        measured=row.known("measured_tpot_ms") / 1e3,
        first_token=None if first_token is None else first_token / 1e3,
    )


def _pair_row(row: _Row, label: str) -> Served:
    """Return a row with and without speculation."""
    if not row.is_said("usable", True):
        raise _NotTaken("it is not usable, as the table says")
    engine = row.needed("engine")
    profile, changes = aliases.profile_of(engine, *map(row.said, _COLUMNS["versions"]))
    gpus, spread, is_parallel = _degrees(row)
    drafter = aliases.drafter_of(row.needed("drafter"))
    target, gpu = map(row.needed, ("target", "gpu"))
    labels, own = _where(row, target, gpu, engine, row.said("weight_dtype"))
    batch = row.whole("batch_size_or_concurrency")
    is_by_rank = "rank" in row.said("which")
    points = _lengths(row)
    if is_by_rank:  # figures per rank are of nodes that decode only, others prefill
        points = {"context_length": points["context_length"]}
    points["draft_length"] = row.whole("draft_length")
    points["verify_tokens"] = row.whole("verify_tokens", points["draft_length"] + 1)
    quantity, measured = _measured(row)
    plain = row.number("base_step_ms")
    if plain is None:  # of plain decoding alone, a token takes a step
        plain = row.number("base_tpot_ms")
    host = {"host": str(row.values["host"])} if "host" in row.values else {}
    return Served(
        row=label,
        labels=labels | host,
        deployment=own
        | _layout(int(gpus), int(spread), is_parallel)
        | {"drafter": drafter, "engine": profile, "tree_width": row.whole("topk", 1)}
        | {name: row.known(name) for name in _COLUMNS["of_drafts"] if row.said(name)}
        | changes,
        points={"batch_size": batch * gpus if is_by_rank else batch} | points,
        tokens_per_step=row.known("tokens_per_step"),
        quantity=quantity,
        measured=measured,
        plain_step=None if plain is None else plain / 1e3,
    )


def _degrees(row: _Row) -> tuple[float, float, bool]:
    """Return GPUs and expert parallelism of a pair, and whether its attention is data-parallel."""
    degree = row.said("tensor_parallel").strip().lower()
    is_parallel, spread = degree in _COLUMNS["data_parallel"], row.known("expert_parallel", 1.0)
    gpus = row.known("num_gpus", spread) if is_parallel else as_number(degree)
    if not np.isfinite(gpus):
        raise _NotTaken("it has no layout")
    return gpus, spread, is_parallel


def _lengths(row: _Row) -> dict[str, float]:
    """Return the lengths of a pair; only a context where the table has not both [token]."""
    isl, osl = (row.number(name, strict=False) for name in ("isl", "osl"))
    if isl is None or osl is None:
        return {"context_length": round(row.known("context_length", DEFAULT_CONTEXT))}
    context = round(row.known("context_length", round(isl + osl / 2)))
    return {"prompt_length": isl, "output_length": osl, "context_length": context}


def _measured(row: _Row) -> tuple[str, float]:
    """Return the quantity that was measured of a pair, preferably the speedup, and its value."""
    speedup, step = row.number("speedup"), row.number("spec_step_ms")
    if speedup is not None:
        if not _SPEEDUPS[0] <= speedup <= _SPEEDUPS[1]:
            raise InputError("serving.speedup", speedup, "a ratio such as 1.5, not a percentage")
        return "speedup", speedup
    if step is None:
        raise _NotTaken("it has neither speedup nor spec_step_ms")
    return "step_time", step / 1e3


def _where(
    row: _Row, model: str, system: str, engine: str, dtype: str
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return labels of a row, and model, GPU, kernels and dtypes; default kernels may stand in."""
    target, hardware = aliases.model_of(model), aliases.shipped_gpu(system)
    stack, cache = aliases.stack_of(engine), row.said("kv_dtype")
    dtypes = aliases.dtypes_of(dtype, load_architecture(target), stack, cache)
    own = {"stack": stack} if stack in load_hardware(hardware).fitted else {}
    labels = {"model": model, "dtype": dtype, "engine": engine, "hardware": hardware}
    return labels, {"target": target, "hardware": hardware} | own | dtypes


def _layout(gpus: int, spread: int, is_parallel: bool) -> dict[str, int]:
    """Return degrees as `deploy` takes them."""
    if gpus % spread:
        raise InputError("serving.expert_parallel", spread, f"a divisor of the {gpus} GPUs")
    tensor, data = (1, gpus) if is_parallel else (gpus, 1)
    return {"tensor_parallel": tensor, "data_parallel": data, "expert_parallel": spread}
