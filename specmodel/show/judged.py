"""How wrong predictions are on what was measured, in words and tables."""

from __future__ import annotations

from collections import Counter
from typing import Any

from specmodel.base.text import SCREEN, listed, wrap
from specmodel.prediction.table import Column, Form, Row, seconds
from specmodel.show import forms

_MOST_NAMED = 5
_MEANS = ("mean", "median")
_SPEEDS: dict[str, Form] = {
    "host at its own speed": "{host}",
    "rows": "{rows}",
    "speed": "{host_speed:.2f}",
    "mean": "{mean_error:.1%}",
    "bias": "{bias:.1%}",
}
_TITLES = {
    "value": "",
    "percentile_90_error": "90 %",
    "mean_error": "mean",
    "median_error": "median",
    "coverage": "within\n80 %",
}
_QUANTITIES = {"tpot": "TPOT", "ttft": "TTFT", "step_time": "step", "speedup": "speedup"}
_MOST_ROWS = 20
"""Rows that are told one by one [-]."""
_ROWS = (
    Column("row", "-", "", "row"),
    Column("target", "-", "", "model", spare=1, is_coordinate=True),
    Column("batch_size", "request", "", "batch\nsize"),
    Column("draft_length", "token", "", "draft\nlength", spare=2),
    Column("quantity", "-", "", "what", lambda row: _QUANTITIES[row["quantity"]]),
    Column("measured", "-", "", "measured", lambda row: _value(row, "measured")),
    Column("predicted", "-", "", "predicted", lambda row: _value(row, "predicted")),
    Column(
        "low",
        "-",
        "",
        "80 %\ninterval",
        lambda row: f"{_value(row, 'low')} to {_value(row, 'high')}",
    ),
    Column("error", "-", "", "error", "+.1%"),
)
"""Columns of that table."""
_SHARES = {*_TITLES, "bias", "coverage"} - {"value"}


def engines(path: str, *, ttft: bool) -> tuple[forms.DataFrame, forms.Answer]:
    """Return the judged rows of a table of measured engines, and their errors as page and JSON.

    With `ttft`, times to the first token are judged, else TPOT and speedups.
    """
    from specmodel.fit.measured.judge import (
        host_speeds,
        judge_first_tokens,
        judge_serving,
        serving_errors,
    )
    from specmodel.fit.measured.tables import read_serving

    table = read_serving(path)
    judged, refused = judge_first_tokens(table) if ttft else judge_serving(table)
    taken = [] if ttft else [row for row in table.rows if row.row not in refused]
    speeds = forms.records(host_speeds(taken))
    errors = serving_errors(judged)
    not_taken, left_out = _reasons({**table.not_taken, **refused}), _left_out(judged)

    def page() -> str:
        models = _some(sorted({*judged["target"]}))
        num_others = sum(map(len, not_taken.values()))
        parts = [f"{len(judged)} rows taken ({models}), {num_others} not."]
        if left_out:
            told = " ".join(f"{name} {left_out[f'left_out_{name}_error']:.1%}" for name in _MEANS)
            parts.append(f"Models left out, with constants fitted to the others: {told}.")
        parts += [f"Not taken, {why}: {_named(rows)}." for why, rows in not_taken.items()]
        parts += _stood_in(judged)
        parts += [f"Assumed: {name} {value}." for name, value in table.assumed.items()]
        hosts = [forms.table(speeds, _SPEEDS, left=[*_SPEEDS][:1])] if speeds else []
        how: dict[str, Any] = {"width": SCREEN.get(), "left": ("row", "model", "what")}
        is_short = len(judged) <= _MOST_ROWS
        few = [forms.text_table(forms.records(judged), _ROWS, **how)] if is_short else []
        told = error_table(_told_apart(errors), left=["group", ""])
        headline = wrap(_headline(judged, errors))
        return "\n\n".join([headline, *few, told, *hosts, "\n".join(map(wrap, parts))])

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


def _value(row: Row, name: str) -> str:
    """Return a time or a ratio of a row as a cell."""
    return f"{row[name]:.2f}" if row["quantity"] == "speedup" else seconds(row[name])


def _headline(judged: forms.DataFrame, errors: forms.DataFrame) -> str:
    """Return a sentence on the mean error, the bias, and the share of intervals that hold."""
    every = forms.records(errors)[0]
    held = every.get("coverage")
    holds = "" if held is None else f"; {held:.0%} of the 80 % intervals hold"
    times = sorted({_QUANTITIES[name] for name in judged["quantity"]})
    told = f"Predictions of {listed(times)} are off by {every['mean_error']:.1%} on average"
    side = "high" if every["bias"] > 0 else "low"
    return f"{told}; signs counted, {abs(every['bias']):.1%} too {side}{holds}."


def _told_apart(errors: forms.DataFrame) -> forms.DataFrame:
    """Return the errors of all rows, and of the values of groups that have several.

    In tables of at most `_MOST_ROWS` rows, values of a single row are left out.
    """
    sizes = errors.groupby("group")["value"].transform("size")
    least = 2 if errors["rows"].iloc[0] <= _MOST_ROWS else 1
    return errors[(errors["group"] == "all") | (sizes > 1) & (errors["rows"] >= least)]


def _reasons(not_taken: dict[str, str]) -> dict[str, list[str]]:
    """Return the rows that are not taken by reason, the most frequent reason first."""
    return {
        reason: [row for row, why in not_taken.items() if why == reason]
        for reason, _ in Counter(not_taken.values()).most_common()
    }


def _stood_in(judged: forms.DataFrame) -> list[str]:
    """Return a sentence on the kernels used for engines without their own; [] if all have."""
    from specmodel.fit.measured.aliases import stack_of

    rows = judged[judged["stack"] != judged["engine"].map(stack_of)]
    if rows.empty:
        return []
    counts = Counter(map(tuple, rows[["engine", "hardware", "stack"]].to_numpy()))
    texts = [f"{who} on {gpu}: {taken} ({n})" for (who, gpu, taken), n in counts.items()]
    return [f"No kernels of the engine, others stood in: {', '.join(texts)}."]


def _left_out(judged: forms.DataFrame) -> dict[str, float]:
    """Return the mean and median error with constants fitted to other models, if known."""
    if "left_out_error" not in judged or judged["left_out_error"].isna().all():
        return {}
    error = judged["left_out_error"].abs()
    return {f"left_out_{name}_error": float(getattr(error, name)()) for name in _MEANS}


def _named(rows: list[str]) -> str:
    return f"{'row' if len(rows) == 1 else f'{len(rows)} rows'} {_some(rows)}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


def _known(frame: forms.DataFrame) -> list[Row]:
    """Return a dict for each row, without missing values."""
    rows = forms.records(frame)
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def _row(row: Row) -> Row:
    """Return a row with its values also under the name of the quantity."""
    name = row["quantity"]
    return row | {f"measured_{name}": row["measured"], name: row["predicted"]}


def error_table(errors: forms.DataFrame, left: list[str]) -> str:
    """Return errors by what varies, shares in per cent."""
    columns = {
        _TITLES.get(n, n): f"{{{n}:.1%}}" if n in _SHARES else f"{{{n}}}" for n in map(str, errors)
    }
    return forms.table(forms.records(errors), columns, left)
