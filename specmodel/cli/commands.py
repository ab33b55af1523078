"""The commands by name, imported when they are typed, and how their errors are printed."""

import errno
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path

import click

from specmodel import __version__
from specmodel.base.compiled import compiled
from specmodel.base.errors import InputError, cut, in_one_line, nearest
from specmodel.base.naming import SETTABLE, SETTABLE_OF
from specmodel.cli.helping import WholeList
from specmodel.cli.settings import COMPARED, SETTINGS, flag

_COMMANDS = (
    "acceptance break-even calibrate compare fit load plot predict schedule sensitivity"
    " simulate sweep trace"
)
"""Commands that have a module of their own name."""
_HOME = {name: name.replace("-", "_") for name in _COMMANDS.split()}
_HOME["list"] = "catalog"

_OTHER_OPTIONS = {
    "--tp": "--tensor-parallel",
    "--dp": "--data-parallel",
    "--ep": "--expert-parallel",
    "--model": "--target",
    "--gpus": "--tensor-parallel",
    "--num-gpus": "--tensor-parallel",
    "--gpu": "--hardware",
    "--backend": "--engine",
    "--quantization": "--weight-dtype",
    "--dtype": "--weight-dtype",
    "--kv-cache-dtype": "--kv-dtype",
    "--concurrency": "--batch-size",
    "--max-concurrency": "--batch-size",
    "--isl": "--prompt-length",
    "--input-len": "--prompt-length",
    "--osl": "--output-length",
    "--output-len": "--output-length",
    **{flag(name): f"--set {name}=" for name in (*SETTABLE, *sum(SETTABLE_OF.values(), ()))},
    "--num-speculative-tokens": "--draft-length",
    "--speculative-num-steps": "--draft-length",
}
"""What engines and other tools call an option."""

_ELSEWHERE = {
    "--draft-lm-head-quantization": "Here it is --set drafter.head_dtype=fp8, or fp4 for nvfp4",
    **dict.fromkeys(
        ("--ttft-target", "--for-load"),
        "Requests that come and wait are simulated by specmodel load, and by compare and schedule"
        " with --for-load",
    ),
    "--dspark-draft-topk": "Here it is a key of the head's own config.json",
    "--rejection-sample-method": "It takes no time: give the acceptance measured with it, such as"
    " --acceptance kimi-k3-dspark-block-verification",
}
"""What engines call what is no option here, and where it is."""

_TAKING_MEMORY = (
    *("workers", "columns", "interval", "requests", "output_tokens", "samples", "components"),
    *("batch_size", "draft_length", "context_length", "max_batch_size", "max_draft_length"),
)
"""Options that decide how much memory a command takes."""

_NEW_NAMES = {
    **dict.fromkeys(("serve", "capacity"), "load ..."),
    "show": "list NAME",
    "validate": "fit check ...",
    "cost-table": "schedule --format cost-table ...",
    "best-draft-length": "predict ... --view lengths",
    "sweet-spot": "predict ... --view peak",
    "explain": "predict ... --view terms",
    "decode": "predict ... --view plain",
}
"""Commands of before 1.0, and what they are called now: told for one release."""

_ELSEWHERE_COMMANDS = {
    "dataset": "python calibration/dataset.py of a checkout, where it is now",
    "measure-engine": "vllm bench serve --save-result or another benchmark, then specmodel fit"
    " engine FILE (docs/measuring.md)",
    "help": "specmodel --help, or specmodel COMMAND --help",
    **{name: f"specmodel {new}, its new name" for name, new in _NEW_NAMES.items()},
}
"""Words that are typed for a command and are none, and what to run instead."""


_HELPS = Path(__file__).with_name("helps")


class _Commands(WholeList):
    """A group of commands, each imported when it is typed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_HOME)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in _HOME and name not in self.commands:
            module = import_module(f"specmodel.cli.{_HOME[name]}")
            for command in vars(module).values():
                if isinstance(command, click.Command) and command.name == name:
                    self.add_command(command)
        return super().get_command(ctx, name)

    def helps(self, ctx: click.Context) -> dict[str, str]:
        return compiled(_HELPS, [], partial(super().helps, ctx))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _HOME and not args[0].startswith("-"):
            expected = _ELSEWHERE_COMMANDS.get(args[0]) or nearest(args[0], _HOME)
            raise InputError("command", args[0], expected)
        return super().resolve_command(ctx, args)


_QUESTIONS = """\
Does speculative decoding pay for my model, on my GPU? Five questions:

  specmodel predict qwen3.5-397b h200
      Does it pay, at which batch sizes, with which draft length?
  specmodel predict qwen3.5-397b h200 --tpot-target 20ms
      What is the largest batch within a time per token?
  specmodel compare qwen3.5-397b h200,b200 --drafter mtp,ngram \\
      --acceptance-rate 0.7,0.4
      Which GPU, layout, dtype, engine or drafter is best?
  specmodel break-even qwen3-235b h200 --drafter eagle3
      What must my draft head reach, and what is 0.1 tokens more worth?
  specmodel schedule qwen3.5-397b h200 --for vllm
      Which draft length at which batch size, as the engine reads it?

specmodel --help lists all commands; each explains itself with --help.
What ships: specmodel list hardware, architectures, drafters, engines,
acceptance, policies, presets, words."""


@click.group(cls=_Commands, context_settings=SETTINGS, invoke_without_command=True)
@click.option("--version", is_flag=True, help="Show the version and exit.")
@click.option("--verbose", is_flag=True, help="With --version: of data and libraries too.")
@click.pass_context
def main_group(context: click.Context, version: bool, verbose: bool) -> None:
    """Tell whether speculative decoding pays for a model, on a GPU, at a batch size.

    \b
    Examples:
      specmodel predict qwen3.5-397b h200
      specmodel predict qwen3-30b-a3b 2xh100 --drafter eagle3 \\
          --acceptance-rate 0.7 --batch-size 1:128:x2
      specmodel list hardware
      specmodel list h200_sxm

    \b
    Shell completion (bash; zsh and fish likewise):
      eval "$(_SPECMODEL_COMPLETE=bash_source specmodel)"
    """
    if version:
        click.echo(f"specmodel, version {__version__}" + (_versions() if verbose else ""))
        context.exit()
    if context.invoked_subcommand is None:
        click.echo(_QUESTIONS)


def _versions() -> str:
    """Return what tells one state of the data from another, and versions of what is installed."""
    from hashlib import sha256
    from importlib.metadata import PackageNotFoundError, version
    from platform import python_version

    from specmodel.machines.hardware import FOLDER

    files = {*Path(__file__).parents[1].glob("*/data/**/*.*"), *FOLDER.glob("*.toml")}
    data = sorted(sha256(f.read_bytes()).digest() for f in files if f.suffix in (".csv", ".toml"))
    lines = [f"data {sha256(b''.join(data)).hexdigest()[:12]} ({len(data)} files)"]
    lines += [f"python {python_version()}"]
    for name in ("numpy", "pandas", "scipy", "pydantic", "click", "numba", "pyarrow", "torch"):
        with suppress(PackageNotFoundError):
            lines += [f"{name} {version(name)}"]
    return "\n" + "\n".join(lines)


def _error_line(error: InputError, words: Sequence[str]) -> str:
    """Return an error that names the option as it is typed; nothing typed is said in words."""
    name, rest = re.split(r"[. ]|$", error.argument, maxsplit=1)
    is_set = name in (*SETTABLE, *SETTABLE_OF.get(words[0], ()))
    argument = f"--set {error.argument}" if is_set else error.argument
    for option in _command(words).params:
        if isinstance(option, click.Option) and (name == option.name or flag(name) in option.opts):
            argument = f"{option.opts[0]} {rest}".strip()
    if error.value is None:
        return in_one_line(f"{argument}: none given; expected {error.expected}")
    return str(InputError(argument, error.value, error.expected))


def _usage(error: click.ClickException, words: Sequence[str]) -> str:
    """Return what click says of a line; of one that lacks options, all of them."""
    told = error.format_message()
    if not (isinstance(error, click.MissingParameter) and error.ctx):
        return told
    typed = {word.partition("=")[0] for word in words}
    needed = [each for each in error.ctx.command.params if each.required and each != error.param]
    others = [each.opts[0] for each in needed if not typed & {*each.opts}]
    also = f"; also {', '.join(others)}"
    too = also if isinstance(error.param, click.Option) and others else ""
    return f"{told.removesuffix('.')}{too} ({error.ctx.command_path} --help)"


def _with_remedy(message: str, words: Sequence[str]) -> str:
    """Return an error that says what takes lists, if it is of one typed for a single thing."""
    found = re.match(r"(?:Invalid value for )?'?(--[a-z-]+)[^:']*'?: (?:got )?'[^']*,", message)
    named = ("target", "drafter", "hardware", "engine", "set", *COMPARED)
    takes_lists = words[0] in ("compare", "sweep") or "peak" in words
    is_listed = found is not None and found[1] in map(flag, named) and not takes_lists
    return f"{message} (lists: specmodel compare)" if is_listed else message


def _too_large(words: Sequence[str]) -> str:
    """Say which options of a command to reduce: those typed, and those with costly defaults."""
    names = {parameter.name for parameter in _command(words).params}
    typed = {word.partition("=")[0] for word in words} | {"--workers", "--columns"}
    flags = [flag(name) for name in _TAKING_MEMORY if name in names and flag(name) in typed]
    remedy = f"less of {', '.join(flags)}" if flags else "less to read"
    return f"memory: too little for this; expected {remedy}, or more memory"


def _command(words: Sequence[str]) -> click.Command:
    """Return the command or subcommand that was typed."""
    command: click.Command = main_group
    context = click.Context(main_group)
    for word in words:
        if isinstance(command, click.Group):
            default = command.get_command(context, getattr(command, "default", str)(word))
            command = command.get_command(context, word) or default or command
    return command


def carry_out(words: Sequence[str]) -> int:
    """Run a command and return its exit status; an error is printed in one line."""
    try:
        return _status(words)
    except InputError as error:
        message = _with_remedy(_error_line(error, words), words)
    except click.NoSuchOption as error:
        ours = _OTHER_OPTIONS.get(error.option_name)
        known = [word for option in _command(words).params for word in option.opts]
        has_it = ours and ours.partition(" ")[0] in known
        message = f"{error.message} It is {ours} here." if has_it else error.format_message()
        if "--target" in known and error.option_name in _ELSEWHERE:
            message = f"{error.message} {_ELSEWHERE[error.option_name]}."
    except click.ClickException as error:
        message = _with_remedy(_usage(error, words), words)
    except MemoryError:
        message = _too_large(words)
    except click.Abort:
        raise KeyboardInterrupt from None
    except OSError as error:
        try:
            sys.stdout.flush()
        except OSError:  # drop what it cannot take; Python would try to write it again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            return 1
        message = f"output: {error.strerror}"
    click.echo(f"specmodel: error: {_short(message, words)}", err=True)
    return 2


def _status(words: Sequence[str]) -> int:
    """Run a command and return its status; a group without arguments prints its help."""
    try:
        status = main_group.main(words, prog_name="specmodel", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        status = 2
    sys.stdout.flush()
    return int(status or 0)


def _short(message: str, words: Sequence[str]) -> str:
    """Return a message in one line, with long arguments cut unless they are paths."""
    line = in_one_line(message)
    for part in (part for word in words for part in (word, *word.split("="))):
        if len(part) > 80 and not os.path.lexists(part):
            line = line.replace(in_one_line(part), cut(in_one_line(part)))
    return " ".join(cut(word, most=400) for word in line.split(" "))
