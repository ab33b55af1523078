"""``--host-speed`` of every command that takes an engine, and ``--tree-width``."""

import click
import pytest
from printed import commands, widest
from rows import each_row

from specmodel import load_engine
from specmodel.cli.commands import main_group

COMMANDS = commands("engine")


def test_every_command_with_an_engine_is_here():
    context = click.Context(main_group)
    for name in main_group.list_commands(context):
        names = {each.name for each in main_group.get_command(context, name).params}
        is_here = name in {command.split()[0] for command in COMMANDS}
        assert ({"engine", "target"} <= names) == is_here, name


@each_row("command", COMMANDS)
def test_the_host_decides(run, command):
    out = run(f"{command} --host-speed 0.25")
    assert out != run(command)
    assert len(widest(out)) <= 80 or command.startswith("sweep")


@pytest.mark.parametrize(("engine", "of"), [("vllm", "host"), ("vllm-moesd-2025", "target")])
def test_how_wrong_an_engine_is_is_said(run, engine, of):
    command = COMMANDS[0].replace("--engine vllm", f"--engine {engine} --verbose")
    record = load_engine(engine)
    own, left_out = record.fit.mean_error, record.fit.left_out_error[of]
    told = f"mean error {own:.0%} on the rows used in the fit, {left_out:.0%} on a held-out {of}"
    said = f"Engine: {record.fit.fitted_on.version}, fitted; {told}."
    assert said in run(command, one_line=True)
    assert told in run("list engines", one_line=True)
