"""A real engine under load: recorded runs compared with predictions."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import load_judge

RECORDED = Path(load_judge.__file__).parent / "results/vllm_cpu_load"


def test_capacity_is_where_the_share_crosses():
    found = pd.Series({1.0: 1.0, 2.0: 0.95, 4.0: 0.85, 8.0: 0.2})
    assert load_judge.crossing(found, 0.9) == pytest.approx((2.0, 4.0, 8**0.5))
    with pytest.raises(SystemExit, match="no rate below"):
        load_judge.crossing(found[found < 0.9], 0.9)


def test_recorded_runs_are_predicted_as_they_are_stored(tmp_path, monkeypatch):
    """Plain runs exactly; runs with drafts with fewer random draws of the acceptance."""
    monkeypatch.setattr(load_judge, "LUCKS", 2)
    shutil.copytree(RECORDED, tmp_path / "load")
    judged, was = load_judge.judge(tmp_path / "load"), pd.read_csv(RECORDED / "judged.csv")
    assert len(judged) == len(was)
    for name in ("tpot", "ttft"):
        assert judged[name].to_numpy() == pytest.approx(was[name].to_numpy(), rel=1e-3, nan_ok=True)
    tolerance = np.where(was["draft_length"] > 0, 0.15, 1e-3)
    off = judged["tpot_simulated"] / was["tpot_simulated"] - 1
    assert (off.abs() <= tolerance).all()
    error = was["tpot_simulated"] / was["tpot"] - 1
    assert error.abs().mean() <= 0.14
    assert {*was["draft_length"]} == {0, 2}
