"""``specmodel list``: what ships with the package, as tables, and each record as TOML."""

import click

from specmodel.base.errors import InputError
from specmodel.cli.settings import SETTINGS, ignore_option, own
from specmodel.show import catalog


def _kinds(_context: click.Context, _parameter: click.Parameter, start: str) -> list[str]:
    return [kind for kind in catalog.ROWS if kind.startswith(start)]


@click.command("list", context_settings=SETTINGS)
@ignore_option("name")
@click.argument("name", required=False, metavar="KIND|NAME", shell_complete=_kinds)
@own("template", bool, "Of a GPU: the lines to change into one of your own, which load.")
def list_command(name: str | None, *, template: bool) -> None:
    """List what ships with the package, or show a record of it as TOML.

    KIND is hardware, architectures, engines, drafters, acceptance, policies, presets, words or
    columns. NAME is that of a record in these lists, or the path of a TOML or config.json file.
    Save the output of a record, edit it, and give its path to predict.

    \b
    Examples:
      specmodel list hardware
      specmodel list h200_sxm
      specmodel list h200_sxm --template
    """
    if name is None:
        raise InputError("kind", None, ", ".join([*sorted(catalog.ROWS), "or a name in these"]))
    name = {"models": "architectures", "gpus": "hardware"}.get(name, name)
    if template:
        click.echo(catalog.template_text(name))
        return
    click.echo(catalog.listing(name) if name in catalog.ROWS else catalog.record_text(name))
