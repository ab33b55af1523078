"""``specmodel break-even``: the acceptance above which speculation pays."""

from typing import Any

from specmodel.cli import settings
from specmodel.cli.output import answering
from specmodel.cli.positionals import where_options
from specmodel.show import forms

_LONGEST = 8
"""Longest draft of the table if no draft length is given [token]."""


@settings.command()
@where_options(has_start=True)
@settings.options_of("break-even")
@answering()
def break_even(**options: Any) -> forms.Answer:
    """Find the acceptance above which speculation pays.

    For each batch size, the first table shows the tokens per step and the acceptance rate above
    which speculation pays with one draft length. Columns named surely show the values above which
    the whole 80 % interval of the speedup is above 1. Another column shows how much 0.1 more tokens
    per step add to the speedup. Further tables show the tokens per step for each draft length.
    With --acceptance-by-context, the answer also shows at which context lengths speculation pays
    with your acceptance.

    \b
    Examples:
      specmodel break-even qwen3-30b-a3b h100 --drafter eagle3 --engine sglang
      specmodel break-even qwen3-235b h200 --drafter eagle3 --draft-length 3
      specmodel break-even qwen3-30b-a3b h200 --drafter eagle3 \\
          --context-length 2048,32768,131072 --draft-length 3 \\
          --acceptance-by-context 2048:3.2,32768:2.1
    """
    from specmodel.cli.options import case_from
    from specmodel.core.prediction.predicting import at_given_lengths
    from specmodel.show.views import view

    # the break-even rate does not depend on the acceptance, so that any value will do
    if options["acceptance_by_context"] is None:
        options["acceptance_rate"] = 0.0
    typed = options["draft_length"]
    case = case_from(options | {"draft_length": typed or f"1:{_LONGEST}"}).drafting()
    block = case.deployment.drafter.block_size
    if typed is None and block is not None and block < _LONGEST:
        case = case_from(options | {"draft_length": f"1:{block}"}).drafting()
    # the best draft length is not printed, so that longer drafts need no evaluation
    return view(at_given_lengths(case, max_draft_length=1), "break-even")
