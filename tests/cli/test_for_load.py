"""What a schedule for a load carries on requests that it was not chosen with."""

import numpy as np
import pytest
from rows import slow

LOAD = "qwen3-30b-a3b h100 --drafter eagle3 --prompt-length 100 --output-length 60"


@pytest.mark.search
@pytest.mark.parametrize(
    ("target", "longest", "seeds", "requests"),
    [("9ms", 1, 2, 60), *slow(("5ms", 3, 4, 400), ("9ms", 3, 4, 400))],
)
def test_on_other_seeds_it_carries_no_less(document, monkeypatch, target, longest, seeds, requests):
    """By more than two standard errors of the differences."""
    runs = dict.fromkeys((True, False), (2, requests))
    monkeypatch.setattr("specmodel.simulate.load_question.RUNS", runs)
    line = f"{LOAD} --tpot-target {target} --max-draft-length {longest}"
    carried = document(f"schedule {line} --max-batch-size 256 --for vllm --for-load")
    rows = {row["policy"]: row["capacity"] for row in carried["carried"]}
    chosen, found = max(rows, key=lambda name: rows[name]), []
    for seed in range(1, 1 + seeds):
        shown = f"load {line} --policy {','.join(rows)} --seed {seed} --requests {requests}"
        found.append([row["capacity"] for row in document(shown)["rows"]])
    best = np.array(found)[:, [*rows].index(chosen)]
    for each in np.array(found).T:
        less = each - best
        assert less.mean() <= 2 * less.std(ddof=1) / len(less) ** 0.5 + 1e-9
