"""``specmodel predict``: target efficiency and speedup at operating points."""

from __future__ import annotations

from typing import Any

from specmodel.cli import settings
from specmodel.cli.answering import answering
from specmodel.cli.where import where_options
from specmodel.show import forms

BATCH_SIZES = "1:256:x2"
"""Batch sizes that are predicted where none are typed."""
_COLUMNS = "Columns to print, such as batch_size,speedup,tpot.  [default: what has room]"
_TARGET = "Keep rows that meet this time per token, such as 20ms; tell the largest batch."


@settings.command()
@where_options(has_start=True)
@settings.option("batch_size", default=BATCH_SIZES)
@settings.option("draft_length", more="  [default: the best of each batch size]")
@settings.acceptance_options()
@settings.spread_option()
@settings.options("context_length", "prompt_length", "output_length", "verify_tokens", "tree_width")
@settings.option("max_draft_length")
@settings.detail_options()
@settings.own("tpot_target", "SECONDS", _TARGET)
@settings.price_option()
@settings.own("columns", "LIST", _COLUMNS)
@settings.own("interval/--no-interval", None, settings.INTERVAL, to="interval", default=None)
@settings.own("components", bool, "Add the breakdown of each pass; CSV has it alone.")
@answering()
def predict(**options: Any) -> forms.Answer:
    """Predict whether speculation pays, by batch size.

    A model and a GPU are enough: GPUs are then as many as hold it, the drafter is the model's usual
    one, the draft length the best of each batch size. Where no acceptance is given and none is
    published of the two, the question is turned round: from which acceptance it pays. Tokens per
    step, step efficiency and accepted fraction hold at the draft length they were measured at.

    \b
    Examples:
      specmodel predict qwen3.5-397b h200
      specmodel predict qwen3-30b-a3b 2xh100 --drafter eagle3 \\
          --acceptance-rate 0.7 --batch-size 1:128:x2 --tpot-target 20ms
      specmodel predict ./config.json l40s --drafter ngram \\
          --proposal-rate 0.4 --batch-size 1 --draft-length 1:5 \\
          --tokens-per-step 1.4 --measured-draft-length 3 --json
    """
    from specmodel.cli.outlooks import outlook_from

    return outlook_from(options)
