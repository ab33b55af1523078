"""Describe how engines run the same layers: what they fuse, and what they overlap.

A row an engine in ``data/engines.toml``, each figure from its source.
"""

import re
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.base.files import toml_tables

Exchange: TypeAlias = Literal["ranks", "copies", "gather"]
"""How tokens get to whole experts on other GPUs: once to each GPU that has any of theirs, once for
each of their experts, or all tokens to all GPUs."""

Beside: TypeAlias = Literal["router", "latent_projections", "routed_experts"]
"""What shared experts can run beside: neither waits for the other."""

Rows: TypeAlias = tuple[int, ...] | None
"""Tokens of a sequence that a kernel takes together, None for any number [token]."""

Multiples: TypeAlias = tuple[int, int]
"""What the model's width and the width of an expert's slice are padded to multiples of [-]."""

ByCapability: TypeAlias = tuple[tuple[str, Any], ...]
"""Pairs of a compute capability, as text, and a value; that of "other" holds for all others."""


class EngineCode(Struct, frozen=True, kw_only=True):
    """What the code of an engine decides about the work of a pass.

    Parameters
    ----------
    index_rows
        Tokens of a sequence that read the index keys of sparse attention together, by the major
        compute capability of the GPU [token].
    beside, beside_tokens
        Components that shared experts run beside, on a second stream, none if they take turns; and
        in passes of up to how many tokens [token].
    exchange
        How tokens get to whole experts where attention is data-parallel.
    fused_tokens
        Tokens of a pass up to which mixed residual streams are written back and read for the next
        block by one kernel; 0 if never [token].
    norm_limits, norm_tokens, norm_models
        Up to which all-reduces one kernel does each with the norm behind it, by the compute
        capability of the GPU; in passes of up to how many tokens [token]; and how
        names of the models begin that are run so, an expression.
    mxfp4_multiples
        Multiples that the model's width and that of an expert's slice are padded to in experts of
        mxfp4, by the major compute capability of the GPU [-]. Memory counts them;
        times have them already, as kernels were timed padded and are fitted to the sizes told.
    sparse_cache_capability
        Compute capability of GPUs from which sparse attention's cache has 8 bits unless told [-].
    batches_in_flight
        Batches whose tokens compressed attention has room for beside requests' own [-].
    """

    index_rows: ByCapability
    beside: tuple[Beside, ...]
    beside_tokens: float
    exchange: Exchange
    fused_tokens: float
    norm_limits: ByCapability
    norm_tokens: float
    norm_models: str
    mxfp4_multiples: ByCapability
    sparse_cache_capability: float
    batches_in_flight: int

    def rows_together(self, compute_capability: float | None) -> Rows:
        """Return the tokens of a sequence that read index keys together on a GPU [token]."""
        rows: Rows = _of_gpu(self.index_rows, int(compute_capability or 0)) or None
        return rows

    def normed_tokens(
        self, model: str, compute_capability: float | None, gpus: int, row_bytes: float
    ) -> float:
        """Return the tokens of a pass up to which all-reduces are fused with norms [token]."""
        if not re.match(self.norm_models, model, re.IGNORECASE):
            return 0.0
        limits: dict[str, float] = dict(_of_gpu(self.norm_limits, float(compute_capability or 0)))
        return min(limits.get(str(gpus), 0) / row_bytes, self.norm_tokens)

    def padded_to(self, compute_capability: float | None) -> Multiples:
        """Return the multiples that experts of mxfp4 are padded to on a GPU [-]."""
        multiples: Multiples = _of_gpu(self.mxfp4_multiples, int(compute_capability or 0))
        return multiples


def _of_gpu(values: ByCapability, compute_capability: float) -> Any:
    known = dict(values)
    return known.get(str(compute_capability), known["other"])


def _hashable(value: Any) -> Any:
    """Return tables as pairs, and lists as tuples."""
    if isinstance(value, dict):
        return tuple((key, _hashable(each)) for key, each in value.items())
    return tuple(value) if isinstance(value, list) else value


_ROWS: dict[str, dict[str, Any]] = {
    name: {field: _hashable(value) for field, value in row.items()}
    for name, row in toml_tables(Path(__file__).parent / "data/engines.toml").items()
}
NO_ENGINE = EngineCode(**_ROWS["plain"])
"""Kernels as vLLM's, one after another."""
UNBOUNDED = _ROWS["unbounded"]
"""What the ideal engine does in passes of any size, with the kernels of another."""
_CODES = {name: replace(NO_ENGINE, **_ROWS[name]) for name in ("vllm", "sglang", "trtllm")}


def has_code(stack: str) -> bool:
    """Tell whether the engine of a stack has a row in the table."""
    return stack in _CODES


def engine_code(stack: str | None) -> EngineCode:
    """Return the row of an engine, by the name of its stack."""
    return _CODES.get(stack or "", NO_ENGINE)
