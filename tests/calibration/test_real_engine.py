"""The script of the loop with a real engine: with a server that stands in, and with vLLM itself."""

import importlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from math import prod
from pathlib import Path

import pandas as pd
import pytest

from specmodel.models.architecture import load_architecture

pytest.importorskip("aiohttp")
pytest.importorskip("filelock")

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "calibration"
STANDIN = Path(__file__).parents[1] / "standin_server.py"
LOADS = ["--concurrency", "1,4", "--prompt-length", "16,32", "--output-length", "12"]


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import random_moe
    import real_judge

    return random_moe, real_judge


def run(folder, step, *more):
    """What a step of the script says."""
    command = [sys.executable, str(SCRIPTS / "real_engine.py"), step, str(folder), *more]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr[-2000:]
    return done.stdout


def configured(folder, random_moe, **changes):
    """A folder with what `judge` reads beside the measurements."""
    for kind, layers in (("target", 8), ("drafter", 1)):
        (folder / kind).mkdir()
        config = random_moe.CONFIG | {"num_hidden_layers": layers} | changes
        (folder / kind / "config.json").write_text(json.dumps(config))
    profile = SCRIPTS / "results/intel_xeon_2_threads/cpu.toml"
    shutil.copy(profile, folder / "cpu.toml")


@pytest.mark.slow
def test_all_steps_run_against_a_server_that_stands_in(tmp_path, scripts):
    configured(tmp_path, scripts[0])
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(STANDIN))} --port {{port}}"
    command += " --step-time 0.02 --draft-length {draft_length}"
    serving = ("--command", command, *LOADS, "--repeats", "1")
    run(tmp_path, "measure", "--lengths", "0,2", *serving)
    said = run(tmp_path, "judge").splitlines()
    assert [line.split(":")[0].strip() for line in said] == [
        "not fitted   3 loads",
        "fitted       1 loads",
        "doubted",
        "speedups of the loads fitted",  # both: steps with a draft take no longer
    ]
    assert (tmp_path / "judged.png").stat().st_size > 10_000
    loads = pd.read_csv(tmp_path / "loads.csv")
    assert list(loads["draft_length"]) == [0] * 4 + [2] * 4
    assert loads.groupby("draft_length")["is_fitted"].sum().tolist() == [1, 1]
    fitted = loads[loads["is_fitted"]]
    assert (fitted["predicted"] / fitted["measured"]).between(0.6, 1.7).all()
    ranges = [[1, 3, 2], [4, 16, 1]]
    told = {"method": "draft_model", "num_speculative_tokens": 2}
    told["num_speculative_tokens_per_batch_size"] = ranges
    (tmp_path / "schedule.json").write_text(json.dumps(told))
    with pytest.raises(AssertionError, match="not one of the draft lengths measured"):
        run(tmp_path, "schedule", *serving)
    told["num_speculative_tokens_per_batch_size"] = [[1, 3, 2], [4, 16, 0]]
    (tmp_path / "schedule.json").write_text(json.dumps(told))
    said = run(tmp_path, "schedule", *serving)
    assert "throughput against length" in said
    table = pd.read_csv(tmp_path / "scheduled.csv")
    assert table["draft_length"].tolist() == [2, 2, 0, 0]


def test_a_schedule_is_read_as_vllm_reads_it(scripts):
    judge = scripts[1]
    drafts = {"num_speculative_tokens": 5}
    assert judge.scheduled_length(drafts, 7) == 5
    drafts["num_speculative_tokens_per_batch_size"] = [[1, 2, 5], [3, 6, 2], [9, 12, 1]]
    lengths = [judge.scheduled_length(drafts, batch) for batch in (1, 2, 3, 6, 8, 9, 12, 40)]
    assert lengths == [5, 5, 2, 2, 2, 1, 1, 1]


def test_a_hybrid_is_not_put_beside_the_drafter_of_another(tmp_path, scripts):
    configured(tmp_path, scripts[0])
    with pytest.raises(AssertionError, match="without the drafter of another target"):
        run(tmp_path, "models", "--kind", "hybrid")
    assert not (tmp_path / "target/model.safetensors").exists()


def test_shares_accepted_become_conditional_rates(tmp_path, scripts):
    rows = "draft_length,accepted_by_position\n2,0.9 0.45\n2,0.7 0.35\n"
    (tmp_path / "served.2.csv").write_text(rows)
    (tmp_path / "served.1.csv").write_text("draft_length,accepted_by_position\n1,0.2\n")
    assert scripts[1].measured_acceptance(tmp_path) == pytest.approx([0.8, 0.5])
    rows = 'draft_length,acceptance_by_position\n2,"0.9,0.5"\n2,"0.7,0.5"\n'
    (tmp_path / "served.2.csv").write_text(rows)
    assert scripts[1].measured_acceptance(tmp_path) == pytest.approx([0.8, 0.5])


@pytest.mark.parametrize("kind", ["random_moe", "random_hybrid"])
def test_weights_are_as_many_as_the_architecture_has(tmp_path, scripts, kind):
    pytest.importorskip("torch")
    made = importlib.import_module(kind)
    small = made.CONFIG | {"num_experts": 4, "vocab_size": 64}
    made.models(tmp_path, small)
    shapes = made.shapes(small)
    # specmodel counts no vectors, and blocks for multi-token prediction apart
    matrices = [n for n, s in shapes.items() if len(s) > 1 and not n.startswith("mtp.")]
    count = sum(prod(shapes[name]) for name in matrices)
    read = load_architecture(tmp_path / "target/config.json")
    assert read.total_parameters == pytest.approx(count, rel=1e-3)
    with (tmp_path / "target/model.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    header.pop("__metadata__")
    assert {name: tuple(entry["shape"]) for name, entry in header.items()} == shapes
    ends = [entry["data_offsets"][1] for entry in header.values()]
    assert max(ends) == 2 * sum(prod(shape) for shape in shapes.values())


SMALL = {"num_experts": 16, "num_hidden_layers": 4, "hidden_size": 512, "vocab_size": 2048}
SHORT = ["--concurrency", "1,4", "--prompt-length", "32,64", "--output-length", "48"]
SHORT += ["--token-ids", "3:2047", "--repeats", "2"]


@pytest.fixture
def vllm():
    """What `measure` is told to serve with vLLM, on the path or as SPECMODEL_VLLM starts it."""
    pytest.importorskip("torch")
    start = os.environ.get("SPECMODEL_VLLM", "vllm")
    if shutil.which(shlex.split(start)[0]) is None:
        # it takes gigabytes and an environment of its own; a stand-in is run without it
        pytest.skip("needs vllm on the path, or a command that starts it in SPECMODEL_VLLM")
    command = f"{start} serve {{folder}}/target --port {{port}} --served-model-name target"
    command += " --dtype bfloat16 --max-model-len 512 --max-num-seqs 4 --enforce-eager"
    command += " --no-enable-prefix-caching"  # of hybrids on a CPU it ends vLLM 0.32
    return ["--command", command, *SHORT]


def measured_and_judged(folder, vllm):
    """What is told of plain steps and drafts of two tokens."""
    run(folder, "measure", "--lengths", "0,2", *vllm)
    run(folder, "judge")
    judged = pd.read_csv(folder / "judged.csv")
    assert judged["tokens_per_step"].between(1.2, 3.0).all()
    assert (~judged["is_fitted"]).sum() == 3
    return judged


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_real_vllm_is_measured_fitted_predicted_and_scheduled(tmp_path, scripts, vllm):
    moe, judge = scripts
    configured(tmp_path, moe, **SMALL)
    moe.models(tmp_path, moe.CONFIG | SMALL)
    assert measured_and_judged(tmp_path, vllm)["ratio_error"].abs().mean() < 0.2
    drafts = {"method": "draft_model", "num_speculative_tokens": 2}
    drafts["num_speculative_tokens_per_batch_size"] = [[1, 2, 2], [3, 4, 0]]
    (tmp_path / "schedule.json").write_text(json.dumps(drafts))
    run(tmp_path, "schedule", *vllm)
    table = pd.read_csv(tmp_path / "served.schedule.csv").set_index("concurrency")
    assert (table.loc[1, "tokens_per_step"] > 1.2).all()
    # so few requests may be alone for much of a run, and then draft
    assert table.loc[4, "tokens_per_step"].min() < 1.2
    assert judge.scheduled_length(drafts, 4) == 0


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_real_vllm_runs_a_hybrid_that_brings_its_drafter(tmp_path, scripts, vllm):
    hybrid = importlib.import_module("random_hybrid")
    configured(tmp_path, scripts[0])
    shutil.rmtree(tmp_path / "drafter")
    hybrid.models(tmp_path, hybrid.CONFIG | SMALL | {"layer_types": hybrid.LAYERS[:4]})
    # its own kernels for gated delta nets are no torch's
    assert measured_and_judged(tmp_path, vllm)["ratio_error"].abs().mean() < 0.4
