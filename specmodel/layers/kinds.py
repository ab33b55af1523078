"""The table of kinds of kernels: whoever adds a kind adds a row here, and layers that run it.

Kinds use a GPU in different ways, so that each has fits of its own. All that lists kinds reads this
table: fitted stacks, intervals, sensitivities, words and plots.
"""

from dataclasses import dataclass
from typing import Literal

from specmodel.base.errors import InputError, nearest

WALKED_BYTES_PER_S = 40e9
"""At which one block of threads reads a head's keys and values, and computes on them in turn [B/s].
An SM of an A100 gets 67e9 of its L2 (5,120 B a clock for 108); a tile of 32 keys of 512 in 16 bits
takes 1.0 us by that, 0.36 us of products of 16 rows at the peak, and some 0.25 us to scale what was
summed. Two steps published at 44k entries (p26-336 and 337, in sight when this was written) ask for
22e9 in seconds, and for 50e9 beside a plain pass of twice the time predicted."""


@dataclass(frozen=True, kw_only=True)
class KernelKind:
    """One kind of kernels.

    `name` is what `Work.kind`, tables of measurements and profiles call it; fits go by the dtype of
    what it `follows`, "" for what has no parameters of kernels, as messages. Where neither the
    stack nor typical kernels have fits of it, those of `stand_in` are taken, without which it must
    be fitted; with `takes_own_first`, the stack's own fits of `stand_in` precede typical ones of
    this kind. Errors are those of the kind `errors_of` where this one has too few points. Nobody
    timed a kind that has `untimed`: by these its errors grow where fits of `stand_in` are taken,
    the mean error, and the standard deviations of ln(measured / predicted) that a table has in
    common and between decoding and verifying [-]; `assumption` says in words what is assumed. With
    `computes_as_fitted`, arithmetic runs in the dtype that was fitted, whatever a cache has. No
    `marker` in plots is for what is never timed alone. Fits that ship have a standard deviation of
    ln(measured / predicted) of at most `largest_spread`, and 80 % intervals that hold a share
    within `held_share` of points not fitted [-]. One block of threads reads `walked_bytes_per_s`
    where its kernels do not spread what a sequence reads, which its depth tells [B/s].
    """

    name: str
    follows: Literal["weights", "cache", "state", "activations", ""] = "cache"
    stand_in: str = ""
    errors_of: str = ""
    untimed: tuple[float, float, float] | None = None
    takes_own_first: bool = False
    computes_as_fitted: bool = False
    assumption: str = ""
    largest_spread: float = 0.25
    held_share: tuple[float, float] = (0.70, 0.90)
    walked_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        if self.stand_in and not self.follows:
            expected = (
                f"what fits of {self.name} go by, such as cache, as {self.stand_in} stands in"
            )
            raise InputError("follows", self.follows, expected)

    @property
    def words(self) -> str:
        """Its name for people."""
        return self.name.replace("_", " ")


_ROWS = (
    KernelKind(name="experts", follows="weights"),
    KernelKind(name="gemm", follows="weights", assumption="streams as fast as matrices"),
    KernelKind(
        name="attention",
        assumption="as fast as grouped attention",
        walked_bytes_per_s=WALKED_BYTES_PER_S,
    ),
    KernelKind(name="elementwise", follows="activations", errors_of="gemm"),
    KernelKind(
        name="latent_attention",
        stand_in="attention",
        takes_own_first=True,
        assumption="as fast as latent attention",
        largest_spread=0.30,  # Triton's kernels on L40S
        held_share=(0.64, 0.96),
    ),
    KernelKind(name="sparse_attention", stand_in="latent_attention"),
    KernelKind(  # timed within the layers of sparse attention that it is part of
        name="indexer", stand_in="sparse_attention", errors_of="sparse_attention"
    ),
    KernelKind(  # of DeepSeek-V4
        name="compressed_attention", stand_in="sparse_attention"
    ),
    KernelKind(  # timed within the layers of compressed attention
        name="compressed_indexer", stand_in="indexer", errors_of="compressed_attention"
    ),
    KernelKind(name="block_sparse_attention", stand_in="attention"),
    KernelKind(  # timed within the layers of block-sparse attention
        name="block_indexer", stand_in="block_sparse_attention", errors_of="block_sparse_attention"
    ),
    KernelKind(  # several residual streams
        name="hyper_connections",
        follows="activations",
        stand_in="elementwise",
        largest_spread=0.30,  # streams of TensorRT-LLM on Hopper
    ),
    KernelKind(  # streams its state as a product streams its weights
        name="recurrence",
        follows="state",
        stand_in="gemm",
        assumption="as fast as other recurrences by bytes of state, timed by nobody",
        held_share=(0.64, 0.96),
    ),
    KernelKind(
        # Mamba-2. Errors are those of vLLM's law of recurrences on the kernels of SGLang and
        # TensorRT-LLM on the same GPUs: gated delta nets and Kimi's, 28 tables, 7 pairs of
        # decoding and verifying (2026-11-24).
        name="state_space",
        follows="state",
        stand_in="recurrence",
        untimed=(0.165, 0.225, 0.187),
    ),
    KernelKind(
        # Part of no step, only of the prefill that steps carry: it errs as far as decoding does.
        # What kernels gain from caches of 8 bits only their own fit would say.
        name="prompt_attention",
        errors_of="attention",
        computes_as_fitted=True,
    ),
    KernelKind(
        name="latent_prompt_attention", errors_of="latent_attention", computes_as_fitted=True
    ),
    KernelKind(
        # Fitted with others of the engine whose kernels it shares, where its own are not as fast as
        # those of other recurrences.
        name="kimi_recurrence",
        follows="state",
        stand_in="recurrence",
        held_share=(0.64, 1.0),  # shapes differ by their heads alone, of which three are left out
    ),
    KernelKind(name="message", follows=""),
)

KINDS = {row.name: row for row in _ROWS}
"""Rows by name."""

FITTED_KINDS = tuple(row.name for row in _ROWS if row.follows)
"""Kinds that are fitted, in the order in which profiles list them."""

MAIN_KINDS = tuple(name for name in FITTED_KINDS if not KINDS[name].errors_of)
"""Kinds that have errors of their own."""


def kernel_kind(name: str) -> KernelKind:
    """Return the row of a kind of kernels; an InputError names one that the table has not."""
    try:
        return KINDS[name]
    except KeyError:
        known = nearest(name, KINDS)
        expected = f"a kind of kernels with a row in specmodel/layers/kinds.py, such as {known}"
        raise InputError("kind", name, expected) from None
