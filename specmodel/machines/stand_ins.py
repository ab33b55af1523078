"""Which fit stands in where a stack lacks one for a kind of kernels and a dtype.

The rule was tested by leaving each published table out in turn and predicting it by what would
stand in (``calibration/stand_ins.py``); the errors found are kept in ``data/stand_ins.toml``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_args

from specmodel.base import records
from specmodel.base.dtypes import names_of_fits
from specmodel.base.records import Record
from specmodel.base.schemas import Day, Setting
from specmodel.machines.kernels import (
    TYPICAL,
    FittedStack,
    KernelFit,
    Kernels,
    Spread,
    fitted_dtype,
)

Candidate = Literal["other_stack", "typical", "own"]
"""What may stand in: another stack of the GPU or typical kernels at the same dtype, or the stack
itself at its standard dtype."""
CANDIDATES: tuple[Candidate, ...] = get_args(Candidate)

_DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, kw_only=True)
class Ranking(Record):
    """What leaving out the tables of a kind showed: candidates in the order of their errors [-].

    The error of a candidate is the median over tables of its mean error on a table left out, its
    spread the deviation over tables of the part of ln(measured / predicted) each has in common.
    """

    order: list[Candidate]
    error: dict[Candidate, Spread]
    spread: dict[Candidate, Spread]
    num_tables: Annotated[int, Setting(ge=1, le=10_000)]


@dataclass(frozen=True, kw_only=True)
class StandIns(Record):
    """Rankings by kind; of kinds without one, nothing but typical kernels stands in."""

    source: Annotated[str, Setting(min_length=3)]
    date: Day
    kinds: dict[str, Ranking]


class StandIn(NamedTuple):
    """A fit that stands in, what it is, and whose."""

    fit: KernelFit
    candidate: Candidate
    name: str


@cache
def load_stand_ins() -> StandIns:
    """Return the rule that ships."""
    return records.load(StandIns, "stand_ins", _DATA, "stand_ins")


def candidates(
    kind: str,
    dtype: str,
    own: FittedStack,
    others: Mapping[str, FittedStack],
    typical: FittedStack,
) -> Iterator[StandIn]:
    """Yield what could stand in for the fit of a kind and dtype that a stack lacks.

    Of other stacks of the GPU it is the one whose fit has the smallest mean error.
    """
    found = {name: fit for name, other in others.items() if (fit := other.of_kind(kind).get(dtype))}
    if found:
        best = min(found, key=lambda name: found[name].mean_error)
        yield StandIn(found[best], "other_stack", best)
    common = typical.of_kind(kind).get(dtype)
    if common:
        yield StandIn(common, "typical", TYPICAL)
    for name in (*names_of_fits(dtype)[1:], fitted_dtype(kind)):
        if name != dtype and name in own.of_kind(kind):
            yield StandIn(own.of_kind(kind)[name], "own", name)
            return


def with_stand_ins(
    own: FittedStack, others: Mapping[str, FittedStack], typical: FittedStack, rule: StandIns
) -> tuple[FittedStack, dict[tuple[str, str], StandIn]]:
    """Return a stack with fits for dtypes that it has none of, and these by kind and dtype.

    Fits that stand in have the error and the spread that leaving tables out showed. Dtypes for
    which the stack's own standard fit is the best are left to `FittedStack.place`, and kinds that
    no stack of the GPU has to `stack_kernels`.
    """
    filled: dict[str, dict[str, KernelFit]] = {}
    said: dict[tuple[str, str], StandIn] = {}
    for kind, ranking in rule.kinds.items():
        mine = own.of_kind(kind)
        known = {dtype for other in others.values() for dtype in other.of_kind(kind)}
        known |= set(typical.of_kind(kind)) if mine or known else set()
        for dtype in sorted(known - set(mine)):
            found = {one.candidate: one for one in candidates(kind, dtype, own, others, typical)}
            best = next((found[name] for name in ranking.order if name in found), None)
            if best and best.candidate != "own":
                filled.setdefault(kind, dict(mine))[dtype] = _widened(best, ranking)
                said[kind, dtype] = best
    return own.with_fits(filled), said


def taken_fit(
    kernels: Kernels, kind: str, stored: str, arithmetic: str | None = None
) -> KernelFit | None:
    """Return the fit that kernels of a kind and dtypes take, with the errors of what stands in.

    Those of another stack's or typical kernels are in the fit; a stack's own of its standard dtype
    has here those that leaving out the tables of other dtypes showed. None on the data sheet.
    """
    place = kernels.taken(kind, stored, arithmetic)
    fit = kernels.record.fit(kind, stored, arithmetic) if kernels.record else None
    if not (place and fit):
        return fit
    ranking, dtype = load_stand_ins().kinds.get(place[0]), fitted_dtype(place[0])
    is_own = place[1] == dtype != stored and stored != "fp16"
    if is_own and ranking and "own" in ranking.error:
        return fit.with_errors(ranking.error["own"], ranking.spread["own"])
    return fit


def _widened(stand_in: StandIn, ranking: Ranking) -> KernelFit:
    """Return a fit with the error and spread of one that stands in."""
    name = stand_in.candidate
    return stand_in.fit.with_errors(ranking.error[name], ranking.spread[name])
