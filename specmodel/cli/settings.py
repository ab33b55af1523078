"""What several commands share: settings, and the options that say what runs where."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from specmodel.base.errors import InputError

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 80}

_DATA = Path(__file__).parents[1] / "records/data"
_FOLDERS = {
    "hardware": (_DATA / "hardware", Path(__file__).parents[2] / "hw_profiles"),
    "target": (_DATA / "architectures",),
    "drafter": (_DATA / "architectures",),
    "engine": (_DATA / "engines",),
}


def completer(kind: str) -> Callable[..., list[str]]:
    """Complete names of shipped records for the shell, without reading them."""

    def complete(_context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
        names = [p.name.removesuffix(".toml") for f in _FOLDERS[kind] for p in f.glob("*.toml")]
        if kind == "drafter":
            from specmodel.records.drafters import list_drafters

            names += list_drafters()
        return sorted(name for name in names if name.startswith(start))

    return complete


Command = TypeVar("Command", bound=Callable[..., Any])


def where_options(*, required: bool, overheads: bool = False) -> Callable[[Command], Command]:
    """Add the options that name target, drafter, hardware, engine and kernels.

    Parameters
    ----------
    required
        Whether target, drafter and hardware must be given.
    overheads
        Whether the engine's profile goes by ``--overheads``, as ``--engine`` says something else.

    Returns
    -------
    Callable
        Decorator of a command.
    """
    default = "the engine's own, or ideal" if overheads else "ideal"
    return _adding(
        click.option(
            "--target",
            required=required,
            shell_complete=completer("target"),
            metavar="NAME|PATH",
            help="Model served; a name, TOML or config.json.",
        ),
        click.option(
            "--drafter",
            required=required,
            shell_complete=completer("drafter"),
            metavar="NAME|PATH",
            help="ngram, eagle, eagle3, mtp, parallel, or a model.",
        ),
        click.option(
            "--hardware",
            required=required,
            shell_complete=completer("hardware"),
            metavar="NAME|PATH",
            help="GPU; a name or TOML.",
        ),
        click.option(
            "--overheads" if overheads else "--engine",
            "engine",
            shell_complete=completer("engine"),
            metavar="NAME|PATH",
            help=f"Overheads of the serving stack.  [default: {default}]",
        ),
        click.option(
            "--stack",
            metavar="NAME",
            help="Whose kernels: fitted for the GPU, typical or datasheet."
            "  [default: the engine's, or the GPU's first]",
        ),
    )


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
    default = "  [default: --draft-length]" if one_length else ""
    return _adding(
        click.option(
            "--acceptance-rate", type=float, help="P(token accepted, all before it were)."
        ),
        click.option(
            "--tokens-per-step",
            type=float,
            help="Mean tokens emitted per step, bonus included.",
        ),
        click.option("--step-efficiency", type=float, help="Tokens per step / (draft length + 1)."),
        click.option(
            "--accepted-fraction", type=float, help="Accepted / drafted, as engines report."
        ),
        click.option(
            "--acceptance-by-position",
            metavar="RATES",
            help="Conditional rates of positions 1, 2, ...: 0.8,0.7,0.6.",
        ),
        click.option(
            "--measured-draft-length",
            type=int,
            help=f"Draft length of the measured acceptance.{default}",
        ),
        click.option(
            "--proposal-rate",
            type=float,
            help="Share of steps with a proposal (ngram).  [default: 1]",
        ),
    )


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


def echo_warnings(warnings: Iterable[str]) -> None:
    """Print warnings beside what a program reads."""
    for warning in warnings:
        click.echo(f"specmodel: warning: {warning}", err=True)


def detail_options() -> Callable[[Command], Command]:
    """Add the options that say how the target runs: parallelism, dtypes, routing, what-ifs."""
    return _adding(
        click.option("--tensor-parallel", type=int, help="GPUs of the target.  [default: 1]"),
        click.option(
            "--expert-parallel",
            type=int,
            help="GPUs that experts are spread over; they share the batch.  [default: 1]",
        ),
        click.option(
            "--draft-tensor-parallel", type=int, help="GPUs of a draft model.  [default: 1]"
        ),
        click.option(
            "--weight-dtype", metavar="DTYPE", help="fp32, bf16, fp16, fp8, int8, fp4, mxfp4, int4."
        ),
        click.option("--expert-dtype", metavar="DTYPE", help="Routed experts, where it differs."),
        click.option("--embedding-dtype", metavar="DTYPE", help="Embedding and head, likewise."),
        click.option("--activation-dtype", metavar="DTYPE", help="Arithmetic follows it."),
        click.option("--kv-dtype", metavar="DTYPE", help="Dtype of the KV cache."),
        click.option(
            "--routing-correlation",
            type=float,
            help="0: a sequence's tokens route independently; 1: all as the first."
            "  [default: 0.18]",
        ),
        click.option(
            "--popularity-exponent",
            type=float,
            help="Experts are used as rank to minus this power.  [default: 0, equally]",
        ),
        click.option(
            "--popularity",
            metavar="FILE",
            help="Chance that a token uses each expert, one a number, summing to experts a token.",
        ),
        click.option(
            "--lookup-time", type=float, help="Host seconds of a look-up (ngram).  [default: 0]"
        ),
        click.option(
            "--set",
            "changes",
            multiple=True,
            metavar="KEY=VALUE",
            help="What if: a field of hardware, engine, target or drafter, e.g."
            " hardware.memory.peak_bytes_per_s=6e12.",
        ),
    )


def _adding(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add
