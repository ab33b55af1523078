"""``specmodel break-even``: the acceptance from which speculation pays."""

from __future__ import annotations

from typing import Any

from specmodel import answers
from specmodel.cli import settings
from specmodel.cli.answering import answering
from specmodel.cli.where import where_options
from specmodel.show import break_even as shown, forms, report

_IN = "Of tables by draft length: tokens a step, or acceptance rates."
_USUAL = 3
"""Draft length at which published acceptance is told, or the nearest considered [token]."""


@settings.command()
@where_options(has_start=True)
@settings.option("batch_size", default="1:512:x2")
@settings.option("draft_length", words=settings.DRAFTED, default="1:8")
@settings.options("proposal_rate", "context_length")
@settings.detail_options()
@settings.own("in", [*shown.UNITS], _IN, to="unit", default="tokens")
@answering()
def break_even(**options: Any) -> forms.Answer:
    """Find the acceptance that is needed.

    The tokens a step, or the acceptance rate, from which speculation pays and from which it surely
    does, by batch size and draft length, and what 0.1 tokens a step more would gain.

    \b
    Examples:
      specmodel break-even qwen3-30b-a3b h100 --drafter eagle3 --engine sglang
      specmodel break-even qwen3-235b h200 --drafter eagle3 --draft-length 3
    """
    from specmodel.cli.options import drafted_from
    from specmodel.prediction.predicting import with_known_intervals

    # the rate that is needed does not depend on the one predicted with: any will do
    p = with_known_intervals(drafted_from(options | {"acceptance_rate": 0.0}))
    least = answers.break_even(p)
    usual = min({*least["draft_length"]}, key=lambda length: abs(length - _USUAL))
    tokens, source = _published(options, usual)

    def parts() -> tuple[str, str]:
        published = f" Published of this pair: {tokens:.2f} of {usual} ({source})." * bool(tokens)
        return shown.verdict(least, p, usual) + published, shown.table(
            least, options["unit"], usual, tokens
        )

    return report.answer(p, least, parts)


def _published(options: dict[str, Any], length: int) -> tuple[float, str]:
    """Return the tokens a step published of this very target and drafter, and their source."""
    from specmodel.cli.taken import measured_or_none

    found = None if "," in options["drafter"] else measured_or_none(options)
    if found is None or length > found.max_draft_length:
        return 0.0, ""
    return float(found.expected_tokens_per_step(length)), found.source
