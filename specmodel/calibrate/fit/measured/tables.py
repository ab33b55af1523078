"""Read tables of measured engines: the deployment and result of each row, or why it is not used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from msgspec import Struct, field
from msgspec.structs import replace

from specmodel.calibrate.fit.measured import aliases
from specmodel.calibrate.fit.measured.records import Cells, Unused, check_milliseconds, used
from specmodel.core.base.errors import InputError
from specmodel.core.base.tables import need_columns, read_table
from specmodel.core.cost.deployment import PREFILLS_FIRST
from specmodel.core.machines.engine import load_engine
from specmodel.core.machines.hardware import load_hardware
from specmodel.core.models.architecture import load_architecture

MOST_QUEUED = 0.3  # largest share of time in queues: above, the batch is smaller [-]
MOST_UNEQUAL = 0.01  # largest relative difference of lengths in lockstep [-]
DEFAULT_CONTEXT = 1000  # context if a table of pairs has no lengths [token]

_SERVED = aliases.TABLES["served"]
_OF_DRAFTS = ("proposal_rate", "temperature")
_MOST_ROWS = 20_000
"""Most rows of a table [-]."""
_SPEEDUPS = 0.01, 100.0
"""Range of measured speedups: other numbers are something else, such as a percentage [-]."""


class Served(Struct, frozen=True, kw_only=True):
    """One row: the deployment and point that ran, and the measured quantity."""

    row: str  # name or number
    labels: Mapping[str, str]  # model, dtype and engine in the table's words; profile of the GPU
    deployment: Mapping[str, Any]  # arguments of `cost.deploying.resolve`
    points: Mapping[str, float]  # batch size and lengths; for a pair, draft and verify tokens
    tokens_per_step: float | None = None  # None for plain decoding
    quantity: str  # tpot or step_time [s], or speedup [-]
    measured: float
    first_token: float | None = None  # time to the first token of plain decoding [s]
    plain_step: float | None = None  # time of a pair's step without speculation [s]
    noise: float = 0.0  # standard error of `measured`, from repeats; 0 if unknown [-]
    notes: tuple[str, ...] = ()  # notes on the run


class ServingTable(Struct, frozen=True, kw_only=True):
    """Rows of a table that can be predicted, and why other rows cannot.

    Parameters
    ----------
    rows
        Rows that are used.
    not_taken
        Reasons why other rows are not used, by the name or number of the row.
    assumed
        Assumptions for empty cells and missing columns, by argument.
    """

    rows: tuple[Served, ...]
    not_taken: Mapping[str, str]
    assumed: Mapping[str, str] = field(default_factory=dict)


def read_serving(path: str | Path) -> ServingTable:
    """Return the rows of a table of measured engines.

    Parameters
    ----------
    path
        CSV or Parquet with a row for each run. ``tables.toml`` lists the columns of a table of
        plain decoding (`plain`), and of a table of pairs with and without speculation (`pairs`). An
        InputError names a missing column, or a column in another unit. Rows that cannot be used
        are listed with the reason.

    Notes
    -----
    A row of plain decoding is not used if mtp is not off, clean is not true, or queued_share is
    above `MOST_QUEUED`. A pair is not used if usable is not true. A pair may have a temperature (0
    by default) and a context_length (by default, computed from ``isl`` and ``osl``). A pair with a
    look-up may have a proposal_rate. ``isl`` and ``osl`` of plain rows are the longest lengths that
    were drawn. Predictions use the mean lengths, which follow from mean_context. If mean_context
    shows that all lengths are equal, requests run in lockstep on engines that prefill before they
    decode, such as SGLang.
    """
    table = read_table(path, _SERVED["texts"], "serving", comments=False)
    for name, read in (("plain", _plain_row), ("pairs", _pair_row)):
        kind = _SERVED[name]
        if measured := [column for column in kind["measured"] if column in table]:
            need_columns(table, kind["needed"], argument="serving")
            for column in (each for each in measured if each.endswith("_ms")):
                check_milliseconds(table[column], f"serving.{column}")
            return replace(_rows(table, kind, read), assumed=kind["assumed"])
    expected = "one of the columns measured_tpot_ms, speedup and spec_step_ms"
    raise InputError("serving", ", ".join(map(str, table.columns[:20])), expected)


def _rows(
    table: pd.DataFrame, kind: Mapping[str, Any], read: Callable[[Cells, str], Served]
) -> ServingTable:
    if not 0 < len(table) <= _MOST_ROWS:
        raise InputError("serving", f"{len(table)} rows", f"1 to {_MOST_ROWS:,} rows")
    rows, not_taken, labels = list[Served](), dict[str, str](), set[str]()
    for place, values in enumerate(table.to_dict("records")):
        cells = {str(column): cell for column, cell in values.items()}
        named = {name: cells.get(column) for name, column in kind["columns"].items()}
        row = Cells(cells | named, "serving.", kind["columns"])
        label = row.text("row") or str(place)
        label = f"{label} (row {place})" if label in labels else label
        labels.add(label)
        try:
            used(cells, kind["only"])
            rows.append(read(row, label))
        except (Unused, InputError) as reason:
            not_taken[label] = str(reason)
    return ServingTable(rows=tuple(rows), not_taken=not_taken)


def _plain_row(row: Cells, label: str) -> Served:
    """Return a row of plain decoding. A row whose requests queue too long is not used."""
    if row.known("queued_share", 0.0) > MOST_QUEUED:
        raise Unused(f"requests queue too long: queued_share is above {MOST_QUEUED:g}")
    isl, osl = map(row.whole, ("isl", "osl"))
    context = row.known("mean_context", isl + osl / 2)
    shorter = context / (isl + osl / 2)
    is_equal = "mean_context" in row.values and abs(shorter - 1) < MOST_UNEQUAL
    labels, where = _where(row)
    profile, changes = aliases.profile_of(labels["engine"], row.text("version") or row.text("date"))
    for name in ("fuses_norms", "all_reduces"):
        key = f"engine.{name}"
        where[key] = changes.get(key, getattr(load_engine(profile), name))
    first_token = row.number("measured_ttft_ms")
    return Served(
        row=label,
        labels=labels,
        deployment=where,
        points={
            "batch_size": row.whole("concurrency"),
            "context_length": round(context),
            "prompt_length": max(round(isl * shorter), 1),
            "output_length": max(round(osl * shorter), 1),
            "lockstep": is_equal and aliases.stack_of(labels["engine"]) == PREFILLS_FIRST,
        },
        quantity="tpot",
        measured=row.known("measured_tpot_ms") / 1e3,
        first_token=None if first_token is None else first_token / 1e3,
    )


def _pair_row(row: Cells, label: str) -> Served:
    """Return a row with and without speculation."""
    labels, where = _where(row)
    profile, changes = aliases.profile_of(labels["engine"], *map(row.text, ("version", "notes")))
    batch, points = row.whole("concurrency"), _lengths(row)
    if "rank" in row.text("which"):  # such nodes only decode, and other nodes prefill
        batch *= where["tensor_parallel"] * where["data_parallel"]
        points = {"context_length": points["context_length"]}
    length, host = row.whole("draft_length"), row.text("host")
    quantity, measured = _measured(row)
    plain = row.number("base_step_ms")
    if plain is None:  # in plain decoding, a token takes a step
        plain = row.number("base_tpot_ms")
    return Served(
        row=label,
        labels=labels | ({"host": host} if host else {}),
        deployment=where
        | {"drafter": aliases.drafter_of(row.text("drafter"))}
        | {"engine": profile, "tree_width": row.whole("topk", 1)}
        | {name: row.known(name) for name in _OF_DRAFTS if row.text(name)}
        | changes,
        points={"batch_size": batch, "draft_length": length}
        | {"verify_tokens": row.whole("verify_tokens", length + 1)}
        | points,
        tokens_per_step=row.known("tokens_per_step"),
        quantity=quantity,
        measured=measured,
        plain_step=None if plain is None else plain / 1e3,
    )


def _lengths(row: Cells) -> dict[str, float]:
    """Return the lengths of a pair, or only a context without both lengths [token]."""
    isl, osl = (row.number(name, strict=False) for name in ("isl", "osl"))
    if isl is None or osl is None:
        return {"context_length": round(row.known("context_length", DEFAULT_CONTEXT))}
    context = round(row.known("context_length", round(isl + osl / 2)))
    return {"prompt_length": isl, "output_length": osl, "context_length": context}


def _measured(row: Cells) -> tuple[str, float]:
    """Return the measured quantity of a pair, preferably the speedup, and its value [-] or [s]."""
    speedup, step = row.number("speedup"), row.number("spec_step_ms")
    if speedup is not None:
        if not _SPEEDUPS[0] <= speedup <= _SPEEDUPS[1]:
            raise InputError("serving.speedup", speedup, "a ratio such as 1.5, not a percentage")
        return "speedup", speedup
    if step is None:
        raise Unused("it has neither speedup nor spec_step_ms")
    return "step_time", step / 1e3


def _where(row: Cells) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the labels of a row, and its model, GPU, kernels, dtypes and degrees.

    Without kernels of the engine for this GPU, the default kernels of the GPU are used.
    """
    model, system, engine = map(row.text, ("model", "system", "engine"))
    target, hardware = aliases.model_of(model), aliases.shipped_gpu(system)
    stack, dtype = aliases.stack_of(engine), row.text("dtype")
    labels = {"model": model, "dtype": dtype, "engine": engine, "hardware": hardware}
    architecture = load_architecture(target)
    kernels = {"stack": stack} if stack in load_hardware(hardware).fitted else {}
    dtypes = aliases.dtypes_of(dtype, architecture, stack, row.text("kv_dtype"))
    return labels, {"target": target, "hardware": hardware} | kernels | dtypes | _degrees(row)


def _degrees(row: Cells) -> dict[str, int]:
    """Return the degrees of parallelism as `deploy` accepts them."""
    spread = row.whole("expert_parallel", 1)
    is_named = row.text("gpus").strip().lower() in _SERVED["data_parallel"]
    gpus = row.whole("num_gpus", spread) if is_named else row.whole("gpus")
    if gpus % spread:
        raise InputError("serving.expert_parallel", spread, f"a divisor of the {gpus} GPUs")
    is_parallel = is_named or row.text("attention_data_parallel").lower() == "true"
    tensor, data = (1, gpus) if is_parallel else (gpus, 1)
    return {"tensor_parallel": tensor, "data_parallel": data, "expert_parallel": spread}
