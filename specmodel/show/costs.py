"""What steps take by tokens verified, in words, tables and the file of an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specmodel.base.text import align_blocks, wrap
from specmodel.prediction.table import Row, seconds
from specmodel.show import report
from specmodel.show.columns import units
from specmodel.show.forms import Answer

if TYPE_CHECKING:
    from specmodel.answers.cost_tables import StepCosts

_PLACE = (
    "a FILE, with --speculative-algorithm DSPARK --speculative-dspark-sps-table-path FILE and"
    " SGLANG_RAGGED_VERIFY_MODE=compact in the environment"
)
CAVEATS = {
    "sglang": "SGLang 0.5.23 reads it for DSPARK only, and not at all in its default mode, static."
    " It looks up requests and tokens of one replica, pads them to CUDA graphs, and knows no"
    " context: make a table for the context that is usual. The head is taken to have one layer;"
    " --set drafter.num_layers=5 is one of five.",
    "vllm": "vLLM 0.33 reads no file: with enable_adaptive_verification it measures as it starts,"
    " at the one context that VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN gives (8192 if unset):"
    " drafting by requests, the target pass by tokens. --csv has both, to lay beside or to choose"
    " that context by.",
}
"""Where an engine departs from the table."""


def answer(found: StepCosts) -> Answer:
    """Return the times of steps in all forms."""
    table, prediction, fragment = found.table, found.prediction, found.fragment

    def rows() -> list[Row]:
        marks = prediction.fits.repeat(table.draft_length + 1).tolist()
        return [row | {"fits": fits} for row, fits in zip(table.rows(), marks, strict=True)]

    def fields() -> dict[str, Any]:
        return report.case_fields(prediction) | {
            "for": found.engine,
            "fragment": fragment or None,
            "place": _PLACE if fragment else None,
            "caveats": [CAVEATS[found.engine]],
            "largest_error": found.largest_error,
            "draft_length": table.draft_length,
            "units": units(rows()[0]),
            "rows": rows(),
        }

    return Answer(
        page=lambda: report.page(prediction, _verdict(found), _for_engine(found), _steps(found)),
        fields=fields,
        rows=rows,
        warnings=prediction.warnings,
        fragment=fragment,
    )


def _verdict(found: StepCosts) -> list[str]:
    """Return sentences on how the step time grows with verified tokens and with context."""
    table = found.table
    step, most = table.step_time, table.draft_length + 1
    told = []
    for place in sorted({0, table.batch_size.size - 1}):
        growth = step[0, place, -1] / step[0, place, 0]
        told.append(f"{growth:.2f}x at batch size {table.batch_size[place]}")
    words = [
        f"Verifying {most} tokens of each request takes, beside 1, {' and '.join(told)}: with"
        " drafting and rejection, at the first context."
    ]
    if found.costs:
        words.append(f"SGLang's table keeps each of these steps within {found.largest_error:.1%}.")
    if table.context_length.size > 1:
        first, last = table.context_length[[0, -1]]
        growth = (step[-1] / step[0]).max()
        words.append(f"From context {first} to {last} a step takes up to {growth:.2f}x as long.")
    replicas = found.prediction.deployment.layout.replicas
    if replicas > 1:
        words.append(f"Batch sizes and tokens are those of one of {replicas} replicas, all alike.")
    return words


def _for_engine(found: StepCosts) -> str:
    """Return a paragraph on how the engine reads the table, and where it behaves differently."""
    if found.engine == "vllm":
        return wrap(CAVEATS["vllm"])
    if found.costs is None:
        return wrap("SGLang's table knows one context; --csv has all.")
    return wrap(f"For SGLang, {_PLACE}. --fragment-only prints it. {CAVEATS['sglang']}")


def _steps(found: StepCosts) -> str:
    """Return the times of steps, a table for each context; batches that do not fit are starred."""
    table, held, blocks = found.table, found.prediction.fits, []
    for context, times, fits in zip(
        table.context_length.tolist(), table.step_time, held, strict=True
    ):
        columns = [
            (f"verified\n{tokens}", [seconds(float(time)) for time in times[:, place]])
            for place, tokens in enumerate(table.verify_tokens.tolist())
        ]
        marks = zip(table.batch_size.tolist(), fits, strict=True)
        sizes = ("batch\nsize", [f"{size}{'' if inside else '*'}" for size, inside in marks])
        blocks.append(f"Step time at context {context}:\n{align_blocks(sizes, columns)}")
    return "\n\n".join(blocks if held.all() else [*blocks, "* does not fit in memory"])
