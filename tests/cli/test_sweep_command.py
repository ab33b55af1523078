"""The command that sweeps: what it prints and writes, how it ends, what it refuses."""

import io
import logging
import os
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from rows import each_row

from specmodel.answers.sweeps import csv_chunks, plan as planning, plan_sweep, sweep

BASE = (
    "sweep --target mixtral-8x7b --drafter ngram --hardware h200_sxm --batch-size 1,8"
    " --draft-length 1,3"
)
GOOD = f"{BASE} --acceptance-rate 0.5"
AXES = {
    "target": "mixtral-8x7b",
    "drafter": "ngram",
    "hardware": "h200_sxm",
    "batch_size": [1, 8],
    "draft_length": [1, 3],
    "acceptance_rate": [0.5],
}
LARGE = GOOD + " --batch-size 1:2000 --context-length 1:1000 --columns speedup"
PLAN = {"batch_size": range(1, 2001), "context_length": range(1, 1001)}
CUT = "import specmodel.answers.sweeps.plan as planning; planning.PART = 4000"
OUTPUTS = ("one.csv", "one.parquet", "parts/")


def needs_pyarrow(output):
    if not output.endswith(".csv"):
        pytest.importorskip("pyarrow")


def start(command, code=""):
    """Run the program in a process of its own, after some code.

    A shell's background has Ctrl-C ignored, and its children inherit that.
    """
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{heed}\n{code}\nfrom specmodel.cli import run; raise SystemExit(run())"
    return subprocess.Popen(
        [sys.executable, "-c", program, *shlex.split(command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def as_frame(text):
    return pd.read_csv(io.StringIO(text))


def test_lists_and_ranges_mean_what_they_do_from_python(ended):
    command = (
        "sweep --target olmoe-1b-7b,mixtral-8x7b --drafter eagle --hardware h100_sxm,h200_sxm"
        " --batch-size 1:8:x2,100 --draft-length 1:3 --acceptance-rate 0.3:0.9:0.3"
        " --context-length 0,512 --set target.num_layers=16:24:8"
        " --set hardware.memory.peak_bytes_per_s=2e12:4e12:1e12 --set engine.pass_time=1e-4,0"
        " --columns speedup,limited_by"
    )
    status, out, _ = ended(command)
    frame = sweep(
        {
            "target": ["olmoe-1b-7b", "mixtral-8x7b"],
            "drafter": "eagle",
            "hardware": ["h100_sxm", "h200_sxm"],
            "target.num_layers": [16, 24],
            "hardware.memory.peak_bytes_per_s": [2e12, 3e12, 4e12],
            "engine.pass_time": [1e-4, 0],
            "context_length": [0, 512],
            "batch_size": [1, 2, 4, 8, 100],
            "draft_length": [1, 2, 3],
            "acceptance_rate": [0.3, 0.6, 0.9],
        },
        columns=["speedup", "limited_by"],
    )
    found = as_frame(out)
    assert status == 0
    assert list(found) == list(frame)
    for name in frame:
        expected = frame[name].astype(object).tolist()
        if name in ("speedup", "acceptance_rate"):
            np.testing.assert_array_equal(np.float32(found[name]), np.float32(expected))
        else:
            assert found[name].tolist() == expected


def test_what_does_not_fit_is_marked_and_said_last(tmp_path, ended):
    where = "sweep --target deepseek-v3.2 --drafter mtp --hardware h200_sxm --draft-length 3"
    where += " --acceptance-rate 0.7"
    alone = f"{where} --tensor-parallel 1 --batch-size 1"
    status, out, err = ended(alone)
    assert (status, as_frame(out)["fits"].tolist()) == (0, [False])
    said = "specmodel: warning: {} points do not fit in memory: column fits says which\n"
    none = said.format("1 of 1").replace("which", "which{}; --tensor-parallel takes more GPUs")
    assert err == none.format("")
    written = f"--batch-size 1,8,4000 --context-length 1,9000 --output {tmp_path}/one.csv"
    written += " --graph-limit 16000"
    assert ended(f"{where} --tensor-parallel 8 {written}")[2] == said.format("1 of 6")
    fits = pd.read_csv(tmp_path / "one.csv")["fits"]
    assert fits.tolist() == [True, True, True, True, True, False]
    assert ended(f"{where} --tensor-parallel 8 --batch-size 1 --columns speedup")[2] == ""
    unmarked = ended(f"{alone} --columns speedup")[2]
    assert unmarked == none.format(", with fits in --columns")


@pytest.mark.parametrize(
    ("target", "gpus", "counts"),
    [
        ("qwen3-30b-a3b", "2xh100,2xb200", [2, 2]),
        ("qwen3-30b-a3b", "8h200,h200:4,h200x2,dgx-spark", [8, 4, 2, 1]),
        ("mixtral-8x7b", "h100,l40s", [2, 4]),
        ("deepseek-v3", "16xh200", [16]),
    ],
)
def test_gpus_are_counted_as_by_predict(target, gpus, counts, ended):
    """In each way they are written; without a count they are the fewest that hold the model."""
    rest = "--drafter mtp --acceptance-rate 0.7 --batch-size 8 --draft-length 3"
    status, out, _ = ended(f"sweep {target} {gpus} {rest}")
    frame = as_frame(out)
    assert (status, frame["num_gpus"].tolist()) == (0, counts)
    for gpu, speedup in zip(gpus.split(","), frame["speedup"], strict=True):
        (one,) = as_frame(ended(f"predict {target} {gpu} {rest} --csv")[1])["speedup"]
        assert speedup == pytest.approx(one, rel=1e-6)


def test_a_model_and_a_gpu_are_answered_as_by_predict(ended):
    """Usual drafter, published acceptance and best lengths, as in rows of the unchanged model."""
    words = "qwen3-30b-a3b h200 --columns speedup,limited_by,fits"
    status, out, err = ended(f"sweep {words} --set target.experts_per_token=2,8")
    frame = as_frame(out)
    rows = as_frame(ended("predict qwen3-30b-a3b h200 --csv")[1])
    assert (status, frame["target.experts_per_token"].tolist()) == (0, [2] * 9 + [8] * 9)
    same = frame[frame["target.experts_per_token"] == 8]
    for name in ("batch_size", "draft_length", "limited_by", "fits"):
        assert same[name].tolist() == rows[name].tolist()
    np.testing.assert_allclose(same["speedup"], rows["speedup"], rtol=1e-6)
    assert rows["draft_length"].nunique() > 2
    drafter, acceptance, length, graphs = err.splitlines()
    assert drafter.startswith("specmodel: drafter: eagle3 (as in SpecForge")
    assert acceptance.startswith("specmodel: acceptance: qwen3-30b-a3b with eagle3: ")
    assert acceptance.endswith("of the unchanged target")
    assert length == "specmodel: draft_length: the best of each row"
    axes = {"target": "qwen3-30b-a3b", "hardware": "h200_sxm", "target.experts_per_token": [2, 8]}
    plan = plan_sweep(axes, columns=["speedup", "limited_by", "fits"])  # the same from Python
    assert "".join(csv_chunks(plan)) == out
    assert [f"specmodel: {name}: {told}" for name, told in plan.taken.items()] == [
        *(drafter, acceptance, length),
    ]
    words = " ".join(ended("predict qwen3-30b-a3b h200")[1].split())
    assert graphs.removeprefix("specmodel: warning: ").split(": ")[0] in words


def test_steps_without_a_cuda_graph_are_told_as_by_predict(ended):
    given = "qwen3-30b-a3b h200 --draft-length 7 --batch-size 64,100"
    (warning,) = (line for line in ended(f"sweep {given}")[2].splitlines() if "CUDA graph" in line)
    assert warning in ended(f"predict {given} --csv")[2].splitlines()
    assert "CUDA" not in ended(f"sweep {given} --graph-limit 800")[2]


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_file_is_written_and_said_in_one_line(output, tmp_path, ended, refuse):
    needs_pyarrow(output)
    path = f"{tmp_path}/{output}"
    status, out, err = ended(f"{GOOD} --output {path} --workers 2")
    assert (status, err) == (0, "")
    assert out.startswith("4 points, ")
    assert out.endswith(f" points a second: {path}\n")
    assert len(out.splitlines()) == 1
    ends = "error: --output: got '", "; expected another name, or --overwrite\n"
    refuse(f"{GOOD} --output {path}", *ends)
    assert ended(f"{GOOD} --output {path} --overwrite")[0] == 0
    (written,) = tmp_path.iterdir()
    mask = os.umask(0)
    os.umask(mask)
    assert written.stat().st_mode & 0o777 == (0o777 if written.is_dir() else 0o666) & ~mask


def test_impossible_combinations_are_said(ended, refuse):
    command = f"{GOOD} --stack vllm,ollama --columns speedup"
    refuse(command, "error: --stack: got 'ollama'; expected one of")
    status, out, err = ended(f"{command} --skip-impossible")
    assert status == 0
    assert set(as_frame(out)["stack"]) == {"vllm"}
    assert len(err.splitlines()) == 1
    assert err.startswith("specmodel: skipped: mixtral-8x7b, ngram, h200_sxm, ollama: stack: got")


CASES = [
    *(
        (f"{BASE} --acceptance-rate 0.5 --batch-size '{text}'", "--batch-size", f"'{text}'", "1,2")
        for text in ("", "8:1", "a", "1:8:0")
    ),
    *(
        (f"{BASE} --acceptance-rate '{text}'", "--acceptance-rate", f"'{text}'", "0.5,0.7")
        for text in ("0.9:0.1:0.1", "high", "0.1:0.9", "inf")
    ),
    (f"{BASE} --acceptance-rate 0.5,1.5", "--acceptance-rate", "got 1.5", "from 0 to 1"),
    (f"{GOOD} --batch-size 1:200000", "--batch-size", "'1:200000'", "at most 100000"),
    (f"{GOOD} --verify-tokens 9", "--verify-tokens", "got 9;", "tokens_per_step"),
    (f"{GOOD} --draft-length 3,0 --verify-tokens 4", "--verify-tokens", "got 4;", "draft_length"),
    (f"{BASE}", "acceptance", "none given", "--acceptance-rate 0.7, as none is published of"),
    (f"{BASE} --drafter eagle3", "acceptance", "none given", "--acceptance typical", "or a rate"),
    (
        "sweep qwen3-30b-a3b,mixtral-8x7b h200",
        *("--drafter: none given", "--drafter ngram --acceptance-rate 0.7, as the defaults"),
    ),
    (f"{BASE} --drafter ngram,eagle3", "--acceptance: none given", "expected --acceptance-rate"),
    ("sweep qwen3-30b-a3b h200 --verify-tokens 4", "--verify-tokens", "no best length"),
    ("sweep qwen3-30b-a3b h200 --tokens-per-step 2", "--measured-draft-length: none given"),
    (f"{GOOD} --columns speedups", "--columns", "'speedups'", "speedup"),
    (f"{GOOD} --hardware h200_sxm,", "--hardware", "''"),
    (
        f"{GOOD} --tensor-parallel 3,5 --skip-impossible",
        *("--tensor-parallel", "got 3", "no combination works"),
    ),
    (
        f"{GOOD} --set hardware.memory.bandwidth=1e12,2e12",
        *("--set hardware.memory.bandwidth", "1000000000000.0", "peak_bytes_per_s"),
    ),
    (
        f"{GOOD} --set hardware.memory.peak_bytes_per_s=4e12:1e12:1e12",
        *("--set hardware.memory.peak_bytes_per_s", "'4e12:1e12:1e12'", "0.5:0.9:0.1"),
    ),
    (f"{GOOD} --workers 0", "--workers", "got 0", "at least 1"),
    (f"{GOOD} --workers 2 --scheduler tcp://127.0.0.1:1", "--workers", "got 2", "scheduler"),
    (f"{GOOD} --max-draft-length 3,4", "--max-draft-length", "[3, 4]", "one value"),
    (LARGE + " --draft-length 1:1000", "num_points", "2000000000", "--yes", "1,000,000,000"),
]


@each_row(("command", "fragments"), [(command, told) for command, *told in CASES])
def test_wrong_input_ends_in_one_line(command, fragments, tmp_path, refuse):
    refuse(f"{command} --output {tmp_path}/one.csv", *fragments)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_folder(tmp_path, refuse):
    tmp_path.chmod(0o500)
    for output in ("one.csv", "parts/"):
        refuse(f"{GOOD} --output {tmp_path}/{output}", "Permission denied")
    tmp_path.chmod(0o700)


def test_yes_starts_what_is_huge(tmp_path, ended, monkeypatch):
    def interrupt(plan, *_arguments):
        assert plan.num_points == 2_000_000_000
        raise KeyboardInterrupt

    monkeypatch.setattr("specmodel.answers.sweeps.files.results", interrupt)
    status, out, err = ended(f"{LARGE} --draft-length 1:1000 --yes --output {tmp_path}/one.csv")
    assert (status, out) == (130, "")
    assert err == "specmodel: interrupted: nothing was written yet\n"
    assert not list(tmp_path.iterdir())


def kept_bytes(left, num_points):
    """The first parts again, computed here."""
    chunks = csv_chunks(plan_sweep(AXES | PLAN, columns=["speedup"]))
    text = next(chunks)
    while num_points > 0:
        chunk = next(chunks)
        text += chunk
        num_points -= chunk.count("\n")
    assert num_points == 0
    return text


@pytest.mark.parametrize(
    ("output", "sent"),
    [
        ("one.csv", signal.SIGINT),
        ("parts/", signal.SIGTERM),
    ],
)
def test_a_signal_to_stop_keeps_the_first_rows_and_says_so(output, sent, tmp_path, monkeypatch):
    needs_pyarrow(output)
    path, part = tmp_path / output, 4000  # as in `CUT`
    left = path.with_name(f"{path.stem}.partial{path.suffix}")
    process = start(f"{LARGE} --output {tmp_path}/{output} --workers 2", CUT)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        size = sum(p.stat().st_size for p in (left, *left.glob("part*")) if p.is_file())
        if size > 100_000:
            break
        time.sleep(0.02)
    process.send_signal(sent)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert list(tmp_path.iterdir()) == [left]
    words = err.split()
    num_points = int(words[words.index("first") + 1].replace(",", ""))
    said = f"specmodel: interrupted: the first {num_points:,} points are kept in {left}\n"
    assert err == said
    assert num_points % part == 0
    assert 0 < num_points < 4_000_000
    monkeypatch.setattr(planning, "PART", part)
    expected = kept_bytes(left, num_points)
    if output.endswith(".csv"):
        assert left.read_text(encoding="utf-8") == expected
        return
    found, expected = pd.read_parquet(left), as_frame(expected)
    assert len(found) == num_points
    np.testing.assert_array_equal(found["batch_size"], expected["batch_size"])
    np.testing.assert_array_equal(found["speedup"], np.float32(expected["speedup"]))


@pytest.mark.slow
@pytest.mark.parametrize("output", ["one.csv", "parts/"])
def test_a_killed_sweep_goes_on_by_the_same_command(output, tmp_path):
    """Twice, at any byte; no row is lost or twice, and how many were there is said."""
    needs_pyarrow(output)
    command = f"{GOOD} --batch-size 1:400 --context-length 1:500 --columns speedup --output "
    path = tmp_path / output
    left, whole = path.with_name(f"{path.stem}.partial{path.suffix}"), tmp_path / f"whole_{output}"
    for least in (1, 1_000_000):
        process = start(f"{command}{tmp_path}/{output}", CUT)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            written = [each for each in (left, *left.glob("part*")) if each.is_file()]
            if sum(each.stat().st_size for each in written) > least:
                break
            time.sleep(0.01)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    out, err = start(f"{command}{tmp_path}/{output}", CUT).communicate(timeout=120)
    assert all("CUDA graph" in line or "Sweeping: " in line for line in err.splitlines())
    kept = int(out.split(" of them kept")[0].split("(")[1].replace(",", ""))
    assert 0 < kept < 400_000
    start(f"{command}{tmp_path}/whole_{output}", CUT).communicate(timeout=120)
    found, expected = (
        {part.name: part.read_bytes() for part in each.iterdir()}
        if each.is_dir()
        else each.read_bytes()
        for each in (path, whole)
    )
    assert found == expected
    assert {*tmp_path.iterdir()} == {path, whole}


def test_log_is_as_it_was(ended):
    assert ended(GOOD)[0] == 0
    assert logging.root.manager.disable == logging.NOTSET


def test_a_price_adds_what_tokens_cost(ended, refuse):
    _, out, _ = ended(f"{GOOD} --tensor-parallel 2 --gpu-hour-price 3")
    table = as_frame(out)
    expected = 3 * 2 / 3600 / table["throughput"] * 1e6
    assert table["cost_per_million_tokens"].tolist() == pytest.approx(expected.tolist(), rel=1e-5)
    for price in ("-1", "nan"):
        refuse(f"{GOOD} --gpu-hour-price {price}", "--gpu-hour-price")
