"""Command lines, files and readers of output that the tests of ``specmodel simulate`` share."""

import re
from pathlib import Path

MINE = "test_simulate_policies"
MEASURED = "simulate --step-times times.csv --trace trace.jsonl"
PREDICTED = "simulate --target mixtral-8x7b --weight-dtype fp8 --drafter ngram --hardware"
PREDICTED += " rtx_6000_ada --memory-utilization 0.95 --engine ideal --trace code-ngram"
PREDICTED += " --requests 12 --output-tokens 60"
HEAD = PREDICTED + " --target olmoe-1b-7b --drafter eagle --trace code-eagle"
NAMES = ["none", "fixed:1", "fixed:2", "fixed:3", "best-fixed", "cascade", "oracle"]
LONG = "cascade:first_draft_length=1:backoff_factor=1,cascade:first_draft_length=1:climb=false"
LONG += f",{MINE}:Fixed:length=3,{MINE}:Given,specmodel.simulate.policies:Goodput:window=20"

FOLDER = Path(__file__).parent / "data/simulate"
FILES = {path.name.removesuffix(".txt"): path.read_bytes() for path in FOLDER.iterdir()}
"""Contents of the folder in which the commands run, including a user's own policies."""


def typed(names):
    """Return names of policies as typed: the best fixed one without its length."""
    return [re.sub(r"^best-fixed:\d+$", "best-fixed", name) for name in names]


def listing(folder):
    names = (path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return {str(path): path.read_bytes() if path.is_file() else None for path in names}
