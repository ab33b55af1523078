"""Options that several commands share, and functions with which a command declares its own."""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

import specmodel
from specmodel.cli.helping import NAMES, GroupedCommand
from specmodel.core.base.errors import InputError
from specmodel.core.base.files import toml_tables
from specmodel.core.base.naming import SETTABLE

SETTINGS: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 80,
    "token_normalize_func": lambda typed: typed.replace("_", "-"),  # as engines read options
}


class _Share(click.types.FloatParamType):
    """A share of 1, which may be typed in per cent [-]."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the typed text as a share."""
        if str(value).endswith("%"):
            with suppress(ValueError):
                return float(str(value)[:-1]) / 100
        return super().convert(value, param, ctx)


class _Sizes(click.types.StringParamType):
    """Sizes of CUDA graphs: a number, a list, or a configuration of vLLM with a list."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the typed text as a number or a list."""
        keys, typed = ("cudagraph_capture_sizes", "max_cudagraph_capture_size"), value
        try:
            if str(value).strip().startswith("{"):
                config = json.loads(value)
                typed = next(config.pop(key) for key in keys if key in config)
            whole = [int(size) for size in str(typed).strip(" []()").replace(",", " ").split()]
        except (ValueError, StopIteration):
            expected = f"sizes such as 512 or 1,2,4,8, or JSON with {' or '.join(keys)}"
            raise InputError("graph_limit", value, expected) from None
        return whole[0] if len(whole) == 1 and not str(typed).startswith("[") else whole


TABLES: dict[str, dict[str, Any]] = toml_tables(Path(__file__).with_name("options.toml"))
"""Tables of ``options.toml``: the kind of value, the help and other settings of each option."""
OPTIONS = TABLES["case"] | TABLES["acceptance"] | TABLES["detail"]
"""Options on what runs where, and on acceptance."""
SHARED = OPTIONS | TABLES["shared"]
"""Options of several commands."""
_TYPES = {"int": int, "float": float, "text": str, "share": _Share(), "sizes": _Sizes()}

COMPARED: tuple[str, ...] = (*TABLES["compare"]["[detail]"]["lists"],)
"""Options of detail that accept a list where alternatives are compared."""
Add = Callable[[Any], Any]
"""A decorator that adds options to a command."""

command = partial(click.command, context_settings=SETTINGS, cls=GroupedCommand)


SETTABLE_OF = {command: names.split() for command, names in NAMES["settable"].items()}
"""Names that a command accepts in ``--set``, in addition to `SETTABLE`."""


def flag(name: str) -> str:
    """Return an option as users type it: ``--batch-size`` for batch_size."""
    return "--" + name.replace("_", "-")


def own(name: str, kind: str | list[str], words: str, *, to: str = "", **changes: Any) -> Add:
    """Add an option.

    `kind` is a type, a list of choices, or a metavar for text, as in ``options.toml``; `words` are
    the help. `to` is the name of the argument if it differs, or other flags for it. Other settings
    are those of `click.option`.
    """
    settings: dict[str, Any] = {"help": words, "show_default": changes.get("default") is not None}
    typed = flag(name)
    if kind == "flag":
        settings = {"help": words, "is_flag": True, "default": None}
    elif kind == "switch":
        typed, to = f"{typed}/--no-{name}", to or name
        settings |= {"default": None}
    elif isinstance(kind, list):
        settings["type"] = click.Choice(kind)
    elif kind in _TYPES:
        settings["type"] = _TYPES[kind]
    else:
        settings["metavar"] = kind
    if name in NAMES["completed"]:
        settings["shell_complete"] = _complete
    return click.option(typed, *to.split(), **settings | changes)


def _complete(_context: click.Context, parameter: click.Parameter, start: str) -> list[str]:
    """Return the shipped names that start like this."""
    lists = NAMES["completed"][str(parameter.name)].split()
    names = (each for listed in lists for each in getattr(specmodel, listed)())
    return sorted(each for each in names if each.startswith(start))


def option(name: str, more: str = "", **changes: Any) -> Add:
    """Add a shared option; `more` is added to its help."""
    kind, words, *settings = SHARED[name]
    return own(name, kind, words + more, **dict(*settings) | changes)


def options(*names: str | Add) -> Add:
    """Add options in this order: shared ones by name, others as decorators."""
    adding = [option(name) if isinstance(name, str) else name for name in names]

    def add(command: Any) -> Any:
        """Add all of them to a command."""
        for decorate in reversed(adding):
            command = decorate(command)
        return command

    return add


def options_of(*tables: str, **more: str) -> Add:
    """Add all options of tables, with `more` help by name.

    A text in place of an option adds to the help of a shared one. A name in brackets is a table.
    """
    declared = (entry for table in tables for entry in TABLES[table].items())
    return options(*(_declared(name, how, more.get(name, "")) for name, how in declared))


def _declared(name: str, how: Any, more: str) -> Add:
    if name == "[detail]":
        return detail_options(**how)
    if name.startswith("["):
        return options_of(name.strip("[]"), **how)
    if isinstance(how, str):
        return option(name, how)
    kind, words, *settings = how
    return own(name, kind, words + more, **dict(*settings))


def changed(change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Add:
    """Return a decorator that passes the options of a command through `change` first."""

    def add(command: Any) -> Any:
        @wraps(command)
        def run(**options: Any) -> Any:
            return command(**change(options))

        return run

    return add


def ignore_option(*names: str) -> Add:
    """Add the option that ignores keys of the ``config.json`` files that options `names` name."""

    def ignored(options: dict[str, Any]) -> dict[str, Any]:
        """Return the other options; the keys are ignored until the command ends."""
        if keys := options.pop("ignore_config_key"):
            from specmodel.core.models.hf.files import check_ignored, ignoring

            models = [(n, path) for n in names for path in (options.get(n) or "").split(",")]
            check_ignored("ignore_config_key", keys, models)
            click.get_current_context().with_resource(ignoring(keys))
        return options

    return options("ignore_config_key", changed(ignored))


def detail_options(*, lists: Iterable[str] = (), of: str = "") -> Add:
    """Add options on how the target runs: parallelism, dtypes, routing, --set.

    `lists` names options that accept a list, as text. `of` is a command with names of its own for
    --set.
    """
    words = (
        "Change a field of the hardware, engine, target or drafter, such as"
        f" hardware.memory.peak_bytes_per_s=6e12 or target.experts_per_token=4{',8' * bool(lists)}."
        " specmodel list NAME shows the fields. --set also accepts these names: "
        f"{', '.join([*SETTABLE, *SETTABLE_OF.get(of, ())])}."
    )
    as_list: dict[str, Any] = {"type": str, "metavar": "LIST"}
    detail = [option(name, **as_list if name in lists else {}) for name in TABLES["detail"]]
    changes = own("set", "KEY=VALUE", words, to="changes", multiple=True)
    return options(*detail, changes, changed(partial(_set_apart, SETTABLE_OF.get(of, []))))


def _set_apart(names: list[str], options: dict[str, Any]) -> dict[str, Any]:
    """Return options in which the settings `names` of --set are options of that name."""
    from specmodel.core.cost.where import literal

    pairs = {text: text.partition("=") for text in options["changes"]}
    own = {text: key.strip() for text, (key, _, _) in pairs.items() if key.strip() in names}
    options |= {key: literal(pairs[text][2].strip()) for text, key in own.items()}
    return options | {"changes": tuple(t for t in options["changes"] if t not in own)}


def check_free(output: str, *inputs: str, overwrite: bool) -> None:
    """Refuse a file that is an input, cannot be written, or exists, before anything is computed."""
    from specmodel.core.base.files import check_writable

    refuse_inputs("output", output, *inputs)
    check_writable(output, "output")
    if os.path.isfile(output) and not overwrite:  # noqa: PTH113 - pathlib is slow to import
        expected = "This file exists. Choose a new name, or add --overwrite to replace it."
        raise InputError("output", output, expected)


def refuse_inputs(argument: str, output: str, *typed: str | None) -> None:
    """Refuse to write a file that is also an input, under any name or link.

    `typed` are paths, or words that end in one, such as table:FILE and KEY=FILE.
    """
    for text in filter(None, typed):
        if any(_is_same(path, output) for path in (text, *re.split("[:=]", text, maxsplit=1)[1:])):
            raise InputError(argument, output, f"a file other than the input, {text}")


def _is_same(one: str, other: str) -> bool:
    with suppress(OSError, ValueError):  # a file does not exist, or its name is not valid
        return os.path.samefile(one, other)  # noqa: PTH121 - pathlib is slow to import
    return os.path.abspath(one) == os.path.abspath(other)  # noqa: PTH100 - likewise
