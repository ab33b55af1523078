"""``specmodel sweet-spot``: the batch sizes where speculation pays."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from specmodel import answers
from specmodel.cli import settings
from specmodel.cli.answering import answering
from specmodel.cli.where import where_options
from specmodel.show import report
from specmodel.show.forms import Answer
from specmodel.show.sweet_spots import table, verdict, with_intervals


@settings.command("sweet-spot")
@where_options(has_start=True)
@settings.option("batch_size", default="1:512")
@settings.option("draft_length", "  [default: the best of each batch size]", words=settings.DRAFTED)
@settings.acceptance_options()
@settings.options("context_length", "max_draft_length")
@settings.load_options()
@settings.detail_options()
@settings.own("interval/--no-interval", None, settings.INTERVAL, to="interval", default=None)
@answering()
def sweet_spot(**options: Any) -> Answer:
    """Find the batch sizes where speculation pays.

    And where it pays most, with the best draft length of each batch size, or with each of those
    typed throughout. Batch sizes that do not fit in memory are left out.

    \b
    Example:
      specmodel sweet-spot --target qwen3-30b-a3b --drafter eagle3 \\
          --hardware h200_sxm --engine sglang --draft-length 1,3,5 \\
          --acceptance-rate 0.7
    """
    from specmodel.cli.options import drafted_from

    p = drafted_from(options | {"interval": False})
    if p.fits.any():  # what does not fit is left out
        unfit = p.evaluation.memory.warnings(p.batch_size, p.evaluation.points["draft_length"])
        kept = tuple(warning for warning in p.warnings if warning not in unfit)
        p = replace(p, warn=lambda _: kept)
    spots = answers.sweet_spots(p)
    spots = spots if options["interval"] is False else with_intervals(spots, p)
    at_best = options["draft_length"] is None
    parts = partial(verdict, spots, p, at_best=at_best), partial(table, spots, at_best=at_best)
    return report.answer(p, spots, lambda: tuple(part() for part in parts))
