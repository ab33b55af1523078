"""Launch lines as they are published: read whole, or refused by what is not modelled."""

from pathlib import Path

import pytest
from rows import each_row

from specmodel.core.cost.launch import launched
from specmodel.core.cost.launch_lines import MEANS, engines, launch_line

TEXT = (Path(__file__).parents[1] / "data/launch_lines.txt").read_text(encoding="utf-8")
BLOCKS = [block.partition("\n") for block in TEXT.split("\n\n# http")[1:]]
LINES = [
    (source, *head.removeprefix("> ").split(" | ", 1), line)
    for source, _, rest in BLOCKS
    for head, _, line in [rest.partition("\n")]
]


@each_row(("source", "gpu", "told", "line"), LINES)
def test_a_launch_line_is_read_or_refused_truly(run, refuse, tmp_path, source, gpu, told, line):
    file = tmp_path / "launch.sh"
    file.write_text(line, encoding="utf-8")
    words = f"predict {gpu} --batch-size 1 --verbose --from-command {file}"
    if told.startswith("!"):
        refuse(words, *told.removeprefix("!").split(" | "))
        return
    page = run(words, one_line=True)
    assert [part for part in told.split(" | ") if part not in page] == []


@each_row(("source", "line"), [(row[0], row[-1]) for row in LINES if not row[2].startswith("!")])
def test_each_flag_of_a_line_means_something_or_is_told(source, line):
    engine, flags = launch_line("from_command", line)
    notes = " ".join(launched(engine, flags).notes)
    others = {flag.typed for name, flag in flags.items() if name not in MEANS}
    assert {typed for typed in others if typed not in notes} == set()
    of_benchmark = "vllm bench" in line  # whose own flags are not those of a server
    assert of_benchmark or "unknown, ignored" not in notes


def test_all_that_means_something_is_a_flag_of_an_engine():
    known = {name for engine in engines().values() for name in engine.kinds}
    assert [name for name in MEANS if name.partition(".")[0] not in known] == []


@pytest.mark.parametrize("line", ["ls -l", "vllm --version", "vllm serve 'x", "docker run a/b"])
def test_other_commands_are_refused(refuse, line):
    refuse(f"predict h200 --from-command {line!r}", "--from-command: got")
