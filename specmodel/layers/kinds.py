"""The table of kinds of kernels: whoever adds a kind adds a row here, and layers that run it.

Kinds use a GPU in different ways, so that each has fits of its own. All that lists kinds reads this
table: fitted stacks, intervals, sensitivities, words and plots.
"""

from typing import Literal

from specmodel.base.classes import dataclass
from specmodel.base.errors import InputError, nearest


@dataclass(frozen=True, kw_only=True)
class KernelKind:
    """One kind of kernels.

    Parameters
    ----------
    name
        What `Work.kind`, tables of measurements and profiles call it.
    follows
        What has the dtype that its fits are named by; "" for what has no fits, as messages.
    fallback
        Kind whose fits are taken where neither the stack nor typical kernels have one of this kind;
        without it this kind must be fitted.
    own_fallback_first
        Whether the stack's own fits of `fallback` are taken before typical ones of this kind.
    errors_of
        Kind whose errors it has, where it has too few points for its own.
    untimed
        Of a kind that nobody timed, what its errors grow by where it takes the fits of `fallback`:
        least mean error, and the standard deviations of ln(measured / predicted) that a table has
        in common and between decoding and verifying [-].
    computes_as_fitted
        Whether arithmetic runs in the dtype that was fitted, whatever a cache has.
    assumption
        What is assumed of kernels of another kind that take the fits of this one, in words.
    launches
        How many times as long the host takes to launch one of these as a kernel of compiled code,
        where no CUDA graph holds it [-].
    """

    name: str
    follows: Literal["weights", "cache", "state", "activations", ""] = "cache"
    fallback: str = ""
    own_fallback_first: bool = False
    errors_of: str = ""
    untimed: tuple[float, float, float] | None = None
    computes_as_fitted: bool = False
    assumption: str = ""
    launches: float = 1.0

    @property
    def words(self) -> str:
        """Name of the kind as readers see it."""
        return self.name.replace("_", " ")


_ROWS = (
    # what Python decides around them makes a host launch 48 layers of experts beyond the graphs in
    # 57 to 63 ms, and 64 dense layers of more kernels in some 40 (GB200, vLLM 0.24)
    KernelKind(name="experts", follows="weights", launches=2.5),
    KernelKind(name="gemm", follows="weights", assumption="streams as fast as matrices"),
    KernelKind(name="attention", assumption="as fast as grouped attention"),
    KernelKind(name="elementwise", follows="activations", errors_of="gemm"),
    KernelKind(
        name="latent_attention",
        fallback="attention",
        own_fallback_first=True,
        assumption="as fast as latent attention",
    ),
    KernelKind(name="sparse_attention", fallback="latent_attention"),
    # timed within the layers of sparse attention that it is part of; so are the other indexers
    KernelKind(name="indexer", fallback="sparse_attention", errors_of="sparse_attention"),
    # of DeepSeek-V4
    KernelKind(name="compressed_attention", fallback="sparse_attention"),
    KernelKind(name="compressed_indexer", fallback="indexer", errors_of="compressed_attention"),
    KernelKind(name="block_sparse_attention", fallback="attention"),
    KernelKind(
        name="block_indexer", fallback="block_sparse_attention", errors_of="block_sparse_attention"
    ),
    # several residual streams
    KernelKind(name="hyper_connections", follows="activations", fallback="elementwise"),
    KernelKind(  # streams its state as a product streams its weights
        name="recurrence",
        follows="state",
        fallback="gemm",
        assumption="as fast as other recurrences by bytes of state, timed by nobody",
    ),
    KernelKind(
        # Mamba-2. Errors are those of vLLM's law of recurrences on the kernels of SGLang and
        # TensorRT-LLM on the same GPUs: gated delta nets and Kimi's, 28 tables, 7 pairs of
        # decoding and verifying (2026-11-24).
        name="state_space",
        follows="state",
        fallback="recurrence",
        untimed=(0.165, 0.225, 0.187),
    ),
    # Part of no step, only of the prefill that steps carry: it errs as far as decoding does.
    # What kernels gain from caches of 8 bits only their own fit would say.
    KernelKind(name="prompt_attention", errors_of="attention", computes_as_fitted=True),
    KernelKind(
        name="latent_prompt_attention", errors_of="latent_attention", computes_as_fitted=True
    ),
    # Fitted with others of the engine whose kernels it shares, where its own are not as fast as
    # those of other recurrences.
    KernelKind(name="kimi_recurrence", follows="state", fallback="recurrence"),
    KernelKind(name="message", follows=""),
)

KINDS = {row.name: row for row in _ROWS}
"""Rows by name."""

FITTED_KINDS = tuple(row.name for row in _ROWS if row.follows)
"""Kinds that are fitted, in the order in which profiles list them."""

MAIN_KINDS = tuple(name for name in FITTED_KINDS if not KINDS[name].errors_of)
"""Kinds that have errors of their own."""


def kernel_kind(name: str) -> KernelKind:
    """Return the row of a kind of kernels; raise an InputError for an unknown name."""
    try:
        return KINDS[name]
    except KeyError:
        known = nearest(name, KINDS)
        expected = f"a kind of kernels with a row in specmodel/layers/kinds.py, such as {known}"
        raise InputError("kind", name, expected) from None
