"""``specmodel list``: tables of what the package contains, and each record as TOML."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import specmodel
from specmodel.cli.settings import SETTINGS, ignore_option, own
from specmodel.core.base.errors import InputError, nearest
from specmodel.show import catalog
from specmodel.simulate import traces


def _kinds(_context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    return [kind for kind in catalog.ROWS if kind.startswith(start)]


@click.command("list", context_settings=SETTINGS)
@ignore_option("name")
@click.argument("name", required=False, metavar="KIND|NAME", shell_complete=_kinds)
@own("template", "flag", "Print a TOML file of this GPU, which you can edit for your own GPU.")
def list_command(name: str | None, *, template: bool) -> None:
    """List the models, GPUs and other data that ship with specmodel, or print one entry as TOML.

    KIND is hardware, architectures, engines, drafters, acceptance, policies, presets, words,
    columns or grounds. NAME is an entry of a list, or the path of a TOML or config.json file. To
    change an entry, save its TOML to a file, edit the file, and give its path to predict.

    \b
    Examples:
      specmodel list hardware
      specmodel list h200_sxm
      specmodel list h200_sxm --template
    """
    from specmodel.core.base.records import is_path

    if name is None:
        raise InputError("kind", None, ", ".join([*sorted(catalog.ROWS), "or a name such as h200"]))
    name = {"models": "architectures", "gpus": "hardware"}.get(name, name)
    if template:
        click.echo(catalog.template_text(specmodel.load_hardware(name, "name")))
    elif name in catalog.ROWS:
        click.echo(catalog.listing(name))
    else:
        click.echo(catalog.record_text(_read(name) if is_path(name) else _find(name)))


def _read(path: str) -> Any:
    """Return the record in a file; a key that only one kind has decides its kind."""
    from specmodel.core.base.records import read_mapping

    keys: Any = read_mapping(Path(path), "name") if path.endswith(".toml") else ["hidden_size"]
    if "memory" in keys:
        return specmodel.load_hardware(path)
    if "survival" in keys or "runs" in keys:
        return traces.load_preset(path)
    if "hidden_size" in keys:
        return specmodel.load_architecture(path, "name")
    return specmodel.load_engine(path)


def _find(name: str) -> Any:
    """Return the shipped record of a name, of any kind."""
    from specmodel.core.base.naming import known_name, spellings
    from specmodel.core.drafters.measured_heads import acceptance_by_name
    from specmodel.core.machines.hardware import full_name, known_hardware

    published = acceptance_by_name()
    known: dict[str, Callable[[str], Any]] = {
        **dict.fromkeys(known_hardware(), specmodel.load_hardware),
        **dict.fromkeys(specmodel.list_architectures(), specmodel.load_architecture),
        **dict.fromkeys(specmodel.list_engines(), specmodel.load_engine),
        **dict.fromkeys(traces.list_presets(), traces.load_preset),
    }
    if {*spellings(name)} & {*specmodel.list_drafters()} and name not in known:
        expected = (
            f"This drafter is derived from its target. Use --drafter {name}, and change it with"
        )
        expected += " --set, such as --set drafter.num_layers=2 or --set drafter.hidden_size=4096."
        raise InputError("name", name, expected)
    found = next(filter(published.get, spellings(name)), None)
    if found and found not in known:
        return published[found]
    if found := known_name(full_name(name, known), known, "name"):
        return known[found](found)
    kinds, alike = ", ".join(sorted(catalog.ROWS)), nearest(name, [*known, *published])
    expected = f"a kind ({kinds}), a path, or a name that specmodel list KIND prints, such as"
    raise InputError("name", name, f"{expected} {alike}")
