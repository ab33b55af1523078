"""The command that sweeps: what it prints and writes, how it ends, what it refuses."""

import io
import re
import signal
import time
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from printed import typed_wrong
from programs import start
from rows import cases, each_row, slow

from specmodel import predict
from specmodel.plan.sweeps import csv_chunks, plan_sweep

BASE = "sweep --target mixtral-8x7b --drafter ngram --hardware h200_sxm --batch-size 1,8"
BASE += " --draft-length 1,3"
GOOD = f"{BASE} --acceptance-rate 0.5"
LARGE = GOOD + " --batch-size 1:2000 --context-length 1:1000 --columns speedup"
OUTPUTS = ["one.csv", "parts/"] if find_spec("pyarrow") else ["one.csv"]
CUT = "import specmodel.plan.sweeps.plan as planning; planning.PART = 4000"


INTERRUPTED = "specmodel: interrupted: the same command continues this sweep\n"


def as_frame(text):
    return pd.read_csv(io.StringIO(text))


def test_lists_and_ranges_mean_what_they_do_from_python(run):
    out = run(
        "sweep --target olmoe-1b-7b,mixtral-8x7b --drafter eagle --hardware h100_sxm"
        " --batch-size 1:8:x2,100 --draft-length 1:3 --acceptance-rate 0.3:0.9:0.3"
        " --set target.num_layers=16:24:8 --set hardware.memory.peak_bytes_per_s=2e12:4e12:1e12"
        " --set engine.pass_time=1e-4,0 --columns speedup,limited_by"
    )
    axes = {
        "target": ["olmoe-1b-7b", "mixtral-8x7b"], "drafter": "eagle", "hardware": "h100_sxm",
        "target.num_layers": [16, 24], "hardware.memory.peak_bytes_per_s": [2e12, 3e12, 4e12],
        "engine.pass_time": [1e-4, 0], "batch_size": [1, 2, 4, 8, 100], "draft_length": [1, 2, 3],
        "acceptance_rate": [0.3, 0.6, 0.9],
    }  # fmt: skip
    assert out == "".join(csv_chunks(plan_sweep(axes, columns=["speedup", "limited_by"])))


def test_what_does_not_fit_is_marked_and_said_last(ended):
    where = "sweep --target deepseek-v3.2 --drafter mtp --hardware h200_sxm --acceptance-rate 0.7"
    where += " --draft-length 3"
    alone = f"{where} --tensor-parallel 1 --batch-size 1"
    status, out, err = ended(alone)
    assert (status, as_frame(out)["fits"].tolist()) == (0, [False])
    said = "specmodel: warning: {} points do not fit in memory: column fits says which\n"
    none = said.format("1 of 1").replace("which", "which{}; use more GPUs with --tensor-parallel")
    assert err == none.format("")
    assert ended(f"{alone} --columns speedup")[2] == none.format(", with fits in --columns")
    several = f"{where} --tensor-parallel 8 --graph-limit 16000 --context-length 1,9000"
    _, out, err = ended(f"{several} --batch-size 1,8,4000")
    assert (as_frame(out)["fits"].tolist(), err) == ([True] * 5 + [False], said.format("1 of 6"))


def test_a_model_and_a_gpu_are_answered_as_by_predict(ended):
    """Usual drafter, published acceptance and best lengths, as in rows of the unchanged model."""
    words = "qwen3-30b-a3b h200 --columns speedup,limited_by,fits"
    _, out, err = ended(f"sweep {words} --set target.experts_per_token=2,8")
    frame = as_frame(out)
    rows = predict("qwen3-30b-a3b", "h200").to_frame()
    assert frame["target.experts_per_token"].tolist() == [2] * 9 + [8] * 9
    for name in ("batch_size", "draft_length"):
        assert frame[name][9:].tolist() == rows[name].tolist()
    np.testing.assert_allclose(frame["speedup"][9:], rows["speedup"], rtol=1e-6)
    drafter, acceptance, length = err.splitlines()
    assert drafter.startswith("specmodel: drafter: eagle3 (as in SpecForge")
    assert acceptance.startswith("specmodel: acceptance: qwen3-30b-a3b-eagle3 in mixed use (")
    assert acceptance.endswith("of the unchanged target")
    assert length == "specmodel: draft_length: the best of each row"


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_file_is_written_and_said_in_one_line(output, tmp_path, ended):
    path = f"{tmp_path}/{output}"
    status, out, err = ended(f"{GOOD} --output {path} --workers 2")
    assert (status, err) == (0, "")
    assert re.fullmatch(rf"4 points, .* points a second: {path}\n", out)
    assert ended(f"{GOOD} --output {path} --overwrite")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == [output.rstrip("/")]


def test_impossible_combinations_are_said(ended):
    command = f"{GOOD} --stack vllm,ollama --columns speedup --skip-impossible"
    status, out, err = ended(command)
    assert (status, {*as_frame(out)["stack"]}) == (0, {"vllm"})
    told = r"specmodel: skipped: mixtral-8x7b, ngram, h200_sxm, ollama: stack: got .*\n"
    assert re.fullmatch(told, err)


@each_row(("command", "fragments"), typed_wrong("sweep_command", good=GOOD, base=BASE, large=LARGE))
def test_wrong_input_ends_in_one_line(command, fragments, tmp_path, refuse):
    refuse(f"{command} --output {tmp_path}/one.csv", *fragments)
    assert not list(tmp_path.iterdir())


def test_yes_starts_what_is_huge(tmp_path, ended, monkeypatch):
    def interrupt(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("specmodel.plan.sweeps.files.results", interrupt)
    status, out, err = ended(f"{LARGE} --draft-length 1:1000 --yes --output {tmp_path}/one.csv")
    assert (status, out, err) == (130, "", INTERRUPTED)
    assert not list(tmp_path.iterdir())


@cases("sent", signal.SIGINT, signal.SIGTERM, *slow(signal.SIGKILL))
@pytest.mark.parametrize("output", OUTPUTS)
def test_a_sweep_that_was_stopped_goes_on_by_the_same_command(output, sent, tmp_path, run):
    """No row is lost or twice; what is kept is said."""
    folder = tmp_path / (f"{output}.parts" if output.endswith(".csv") else output)
    command = f"{GOOD} --batch-size 1:400 --context-length 1:500 --columns speedup --output"
    process = start(f"{command} {tmp_path}/{output}", CUT, text=True)
    deadline = time.monotonic() + 60
    while len(list(folder.glob("part-*"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(sent)
    out, err = process.communicate(timeout=30)
    assert list(tmp_path.iterdir()) == [folder]
    count = len(list(folder.glob("part-*")))
    assert 0 < count < 100
    ended = (-sent, "", "") if sent == signal.SIGKILL else (130, "", INTERRUPTED)
    assert (process.returncode, out, err) == ended
    out, _ = start(f"{command} {tmp_path}/{output}", CUT, text=True).communicate()
    assert f"({4000 * count:,} of them kept from an earlier run)" in out
    assert [path.name for path in tmp_path.iterdir()] == [output.rstrip("/")]
    run(f"{command} {tmp_path}/whole.csv")
    read = pd.read_csv if output.endswith(".csv") else pd.read_parquet
    found, whole = read(tmp_path / output), pd.read_csv(tmp_path / "whole.csv")
    pd.testing.assert_frame_equal(found, whole, check_dtype=False, check_categorical=False)


def test_a_price_adds_what_tokens_cost(run):
    table = as_frame(run(f"{GOOD} --tensor-parallel 2 --gpu-hour-price 3"))
    expected = 3 * 2 / 3600 / table["throughput"] * 1e6
    assert table["cost_per_million_tokens"].tolist() == pytest.approx(expected.tolist(), rel=1e-5)
