"""Write notes of caution for the reader of a prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from specmodel.core.base.notes import Note
from specmodel.core.base.ranges import among
from specmodel.core.base.units import FloatArray
from specmodel.core.cost.attention import attention_walk
from specmodel.core.cost.deployment import Deployment
from specmodel.core.drafters.kinds.blocks import DSPARK
from specmodel.core.drafters.published import is_in_checkpoint
from specmodel.core.prediction.evaluate import Evaluation
from specmodel.core.prediction.ground import LONG_CONTEXT

Assumed = Mapping[str, Any]
TRITON_CONTEXT, _WIDEST = 8_192, 256
"""Context from which verification with SGLang's Triton attention differs from predictions [token],
and the widest head for other kernels [-]. On GPUs of compute capability 12, SGLang uses Triton for
models with recurrent layers (0.5.9), latent attention or attention sinks. For wider heads (Gemma
4), it uses Triton on all GPUs but data-center Blackwell. The verify pass of Triton does not split
keys (``extend_attention_fwd``; on CUDA still in SGLang's PR 39316 of 2026-09-13)."""


def notes_with_drafts(e: Evaluation, assumed: Assumed) -> tuple[Note, ...]:
    """Return the notes for readers of a prediction with drafts."""
    best, contexts = e.best_draft_length, e.points["context_length"]
    longest, known = float(np.max(contexts)), e.acceptance.measured_by_context
    is_best = e.chains is not None and bool(np.all(e.points["draft_length"] == best))
    found = [
        *notes_of_run(e.deployment, longest),
        *((*_of_memory(e), *_of_idle(e)) if is_best else ()),
        *notes_of_times(e),
        *_beyond_measured(e),
        *_between_modules(e, best),
        *_below_block(e, best),
        *beyond_contexts(known, contexts),
    ]
    if e.acceptance.source and not known and longest > LONG_CONTEXT and best.any():
        found.append(Note("measured_at_short_context", {"context": longest}))
    if assumed.get("proposal_rate") == 1:
        found.append(Note("every_step_proposes"))
    return tuple(found)


def notes_at_best(e: Evaluation, assumed: Assumed) -> tuple[Note, ...]:
    """Return the notes on the best draft length of each point alone."""
    best = e.at_lengths(e.best_draft_length)
    return notes_with_drafts(replace(best, chains=e.at_lengths(e.lengths)), assumed)


def plain_notes(e: Evaluation) -> tuple[Note, ...]:
    """Return the notes for readers of plain decoding."""
    batch_size, none = e.points["batch_size"], np.zeros(())
    return (
        *e.memory.warnings(batch_size),
        *e.deployment.graph_warnings(batch_size, none + 1),
        *notes_of_run(e.deployment, e.points["context_length"]),
    )


def notes_of_run(d: Deployment, context_length: FloatArray | float) -> tuple[Note, ...]:
    """Return notes on parts of a run that are not modelled, and on too long contexts."""
    asked = int(np.max(context_length))
    longest = d.target.max_context_length or asked
    values = {"context": asked, "longest": longest, "model": d.target.name}
    beyond = (Note("beyond_context", values),) if asked > longest else ()
    return (*unmodelled(d, context_length), *beyond)


def unmodelled(d: Deployment, context_length: FloatArray | float) -> tuple[Note, ...]:
    """Return a note if the engine's attention is not modelled at these contexts, else ()."""
    longest, major = float(np.max(context_length)), int(d.hardware.compute_capability or 0)
    is_wide = any(mixer.cached and mixer.cached[1] > _WIDEST for mixer in d.target.mixers)
    is_triton = d.engine.stack == "sglang" and (major == 12 or (is_wide and major != 10))
    note = Note("sglang_triton", {"context": longest})
    return (note,) if is_triton and longest >= TRITON_CONTEXT else ()


def is_modelled(d: Deployment, context_length: FloatArray | float = 0.0) -> bool:
    """Return whether the model covers an engine's overheads and its attention."""
    return not (d.engine.is_ideal or unmodelled(d, context_length))


def notes_of_times(e: Evaluation) -> tuple[Note, ...]:
    """Return the notes on memory and times, which do not depend on acceptance."""
    sizes, tokens = _that_fit(e, e.running, e.points["verify_tokens"])
    return (
        *e.memory.warnings(e.points["batch_size"], e.points["draft_length"]),
        *e.deployment.graph_warnings(sizes, tokens),
        *_of_walk(e),
    )


def _that_fit(evaluation: Evaluation, *found: FloatArray) -> tuple[FloatArray, ...]:
    """Return values of the points that fit in memory, or of all points if none fits."""
    fits = evaluation.points["batch_size"] <= evaluation.memory.max_batch_size
    if fits.all() or not fits.any():
        return found
    fits, *every = np.broadcast_arrays(fits, *found)
    return tuple(values[fits] for values in every)


def _of_memory(e: Evaluation) -> list[Note]:
    """Return a note on batch sizes at which memory prevents longer drafts."""
    held = e.held
    if held is None or not held.draft_length.any():
        return []
    needed = replace(e.memory, verify_tokens=held.draft_length + 1)
    size, length, gain, running, total = np.broadcast_arrays(
        e.points["batch_size"], *held, needed.total_bytes(e.points["batch_size"])
    )
    is_held = length > 0
    most = np.where(is_held, size / running, 0).argmax()
    values = {
        "batch_sizes": _ranges(size, is_held),
        "are_several": bool(np.ptp(size[is_held])),
        "batch_size": float(size.flat[most]),
        "draft_length": float(length.flat[most]),
        "speedup": float(gain.flat[most]),
        "running": float(running.flat[most]),
        "needed_bytes": float(total.flat[most]),
        "usable_bytes": needed.capacity_bytes,
    }
    return [Note("memory_ends_drafts", values)]


def _of_idle(e: Evaluation) -> list[Note]:
    """Return notes on batch sizes that lose with a loaded drafter, with and without a draft."""
    size, length, gain, draft, host = np.broadcast_arrays(
        e.points["batch_size"],
        e.points["draft_length"],
        e.speedup,
        e.times.draft_time,
        e.times.reject_time,
    )
    fits = size <= e.memory.max_batch_size
    is_losing = (gain < 0.995) & (fits | ~fits.any())
    found = []
    for kind, where in (
        ("loaded_drafter", is_losing & (length == 0)),
        ("losing_drafts", is_losing & (length > 0)),
    ):
        if where.any():
            worst = np.where(where, gain, np.inf).argmin()
            parts = {"worst": size, "speedup": gain, "draft_time": draft, "host_time": host}
            values = {name: float(part.flat[worst]) for name, part in parts.items()}
            found.append(Note(kind, {"batch_sizes": _ranges(size, where), **values}))
    return found


def _of_walk(e: Evaluation) -> list[Note]:
    """Return a note if one block of attention reads all keys of a long sequence with a draft."""
    context, target = np.max(e.points["context_length"]), e.deployment.target
    walk = attention_walk(e.deployment, target)
    longest = max(2, np.max(e.points["verify_tokens"]))  # at least the shortest draft
    if not walk or context <= LONG_CONTEXT or longest <= walk.split_tokens:
        return []
    if not any(mixer.cached and not mixer.cached[3] for mixer in target.mixers):
        return []
    by_flash, engine = bool(np.isinf(walk.segments)), e.deployment.engine
    way_out = "flash_split_tokens=64" if by_flash else "split_tokens=64"
    is_chosen = engine.attention_backend or engine.stack == "sglang"
    way_out = "attention_backend=flashinfer" if is_chosen else way_out
    values = {"context": float(context), "split_tokens": walk.split_tokens, "way_out": way_out}
    return [Note("walked_keys", {**values, "cache_helps": by_flash})]


def _ranges(size: FloatArray, holds: np.ndarray) -> str:
    """Format the batch sizes at which `holds` is True; neighbours are joined into ranges."""
    return among(map(int, size.flat), map(int, size[holds]))


def _beyond_measured(evaluation: Evaluation) -> list[Note]:
    """Return a note if a shown draft is longer than the measured ones."""
    length = evaluation.points["draft_length"]
    longest = np.max(length, where=~np.isnan(length), initial=0)
    measured = evaluation.acceptance.measured_draft_length
    trained = evaluation.deployment.drafter.trained_positions
    known = trained if measured is None else np.max(measured)
    by_position = evaluation.acceptance.acceptance_by_position is not None
    if by_position or known is None or longest <= known:
        return []
    values = {"known": float(known), "longest": float(longest)}
    return [Note("beyond_measured", {"is_measured": measured is not None, **values})]


def beyond_contexts(measured: Sequence[Sequence[float]], context_length: FloatArray) -> list[Note]:
    """Return a note if contexts are outside the range measured for acceptance, else []."""
    if not measured:
        return []
    first, last = measured[0][0], measured[-1][0]
    ends = {float(context_length.min()), float(context_length.max())}
    outside = " and ".join(f"{end:,.0f}" for end in sorted(ends) if not first <= end <= last)
    values = {"first": first, "last": last, "outside": outside}
    return [Note("beyond_contexts", values)] if outside else []


def _below_block(e: Evaluation, best: FloatArray) -> list[Note]:
    """Return a note if drafts are shorter than the block that some versions of vLLM require.

    0.26 and 0.27 refuse fewer tokens than the ``dspark_block_size`` of a checkpoint, such as
    DeepSeek-V4's; 0.28 and later accept them (``config/speculative.py``).
    """
    d, block = e.deployment, e.deployment.drafter.block_size
    is_own = d.drafter.kind == DSPARK and is_in_checkpoint(d.target, "dspark")
    lengths = np.append(np.ravel(e.points["draft_length"]), np.ravel(best))
    if not (is_own and block and d.stack == "vllm" and ((lengths > 0) & (lengths < block)).any()):
        return []
    return [Note("below_block", {"block": block})]


def _between_modules(evaluation: Evaluation, best: FloatArray) -> list[Note]:
    """Return a note if engines refuse a draft length of the question, or the best one."""
    modules = max(len(evaluation.deployment.drafter.parts), 1)
    asked = np.concatenate([np.ravel(evaluation.points["draft_length"]), np.ravel(best)])
    refused = sorted({*asked[(asked > modules) & (asked % modules > 0)].tolist()})
    if not refused:
        return []
    values = {"modules": modules, "draft_lengths": refused}
    return [Note("between_modules", values)]
