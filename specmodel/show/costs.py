"""What steps take by tokens verified, in words, tables and the file of an engine."""

from __future__ import annotations

from specmodel import answers
from specmodel.base.text import wrap
from specmodel.prediction.table import Row, seconds
from specmodel.show import report
from specmodel.show.columns import units
from specmodel.show.facts import Fact, known, lines
from specmodel.show.forms import Answer, by_batch_size
from specmodel.show.glossary import PAGES

_TEXTS = PAGES["costs"]
CAVEATS = _TEXTS["caveats"]


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
    caveat = _TEXTS["one_context"] if is_unread else CAVEATS[found.engine]
    reading = (
        f"For SGLang, {_TEXTS['place']}. --fragment-only prints it. {caveat}"
        if fragment
        else caveat
    )
    marks = prediction.fits.repeat(table.draft_length + 1).tolist()
    rows = [row | {"fits": fits} for row, fits in zip(table.rows(), marks, strict=True)]
    fields = report.case_fields(prediction) | {
        "for": found.engine,
        "fragment": fragment or None,
        "place": _TEXTS["place"] if fragment else None,
        "caveats": [caveat],
        "largest_error": found.largest_error,
        "draft_length": table.draft_length,
        "units": units(rows[0]),
        "rows": rows,
    }
    return Answer(
        page=lambda: report.page(
            prediction, lines(_TEXTS["lines"], facts), wrap(reading), _steps(rows)
        ),
        facts=known(facts.items()),
        fields=fields,
        rows=rows,
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
