"""The judge of recorded loops with a real engine: how a schedule is read."""

import importlib
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "calibration"


def test_a_schedule_is_read_as_vllm_reads_it(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    judge = importlib.import_module("real_judge")
    drafts = {"num_speculative_tokens": 5}
    assert judge.scheduled_length(drafts, 7) == 5
    drafts["num_speculative_tokens_per_batch_size"] = [[1, 2, 5], [3, 6, 2], [9, 12, 1]]
    lengths = [judge.scheduled_length(drafts, batch) for batch in (1, 2, 3, 6, 8, 9, 12, 40)]
    assert lengths == [5, 5, 2, 2, 2, 1, 1, 1]
