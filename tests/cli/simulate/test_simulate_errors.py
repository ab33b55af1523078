"""`specmodel simulate`: what it says of policies, traces, numbers and files that do not do."""

import pytest
from printed import typed_wrong
from rows import each_row
from simulated import HEAD, MEASURED, PREDICTED, listing

WORDS = {"head": HEAD, "measured": MEASURED, "predicted": PREDICTED}
DEEP = f"{MEASURED} --policy none,cascade:max_trials={'[' * 90_000}"
CASES = [
    *typed_wrong("simulate", **WORDS),
    *typed_wrong("simulate_policies", **WORDS),
    (DEEP, ["--policy: got", "nested less deeply"]),
]
REPLAYED = ("propose", "observe", "Returns", "Fixed:length=two", "Argument")
"""What only a replay can show."""


@each_row(("command", "fragments"), CASES)
def test_one_line_names_the_argument_before_any_work(
    command, fragments, folder, refuse, monkeypatch
):
    def too_late(*_, **__):
        raise AssertionError("a replay was begun")

    before = listing(folder)
    with monkeypatch.context() as patch:
        if not any(word in command for word in REPLAYED):
            patch.setattr("specmodel.simulate.replays.replay_blocks", too_late)
        refuse(command, *fragments)
    assert listing(folder) == before


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
@pytest.mark.parametrize("name", ["loop", "x" * 300])
def test_a_trace_that_cannot_be_opened_is_not_called_an_output(name, suffix, tmp_path, refuse):
    path = tmp_path / (name + suffix)
    if name == "loop":
        path.symlink_to(path)
    kind = {".jsonl": "JSON lines", ".csv": "CSV or Parquet"}[suffix]
    refuse(f"{MEASURED} --trace {path}", "error: --trace", f"a readable {kind} file (")
