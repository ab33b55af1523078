"""Options: those that several commands share, and how a command declares its own."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial, wraps
from typing import Any

import click

import specmodel
from specmodel.base.errors import InputError
from specmodel.base.naming import SETTABLE
from specmodel.cli.helping import GroupedCommand

SETTINGS: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 80,
    "token_normalize_func": lambda typed: typed.replace("_", "-"),  # as engines read options
}


class _Share(click.types.FloatParamType):
    """A share of 1, which may be typed in per cent [-]."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the share of what was typed."""
        if str(value).endswith("%"):
            with suppress(ValueError):
                return float(str(value)[:-1]) / 100
        return super().convert(value, param, ctx)


SHARE = _Share()
_Options = dict[str, tuple[type | str | _Share, str]]

_CASE: _Options = {
    "target": (
        "NAME|PATH",
        "Model served: a name or its beginning, TOML, config.json or its folder, a"
        " hub id (in the local cache, or of a model that ships), or - for standard input.",
    ),
    "drafter": ("NAME|PATH", "mtp, eagle3, ngram ... (specmodel list drafters), or a model."),
    "hardware": ("NAME|PATH", "GPU: a name, its beginning or TOML; 8xh200 is eight of them."),
    "engine": ("NAME|PATH", "Whose host overheads and kernels; ideal has no overheads."),
    "host_speed": (
        float,
        "How many times as fast as the engine's host yours is.  [default: the profile's]",
    ),
    "stack": (
        "NAME",
        "Whose kernels: fitted for the GPU, typical or datasheet."
        "  [default: the engine's, or the GPU's first]",
    ),
    "batch_size": ("VALUES", "Sequences decoded together: 1,2,4 or 1:64:2 or 1:128:x2."),
    "draft_length": ("VALUES", "Tokens drafted per sequence and step, 0 for none."),
    "context_length": ("VALUES", "KV entries per sequence before the step.  [default: 1024]"),
    "prompt_length": (
        "VALUES",
        "Tokens of a prompt, where steps carry the prefill of other requests."
        "  [default: none carried]",
    ),
    "output_length": ("VALUES", "Tokens that each request makes, with --prompt-length."),
    "lockstep": (
        bool,
        "Equal requests are sent together, wave by wave, so that each meets at most half of the"
        " others' prompts.  [default: all, as they come at random]",
    ),
    "verify_tokens": (int, "Target tokens per sequence, for trees.  [default: draft length + 1]"),
    "tree_width": (
        int,
        "Tokens that each drafted one is followed by: SGLang's top-k.  [default: 1]",
    ),
    "max_draft_length": (
        int,
        "Longest draft considered."
        "  [default: 10, or as far as acceptance is known or is drafted at once]",
    ),
}
_ACCEPTANCE: _Options = {
    "acceptance": (
        "preset|NAME",
        "What is published for target and drafter, or under a name of specmodel list acceptance; or"
        " typical, typical-low, typical-high: what heads of that kind reach.",
    ),
    "acceptance_rate": (SHARE, "P(token accepted, all before it were)."),
    "tokens_per_step": (float, "Mean tokens emitted per step: those accepted and one more."),
    "step_efficiency": (float, "Tokens per step / (draft length + 1)."),
    "accepted_fraction": (SHARE, "Accepted / drafted, as engines report."),
    "acceptance_by_position": (
        "RATES",
        "Rates of positions 1, 2, ...: conditional:0.8,0.7 (of drafts that got there) or"
        " cumulative:0.8,0.56 (of all, as vLLM prints them).  [default: cumulative if they never"
        " rise, but conditional in tenths or all alike]",
    ),
    "acceptance_by_context": (
        "PAIRS",
        "Tokens per step by context, such as 2048:3.2,32768:2.1; between them by its logarithm.",
    ),
    "measured_draft_length": (int, "Draft length of the measured acceptance."),
    "proposal_rate": (float, "Share of steps with a proposal (ngram).  [default: 0.2]"),
}
_DETAIL: _Options = {
    "tensor_parallel": (
        int,
        "GPUs that each matrix of the target is cut over.  [default: the fewest that hold it]",
    ),
    "data_parallel": (
        int,
        "Replicas of all but the experts, which share the batch."
        "  [default: as few as --expert-parallel needs]",
    ),
    "expert_parallel": (
        int,
        "Groups of GPUs that experts are spread over; a group cuts its own.  [default: 1]",
    ),
    "memory_utilization": (
        float,
        "Share of a GPU's memory that weights and cache may fill.  [default: 0.9]",
    ),
    "weight_dtype": (
        "DTYPE",
        "fp32, bf16, fp16, fp8, fp8_block, int8, nvfp4, mxfp4, int4, int4_g32, mxfp8 ...",
    ),
    "expert_dtype": ("DTYPE", "Routed experts, likewise."),
    "kv_dtype": ("DTYPE", "Dtype of the KV cache."),
    "routing_correlation": (
        float,
        "0: a sequence's tokens route independently; 1: all as the first.  [default: 0.18]",
    ),
    "graph_limit": (
        int,
        "Largest pass that a CUDA graph holds: tokens (vLLM) or requests (SGLang)."
        "  [default: the engine's on this GPU]",
    ),
}
OPTIONS = _CASE | _ACCEPTANCE | _DETAIL
"""By name: the type, or a metavar for text; and the help."""

_ENGINES_FLAGS = {
    "graph_limit": "--max-cudagraph-capture-size --cuda-graph-max-bs-decode --cuda-graph-max-bs"
}
"""Flags of engines that are taken as they are pasted."""
COMPARED = (
    *("tensor_parallel", "data_parallel", "expert_parallel", "weight_dtype", "expert_dtype"),
    "kv_dtype",
)
"""Options of detail that may be lists where alternatives are compared."""
DRAFTED = "Tokens drafted per sequence and step."
"""Help of the draft length where it cannot be 0."""

_LISTS = {
    "target": ["list_architectures"],
    "drafter": ["list_architectures", "list_drafters"],
    "hardware": ["list_hardware"],
    "engine": ["list_engines"],
}
"""Functions of the package that list the names that an option takes."""

Add = Callable[[Any], Any]
"""A decorator that adds options to a command."""

command = partial(click.command, context_settings=SETTINGS, cls=GroupedCommand)


SETTABLE_OF = {
    "simulate": (
        *("runaway_share", "drafter_upkeep", "timing_noise"),
        *("request_expert_spread", "step_expert_spread"),
    ),
    "load": ("block_size", "reserved_tokens"),
}
"""What commands take by ``--set`` besides `SETTABLE`."""


def flag(name: str) -> str:
    """Return an option as it is typed: ``--batch-size`` of batch_size."""
    return "--" + name.replace("_", "-")


def own(name: str, kind: Any, words: str, *, to: str = "", **changes: Any) -> Add:
    """Add an option of one command.

    `kind` is a type, a list of choices, or a metavar for text; `words` are the help; `to` is the
    name of the argument, if another, or other flags for it. Other settings are those of
    `click.option`.
    """
    settings: dict[str, Any] = {"help": words, "show_default": changes.get("default") is not None}
    if kind is bool:
        settings = {"help": words, "is_flag": True}
    elif isinstance(kind, list):
        settings["type"] = click.Choice(kind)
    elif kind is not None:
        settings["metavar" if isinstance(kind, str) else "type"] = kind
    return click.option(flag(name), *to.split(), **settings | changes)


INTERVAL = "Central 80 % intervals.  [default: where errors are known]"


def option(name: str, more: str = "", *, words: str = "", **changes: Any) -> Add:
    """Add one of `OPTIONS`; `words` replace its help, and `more` is added to it."""
    kind, told = OPTIONS[name]

    def complete(_context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
        names = [each for listed in _LISTS[name] for each in getattr(specmodel, listed)()]
        return sorted(each for each in names if each.startswith(start))

    if name in _LISTS:
        changes["shell_complete"] = complete
    return own(name, kind, (words or told) + more, **{"to": _ENGINES_FLAGS.get(name, "")} | changes)


def options(*names: str | Add, **changes: Any) -> Add:
    """Add options in this order; those given by name are of `OPTIONS`, with changes as in `own`."""
    adding = [option(name, **changes) if isinstance(name, str) else name for name in names]

    def add(command: Any) -> Any:
        """Add all of them to a command."""
        for decorate in reversed(adding):
            command = decorate(command)
        return command

    return add


def owned(told: Mapping[str, tuple[Any, str]]) -> Add:
    """Add the options of a table, by name with kind and help as in `own`."""
    return options(*(own(name, kind, words) for name, (kind, words) in told.items()))


def changed(change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Add:
    """Return a decorator that passes a command's options through `change` first."""

    def add(command: Any) -> Any:
        @wraps(command)
        def run(**options: Any) -> Any:
            return command(**change(options))

        return run

    return add


def ignore_option(*names: str) -> Add:
    """Add the option that leaves keys out of the ``config.json`` files that some options name."""
    words = "Read config.json as if this key, which may change the shape, was not in it."

    def add(command: Any) -> Any:
        @wraps(command)
        def run(*, ignore_config_key: tuple[str, ...], **options: Any) -> Any:
            if not ignore_config_key:
                return command(**options)
            from specmodel.models.hf.files import check_ignored, ignoring

            models = [(n, path) for n in names for path in (options.get(n) or "").split(",")]
            check_ignored("ignore_config_key", ignore_config_key, models)
            with ignoring(ignore_config_key):
                return command(**options)

        return own("ignore_config_key", "KEY", words, multiple=True)(run)

    return add


PRICE = own("gpu_hour_price", float, "Price of a GPU for an hour, for the cost of tokens.")
"""The price of a GPU, where a command tells a throughput."""


SEED = own("seed", int, "Of all that is drawn.", default=0)
"""The seed of what a command draws."""


LENGTHS = options("prompt_length", "output_length", type=int, metavar="TOKENS")
"""The lengths of prompts and outputs where a command takes one of each."""


SPREAD = own(
    "acceptance_spread",
    float,
    "Standard deviation of the acceptance rate, which intervals take too; alone, 0.095: that"
    " between tasks of published heads.  [default: that of the kind, 0 of your own]",
    is_flag=False,
    flag_value=0.095,
)
"""How far acceptance differs, where a command has intervals."""


def acceptance_options(*, one_length: bool = True) -> Add:
    """Add the forms of acceptance.

    If the command has one draft length, acceptance counts as measured there unless told otherwise.
    """
    more = {"measured_draft_length": "  [default: --draft-length]"} if one_length else {}
    return options(*(option(name, more.get(name, "")) for name in _ACCEPTANCE))


def detail_options(*, lists: Iterable[str] = (), of: str = "") -> Add:
    """Add what says how the target runs: parallelism, dtypes, routing, --set.

    `lists` names those that take a list, as text; `of` is a command that --set has settings of.
    """
    listed: dict[str, Any] = {name: {"type": str, "metavar": "LIST"} for name in lists}
    words = (
        "What if: a field of hardware, engine, target or drafter (specmodel list NAME has them),"
        " e.g. hardware.memory.peak_bytes_per_s=6e12 or target.experts_per_token=4"
        + (",8, each an alternative" if listed else "")
        + f". Also {', '.join([*SETTABLE, *SETTABLE_OF.get(of, ())])}."
    )
    changes = own("set", "KEY=VALUE", words, to="changes", multiple=True)
    detail = [option(name, **listed.get(name, {})) for name in _DETAIL]
    return options(
        *detail, changes, *([changed(partial(_set_apart, SETTABLE_OF[of]))] if of else [])
    )


def _set_apart(names: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Return options with what --set says of these settings as options by name."""
    from specmodel.cost.usual import literal

    pairs = {text: text.partition("=") for text in options["changes"]}
    own = {text: key.strip() for text, (key, _, _) in pairs.items() if key.strip() in names}
    options |= {key: literal(pairs[text][2].strip()) for text, key in own.items()}
    return options | {"changes": tuple(t for t in options["changes"] if t not in own)}


OVERWRITE = own("overwrite", bool, "Replace what has that name.")
"""The option without which `check_free` keeps a file that is there."""


def check_free(output: str, *, overwrite: bool) -> None:
    """Refuse, before anything is computed, a file that cannot be written, or that is there."""
    from specmodel.base.files import check_writable

    check_writable(output, "output")
    if os.path.isfile(output) and not overwrite:  # noqa: PTH113 - pathlib is slow to import
        raise InputError("output", output, "another name, as this file is there, or --overwrite")


def refuse_inputs(argument: str, output: str, *typed: str | None) -> None:
    """Refuse to write a file that is read, under another name or by a link too.

    `typed` are paths, or words that end in one, such as table:FILE and KEY=FILE.
    """
    for text in filter(None, typed):
        if any(_is_same(path, output) for path in (text, *re.split("[:=]", text, maxsplit=1)[1:])):
            raise InputError(argument, output, f"another file than {text}, which is read")


def _is_same(one: str, other: str) -> bool:
    with suppress(OSError, ValueError):  # one is not there yet, a link to itself, or no name
        return os.path.samefile(one, other)  # noqa: PTH121 - pathlib is slow to import
    return os.path.abspath(one) == os.path.abspath(other)  # noqa: PTH100 - likewise
