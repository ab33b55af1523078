"""Write published kernel timings of a stack as a table of measurements, or list the tables.

Usage: python calibration/dataset.py [HARDWARE STACK VERSION --output FILE.csv]. Needs the extra
[datasets]. Without arguments, or with --list, it lists the tables of the installed package.
"""

import sys
from collections.abc import Iterator

import click

from program import carry_out
from published.datasets import list_tables, source_name
from published.tables import published_measurements
from specmodel import load_hardware
from specmodel.calibrate.measure.measurements import ROLES
from specmodel.cli.settings import SETTINGS
from specmodel.core.base.errors import InputError
from specmodel.core.base.files import write_text
from specmodel.core.base.text import align


@click.command("dataset", context_settings=SETTINGS)
@click.argument("hardware", required=False)
@click.argument("stack", required=False)
@click.argument("version", required=False)
@click.option("--output", metavar="FILE", help="CSV to write.")
@click.option("--list", "is_list", is_flag=True, help="Name the tables there are.")
def main(
    hardware: str | None, stack: str | None, version: str | None, output: str | None, is_list: bool
) -> None:
    """Write published kernel timings of a stack as a table of measurements.

    Without arguments, list the tables that the installed package holds.
    """
    given = {"hardware": hardware, "stack": stack, "version": version, "output": output}
    if is_list or not any(given.values()):
        for name, value in given.items():
            if value is not None:
                raise InputError(name, value, "none with --list")
        click.echo(tables_text())
        return
    for name, value in given.items():
        if value is None:
            raise InputError(name, value, "HARDWARE STACK VERSION --output FILE, or --list")
    click.echo(write_dataset(str(hardware), str(stack), str(version), str(output)))


def tables_text() -> str:
    """Return the stacks with published timings of experts, and which of them ship fitted."""
    columns = zip(*_stacks(), strict=True)
    titles = ("hardware", "stack", "version", "shipped")
    named = [(title, list(cells)) for title, cells in zip(titles, columns, strict=True)]
    return align(named, left=[titles[0], titles[-1]])


def _stacks() -> Iterator[tuple[str, str, str, str]]:
    tables = list_tables()
    rows = tables[tables["operation"] == "moe"][["hardware", "framework", "version"]]
    for name, stack, version in rows.itertuples(index=False, name=None):
        fitted = load_hardware(name).fitted.get(stack)
        yield name, stack, version, "fitted" if fitted and fitted.version == version else ""


def write_dataset(hardware: str, stack: str, version: str, output: str) -> str:
    """Write the timings of a stack, and return two lines about the file."""
    table = published_measurements(hardware, stack, version)
    head = f"# {source_name()}, {hardware}, {stack} {version}\n"
    write_text(output, head + table.to_csv(index=False))
    counts = table["role"].value_counts().reindex(ROLES, fill_value=0)
    told = ", ".join(f"{count} {role}" for role, count in counts.items())
    return f"Written: {output}\n{len(table)} points: {told}"


if __name__ == "__main__":
    sys.exit(carry_out(main))
