"""The columns of answers beside those of predictions, and all of them by name.

Each is declared once: name, unit, meaning, title, how a cell reads. Imports nothing heavy, as
commands import it before they know whether only their help is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from specmodel.prediction.table import Column, Row


def _ends(name: str, unit: str, of: str, *shown: Any, **how: Any) -> tuple[Column, Column]:
    """Return the columns of both ends of an 80 % interval; by `shown` the first may print both."""
    low, high = (f"{end} end of the 80 % interval of {of}" for end in ("lower", "upper"))
    return Column(f"{name}_low", unit, low, *shown, **how), Column(f"{name}_high", unit, high)


def _of_capacity(name: str, of: str, title: str) -> tuple[Column, Column]:
    def form(row: Row) -> str:
        ends = row[f"{name}_low"], row[f"{name}_high"]
        return "-" if None in ends or not row["capacity"] else "{:.3g}-{:.3g}".format(*ends)

    return _ends(name, "request/s", of, f"80 % by\n{title}", form)


def _either(name: str, row: Row, form: str) -> str:
    """Return a cell with the values without and with speculation, "-" for a missing one."""
    ends = (row[f"{name}_plain"], row[name])
    return ">".join("-" if end is None else format(end, form) for end in ends)


def duration(value: float) -> str:
    """Return a time in seconds, minutes or hours, whichever has a few."""
    for unit, long in (("h", 3600.0), ("min", 60.0)):
        if value >= 2 * long:
            return f"{value / long:.3g} {unit}"
    return f"{value:.3g} s"


def _long(name: str, meaning: str, title: str) -> Column:
    def form(row: Row) -> str:
        return "-" if row[name] is None else duration(row[name])

    return Column(name, "s", meaning, title, form)


def _sizes(first: str, last: str, row: Row) -> str:
    from specmodel.base.ranges import ranges_text

    return ranges_text([(int(row[first]), int(row[last]))]) if row.get(first) else "-"


ALTERNATIVES = (
    Column("alternative", "-", "what is compared, by what differs"),
    Column("num_gpus", "-", "GPUs that share the model"),
    Column("fastest", "-", "number of the fastest alternative", form="[{fastest}]"),
    Column("as_fast", "-", "numbers of those not told apart from the fastest", "as fast"),
    Column("tpot_plain", "s", "tpot without speculation"),
    Column("throughput_plain", "token/s", "throughput without speculation"),
    Column("throughput_per_gpu", "token/s", "throughput of each GPU", "tokens/s\nper GPU"),
    Column(
        "largest_batch_size_plain", "request", "largest batch within the target without speculation"
    ),
    Column(
        "largest_batch_size",
        "request",
        "largest batch within the target",
        "largest batch\nplain>with",
        lambda row: _either("largest_batch_size", row, "d"),
    ),
    Column(
        "throughput_per_gpu_within_plain",
        "token/s",
        "throughput of each GPU at the largest batch without speculation",
    ),
    Column(
        "throughput_per_gpu_within",
        "token/s",
        "throughput of each GPU at the largest batch within the target",
        "tokens/s per GPU\nplain>with",
        lambda row: _either("throughput_per_gpu_within", row, ".0f"),
    ),
    Column(
        "cost_per_million_tokens",
        "-",
        "of output tokens, in the currency of the price of a GPU",
        "$/M\ntokens",
    ),
)
"""Of comparisons."""

BREAK_EVEN = (
    Column(
        "break_even_tokens_per_step",
        "token",
        "tokens a step from which speculation pays",
        "tokens a\nstep pay",
        ".2f",
    ),
    Column(
        "sure_tokens_per_step",
        "token",
        "tokens a step from which the 80 % interval is above 1",
        "surely\npay",
        ".2f",
    ),
    Column(
        "sure_acceptance_rate",
        "-",
        "acceptance rate from which the 80 % interval is above 1",
        "surely\npays",
        ".2f",
    ),
    Column(
        "speedup_per_token",
        "-",
        "speedup that one token a step more is worth",
        "0.1 tokens\nmore add",
        lambda row: f"+{row['speedup_per_token'] / 10:.3f}",
    ),
)
"""Of the acceptance that is needed."""

PEAKS = (
    Column("peak_speedup", "-", "largest speedup of a curve", "peak", ".2f"),
    *_ends(
        *("peak_speedup", "-", "the peak", "80 %\ninterval"),
        "{peak_speedup_low:.2f}-{peak_speedup_high:.2f}",
        spare=2,
    ),
    Column(
        "peak_batch_size",
        "request",
        "batch size of the peak, with the draft length there",
        "at batch\n(length)",
        "{peak_batch_size} ({draft_length})",
    ),
    *_ends(
        *("peak_batch_size", "request", "the batch size of the peak", "80 % of\nbatch"),
        lambda row: _sizes("peak_batch_size_low", "peak_batch_size_high", row),
        spare=1,
    ),
    Column(
        "near_peak_first",
        "request",
        "batch sizes with at least 0.71 of the peak",
        "0.71 of\npeak at",
        lambda row: (
            _sizes("near_peak_first", "near_peak_last", row) if row["peak_speedup"] > 1 else "-"
        ),
    ),
    Column("near_peak_last", "request", "last of the batch sizes with at least 0.71 of the peak"),
    Column(
        "paying",
        "-",
        "batch sizes with a speedup above 1",
        "speedup\nabove 1 at",
        lambda row: row["paying"] or "-",
        spare=3,
    ),
    Column(
        "surely_paying",
        "-",
        "batch sizes with an interval above 1",
        "surely\npays at",
        lambda row: row["surely_paying"] or "-",
    ),
    Column("largest_batch_size", "request", "considered"),
)
"""Of sweet spots."""

LOADS = (
    Column("request_rate", "request/s", "rate of requests asked for", "requests\n/s"),
    Column("users", "request", "users who each ask again when answered"),
    Column("policy", "-", "policy of draft lengths"),
    Column("running", "request", "requests that run at once, in the mean", form=".1f"),
    Column("tpot", "s", "time per output token, each token counted once", "TPOT"),
    Column("tpot_closed", "s", "time per output token by formula", "TPOT by\nformula"),
    Column("tpot_p90", "s", "time per output token that 90 % of requests stay below", "TPOT\n90 %"),
    Column("ttft", "s", "time to the first token"),
    Column("ttft_p50", "s", "median time to the first token", "TTFT\nmedian"),
    Column(
        "ttft_p90", "s", "time to the first token that 90 % of requests stay below", "TTFT\n90 %"
    ),
    Column("ttft_closed", "s", "time to the first token by formula"),
    Column("interval_p99", "s", "time between tokens that 99 % stay below"),
    Column("goodput", "-", "share of requests within both targets", "meet\nboth", ".0%"),
    Column(
        "is_steady",
        "-",
        "whether the load is carried",
        "carried",
        lambda row: "yes" if row["is_steady"] else "no",
    ),
    Column(
        "capacity",
        "request/s",
        "largest rate within the targets",
        "requests\n/s",
        lambda row: f"{row['capacity']:.3g}" if row["capacity"] else "none",
    ),
    Column("capacity_plain", "request/s", "capacity without speculation", "requests/s\nplain"),
    Column("capacity_per_gpu", "request/s", "capacity of each GPU", "\nper GPU"),
    Column("capacity_if_looser", "request/s", "capacity with targets a tenth longer"),
    Column("passes_again", "request/s", "rate at which the targets are met again"),
    Column("tpot_target", "s", "time per token that requests should meet"),
    Column("ttft_target", "s", "time to the first token that they should meet"),
    *_of_capacity("simulated", "runs with other requests", "simulation"),
    *_of_capacity("predicted", "what predicted times may be off by", "prediction"),
    Column("carried_rate", "request/s", "rate that is carried"),
    Column("largest_rate_closed", "request/s", "largest rate that is carried, by formula"),
    Column("running_closed", "request", "requests that run, by formula"),
    Column("replicas", "-", "servers that carry the rate asked for"),
    Column("gpus", "-", "of these replicas", "GPUs"),
    Column("cost_per_hour", "-", "of the GPUs that carry the rate asked for", "$/h", ".4g"),
)
"""Of servers under load."""

DRAINS = (
    Column("speculates_up_to", "request", "largest batch that is drafted for, where there is one"),
    _long("makespan", "time until all answers are done that are waited for", "done in"),
    *_ends("makespan", "s", "the makespan, by what predicted times miss"),
    _long("makespan_closed", "makespan by formula", "by\nformula"),
    _long("done_p50", "time until half of them are done", "\n50 %"),
    _long("done_p90", "time until 90 % of them are done", "\n90 %"),
    _long("done_p99", "time until 99 % of them are done", "\n99 %"),
    Column("output_tokens", "token", "made until then"),
    Column("throughput", "token/s", "output tokens a second", "tokens\n/s"),
    Column("running", "request", "requests of a server that run, in the mean", form=".1f"),
    Column("most_running", "request", "most requests of a server that run at once"),
    Column("gpu_hours", "-", "of all servers until then, in GPU hours", "GPU\nhours", ".3g"),
    Column("cost", "-", "of these, in the currency of the price of a GPU", "$", ".4g"),
    Column("speedup", "-", "makespan without speculation over this one", "speedup", ".2f"),
    Column("speedup_high", "-", "upper end of its interval"),
    Column("preemptions", "-", "requests that memory preempted, each time"),
    Column("share_at_0", "-", "share of the time of servers that wait for others"),
    Column("share_at_1", "-", "share of the time at 1; share_at_4 at 4 to 7, and so on"),
    Column("last_at_1", "s", "last time at which 1 or more run; last_at_4 4 or more, and so on"),
)
"""Of drains."""

REPLAYS = (
    Column("speedup", "-", "of the whole workload", "speedup", ".3f"),
    Column(
        "speedup_low",
        "-",
        "95 % interval over requests",
        "95 %",
        "{speedup_low:.2f}-{speedup_high:.2f}",
    ),
    Column("mean_speedup", "-", "mean speedup of requests", "mean of\nrequests", ".2f", spare=2),
    Column("speedup_p5", "-", "5th percentile of the speedups of requests", "5th\n%", ".2f"),
    Column("worst_speedup", "-", "least speedup of any request", "\nworst", ".2f"),
    Column(
        "slowdown",
        "-",
        "how much longer the workload takes than without",
        "slower\nby",
        ".0%",
        spare=4,
    ),
    Column("tokens_per_step", "token", "in the mean", "tokens\na step", ".2f", spare=7),
    Column(
        "drafted_tokens_per_step",
        "token",
        "tokens drafted in a step, in the mean",
        "drafted\na step",
        ".2f",
        spare=5,
    ),
    Column(
        "test_share", "-", "steps in which Cascade tries a length", "steps\ntesting", ".0%", spare=6
    ),
    Column("tpot_p50", "s", "median time per output token of requests", "TPOT\nmedian", spare=3),
    Column(
        "tpot_p95", "s", "95th percentile of the time per output token of requests", "95th", spare=1
    ),
    Column("regret", "-", "how much more time than the oracle", "over\noracle", ".0%"),
)
"""Of policies replayed."""

SCHEDULES = (
    Column("best_speedup", "-", "largest speedup of any draft length"),
    Column("num_tokens", "token", "of one replica in the verify pass"),
)
"""Of schedules and tables of steps."""

TASKS = (
    Column("task", "-", "kind of task"),
    Column("alike", "token", "lengths that gain as much as the best", "draft\nlength"),
    Column("ends_at_context", "token", "from which no draft pays", "pays no more\nfrom context"),
)
"""Of kinds of task."""

_ROOMS = (ALTERNATIVES, BREAK_EVEN, PEAKS, LOADS, DRAINS, REPLAYS, SCHEDULES, TASKS)


def by_name(*first: tuple[Column, ...]) -> dict[str, Column]:
    """Return all columns by name; where several answers have one, that in `first` counts."""
    from specmodel.prediction.columns import COLUMNS, DECODE_COLUMNS, LOAD_COLUMNS, interval_of

    rooms = (*first, COLUMNS, LOAD_COLUMNS, DECODE_COLUMNS, (interval_of("speedup"),), *_ROOMS)
    return {column.name: column for room in reversed(rooms) for column in room}


def meanings() -> dict[str, str]:
    """Return the meaning of each column with its unit, by name."""
    return {
        name: column.meaning + (f" [{column.unit}]" if column.unit != "-" else "")
        for name, column in sorted(by_name().items())
    }


def chosen(
    names: Iterable[str | Column], *first: tuple[Column, ...], **titles: str
) -> list[Column]:
    """Return columns by name, under other titles where an answer has its own."""
    known = by_name(*first)

    def of_name(name: str) -> Column:
        own = name if name in known else name.rpartition("_")[0]  # whose interval ends there
        return known[own] if own == name else Column(name, known[own].unit, known[own].meaning)

    columns = (of_name(name) if isinstance(name, str) else name for name in names)
    return [replace(c, title=titles[c.name]) if c.name in titles else c for c in columns]


def units(names: Iterable[str], *first: tuple[Column, ...]) -> dict[str, str]:
    """Return the units of columns that are known."""
    known = by_name(*first)
    return {name: known[name].unit for name in names if name in known}
