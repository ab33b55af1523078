"""Make tables of measurements from published timings of experts, with the role of each row."""

import numpy as np
import pandas as pd

from published.rivals import without_slow
from published.roles import MAX_TOKENS, cold_rows, fastest_kernels, roles_of, rows_in, stored_bytes
from specmodel.calibrate.measure.measurements import COLUMNS, SHAPE
from specmodel.core.base.units import FloatArray
from specmodel.core.machines.hardware import HardwareProfile

EXPERT_SHAPES = {
    (4096, 14336, 2, 8),
    (2048, 768, 8, 128),
    (4096, 1536, 8, 128),
    (6144, 2048, 8, 256),
}
"""(hidden, expert width, top-k, experts) that experts are fitted on; all others are judged. A
dtype that was timed on none of these is fitted on all of its shapes."""

_QUANTIZATIONS = (
    *("bfloat16", "fp8", "fp8_block", "nvfp4", "int4_wo"),
    *("w4a16_mxfp4", "w4a8_mxfp4_mxfp8"),
)
_MOST_IMPOSSIBLE = 0.1
"""Largest share of timings above the peak of the memory, as a cache may keep some weights [-]."""

_VARIANT = r"(monolithic|modular)$"
"""How vLLM names two ways of calling one kernel."""


def experts(
    raw: pd.DataFrame, name: tuple[str, str, str, str], device: HardwareProfile
) -> pd.DataFrame:
    """Return timings of experts with their roles.

    Left out is a dtype that another engine runs much faster (`rivals`), and one whose timings beat
    the peak of the memory (`_impossible`). Fallback kernels are slow slices (`_slow_slices`) and
    shapes that ran another library than most of their dtype (`_other_libraries`): one fit of both
    would hold for neither.
    """
    raw = without_slow(raw, name)
    usable = raw["is_gated"] & (raw["expert_parallel"] == 1)
    usable &= raw["quantization"].isin(_QUANTIZATIONS)
    usable &= raw["active_experts"].notna() & (raw["num_tokens"] <= MAX_TOKENS)
    is_other = _other_libraries(raw)
    table = fastest_kernels(raw[usable]).assign(num_matrices=3)
    table["model_expert_size"] = table["expert_size"] * table["tensor_parallel"]
    elements = table["active_experts"] * 3 * table["hidden_size"] * table["expert_size"]
    read = stored_bytes(elements, table["weight_dtype"])
    is_possible = ~table["quantization"].isin(_impossible(table, read, device))
    table, read = table[is_possible], read[is_possible]
    is_cold = cold_rows(read, device)
    is_slow = pd.Series(table.index.isin(_slow_slices(table[is_cold])), table.index)
    is_slow |= is_other.reindex(table.index)
    is_fitted = rows_in(table[list(SHAPE["experts"])], EXPERT_SHAPES) & ~is_slow
    fitted_dtypes = table["quantization"][is_fitted].unique()
    is_fitted |= ~table["quantization"].isin(fitted_dtypes)
    is_skewed = is_fitted & (table["distribution"] != "balanced")
    roles = roles_of(is_fitted, is_cold, is_slow).mask(is_skewed & is_cold & ~is_slow, "spread")
    names = [*COLUMNS["experts"], "model_expert_size", "distribution", "latency"]
    return table[names].assign(role=roles)


def _impossible(table: pd.DataFrame, read_bytes: pd.Series, device: HardwareProfile) -> list[str]:
    """Return the dtypes whose weights came faster than memory can, so that fewer were read.

    TensorRT-LLM's kernels for NVFP4 on B200 and GB200 choose experts themselves when they are
    timed: a fifth of their timings would be at 1.3 times the peak if all experts were read that
    their rows name.
    """
    is_over = read_bytes / table["latency"] > device.memory.peak_bytes_per_s
    is_told = cold_rows(read_bytes, device) & (table["distribution"] == "balanced")
    share = is_over[is_told].groupby(table["quantization"]).mean()
    return [str(name) for name in share.index[share > _MOST_IMPOSSIBLE]]


def _other_libraries(table: pd.DataFrame) -> pd.Series:
    """Return the rows of shapes that ran no kernel of the library that is fastest most often.

    On Blackwell, SGLang runs TensorRT-LLM's experts for the models that it knows them to do for,
    DeepSeek, Qwen3, GLM and others, and its own Triton kernels for the rest. TensorRT-LLM's fast
    kernels for NVFP4 were not timed for 384 and 512 experts, and its others take three times as
    long.
    """
    library = table["kernel_source"].str.replace(_VARIANT, "", regex=True)
    shape = table.groupby(["hidden_size", "num_experts", "experts_per_token"]).ngroup()
    ran = fastest_kernels(table[table["is_gated"]])["quantization"].to_frame()
    counts = ran.assign(library=library).groupby(["quantization", "library"]).size()
    most = counts.sort_values(kind="stable").groupby("quantization").tail(1).reset_index("library")
    is_main = library == table["quantization"].map(most["library"])
    return ~is_main.groupby([table["quantization"], shape]).transform("any")


def _slow_slices(table: pd.DataFrame) -> list[int]:
    """Return the rows that belong to a slice of experts that ran a fallback kernel.

    A slice is one shape at one tensor-parallel degree, compared with its siblings by medians over
    token counts. It is slow if it took 1.5 times its share of the time of a thinner one; or longer
    than a wider one; or more than twice the sum of its share of the time of a wider one and of
    that one's cheapest point. The table has rows that were read from memory only.
    """
    found: list[int] = []
    for _, rows in table.groupby(["quantization", "distribution", *SHAPE["experts"]]):
        point = rows.groupby(["num_tokens", "expert_size"])["latency"].mean()
        times = point.unstack("expert_size")
        found += rows.index[rows["expert_size"].isin(_slow_widths(times))].tolist()
    return found


def _slow_widths(times: pd.DataFrame) -> set[int]:
    """Return the widths that are slow, from times by number of tokens, a column a width."""
    slow: set[int] = set()
    by_width = {int(width): times[width].to_numpy() for width in times.columns}
    for wide in sorted(by_width, reverse=True):
        thinner = [width for width in by_width if width < wide]
        if any(_median(by_width[wide] / by_width[w] * (w / wide)) > 1.5 for w in thinner):
            slow.add(wide)
        if wide in slow:
            continue  # a wide slice that is slow itself is no measure for thinner ones
        cheapest = np.nanmin(by_width[wide])
        for width in thinner:
            share = by_width[wide] * (width / wide) + cheapest
            beyond_share = _median(by_width[width] / share) > 2
            if beyond_share or _median(by_width[width] / by_width[wide]) > 1:
                slow.add(width)
    return slow


def _median(ratios: FloatArray) -> float:
    """Return the median of the ratios that are known, NaN if none is [-]."""
    known = ratios[~np.isnan(ratios)]
    return float(np.median(known)) if known.size else np.nan
