"""What the tests of ``specmodel simulate`` share: command lines, files, and how output is read."""

import re
import shlex
from pathlib import Path

from printed import check_one_line

from specmodel import cli

MINE = "test_simulate_policies"
MEASURED = "simulate --step-times times.csv --trace trace.jsonl"
PREDICTED = (
    "simulate --target mixtral-8x7b --weight-dtype fp8 --drafter ngram --hardware rtx_6000_ada"
    " --memory-utilization 0.95 --engine ideal --trace code-ngram --requests 12 --output-tokens 60"
)
HEAD = PREDICTED + " --target olmoe-1b-7b --drafter eagle --trace code-eagle"
NAMES = ["none", "fixed:1", "fixed:2", "fixed:3", "best-fixed", "cascade", "oracle"]
LONG = (
    "cascade:first_draft_length=1:backoff_factor=1,cascade:first_draft_length=1:climb=false,"
    f"{MINE}:Fixed:length=3,{MINE}:Given,specmodel.replay.policies:Goodput:window=20"
)

FOLDER = Path(__file__).parent / "data/simulate"
FILES = {path.name.removesuffix(".txt"): path.read_bytes() for path in FOLDER.iterdir()}
"""What lies in the folder in which the commands run, policies of a user's own among them."""


def typed(names):
    """Names of policies as typed: the best fixed one is shown with its draft length."""
    return [re.sub(r"^best-fixed:\d+$", "best-fixed", name) for name in names]


def policy_case(policy, *fragments):
    """A command with a policy that cannot be used, and what the error must contain."""
    return f"{MEASURED} --policy none,{shlex.quote(policy)}", *(fragments or ("--policy:", policy))


REPLAYED = ("propose", "observe", "Returns", "Fixed:length=two", "Argument")
"""What only a replay can show."""


def listing(folder):
    names = (path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return {str(path): path.read_bytes() if path.is_file() else None for path in names}


def check_refused(command, fragments, folder, capsys, monkeypatch):
    """The command fails in one line, writes nothing, and replays only if it must to know."""

    def too_late(*_, **__):
        raise AssertionError("a replay was begun")

    before = listing(folder)
    with monkeypatch.context() as patch:
        if not any(word in command for word in REPLAYED):
            patch.setattr("specmodel.replay.run.replay_blocks", too_late)
        status = cli.main(shlex.split(command))
    check_one_line(status, *capsys.readouterr(), fragments)
    assert listing(folder) == before
