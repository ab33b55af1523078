"""The options that say what runs where, with the words and flags that stand for them."""

from specmodel.cli.settings import Add, changed, ignore_option, option, options, own
from specmodel.cli.start_command import start_flags
from specmodel.cli.words import named, two_words

_FORCE = "Take what no machine or model is likely to have."


def where_options(
    *,
    required: bool = True,
    engine: str = "vllm",
    has_start: bool = False,
    has_words: bool = True,
) -> Add:
    """Add the options that name target, drafter, hardware, engine and kernels.

    `engine` is what the help calls the default engine. Target and hardware are needed if
    `required`, as words or as options; the drafter is then the target's usual one by default. Flags
    of an engine's start command are taken if `has_start`; words are another's if not `has_words`.
    """
    drafter = option("drafter", "  [default: the model's usual one]" if required else "")
    words = two_words(required=required) if has_words else changed(named)
    ignore = ignore_option("target", "drafter")
    more = (option("engine", f"  [default: {engine}]"), "host_speed", "stack")
    start = [start_flags()] if has_start else []
    where = options(words, "target", drafter, "hardware", *more, ignore, *start)
    return options(where, own("force", bool, _FORCE, default=None))
