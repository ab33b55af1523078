"""The command dataset: published kernel timings as a table of measurements."""

import click

from specmodel.cli.settings import SETTINGS


@click.command(context_settings=SETTINGS)
@click.argument("hardware")
@click.argument("stack")
@click.argument("version")
@click.option("--output", required=True, metavar="FILE", help="CSV to write.")
def dataset(hardware: str, stack: str, version: str, output: str) -> None:
    r"""Write published kernel timings of a stack as a table of measurements.

    Needs the extra [datasets]; "specmodel list tables" names what there is.

    \b
    Example:
      specmodel dataset h200_sxm trtllm 1.3.0rc20 --output h200.csv
    """
    from published.datasets import source_name
    from published.tables import published_measurements
    from specmodel.base.files import write_text
    from specmodel.measure.measurements import ROLES

    table = published_measurements(hardware, stack, version)
    head = f"# {source_name()}, {hardware}, {stack} {version}\n"
    write_text(output, head + table.to_csv(index=False))
    counts = table["role"].value_counts().reindex(ROLES, fill_value=0)
    told = ", ".join(f"{count} {role}" for role, count in counts.items())
    click.echo(f"Written: {output}\n{len(table)} points: {told}")
