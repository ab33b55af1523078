"""What ``specmodel validate --serving`` prints: errors on measurements of whole engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specmodel.base.text import align, wrap
from specmodel.show.report import json_text

if TYPE_CHECKING:
    import pandas as pd

    from specmodel.fit.measured.tables import Served

_MOST_NAMED = 5
_MEANS = ("mean", "median")
_OF_SPEEDS = {"mean_error": "mean", "bias": "bias"}
_TITLES = {"value": "", "mean_error": "mean", "median_error": "median"}


def serving_page(path: str, *, ttft: bool = False) -> tuple[str, str, pd.DataFrame]:
    """Return the errors on a table as a page and as JSON, and the rows that were judged.

    Parameters
    ----------
    path
        The table.
    ttft
        Whether times to the first token are judged.

    Returns
    -------
    tuple
        Page, JSON, and rows as `judge_serving` or `judge_first_tokens` gives them.
    """
    from specmodel.fit.measured.first_token import judge_first_tokens
    from specmodel.fit.measured.judge import judge_serving, serving_errors
    from specmodel.fit.measured.tables import read_serving

    table = read_serving(path)
    speeds = _own_speeds([] if ttft else table.rows)
    judged, refused = judge_first_tokens(table) if ttft else judge_serving(table)
    errors = serving_errors(judged)
    reasons = _reasons({**table.not_taken, **refused})
    count = sum(map(len, reasons.values()))
    left_out = _left_out(judged)
    parts = [f"{len(judged)} rows taken, {count} not."]
    if left_out:
        told = " ".join(f"{name} {left_out[f'left_out_{name}_error']:.1%}" for name in _MEANS)
        parts.append(wrap(f"Models left out, with constants fitted to the others: {told}."))
    parts += [wrap(f"Not taken, {why}: {_named(rows)}.") for why, rows in reasons.items()]
    parts += _stood_in(judged)
    parts += [wrap(f"Assumed: {name} {value}.") for name, value in table.assumed.items()]
    document = {
        **{str(name): errors[name].iloc[0] for name in errors.columns[3:]},
        **left_out,
        "groups": _records(errors[errors["group"] != "all"]),
        "hosts": _records(speeds),
        "rows": [_row(row) for row in _records(judged)],
        "not_taken": [
            {"reason": reason, "count": len(rows), "rows": rows} for reason, rows in reasons.items()
        ],
        "assumptions": dict(table.assumed),
    }
    blocks = [_table(errors), *_speeds_text(speeds), "\n".join(parts)]
    return "\n\n".join(blocks), json_text(document), judged


def _own_speeds(rows: Sequence[Served]) -> pd.DataFrame:
    """Return how fast hosts were by their own rows; none where a table names no host."""
    from specmodel.fit.own_speed import own_speeds

    return own_speeds(rows)


def _speeds_text(speeds: pd.DataFrame) -> list[str]:
    """Return a table of hosts at their own speed, nothing without any."""
    if speeds.empty:
        return []
    shown = speeds.assign(host_speed=speeds["host_speed"].map("{:.2f}".format))
    columns = [("host at its own speed", shown["host"].tolist())]
    columns += [("rows", shown["rows"].map(str).tolist()), ("speed", shown["host_speed"].tolist())]
    columns += [(n, shown[c].map("{:.1%}".format).tolist()) for c, n in _OF_SPEEDS.items()]
    return [align(columns, left=["host at its own speed"])]


def _reasons(not_taken: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the rows that are not taken by why, the most frequent reason first."""
    return {
        reason: [row for row, why in not_taken.items() if why == reason]
        for reason, _ in Counter(not_taken.values()).most_common()
    }


def _stood_in(judged: pd.DataFrame) -> list[str]:
    """Say whose kernels were taken for engines that have none, nothing if all have."""
    rows = judged[judged["stack"] != judged["engine"].map(_stack)]
    if rows.empty:
        return []
    counts = Counter(map(tuple, rows[["engine", "hardware", "stack"]].to_numpy()))
    texts = [f"{who} on {gpu}: {taken} ({n})" for (who, gpu, taken), n in counts.items()]
    return [wrap(f"No kernels of the engine, others stood in: {', '.join(texts)}.")]


def _left_out(judged: pd.DataFrame) -> dict[str, float]:
    """Return the errors with constants of other models, none where there are none."""
    if "left_out_error" not in judged or judged["left_out_error"].isna().all():
        return {}
    error = judged["left_out_error"].abs()
    return {f"left_out_{name}_error": float(getattr(error, name)()) for name in _MEANS}


def _stack(engine: str) -> str:
    from specmodel.fit.measured.spellings import stack_of

    return stack_of(engine)


def _named(rows: list[str]) -> str:
    more = f" and {len(rows) - _MOST_NAMED} more" if len(rows) > _MOST_NAMED else ""
    noun = "row" if len(rows) == 1 else f"{len(rows)} rows"
    return f"{noun} {', '.join(rows[:_MOST_NAMED])}{more}"


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a dict a row without what it does not have."""
    plain = frame.astype(object).where(frame.notna(), None)
    return [
        {str(k): v for k, v in row.items() if v is not None} for row in plain.to_dict("records")
    ]


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row, its values also under the name of what was measured."""
    name = row["quantity"]
    return row | {f"measured_{name}": row["measured"], name: row["predicted"]}


def _table(errors: pd.DataFrame) -> str:
    """Return errors by what varies as an aligned table."""
    columns = []
    for name, values in errors.items():
        form = "{}" if name in ("group", "value", "rows") else "{:.1%}"
        columns.append((_TITLES.get(str(name), str(name)), [form.format(v) for v in values]))
    return align(columns, left=["group", ""])
