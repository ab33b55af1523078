"""``specmodel compare``: alternatives side by side, each at its best draft length."""

from functools import partial
from typing import Any

from specmodel.cli import settings
from specmodel.cli.load import FOR_LOAD, arguments_of_load, refuse_without_load, searching
from specmodel.cli.output import answering
from specmodel.cli.positionals import where_options
from specmodel.core.base.errors import given
from specmodel.core.base.text import Viewed

_LISTS = (
    *("target", "drafter", "hardware", "engine", "draft_length", "acceptance_rate", "prefill"),
    *("gpu_hour_price", *settings.COMPARED),
)
"""Options that may be a list."""


@settings.command()
@where_options(has_start=True)
@settings.options_of("compare", *FOR_LOAD)
@answering()
def compare(**options: Any) -> Viewed:
    """Compare models, GPUs, parallel layouts, dtypes, engines, drafters or draft lengths.

    Many options accept a list, such as h100,h200. Every combination of the listed values is
    compared. Each combination uses its best draft lengths, unless you give --draft-length. If you
    give several GPUs and no list, compare tries the parallel layouts of these GPUs.

    \b
    Examples:
      specmodel compare deepseek-v3 8xh200
      specmodel compare deepseek-v3 8xh200 --tensor-parallel 8,4
      specmodel compare qwen3-30b-a3b h100,h200 --drafter ngram,eagle3 \\
          --acceptance-rate 0.4,0.7
      specmodel compare qwen3.5-397b 8xb200 --weight-dtype fp8,nvfp4 \\
          --tpot-target 10ms
    """
    from specmodel.cli.options import manner_from, parsed
    from specmodel.simulate.compared import compared

    refuse_without_load(options, "tpot_target")
    lists = given(options, _LISTS)
    arguments = arguments_of_load(options | dict.fromkeys(lists))
    arguments |= {name: parsed(name, text) for name, text in lists.items()}
    return compared(arguments, partial(searching, options), manner_from(options))
