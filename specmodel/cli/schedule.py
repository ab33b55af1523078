"""``specmodel schedule``: draft lengths by batch size, as engines read them."""

from functools import partial
from typing import Any

import click
from msgspec.structs import replace

from specmodel.cli import settings
from specmodel.cli.load import FOR_LOAD, arguments_of_load, refuse_without_load, searching
from specmodel.cli.output import answering
from specmodel.cli.positionals import where_options
from specmodel.core.base.errors import given, refuse_given
from specmodel.core.base.naming import is_id
from specmodel.core.base.text import Viewed


@settings.command()
@settings.options_of("schedule")
@where_options(engine="the engine of --for, or vllm", has_start=True)
@settings.options_of("sizes", *FOR_LOAD, "details")
@answering(rows=", with a row for each batch size", fragment="Print only the configuration.")
def schedule(**options: Any) -> Viewed:
    """Print an engine configuration that sets the draft length by batch size.

    At each batch size, the schedule has a draft length whose speedup is within --tolerance of the
    best speedup. At batch sizes where no draft length pays, the schedule drafts nothing. Within
    --tolerance, the draft length changes between batch sizes as rarely as possible. If speculation
    pays at no batch size, no configuration is printed: leave speculation off.

    \b
    Examples:
      specmodel schedule qwen3-30b-a3b h200 --drafter eagle3
      specmodel schedule gpt-oss-120b h200 --for tensorrt-llm \\
          --drafter eagle3 --context-length 1024,16384 \\
          --acceptance-by-position 0.8,0.7,0.6,0.5 --fragment-only
    """
    from specmodel.cli.options import manner_from
    from specmodel.plan.config_formats import config_format, format_of_engine
    from specmodel.simulate.scheduled import scheduled

    typed = click.get_current_context().params
    if options["config_format"] is None:
        options["config_format"] = format_of_engine(options["engine"])
    refuse_given(options, ["batch_size"], "A schedule covers all batch sizes. Remove `batch_size`.")
    refuse_without_load(options)
    config = config_format(options["config_format"])
    arguments = arguments_of_load(options) | given(options, ("max_batch_size", "tolerance"))
    plan = scheduled(config, arguments, partial(searching, options), manner_from(options))
    served = next(filter(is_id, (typed["target"] or "", *typed["words"])), "MODEL")
    return replace(plan, path=options.get("draft_model", ""), served=served)
