"""Options that several commands share, declared once, and what every command does alike."""

import shutil
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar, cast

import click

import specmodel
from specmodel.base.errors import InputError
from specmodel.drafters.names import DRAFTERS

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 80}

_Options = dict[str, tuple[type | str, str]]

_WHERE: _Options = {
    "target": ("NAME|PATH", "Model served; a name, TOML or config.json."),
    "drafter": ("NAME|PATH", f"{', '.join(DRAFTERS)}, or a model."),
    "hardware": ("NAME|PATH", "GPU; a name or TOML."),
    "engine": ("NAME|PATH", "Whose host overheads; implies a stack."),
    "host_speed": (
        float,
        "How many times as fast as the engine's host yours is.  [default: the profile's]",
    ),
    "stack": (
        "NAME",
        "Whose kernels: fitted for the GPU, typical or datasheet."
        "  [default: the engine's, or the GPU's first]",
    ),
}
_POINT: _Options = {
    "batch_size": ("VALUES", "Sequences decoded together: 1,2,4 or 1:64:2 or 1:128:x2."),
    "draft_length": ("VALUES", "Tokens drafted per sequence and step, 0 for none."),
    "context_length": ("VALUES", "KV entries per sequence before the step.  [default: 1024]"),
    "prompt_length": (
        "VALUES",
        "Tokens of a prompt, where steps carry the prefill of other requests."
        "  [default: none carried]",
    ),
    "output_length": ("VALUES", "Tokens that each request makes, with --prompt-length."),
    "verify_tokens": (int, "Target tokens per sequence, for trees.  [default: draft length + 1]"),
    "tree_width": (
        int,
        "Tokens that each drafted one is followed by: SGLang's top-k.  [default: 1]",
    ),
    "max_draft_length": (int, "Longest draft considered.  [default: 10]"),
}
_ACCEPTANCE: _Options = {
    "acceptance": (
        "preset|NAME",
        "What is published for target and drafter, or under a name of specmodel list acceptance.",
    ),
    "acceptance_rate": (float, "P(token accepted, all before it were)."),
    "tokens_per_step": (float, "Mean tokens emitted per step, bonus included."),
    "step_efficiency": (float, "Tokens per step / (draft length + 1)."),
    "accepted_fraction": (float, "Accepted / drafted, as engines report."),
    "acceptance_by_position": ("RATES", "Conditional rates of positions 1, 2, ...: 0.8,0.7,0.6."),
    "measured_draft_length": (int, "Draft length of the measured acceptance."),
    "proposal_rate": (float, "Share of steps with a proposal (ngram).  [default: 0.44]"),
}
_DETAIL: _Options = {
    "tensor_parallel": (int, "GPUs that each matrix of the target is cut over.  [default: 1]"),
    "data_parallel": (
        int,
        "Replicas of all but the experts, which share the batch."
        "  [default: as few as --expert-parallel needs]",
    ),
    "expert_parallel": (
        int,
        "Groups of GPUs that experts are spread over; a group cuts its own.  [default: 1]",
    ),
    "draft_tensor_parallel": (int, "GPUs of a draft model.  [default: 1]"),
    "memory_utilization": (
        float,
        "Share of a GPU's memory that weights and cache may fill.  [default: 0.9]",
    ),
    "weight_dtype": (
        "DTYPE",
        "fp32, bf16, fp16, fp8, fp8_block, int8, fp4, mxfp4, int4, int4_g32, mxfp8 ...",
    ),
    "attention_dtype": ("DTYPE", "Attention and other mixers, where it differs."),
    "expert_dtype": ("DTYPE", "Routed experts, likewise."),
    "mtp_dtype": ("DTYPE", "The block for multi-token prediction, likewise."),
    "embedding_dtype": ("DTYPE", "Embedding and head, likewise."),
    "activation_dtype": ("DTYPE", "Arithmetic follows it."),
    "kv_dtype": ("DTYPE", "Dtype of the KV cache."),
    "routing_correlation": (
        float,
        "0: a sequence's tokens route independently; 1: all as the first.  [default: 0.18]",
    ),
    "popularity_exponent": (
        float,
        "Experts are used as rank to minus this power.  [default: 0, equally]",
    ),
    "popularity": (
        "FILE",
        "Chance that a token uses each expert, one a number, summing to experts a token.",
    ),
    "state_rollback": (
        "HOW",
        "Recurrent states of rejected tokens: native (a state is written after each"
        " token) or replay.  [default: native]",
    ),
    "lookup_time": (float, "Host seconds to look up one sequence (ngram).  [default: 0]"),
}
OPTIONS = _WHERE | _POINT | _ACCEPTANCE | _DETAIL
"""By name: the type of a number, or what stands for a text in the help; and the help."""

_LISTS = {
    "target": ["list_architectures"],
    "drafter": ["list_architectures", "list_drafters"],
    "hardware": ["list_hardware"],
    "engine": ["list_engines"],
}
"""What lists the names that complete an option."""

Command = TypeVar("Command", bound=Callable[..., Any])


def flag(name: str) -> str:
    """Return an option as typed: with dashes in front of its name as an argument, and inside."""
    return "--" + name.replace("_", "-")


def completer(kind: str) -> Callable[..., list[str]]:
    """Complete names of shipped records for the shell."""

    def complete(_context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
        names = [name for names in _LISTS[kind] for name in getattr(specmodel, names)()]
        return sorted(name for name in names if name.startswith(start))

    return complete


def option(name: str, more: str = "", **changes: Any) -> Callable[[Command], Command]:
    """Add one of `OPTIONS`; `more` follows its help, `changes` are what `click.option` takes."""
    kind, words = OPTIONS[name]
    settings: dict[str, Any] = {"help": words + more}
    settings["metavar" if isinstance(kind, str) else "type"] = kind
    if name in _LISTS:
        settings["shell_complete"] = completer(name)
    return click.option(flag(name), **settings | changes)


def where_options(
    *, required: bool, engine: str = "ideal", has_drafter: bool = True
) -> Callable[[Command], Command]:
    """Add the options that name target, drafter, hardware, engine and kernels.

    Parameters
    ----------
    required
        Whether target, drafter and hardware must be given.
    engine
        What the help calls the default engine.
    has_drafter
        Whether there is a drafter.

    Returns
    -------
    Callable
        Decorator of a command.
    """
    names = ("target", "drafter", "hardware") if has_drafter else ("target", "hardware")
    return _adding(
        *(option(name, required=required) for name in names),
        option("engine", f"  [default: {engine}]"),
        option("host_speed"),
        option("stack"),
        ignore_option("target", "drafter"),
    )


def ignore_option(*names: str) -> Callable[[Command], Command]:
    """Add the option that leaves keys out of the ``config.json`` files that some options name."""

    def add(command: Command) -> Command:
        @wraps(command)
        def run(*, ignore_config_key: tuple[str, ...], **options: Any) -> Any:
            if not ignore_config_key:
                return command(**options)
            from specmodel.models.hf.files import check_ignored, ignoring

            models = [(n, path) for n in names for path in (options.get(n) or "").split(",")]
            check_ignored("ignore_config_key", ignore_config_key, models)
            with ignoring(ignore_config_key):
                return command(**options)

        return click.option(
            "--ignore-config-key",
            multiple=True,
            metavar="KEY",
            help="Read config.json as if this key, which may change the shape, was not in it.",
        )(cast(Command, run))

    return add


def acceptance_options(*, one_length: bool = True) -> Callable[[Command], Command]:
    """Add the options that say how often drafted tokens are accepted, in exactly one form.

    Parameters
    ----------
    one_length
        Whether there is a ``--draft-length`` at which it may have been measured.

    Returns
    -------
    Callable
        Decorator of a command.
    """
    more = {"measured_draft_length": "  [default: --draft-length]"} if one_length else {}
    return _adding(*(option(name, more.get(name, "")) for name in _ACCEPTANCE))


def load_options() -> Callable[[Command], Command]:
    """Add the options that say how long contexts, prompts and outputs are."""
    return _adding(*map(option, ("context_length", "prompt_length", "output_length")))


def detail_options(*, has_drafter: bool = True) -> Callable[[Command], Command]:
    """Add the options that say how the target runs: parallelism, dtypes, routing, what-ifs."""
    left_out = () if has_drafter else ("draft_tensor_parallel", "mtp_dtype", "lookup_time")
    changes = click.option(
        "--set",
        "changes",
        multiple=True,
        metavar="KEY=VALUE",
        help="What if: a field of hardware, engine"
        f"{', target or drafter' if has_drafter else ' or target'}, e.g."
        " hardware.memory.peak_bytes_per_s=6e12.",
    )
    return _adding(*(option(name) for name in _DETAIL if name not in left_out), changes)


def form_options(rows: str = "") -> Callable[[Command], Command]:
    """Add the options for programs; `rows` says what a row of the CSV is."""
    return _adding(
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--csv", "as_csv", is_flag=True, help=f"Print CSV{rows}."),
    )


def check_forms(as_json: bool, as_csv: bool) -> None:
    """Refuse both at once."""
    if as_json and as_csv:
        raise InputError("csv", True, "one of --json and --csv")


def screen_width() -> int:
    """Return the columns of the terminal, 80 where there is none [-]."""
    is_watched = sys.stdout.isatty()
    return max(40, shutil.get_terminal_size().columns) if is_watched else 80


def echo_warnings(warnings: Iterable[str]) -> None:
    """Print warnings beside what a program reads."""
    for warning in warnings:
        click.echo(f"specmodel: warning: {warning}", err=True)


def _adding(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for decorate in reversed(options):
            command = decorate(command)
        return command

    return add
