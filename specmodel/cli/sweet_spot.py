"""``specmodel sweet-spot``: the batch sizes where speculation pays."""

from __future__ import annotations

from typing import Any

from specmodel.cli import answers, settings
from specmodel.show import report
from specmodel.show.sweet_spots import table, verdict


@answers.command(
    settings.acceptance_options(), "context_length", batch_size="1:512", draft_length=None
)
def sweet_spot(**options: Any) -> answers.Answer:
    """Find the batch sizes where speculation pays.

    And where it pays most. Batch sizes that do not fit in memory are left out.

    \b
    Example:
      specmodel sweet-spot --target qwen3-30b-a3b --drafter eagle3 \\
          --hardware h200_sxm --engine sglang --draft-length 1,3,5 \\
          --acceptance-rate 0.7
    """
    from specmodel.answers.curves import sweet_spots

    p = answers.drafted_from(options)
    spots = sweet_spots(p)
    return {"": p}, spots, lambda: report.answer_page(p, verdict(spots, p), table(spots))
