"""Drains: how long a set of prompts takes, and what speculation saves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specmodel.show.forms import Answer
from specmodel.show.glossary import PAGES
from specmodel.show.loads import framed, graph_notes
from specmodel.simulate.facts import drain_facts

if TYPE_CHECKING:
    from specmodel.simulate.load_question import Drained

_SHOWN = (
    *("policy", "makespan", "speedup", "speedup_low", "done_p50", "done_p90"),
    *("done_p99", "throughput", "running", "gpu_hours", "cost"),
)
_SPARE = ("done_p99", "running", "done_p50", "throughput", "speedup_low")
_LINES = PAGES["drains"]["lines"]


def answer(drained: Drained) -> Answer:
    """Return the answer of a drain in all forms."""
    from specmodel.prediction.cautions import notes_of_run

    drain, study, rows = drained.drain, drained.study, drained.rows
    beyond = notes_of_run(study.deployment, study.typical.longest)
    facts = drain_facts(drain, rows)
    asked = {name: getattr(drain, name) for name in ("prompts", "samples", "servers", "finished")}
    return framed(
        drained,
        (*beyond, *graph_notes(study, [*map(drain.at_peak, rows)]), *study.notes),
        _LINES,
        facts,
        (_SHOWN, _SPARE),
        (),
        {"drain": asked},
        "drain",
    )
