"""``specmodel sweet-spot``: the batch sizes where speculation pays."""

from __future__ import annotations

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
@settings.option("draft_length", words=settings.DRAFTED, default="1,3,5")
@settings.acceptance_options()
@settings.option("context_length")
@settings.load_options()
@settings.detail_options()
@answering()
def sweet_spot(**options: Any) -> Answer:
    """Find the batch sizes where speculation pays.

    And where it pays most. Batch sizes that do not fit in memory are left out.

    \b
    Example:
      specmodel sweet-spot --target qwen3-30b-a3b --drafter eagle3 \\
          --hardware h200_sxm --engine sglang --draft-length 1,3,5 \\
          --acceptance-rate 0.7
    """
    from specmodel.cli.options import drafted_from

    p = drafted_from(options)
    spots = with_intervals(answers.sweet_spots(p), p)
    return report.answer(p, spots, lambda: (verdict(spots, p), table(spots)))
