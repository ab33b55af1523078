"""The command line: parse, call, print. Imports nothing heavy until a command runs."""

import errno
import gc
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from specmodel import __version__
from specmodel.commands.calibration import FitGroup, calibrate, dataset, fit, validate
from specmodel.commands.settings import SETTINGS
from specmodel.errors import InputError

_PACKAGE = Path(__file__).parent
_FOLDERS = {
    "hardware": (_PACKAGE / "hw_profiles", _PACKAGE.parent / "hw_profiles"),
    "target": (_PACKAGE / "architectures",),
    "drafter": (_PACKAGE / "architectures",),
    "engine": (_PACKAGE / "engines",),
}


def _completer(kind: str) -> Callable[..., list[str]]:
    """Complete names of shipped records for the shell, without reading them."""

    def complete(_context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
        names = [p.name.removesuffix(".toml") for f in _FOLDERS[kind] for p in f.glob("*.toml")]
        if kind == "drafter":
            from specmodel.drafters import list_drafters

            names += list_drafters()
        return sorted(name for name in names if name.startswith(start))

    return complete


@click.group(context_settings=SETTINGS, no_args_is_help=True)
@click.version_option(__version__, prog_name="specmodel")
def main_group() -> None:
    """Tell whether speculative decoding pays for a model, on a GPU, at a batch size.

    \b
    Examples:
      specmodel predict --target qwen3-30b-a3b --drafter eagle \\
          --hardware h200_sxm --batch-size 1:128:x2 --draft-length 3 \\
          --acceptance-rate 0.7
      specmodel list hardware
      specmodel show h200_sxm

    \b
    Shell completion (bash; zsh and fish likewise):
      eval "$(_SPECMODEL_COMPLETE=bash_source specmodel)"
    """


@main_group.command(context_settings=SETTINGS)
@click.option(
    "--target",
    required=True,
    shell_complete=_completer("target"),
    metavar="NAME|PATH",
    help="Model served; a name, TOML or config.json.",
)
@click.option(
    "--drafter",
    required=True,
    shell_complete=_completer("drafter"),
    metavar="NAME|PATH",
    help="ngram, eagle, eagle3, mtp, parallel, or a model.",
)
@click.option(
    "--hardware",
    required=True,
    shell_complete=_completer("hardware"),
    metavar="NAME|PATH",
    help="GPU; a name or TOML.",
)
@click.option(
    "--engine",
    shell_complete=_completer("engine"),
    metavar="NAME|PATH",
    help="Overheads of the serving stack.  [default: ideal]",
)
@click.option(
    "--stack",
    metavar="NAME",
    help="Whose kernels: fitted for the GPU, typical or datasheet."
    "  [default: the engine's, or the GPU's first]",
)
@click.option(
    "--batch-size",
    required=True,
    metavar="VALUES",
    help="Sequences decoded together: 1,2,4 or 1:64:2 or 1:128:x2.",
)
@click.option(
    "--draft-length",
    required=True,
    metavar="VALUES",
    help="Tokens drafted per sequence and step, 0 for none.",
)
@click.option("--acceptance-rate", type=float, help="P(token accepted, all before it were).")
@click.option("--tokens-per-step", type=float, help="Mean tokens emitted per step, bonus included.")
@click.option("--step-efficiency", type=float, help="Tokens per step / (draft length + 1).")
@click.option("--accepted-fraction", type=float, help="Accepted / drafted, as engines report.")
@click.option(
    "--acceptance-by-position",
    metavar="RATES",
    help="Conditional rates of positions 1, 2, ...: 0.8,0.7,0.6.",
)
@click.option(
    "--measured-draft-length",
    type=int,
    help="Draft length of the measured acceptance.  [default: --draft-length]",
)
@click.option(
    "--context-length",
    metavar="VALUES",
    help="KV entries per sequence before the step.  [default: 1024]",
)
@click.option(
    "--verify-tokens",
    type=int,
    help="Target tokens per sequence, for trees.  [default: draft length + 1]",
)
@click.option(
    "--max-draft-length", type=int, help="Longest draft considered for the best one.  [default: 10]"
)
@click.option("--tensor-parallel", type=int, help="GPUs of the target.  [default: 1]")
@click.option(
    "--expert-parallel",
    type=int,
    help="GPUs that experts are spread over; they share the batch.  [default: 1]",
)
@click.option("--draft-tensor-parallel", type=int, help="GPUs of a draft model.  [default: 1]")
@click.option(
    "--weight-dtype", metavar="DTYPE", help="fp32, bf16, fp16, fp8, int8, fp4, mxfp4, int4."
)
@click.option("--expert-dtype", metavar="DTYPE", help="Routed experts, where it differs.")
@click.option("--embedding-dtype", metavar="DTYPE", help="Embedding and head, likewise.")
@click.option("--activation-dtype", metavar="DTYPE", help="Arithmetic follows it.")
@click.option("--kv-dtype", metavar="DTYPE", help="Dtype of the KV cache.")
@click.option(
    "--routing-correlation",
    type=float,
    help="0: a sequence's tokens route independently; 1: all as the first.  [default: 0.18]",
)
@click.option(
    "--popularity-exponent",
    type=float,
    help="Experts are used as rank to minus this power.  [default: 0, equally]",
)
@click.option(
    "--popularity",
    metavar="FILE",
    help="Chance that a token uses each expert, one a number, summing to experts a token.",
)
@click.option(
    "--proposal-rate", type=float, help="Share of steps with a proposal (ngram).  [default: 1]"
)
@click.option("--lookup-time", type=float, help="Host seconds of a look-up (ngram).  [default: 0]")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="What if: a field of hardware, engine, target or drafter, e.g."
    " hardware.memory.peak_bytes_per_s=6e12.",
)
@click.option("--interval", is_flag=True, help="Add central 80 % intervals.")
@click.option("--components", is_flag=True, help="Add the breakdown of each pass.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
def predict(*, as_json: bool, as_csv: bool, components: bool, **options: Any) -> None:
    """Predict target efficiency and speedup of speculative decoding.

    Give exactly one form of acceptance. All but the rate and the rates by position hold at the
    draft length they were measured at.

    \b
    Examples:
      specmodel predict --target qwen2-57b-a14b --drafter qwen2-0.5b \\
          --hardware a800_sxm_80gb --tensor-parallel 2 --batch-size 1:64:x2 \\
          --draft-length 4 --acceptance-rate 0.9 --context-length 512
      specmodel predict --target ./config.json --drafter ngram \\
          --proposal-rate 0.4 --hardware l40s --batch-size 1 --draft-length 1:5 \\
          --tokens-per-step 1.4 --measured-draft-length 3 --json
    """
    if as_json and as_csv:
        raise InputError("csv", True, "one of --json and --csv")
    from specmodel import report
    from specmodel.options import predict_from

    prediction = predict_from(options)

    if as_json:
        click.echo(report.to_json(prediction, with_components=components))
        return
    if as_csv:
        if components:
            raise InputError("components", True, "--json or the table, as CSV has one row a point")
        click.echo(report.to_csv(prediction))
        for warning in prediction.warnings:
            click.echo(f"specmodel: warning: {warning}", err=True)
        return
    sections = [
        f"{report.heading(prediction)}\n{report.verdict(prediction)}",
        *report.warnings(prediction),
        report.table(prediction),
        *([report.components(prediction)] if components else []),
        report.assumptions(prediction),
    ]
    click.echo("\n\n".join(sections))


@main_group.command("list", context_settings=SETTINGS)
@click.argument(
    "kind", type=click.Choice(["hardware", "architectures", "engines", "drafters", "tables"])
)
def list_command(kind: str) -> None:
    """List what ships with the package."""
    from specmodel import report
    from specmodel.catalog import catalog

    click.echo(report.name_table(catalog(kind)))


@main_group.command(context_settings=SETTINGS)
@click.argument("name")
def show(name: str) -> None:
    """Show a hardware, architecture or engine record as TOML.

    NAME is a shipped name, or the path of a TOML or config.json file. Save the output, edit it,
    and give its path to predict.
    """
    from specmodel import report
    from specmodel.catalog import find

    click.echo(report.record_text(*find(name)))


main_group.add_command(calibrate)
main_group.add_command(dataset)
main_group.add_command(fit)
main_group.add_command(validate)


def _error_line(error: InputError, words: Sequence[str]) -> str:
    """Name the option as typed: ``--batch-size``, ``--hardware memory.peak_bytes_per_s``."""
    options = {
        parameter.opts[0].strip("-").replace("-", "_"): parameter.opts[0]
        for parameter in _command(words).params
        if isinstance(parameter, click.Option)
    }
    name, rest = re.split(r"[. ]|$", error.argument, maxsplit=1)
    if name not in options:
        return str(error)
    return str(InputError(f"{options[name]} {rest}".strip(), error.value, error.expected))


def _command(words: Sequence[str]) -> click.Command:
    """Return the command that was typed."""
    command: click.Command = main_group
    for word in words:
        if isinstance(command, FitGroup):
            return command.commands.get(word, command.commands["kernels"])
        if isinstance(command, click.Group):
            command = command.commands.get(word, command)
    return command


def run() -> int:
    """Run as a program: in so short a life, looking for cycles costs a fifth of the time."""
    gc.disable()
    status = main()
    gc.freeze()
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments
        Words after the program's name, by default those of the process.

    Returns
    -------
    int
        Exit status: 0, 2 for what cannot be used, 130 for Ctrl-C, 1 for a closed pipe.
    """
    try:
        status = main_group.main(arguments, prog_name="specmodel", standalone_mode=False)
        sys.stdout.flush()
        return int(status or 0)
    except InputError as error:
        message = _error_line(error, sys.argv[1:] if arguments is None else arguments)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.ClickException as error:
        message = " ".join(error.format_message().split())
    except (click.Abort, KeyboardInterrupt):
        return 130
    except OSError as error:
        if error.errno == errno.EPIPE:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        message = f"output: {error.strerror}"
    click.echo(f"specmodel: error: {message}", err=True)
    return 2
