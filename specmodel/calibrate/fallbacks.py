"""Fallback kernels in published tables, found by comparing measurements with their siblings."""

from collections.abc import Collection

import pandas as pd


def slow_slices(table: pd.DataFrame) -> pd.Series:
    """Return which rows belong to a slice of a shape that ran a fallback kernel.

    Parameters
    ----------
    table
        As `read_moe` returns it, of one distribution, without cache-resident rows.

    Returns
    -------
    pandas.Series
        True where the slice cannot be as its siblings are.

    Notes
    -----
    Only measurements are compared, by the median over token counts of a slice (one shape at one
    tensor-parallel degree) with its siblings: it took 1.5 times its share of the time of a
    thinner one; or longer than a wider one; or more than twice the sum of its share of the time
    of a wider one and of that one's cheapest point. Engines pick a kernel for each size by timing
    it; where that went wrong, slices run up to five times slower than wider ones.
    """
    is_slow = pd.Series(data=False, index=table.index)
    full = table["expert_size"] * table["tensor_parallel"]
    key = [table["hidden_size"], full, table["experts_per_token"], table["num_experts"]]
    for _, rows in table.groupby(key):
        times = rows.pivot_table(index="num_tokens", columns="expert_size", values="latency")
        slow = _slow_widths(times)
        is_slow |= table.index.isin(rows.index[rows["expert_size"].isin(slow)])
    return is_slow


def _slow_widths(times: pd.DataFrame) -> set[int]:
    slow: set[int] = set()
    widths = [int(width) for width in times.columns]
    for wide in sorted(widths, reverse=True):
        thinner = [width for width in widths if width < wide]
        if any((times[wide] / times[w] * (w / wide)).median() > 1.5 for w in thinner):
            slow.add(wide)
        if wide in slow:
            continue
        for width in thinner:
            share = times[wide] * (width / wide) + times[wide].min()
            beyond_share = (times[width] / share).median() > 2
            if beyond_share or (times[width] / times[wide]).median() > 1:
                slow.add(width)
    return slow


def slow_heads(table: pd.DataFrame) -> pd.Series:
    """Return which rows belong to a shape of attention that ran a fallback kernel.

    Parameters
    ----------
    table
        As `datasets.read_decode_attention` returns it.

    Returns
    -------
    pandas.Series
        True where a shape takes 1.3 times as long for each head, or for each element of a head, as
        the next smaller shape that does not, in the median over points that take twice its least.

    Notes
    -----
    On Hopper and Blackwell, TensorRT-LLM's kernels do so from 48 heads for each KV head on.
    """
    names = ["num_heads", "num_kv_heads", "head_dim"]
    slow: set[tuple[int, ...]] = set()
    for axis in ("num_heads", "head_dim"):
        others = ["kv_dtype", *(name for name in names if name != axis)]
        for _, rows in table.groupby(others):
            slow |= _slow_along(rows[~rows_in(rows[names], slow)], axis, names)
    return rows_in(table[names], slow)


def rows_in(shapes: pd.DataFrame, known: Collection[tuple[int, ...]]) -> pd.Series:
    """Return which rows of a table of sizes are among some shapes.

    Parameters
    ----------
    shapes
        A column a size.
    known
        The shapes, sizes in the order of the columns [-].

    Returns
    -------
    pandas.Series
        True where a row is.
    """
    rows = shapes.itertuples(index=False, name=None)
    return pd.Series([row in known for row in rows], shapes.index, dtype=bool)


def _slow_along(rows: pd.DataFrame, axis: str, names: list[str]) -> set[tuple[int, ...]]:
    times = rows.pivot_table(index=["batch_size", "context_length"], columns=axis, values="latency")
    slow: set[tuple[int, ...]] = set()
    reference: int | None = None
    for size in map(int, times.columns):
        if reference is not None:
            both = times[[reference, size]].dropna()
            both = both[both[size] > 2 * times[size].min()]
            growth = (both[size] / both[reference] / (size / reference)).median()
            if growth > 1.3:
                shape = rows[rows[axis] == size][names].iloc[0]
                slow.add(tuple(int(value) for value in shape))
                continue
        reference = size
    return slow
