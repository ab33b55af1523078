"""What `schedule` writes for an engine, `predict` answers at the lengths that it has."""

import numpy as np
from rows import each_row

from specmodel import predict, schedule
from specmodel.core.cost.launch import launched
from specmodel.core.cost.launch_lines import launch_line

SGLANG = "python3 -m sglang.launch_server --model x/y --speculative-algorithm EAGLE3"
SGLANG += " --speculative-num-steps 3"


@each_row("engine", ["vllm", "sglang"])
def test_what_schedule_writes_predict_takes_back(tmp_path, engine):
    where = {"target": "qwen3-30b-a3b", "hardware": "h200", "drafter": "eagle3"}
    plan = schedule(**where, config_format=engine, acceptance=0.6, max_batch_size=200)
    file = tmp_path / "told.json"
    file.write_text(plan.fragment)
    line = f"vllm serve x/y --speculative-config {file}"
    if engine == "sglang":
        line = f"{SGLANG} --speculative-adaptive --speculative-adaptive-config {file}"
    length = launched(*launch_line("line", line)).arguments["draft_length"]
    sizes = np.arange(1, 201)
    found = predict(**where, acceptance=0.6, engine=engine, draft_length=length, batch_size=sizes)
    np.testing.assert_array_equal(found.draft_length, plan.schedule.draft_length[:200])
    np.testing.assert_allclose(found.speedup, plan.schedule.speedup[:200], rtol=1e-9)
