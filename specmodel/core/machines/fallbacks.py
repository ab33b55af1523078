"""Choose the fits for a stack's kernels: its own, and others for missing ones.

``calibration/fallbacks.py`` tested the order of fallbacks: it left out one published table after
another, and predicted it with each candidate. ``data/fallbacks.toml`` contains the errors.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta
from msgspec.structs import replace

from specmodel.core.base import records
from specmodel.core.base.bounds import Day, Spread
from specmodel.core.base.dtypes import names_of_fits
from specmodel.core.base.errors import InputError
from specmodel.core.base.records import Record
from specmodel.core.layers.kinds import FITTED_KINDS, kernel_kind
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.machines.kernels import (
    DATA_SHEET_KERNELS,
    TYPICAL,
    FittedStack,
    KernelFit,
    Kernels,
    fitted_dtype,
    load_typical,
)

Candidate = Literal["other_stack", "typical", "own"]
"""Fallbacks of a stack: another stack of the GPU or typical kernels at the same dtype, or its own
fit at the standard dtype of the kind."""

_DATA = Path(__file__).parent / "data"


class Ranking(Record, frozen=True, kw_only=True):
    """Candidates to replace a missing fit, ordered by their error on tables left out [-].

    The error of a candidate is the median over tables of its mean error on a table left out. Its
    spread is the standard deviation, over tables, of the mean of ln(measured / predicted).
    """

    order: list[Candidate]
    error: dict[Candidate, Spread]
    spread: dict[Candidate, Spread]
    num_tables: Annotated[int, Meta(ge=1, le=10_000)]


class Rankings(Record, frozen=True, kw_only=True):
    """Rankings by kind; kinds without a ranking only fall back to typical kernels."""

    source: Annotated[str, Meta(min_length=3)]
    date: Day
    kinds: dict[str, Ranking]


class Fallback(NamedTuple):
    """A fit that may replace a missing one, and its stack or dtype."""

    fit: KernelFit
    name: str


@cache
def load_rankings() -> Rankings:
    """Return the shipped rankings."""
    return records.load(Rankings, "fallbacks", _DATA, "fallbacks")


def candidates(
    kind: str, dtype: str, own: FittedStack, others: Mapping[str, FittedStack], typical: FittedStack
) -> dict[Candidate, Fallback]:
    """Return the fits that may replace a missing fit of a stack at a kind and dtype.

    These are the fit of the GPU's other stacks with the smallest mean error, the typical fit, and
    the stack's own fit of another dtype, if they exist.
    """
    found = dict[Candidate, Fallback]()
    timed = {name: fits[dtype] for name, s in others.items() if dtype in (fits := s.of_kind(kind))}
    if timed:
        best = min(timed, key=lambda name: timed[name].mean_error)
        found["other_stack"] = Fallback(timed[best], best)
    if common := typical.of_kind(kind).get(dtype):
        found["typical"] = Fallback(common, TYPICAL)
    for name in (*names_of_fits(dtype)[1:], fitted_dtype(kind)):
        if name != dtype and name in own.of_kind(kind):
            found.setdefault("own", Fallback(own.of_kind(kind)[name], name))
    return found


def choose_kernels(
    hardware: HardwareProfile, stack: str | None = None, preferred: str | None = None
) -> Kernels:
    """Return how a stack's kernels use a device; raise an InputError for an unknown stack.

    All-reduces have the fit of the preferred stack if the link has one, even without other fits.
    `stack_kernels` describes the fallbacks of a stack.

    Parameters
    ----------
    hardware, stack
        The device, and a stack that its profile has fitted, "typical" or "datasheet".
    preferred
        The stack to use if none is named and this one was fitted. Otherwise, the default of the
        profile or typical kernels are used.
    """
    if stack is None:
        taken = preferred in (*hardware.fitted, TYPICAL, DATA_SHEET_KERNELS.stack)
        chosen = preferred if preferred and taken else hardware.default_stack or TYPICAL
        kernels = choose_kernels(hardware, chosen)
        is_timed = hardware.link is not None and preferred in hardware.link.all_reduce
        return replace(kernels, all_reduces=preferred) if is_timed else kernels
    if stack == DATA_SHEET_KERNELS.stack:
        return DATA_SHEET_KERNELS
    if stack == TYPICAL:
        return stack_kernels(TYPICAL, load_typical())
    if not isinstance(stack, str) or stack not in hardware.fitted:
        known = ", ".join([*hardware.fitted, TYPICAL, DATA_SHEET_KERNELS.stack])
        raise InputError("stack", stack, f"one of {known}, the kernel libraries of {hardware.name}")
    others = {name: fits for name, fits in hardware.fitted.items() if name != stack}
    is_gpu = hardware.kind == "gpu"  # kernels of other stacks do not describe a CPU
    return stack_kernels(stack, hardware.fitted[stack], others if is_gpu else None)


def stack_kernels(
    name: str,
    own: FittedStack,
    others: Mapping[str, FittedStack] | None = None,
    *,
    typical: FittedStack | None = None,
    rankings: Rankings | None = None,
) -> Kernels:
    """Return the fits of a stack by kind and dtype, with fallbacks for missing fits.

    1. Its own fit of the kind and dtype comes first.
    2. If `others`, the other stacks of the GPU, or typical kernels were timed at the dtype, the
       first candidate of the kind's ranking follows, with the errors on tables left out. This step
       is skipped if `others` is None, and for kinds that were not timed on the GPU.
    3. Typical kernels replace a kind without a fit at its standard dtype, unless the kind first
       falls back to another kind of the stack (`KernelKind.own_fallback_first`).

    `Kernels.place` then chooses among these by the dtypes that meet in a kernel, and falls back to
    the stack's standard dtype and to another kind.
    """
    typical, ranked = typical or load_typical(), (rankings or load_rankings()).kinds
    fits = {kind: dict(own.of_kind(kind)) for kind in FITTED_KINDS}
    borrowed = {} if others is None else _borrowed(own, others, typical, ranked)
    for (kind, dtype), (fit, _) in borrowed.items():
        fits[kind][dtype] = fit
    lacking = []
    for kind in FITTED_KINDS if name != TYPICAL else ():
        row = kernel_kind(kind)
        has_fallback = row.own_fallback_first and fits[row.fallback]
        if fitted_dtype(kind) not in fits[kind] and not has_fallback:
            lacking.append(kind)
    for kind in lacking:
        fits[kind] = {**typical.of_kind(kind), **fits[kind]}
    return Kernels(
        stack=name,
        fits=fits,
        record=own,
        typical=tuple(kind for kind in lacking if fits[kind]),
        borrowed={place: owner for place, (_, owner) in borrowed.items()},
        standard_errors={
            kind: (ranking.error["own"], ranking.spread["own"])
            for kind, ranking in ranked.items()
            if "own" in ranking.error
        },
    )


def _borrowed(
    own: FittedStack,
    others: Mapping[str, FittedStack],
    typical: FittedStack,
    rankings: Mapping[str, Ranking],
) -> dict[tuple[str, str], Fallback]:
    """Return the borrowed fits for missing dtypes of a stack, with errors, by kind and dtype."""
    found = dict[tuple[str, str], Fallback]()
    for kind, ranking in rankings.items():
        mine = set(own.of_kind(kind))
        timed = {dtype for other in others.values() for dtype in other.of_kind(kind)}
        timed |= set(typical.of_kind(kind)) if timed or mine else set()
        for dtype in sorted(timed - mine):
            known = candidates(kind, dtype, own, others, typical)
            best: Candidate = next((name for name in ranking.order if name in known), "own")
            if best != "own":
                fit = known[best].fit.with_errors(ranking.error[best], ranking.spread[best])
                found[kind, dtype] = Fallback(fit, known[best].name)
    return found
