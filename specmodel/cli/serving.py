"""What ``specmodel validate --serving`` answers: errors on measurements of whole engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from specmodel.base.text import wrap
from specmodel.prediction.table import Form, Row
from specmodel.show import forms

if TYPE_CHECKING:
    import pandas as pd

_MOST_NAMED = 5
_MEANS = ("mean", "median")
_SPEEDS: dict[str, Form] = {
    "host at its own speed": "{host}",
    "rows": "{rows}",
    "speed": "{host_speed:.2f}",
    "mean": "{mean_error:.1%}",
    "bias": "{bias:.1%}",
}
_TITLES = {"value": "", "mean_error": "mean", "median_error": "median"}


def judged_engines(path: str, *, ttft: bool) -> tuple[pd.DataFrame, forms.Answer]:
    """Return the judged rows of a table, and their errors as page and JSON.

    With `ttft`, times to the first token are judged, else TPOT and speedups.
    """
    from specmodel.fit.measured.first_token import judge_first_tokens
    from specmodel.fit.measured.judge import judge_serving, serving_errors
    from specmodel.fit.measured.tables import read_serving
    from specmodel.fit.own_speed import own_speeds

    table = read_serving(path)
    speeds = forms.records(own_speeds([] if ttft else table.rows))
    judged, refused = judge_first_tokens(table) if ttft else judge_serving(table)
    errors = serving_errors(judged)
    not_taken, left_out = _reasons({**table.not_taken, **refused}), _left_out(judged)

    def page() -> str:
        parts = [f"{len(judged)} rows taken, {sum(map(len, not_taken.values()))} not."]
        if left_out:
            told = " ".join(f"{name} {left_out[f'left_out_{name}_error']:.1%}" for name in _MEANS)
            parts.append(f"Models left out, with constants fitted to the others: {told}.")
        parts += [f"Not taken, {why}: {_named(rows)}." for why, rows in not_taken.items()]
        parts += _stood_in(judged)
        parts += [f"Assumed: {name} {value}." for name, value in table.assumed.items()]
        hosts = [forms.table(speeds, _SPEEDS, left=[*_SPEEDS][:1])] if speeds else []
        return "\n\n".join([_table(errors), *hosts, "\n".join(map(wrap, parts))])

    def fields() -> dict[str, Any]:
        return {
            **{str(name): errors[name].iloc[0] for name in errors.columns[3:]},
            **left_out,
            "groups": _known(errors[errors["group"] != "all"]),
            "hosts": speeds,
            "rows": list(map(_row, _known(judged))),
            "not_taken": [
                {"reason": why, "count": len(rows), "rows": rows} for why, rows in not_taken.items()
            ],
            "assumptions": dict(table.assumed),
        }

    return judged, forms.Answer(page=page, fields=fields)


def _reasons(not_taken: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the rows that are not taken by reason, the most frequent reason first."""
    return {
        reason: [row for row, why in not_taken.items() if why == reason]
        for reason, _ in Counter(not_taken.values()).most_common()
    }


def _stood_in(judged: pd.DataFrame) -> list[str]:
    """Say whose kernels stood in for those of engines that have none."""
    from specmodel.fit.measured.spellings import stack_of

    rows = judged[judged["stack"] != judged["engine"].map(stack_of)]
    if rows.empty:
        return []
    counts = Counter(map(tuple, rows[["engine", "hardware", "stack"]].to_numpy()))
    texts = [f"{who} on {gpu}: {taken} ({n})" for (who, gpu, taken), n in counts.items()]
    return [f"No kernels of the engine, others stood in: {', '.join(texts)}."]


def _left_out(judged: pd.DataFrame) -> dict[str, float]:
    """Return the mean and median error with constants fitted to other models, if known."""
    if "left_out_error" not in judged or judged["left_out_error"].isna().all():
        return {}
    error = judged["left_out_error"].abs()
    return {f"left_out_{name}_error": float(getattr(error, name)()) for name in _MEANS}


def _named(rows: list[str]) -> str:
    more = f" and {len(rows) - _MOST_NAMED} more" if len(rows) > _MOST_NAMED else ""
    noun = "row" if len(rows) == 1 else f"{len(rows)} rows"
    return f"{noun} {', '.join(rows[:_MOST_NAMED])}{more}"


def _known(frame: pd.DataFrame) -> list[Row]:
    """Return a dict for each row, without missing values."""
    rows = forms.records(frame)
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def _row(row: Row) -> Row:
    """Return a row with its values also under the name of the quantity."""
    name = row["quantity"]
    return row | {f"measured_{name}": row["measured"], name: row["predicted"]}


def _table(errors: pd.DataFrame) -> str:
    """Return errors by what varies."""
    plain = ("group", "value", "rows")
    columns = {
        _TITLES.get(n, n): f"{{{n}}}" if n in plain else f"{{{n}:.1%}}" for n in map(str, errors)
    }
    return forms.table(forms.records(errors), columns, left=["group", ""])
