"""Describe how engines run the same layers: which kernels they fuse or overlap.

The table ``data/engines.toml`` has a row for each engine, with sources.
"""

import re
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.base.files import toml_tables

Exchange: TypeAlias = Literal["ranks", "copies", "gather"]
"""How tokens get to whole experts on other GPUs: once to each GPU that has one of their experts
("ranks"), once for each of their experts ("copies"), or all tokens to all GPUs ("gather")."""

Beside: TypeAlias = Literal["router", "latent_projections", "routed_experts"]
"""Components that can run in parallel to shared experts: neither waits for the other."""

Rows: TypeAlias = tuple[int, ...] | None
"""Tokens of a sequence that a kernel processes together, None for any number [token]."""

Multiples: TypeAlias = tuple[int, int]
"""Numbers to whose multiples the model's width and an expert's slice are padded [-]."""

ByCapability: TypeAlias = tuple[tuple[str, Any], ...]
"""Pairs of a compute capability, as text, and a value; "other" has the value of all others."""


class EngineCode(Struct, frozen=True, kw_only=True):
    """Properties of an engine's code that change the work of a pass.

    Parameters
    ----------
    index_rows
        Tokens of a sequence that read the index keys of sparse attention together, by the major
        compute capability of the GPU [token].
    beside, beside_tokens
        Components in parallel to which shared experts run, on a second stream; empty if components
        run one after another. Maximum tokens of a pass for this [token].
    exchange
        How tokens get to whole experts if attention is data-parallel.
    fused_tokens
        Maximum tokens of a pass in which one kernel writes mixed residual streams back and reads
        them for the next block; 0 if no kernel does [token].
    norm_limits, norm_tokens, norm_models
        Maximum size of all-reduces that are fused with the next norm, by the compute capability of
        the GPU; maximum tokens of a pass for this [token]; and a regex for the beginning of the
        names of models for which the engine does it.
    mxfp4_multiples
        Multiples to which the model's width and the width of an expert's slice are padded in mxfp4
        experts, by the major compute capability of the GPU [-]. Memory includes the padding. Times
        include it already, because padded kernels were timed and fitted to the original sizes.
    sparse_cache_capability
        Minimum compute capability of GPUs on which sparse attention's cache has 8 bits by default
        [-].
    batches_in_flight
        Batches for whose tokens compressed attention reserves memory, in addition to requests [-].
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
        """Return the maximum tokens of a pass in which all-reduces are fused with norms [token]."""
        if not re.match(self.norm_models, model, re.IGNORECASE):
            return 0.0
        limits: dict[str, float] = dict(_of_gpu(self.norm_limits, float(compute_capability or 0)))
        return min(limits.get(str(gpus), 0) / row_bytes, self.norm_tokens)

    def padded_to(self, compute_capability: float | None) -> Multiples:
        """Return the multiples to which experts of mxfp4 are padded on a GPU [-]."""
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
"""Code of no engine: vLLM's kernels, one after another."""
UNBOUNDED = _ROWS["unbounded"]
"""Fields that the ideal engine changes in another engine's code, for passes of any size."""
_CODES = {name: replace(NO_ENGINE, **_ROWS[name]) for name in ("vllm", "sglang", "trtllm")}


def has_code(stack: str) -> bool:
    """Return whether the engine of a stack has a row in the table."""
    return stack in _CODES


def engine_code(stack: str | None) -> EngineCode:
    """Return the row of an engine, by the name of its stack."""
    return _CODES.get(stack or "", NO_ENGINE)
