"""Launch commands of engines as options: a whole line, or single flags of it.

They set options of this program, and the engine unless the user gives one.
"""

from typing import Any

import click
from click.core import ParameterSource

from specmodel.cli import settings
from specmodel.core.base.errors import InputError, given

_LINE = "from_command"


def start_flags() -> settings.Add:
    """Accept launch commands and their flags in a command with a drafter."""
    return settings.options(settings.options_of("launch"), settings.changed(_filled))


def _filled(options: dict[str, Any]) -> dict[str, Any]:
    """Return options with the values of a launch command; refuse options that are typed too.

    If the user typed a model, the model of the launch command is ignored.
    """
    context, line = click.get_current_context(), options.pop(_LINE)
    if not (line or context.obj):
        return options | {"draft_model": "", "unnamed": ""}
    from specmodel.core.cost.launch import launched
    from specmodel.core.cost.launch_lines import engine_of, launch_line, whole

    engine, flags = launch_line(_LINE, line) if line else (engine_of(context.obj), {})
    how = {"is_line": bool(line), "is_load": "max_running" in options}
    found = launched(engine, flags | whole(engine, context.obj), **how)
    said = _without_untaken(found.arguments, options)
    model, asked = str(said.pop("target", "")), 1 if options["hardware"] else 2
    if model and options["target"] is None and len(options["words"]) < asked:
        options["words"] = (model, *options["words"])
    elif model and not line:
        raise InputError("target", model, "The model is given twice. Remove one of the two.")
    source = settings.flag(_LINE) if line else next(flag.typed for flag in context.obj.values())
    for parameter in context.command.params:
        name = parameter.name or ""
        if name == "changes" or name not in said:
            continue
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            expected = f"In {source}, it is {said[name]}. Remove one of them."
            raise InputError(name, options[name], expected)
        said[name] = parameter.type_cast_value(context, str(said[name]))
    said |= {"changes": (*options["changes"], *said.get("changes", ()))}
    if options["engine"] is None:  # a schedule has --for instead
        name = "config_format" if "config_format" in options else "engine"
        said |= {name: options.get(name) or engine}
    said |= {"taken": found.notes, "draft_model": found.model, "unnamed": found.lacking}
    return options | said


def _without_untaken(said: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the values of flags without those that the command chooses itself.

    A command that simulates policies gets the draft length as one of them, unless the user typed
    policies. If the user typed an acceptance, the acceptance of flags is ignored too.
    """
    from specmodel.core.prediction.accepted import OF_ACCEPTANCE

    dropped = {"draft_length", "batch_size", *OF_ACCEPTANCE} - options.keys()
    dropped |= {*OF_ACCEPTANCE} if given(options, OF_ACCEPTANCE) else set()
    length = said.get("draft_length")
    if length and "policy" in options and options["policy"] is None:
        fixed = length if isinstance(length, str) else f"fixed:{length}"
        said = said | {"policy": f"none,{fixed},schedule"}
    said = {name: value for name, value in said.items() if name not in dropped}
    for name in said.keys() - options.keys():
        raise InputError(name, said[name], "This command does not accept it. Remove it.")
    return said
