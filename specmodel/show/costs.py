"""What steps take by tokens verified, in words, tables and the file of an engine."""

from __future__ import annotations

from specmodel import answers
from specmodel.base.text import wrap
from specmodel.prediction.table import Row, seconds
from specmodel.show import report
from specmodel.show.columns import units
from specmodel.show.facts import Fact, known, lines
from specmodel.show.forms import Answer, by_batch_size

_PLACE = (
    "a FILE, with --speculative-algorithm DSPARK --speculative-dspark-sps-table-path FILE and"
    " SGLANG_RAGGED_VERIFY_MODE=compact in the environment"
)
_ONE_CONTEXT = "SGLang's table knows one context; --csv has all."
CAVEATS = {
    "sglang": "SGLang 0.5.23 reads it for DSPARK only, and not at all in its default mode, static."
    " It looks up requests and tokens of one replica, pads them to CUDA graphs, and knows no"
    " context: make a table for the context that is usual. The head is taken to have one layer;"
    " --set drafter.num_layers=5 is one of five.",
    "vllm": "vLLM 0.33 reads no file: with enable_adaptive_verification it measures as it starts,"
    " at the one context that VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN gives (8192 if unset):"
    " drafting by requests, the target pass by tokens. --csv has both, to choose that context by.",
}
"""Where an engine departs from the table."""
_LINES = (
    "A step that verifies {verified} tokens of each request, over one that verifies 1, by batch"
    " size: {growth:at}.",
    "SGLang's table keeps each of these steps within {largest_error:.1%}.",
    "Contexts {contexts}: a step takes up to {growth_by_context:.2f}x as long.",
    "Batch sizes and tokens are those of one of {replicas} replicas, all alike.",
)


def answer(found: answers.StepCosts) -> Answer:
    """Return the times of steps in all forms."""
    table, prediction, fragment = found.table, found.prediction, found.fragment
    step, replicas = table.step_time, prediction.deployment.layout.replicas
    growth = dict(zip(table.batch_size.tolist(), (step / step[..., :1])[0, :, -1], strict=True))
    contexts, by_context = table.context_length[[0, -1]].tolist(), (step[-1] / step[0]).max()
    facts = {
        "verified": Fact(table.draft_length + 1, "token"),
        "growth": Fact({size: float(growth[size]) for size in (min(growth), max(growth))}),
        "largest_error": Fact(found.largest_error),
        "contexts": Fact(tuple(contexts) if contexts[0] < contexts[1] else None, "token"),
        "growth_by_context": Fact(float(by_context)),
        "replicas": Fact(replicas if replicas > 1 else None),
    }
    is_unread = found.engine == "sglang" and not fragment
    caveat = _ONE_CONTEXT if is_unread else CAVEATS[found.engine]
    reading = f"For SGLang, {_PLACE}. --fragment-only prints it. {caveat}" if fragment else caveat
    marks = prediction.fits.repeat(table.draft_length + 1).tolist()
    rows = [row | {"fits": fits} for row, fits in zip(table.rows(), marks, strict=True)]
    fields = report.case_fields(prediction) | {
        "for": found.engine,
        "fragment": fragment or None,
        "place": _PLACE if fragment else None,
        "caveats": [caveat],
        "largest_error": found.largest_error,
        "draft_length": table.draft_length,
        "units": units(rows[0]),
        "rows": rows,
    }
    return Answer(
        page=lambda: report.page(prediction, lines(_LINES, facts), wrap(reading), _steps(rows)),
        facts=known(facts.items()),
        fields=lambda: fields,
        rows=lambda: rows,
        warnings=prediction.warnings,
        fragment=fragment,
    )


def _steps(rows: list[Row]) -> str:
    """Return the times of steps, a table for each context; batches that do not fit are starred."""
    blocks = []
    for context in dict.fromkeys(row["context_length"] for row in rows):
        of = [row for row in rows if row["context_length"] == context]
        groups: dict[str, list[Row]] = {}
        for row in of:
            groups.setdefault(f"verified\n{row['verify_tokens']}", []).append(row)
        cells = by_batch_size((row["batch_size"] for row in of), groups, _cell)
        blocks.append(f"Step time at context {context}:\n{cells}")
    is_whole = all(row["fits"] for row in rows)
    return "\n\n".join(blocks if is_whole else [*blocks, "* does not fit in memory"])


def _cell(row: Row) -> str:
    return seconds(row["step_time"]) + ("" if row["fits"] else "*")
