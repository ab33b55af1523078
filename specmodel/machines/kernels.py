"""Fitted kernels of a serving stack: parameters of the roofline, and how far to trust them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, model_validator

from specmodel.algebra.roofline import DATA_SHEET, KernelParameters
from specmodel.base import records
from specmodel.base.dtypes import StorageDtype, names_of_fits
from specmodel.base.errors import InputError
from specmodel.base.records import Record
from specmodel.machines.covariance import check_covariance

FitKind = Literal[
    "experts",
    "gemm",
    "attention",
    "elementwise",
    "latent_attention",
    "sparse_attention",
    "indexer",
    "compressed_attention",
    "compressed_indexer",
    "block_sparse_attention",
    "block_indexer",
    "hyper_connections",
    "recurrence",
    "state_space",
    "prompt_attention",
    "latent_prompt_attention",
    "kimi_recurrence",
]
"""Kinds of kernels that are fitted apart."""
KINDS: tuple[str, ...] = get_args(FitKind)

FitDtype = Literal[StorageDtype, "mxfp4_fp8", "int4_fp8"]
"""Dtypes of weights or caches as fits are named: with 8 bits of activations where others are
usual."""

STANDS_IN = {
    "elementwise": "gemm",
    "indexer": "sparse_attention",
    "compressed_indexer": "compressed_attention",
    "block_indexer": "block_sparse_attention",
    "prompt_attention": "attention",
    "latent_prompt_attention": "latent_attention",
}
"""Kind whose errors are taken for one that has few points of its own, or none: indexers were timed
within the layers of sparse or compressed attention that they are part of. Attention of prompts is
part of no step, only of the prefill that steps carry: it errs as far as that of decoding."""

MAIN_KINDS = tuple(kind for kind in KINDS if kind not in STANDS_IN)
"""Kinds that have errors of their own."""

INSTEAD = {
    "latent_attention": "attention",
    "sparse_attention": "latent_attention",
    "indexer": "sparse_attention",
    "compressed_attention": "sparse_attention",
    "compressed_indexer": "indexer",
    "block_sparse_attention": "attention",
    "block_indexer": "block_sparse_attention",
    "hyper_connections": "elementwise",
    "kimi_recurrence": "recurrence",
    "recurrence": "gemm",
    "state_space": "recurrence",
}
"""Kind whose fits are taken where neither a stack nor typical kernels have any of a kind: another
attention over the cache that each reads, a product that streams its weights for a recurrence
that streams its state, and that recurrence for the state space of Mamba-2. Kimi's was fitted with
others of the engine whose kernels it shares."""

UNTIMED = {"state_space": (0.165, 0.22, 0.18)}
"""Kinds that no table has, whose errors are larger than those of the fits they take: mean error,
and standard deviations of ln(measured / predicted), of what a table has in common, and between
decoding and verifying. They are those of vLLM's law of recurrences on the kernels of SGLang and
TensorRT-LLM on the same GPUs: gated delta nets and Kimi's, 24 tables, 6 pairs (2026-11-22)."""

_OF_STATES = ("recurrence", "kimi_recurrence", "state_space")
_OF_PROMPTS = ("prompt_attention", "latent_prompt_attention")
_READS_A_CACHE = (
    *("attention", "latent_attention", "sparse_attention", "indexer", *_OF_STATES),
    *("compressed_attention", "compressed_indexer"),
    *("block_sparse_attention", "block_indexer"),
    *_OF_PROMPTS,
)

Share = Annotated[float, Field(gt=0, le=1)]
Spread = Annotated[float, Field(ge=0, le=10)]
Points = Annotated[int, Field(ge=0, le=10**9)]

TYPICAL = "typical"
"""Name of the stack that stands in where nothing was fitted."""

_AS = {"fp16": "bf16"}

FITTED_DTYPE: Literal["bf16"] = "bf16"
"""Dtype whose parameters stand in for dtypes that were not fitted."""

STATE_DTYPE: Literal["fp32"] = "fp32"
"""That of recurrences, whose state engines keep in 32 bits."""


def fitted_dtype(kind: str) -> StorageDtype:
    """Return the dtype whose fit stands in for dtypes of a kind that were not fitted."""
    return STATE_DTYPE if kind in _OF_STATES else FITTED_DTYPE


class KernelFit(Record):
    """Fitted parameters of one kind of kernel at one dtype of weights or KV.

    Parameters
    ----------
    launch_time, memory_efficiency, compute_efficiency, activation_efficiency, sharpness
        Parameters of the roofline, which `KernelParameters` describes [s] [-].
    tile_rows, tile_growth, tile_width, group_time, ramp_time, depth_time, depth_limit
        Further ones, of tiles [-], of groups and ramps [s], and of depths [s] [-].
    arithmetic_dtype
        Dtype that the kernels compute in: the fit holds for no other.
    num_points, num_judged
        Points fitted, and points that the errors are of [-].
    is_held_out
        Whether these are of shapes that were not fitted.
    mean_error, median_error, percentile_90_error
        Of predicted over measured less one, absolute: mean over points within a shape and then
        over shapes, median and 90th percentile over points [-].
    shape_spread, row_spread
        Standard deviation of ln(measured / predicted) that a shape has in common, and of its
        points around that [-].
    at_bound
        Parameters that the fit left at a bound: what is taken of them is the bound.
    covariance
        Of the logarithms of `varied` [-].
    varied
        Parameters that the covariance is of, in its order.
    """

    launch_time: Annotated[float, Field(ge=0, le=1)]
    memory_efficiency: Share
    compute_efficiency: Share = 1.0
    activation_efficiency: Annotated[float, Field(gt=0, le=100)] | None = None
    sharpness: Annotated[float, Field(ge=1, le=64)]
    tile_rows: Annotated[float, Field(ge=0, le=4096)] = 0.0
    tile_growth: Annotated[float, Field(ge=0, lt=1)] = 0.0
    tile_width: Annotated[float, Field(ge=0, le=4096)] = 0.0
    group_time: Annotated[float, Field(ge=0, le=1e-3)] = 0.0
    ramp_time: Annotated[float, Field(ge=0, le=1)] = 0.0
    depth_time: Annotated[float, Field(ge=0, le=1e-3)] = 0.0
    depth_limit: Annotated[float, Field(gt=0, le=1e9)] = 1e9
    arithmetic_dtype: str
    num_points: Points
    num_judged: Points
    is_held_out: bool
    mean_error: Spread
    median_error: Spread
    percentile_90_error: Spread
    shape_spread: Spread
    row_spread: Spread
    at_bound: list[str] = Field(default_factory=list)
    varied: list[str]
    covariance: list[list[float]]

    @model_validator(mode="after")
    def _check_covariance(self) -> Self:
        check_covariance("", self.varied, self.covariance, _PARAMETERS)
        if not set(self.at_bound) <= set(self.varied):
            raise InputError("at_bound", self.at_bound, f"some of {', '.join(self.varied)}")
        return self

    def with_errors(self, error: float, shape: float, row: float = 0.0) -> Self:
        """Return a fit that stands in for another, which misses that by so much more [-]."""
        spreads = {"shape_spread": shape, "row_spread": row}
        wider = {name: math.hypot(getattr(self, name), more) for name, more in spreads.items()}
        return self.model_copy(update={"mean_error": max(self.mean_error, error), **wider})

    @property
    def parameters(self) -> KernelParameters:
        """What the roofline takes."""
        return KernelParameters(**{name: getattr(self, name) for name in _PARAMETERS})


class FittedStack(Record):
    """Kernels of one serving stack on one GPU, by kind and dtype of weights or KV.

    Parameters
    ----------
    version
        Version of the stack.
    source
        Data set the fits are to, and the device it was measured on.
    date
        Day of the fit.
    is_default
        Whether it is the one taken if none is named.
    experts, gemm, attention, elementwise, latent_attention, sparse_attention, indexer, recurrence
        Fits by dtype.
    compressed_attention, compressed_indexer
        Likewise of DeepSeek-V4's layers, by dtype of the KV cache.
    block_sparse_attention, block_indexer
        Likewise of block-sparse attention, by dtype of the KV cache.
    hyper_connections
        Likewise of several residual streams.
    state_space
        Likewise of the recurrence of Mamba-2, where one was timed.
    prompt_attention, latent_prompt_attention
        Likewise of prompts, by dtype of the KV cache; what was not measured takes typical ones
        (`stack_kernels`).
    kimi_recurrence
        Likewise of Kimi delta attention, where its kernels are not as fast as `recurrence` says.
    """

    version: str
    source: Annotated[str, Field(min_length=3)]
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    is_default: bool = False
    experts: dict[FitDtype, KernelFit] = Field(default_factory=dict)
    gemm: dict[FitDtype, KernelFit] = Field(default_factory=dict)
    attention: dict[FitDtype, KernelFit] = Field(default_factory=dict)
    elementwise: dict[FitDtype, KernelFit] = Field(default_factory=dict)
    latent_attention: dict[FitDtype, KernelFit] = Field(default_factory=dict)
    sparse_attention: dict[FitDtype, KernelFit] = Field(default_factory=dict)
    indexer: dict[FitDtype, KernelFit] = Field(default_factory=dict)
    compressed_attention: dict[FitDtype, KernelFit] = Field(default_factory=dict)
    compressed_indexer: dict[FitDtype, KernelFit] = Field(default_factory=dict)
    block_sparse_attention: dict[FitDtype, KernelFit] = Field(default_factory=dict)
    block_indexer: dict[FitDtype, KernelFit] = Field(default_factory=dict)
    hyper_connections: dict[FitDtype, KernelFit] = Field(default_factory=dict)
    recurrence: dict[FitDtype, KernelFit] = Field(default_factory=dict)
    state_space: dict[FitDtype, KernelFit] = Field(default_factory=dict)
    prompt_attention: dict[FitDtype, KernelFit] = Field(default_factory=dict)
    latent_prompt_attention: dict[FitDtype, KernelFit] = Field(default_factory=dict)
    kimi_recurrence: dict[FitDtype, KernelFit] = Field(default_factory=dict)

    def dtype_of_fit(self, kind: str, stored: str, arithmetic: str | None = None) -> str | None:
        """Return the dtype whose fit is taken.

        Parameters
        ----------
        kind
            One of `KINDS`.
        stored, arithmetic
            Dtypes of weights, KV or state, and of the arithmetic on them; None for whatever was
            fitted. What reads a cache or a state computes alike whatever that holds.

        Returns
        -------
        str or None
            The first of `names_of_fits` that was fitted with that arithmetic, else bf16, of
            recurrences fp32; None if none was.
        """
        fits: Mapping[str, KernelFit] = getattr(self, kind, {})
        is_same = kind in _READS_A_CACHE or arithmetic is None
        for name in names_of_fits(stored, arithmetic):
            own = fits.get(name)
            if own and (is_same or own.arithmetic_dtype == _AS.get(str(arithmetic), arithmetic)):
                return name
        standard = fitted_dtype(kind)
        return standard if standard in fits else None

    def place(
        self, kind: str, stored: str, arithmetic: str | None = None
    ) -> tuple[str, str] | None:
        """Return kind and dtype of the fit that is taken: of the kind itself, or of `INSTEAD`.

        Parameters
        ----------
        kind, stored, arithmetic
            As `dtype_of_fit` takes them.

        Returns
        -------
        tuple of str or None
            None if nothing was fitted that would do.
        """
        while kind:
            dtype = self.dtype_of_fit(kind, stored, arithmetic)
            if dtype:
                return kind, dtype
            kind = INSTEAD.get(kind, "")
        return None

    def fit(self, kind: str, stored: str, arithmetic: str | None = None) -> KernelFit | None:
        """Return the fit of `place`, with the errors of `UNTIMED` if it is of another kind."""
        place = self.place(kind, stored, arithmetic)
        if not place:
            return None
        fit: KernelFit = getattr(self, place[0])[place[1]]
        is_timed = place[0] == kind or kind not in UNTIMED
        return fit if is_timed else fit.with_errors(*UNTIMED[kind])

    def fits(self) -> Iterator[tuple[str, str, KernelFit]]:
        """Yield kind, dtype and fit of all there are."""
        for kind in KINDS:
            for dtype, fit in getattr(self, kind).items():
                yield kind, dtype, fit


@dataclass(frozen=True, eq=False, repr=False)
class Kernels:
    """How the kernels of a deployment use their GPU.

    Parameters
    ----------
    stack
        Whose kernels: a fitted stack, "typical" or "datasheet".
    fits
        Parameters by kind and dtype of weights or KV.
    record
        What they were taken from, with its errors; None for the data sheet.
    typical
        Kinds that the stack has no fit of, so that typical ones were taken.
    all_reduces
        Stack whose all-reduces run, if not of the same.
    stand_ins
        By kind and dtype that the stack has no fit of: whose stands in.
    """

    stack: str
    fits: Mapping[str, Mapping[str, KernelParameters]]
    record: FittedStack | None = None
    typical: tuple[str, ...] = ()
    all_reduces: str | None = None
    stand_ins: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def link_stack(self) -> str:
        """Stack whose all-reduces run."""
        return self.all_reduces or self.stack

    def taken(
        self, kind: str, stored: str, arithmetic: str | None = None
    ) -> tuple[str, str] | None:
        """Return kind and dtype of the fit that is taken for a kind and dtypes, if there is one."""
        return self.record.place(kind, stored, arithmetic) if self.record else None

    def kind_of_errors(self, kind: str) -> str:
        """Return the kind whose errors kernels of a kind have: that of the fits they take."""
        kind = STANDS_IN.get(kind, kind)
        while self.record and kind in INSTEAD.keys() - UNTIMED and not getattr(self.record, kind):
            kind = INSTEAD[kind]
        return kind

    def parameters(self, kind: str, stored: str, arithmetic: str | None = None) -> KernelParameters:
        """Return the parameters of the fit for a kind and dtypes, or the data sheet's."""
        place = self.taken(kind, stored, arithmetic)
        return self.fits[place[0]][place[1]] if place else DATA_SHEET

    def arithmetic(self, kind: str, stored: str, arithmetic: str) -> str:
        """Return the dtype whose peak those parameters are of.

        Prompts that take the fit to caches of 16 bits for one of 8 compute in 16: that kernels
        gain from 8 bits is what their own fit would have said.

        Parameters
        ----------
        kind, stored, arithmetic
            One of `KINDS`, and dtypes of what is read and of the arithmetic on it.

        Returns
        -------
        str
            `arithmetic`, but for such prompts.
        """
        fit = self.record.fit(kind, stored) if self.record and kind in _OF_PROMPTS else None
        return fit.arithmetic_dtype if fit else arithmetic


DATA_SHEET_KERNELS = Kernels("datasheet", {})


def stack_kernels(
    name: str, stack: FittedStack, stand_ins: Mapping[tuple[str, str], str] | None = None
) -> Kernels:
    """Return the kernels of a stack by its fits, or typical ones of a kind that it has no fit of.

    Latent attention takes the stack's own fits of attention before typical ones.

    Parameters
    ----------
    name, stack
        What it is called, and its fits.
    stand_ins
        Those of its fits that are others', by kind and dtype: whose.

    Returns
    -------
    Kernels
        With the kinds for which typical fits were taken.
    """
    missing = [kind for kind in KINDS if fitted_dtype(kind) not in getattr(stack, kind)]
    if stack.attention and "latent_attention" in missing:
        missing.remove("latent_attention")
    filled: dict[str, Any] = {}
    if missing and name != TYPICAL:
        typical = load_typical()
        filled = {kind: getattr(typical, kind) | getattr(stack, kind) for kind in missing}
        stack = stack.model_copy(update=filled)
    fits: dict[str, dict[str, KernelParameters]] = {}
    for kind, dtype, fit in stack.fits():
        fits.setdefault(kind, {})[dtype] = fit.parameters
    typical_kinds = tuple(kind for kind in filled if filled[kind])
    return Kernels(name, fits, stack, typical_kinds, stand_ins=stand_ins or {})


def load_typical() -> FittedStack:
    """Return typical kernels: for a device that nothing was measured on."""
    return records.load(FittedStack, TYPICAL, Path(__file__).parent / "data/stacks", "stack")


_PARAMETERS = tuple(KernelParameters.__dataclass_fields__)
