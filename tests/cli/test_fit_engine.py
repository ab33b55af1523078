"""The command fit engine on benchmark files: what it prints and writes, one line for a fault."""

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specmodel import cli
from specmodel.machines.engine import load_engine

FILES = Path(__file__).parents[1] / "data" / "benchmarks"
WHERE = "--target qwen3-30b-a3b --drafter eagle3 --hardware h100_sxm --tensor-parallel 2"
FIT = f"fit engine plain.jsonl eagle3.jsonl {WHERE} --output mine.toml"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a user with two files of SGLang, each of one run, and two of vLLM."""
    for kind in ("plain", "eagle3"):
        first, *_ = (FILES / f"specforge_{kind}.jsonl").read_text().splitlines()
        (tmp_path / f"{kind}.jsonl").write_text(first + "\n")
        shutil.copy(FILES / f"vllm_{kind}.json", tmp_path / f"{kind}.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def do(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def done(command: str, status: int = 0) -> str:
        found = cli.main(shlex.split(command))
        out, err = capsys.readouterr()
        assert found == status, err
        return err if status else out

    return done


def test_two_files_move_a_profile_to_the_host_that_ran_them(do: Any) -> None:
    out = do(FIT)
    text = " ".join(out.split())
    assert "Started from the profile SGLang spec v1, as the files are of sglang 0.5.5." in text
    assert max(map(len, out.splitlines())) <= 80
    engine, shipped = load_engine("mine.toml"), load_engine("sglang-v1")
    assert engine.host_speed < 0.8 < shipped.host_speed
    assert (engine.name, engine.hides_host) == ("SGLang spec v1 (own runs)", "plain")
    assert engine.source == "plain.jsonl, eagle3.jsonl, from the profile SGLang spec v1"
    assert engine.fit is not None
    assert engine.fit.fitted_on is not None
    assert engine.fit.fitted_on.version == "sglang 0.5.5"
    assert engine.fit.fitted_on.batch_size == (1, 1)
    rows = [line.split() for line in out.splitlines() if line.startswith(("plain", "eagle3"))]
    assert [row[1:4] for row in rows] == [["1", "0", "1"], ["1", "3", "1.86"]]
    assert re.search(r"tokens +step +predicted\n.* a step  measured +before", out)
    left_open = " ".join(out[out.index("Left open") : out.index("Assumed")].split())
    assert f"draft_pass_time {1e6 * engine.draft_pass_time:.3g}us" in left_open  # as written
    assert "host_speed" not in out[out.index("Assumed") :]  # which is fitted
    moved = out[out.index("What the runs moved") : out.index("Left open")]
    assert "host_speed" in moved


def test_own_runs_tell_signs_and_narrow_intervals(do: Any) -> None:
    do(FIT)
    ask = (
        f"predict {WHERE} --batch-size 1 --draft-length 3 --tokens-per-step 1.86 --interval --json"
    )
    width = {}
    for engine in ("sglang-v1", "mine.toml"):
        (row,) = json.loads(do(f"{ask} --engine {engine}"))["rows"]
        width[engine] = row["speedup_high"] / row["speedup_low"]
    assert row["speedup"] < 1  # as measured: 0.72
    assert row["speedup_low"] < 0.72 < row["speedup_high"]
    assert np.log(width["mine.toml"]) < 0.75 * np.log(width["sglang-v1"])


def test_vllm_s_files_start_from_its_profile_and_say_what_ran(do: Any) -> None:
    out = do("fit engine plain.json eagle3.json --target gpt-oss-120b --drafter eagle3"
             " --hardware h200_sxm --output mine.toml --name ours")  # fmt: skip
    text = " ".join(out.split())
    assert "Started from the profile vLLM, as the files are of vllm." in text
    assert "Note: plain.json: 2 requests at once asked for" in text
    assert load_engine("mine.toml").name == "ours"


def test_a_drafter_is_asked_for_only_where_runs_draft(do: Any) -> None:
    told = "--target gpt-oss-120b --hardware h200_sxm --output mine.toml"
    assert "What the runs moved" in do(f"fit engine plain.json {told}")
    assert "--drafter: none given" in do(f"fit engine plain.json eagle3.json {told}", 2)


def test_names_are_taken_as_by_predict(do: Any) -> None:
    told = "--target qwen3-30b --drafter eagle3 --hardware"
    counted = do(f"fit engine plain.jsonl {told} 2xh100 --output mine.toml")
    assert counted == do(
        f"fit engine plain.jsonl {told} h100 --tensor-parallel 2 --output mine.toml"
    )
    assert "on 2 x NVIDIA H100 SXM" in counted
    assert "at least one GPU" in do(f"fit engine plain.jsonl {told} 0xh100 --output mine.toml", 2)


def test_a_table_of_pairs_starts_from_vllm_s_profile_unless_another_is_named(
    do: Any, folder: Path
) -> None:
    lines = ["draft_length,tokens_per_step,concurrency,base_tpot_ms,speedup", "3,1.86,1,4.46,0.72"]
    (folder / "pairs.csv").write_text("\n".join(lines) + "\n")
    command = f"fit engine pairs.csv {WHERE} --output mine.toml"
    text = " ".join(do(command).split())
    assert "the profile vLLM, the default, as neither --engine nor a file names one" in text
    out = do(f"{command} --engine sglang-v1")
    assert "pairs.csv row 1" in out
    assert "which --engine names" in " ".join(out.split())
    assert load_engine("mine.toml").host_speed < 0.8


def test_what_the_noise_of_repeats_allows_is_said(do: Any, folder: Path) -> None:
    names = "engine,draft_length,tokens_per_step,concurrency,step_ms,step_spread,repeats"
    plain, drafted = "sglang,0,1,1,4.46,0.02,4", "sglang,3,1.86,1,11.6,1.06,3"
    (folder / "served.csv").write_text("\n".join([names, plain, drafted]) + "\n")
    text = " ".join(do(f"fit engine served.csv {WHERE} --output mine.toml").split())
    # 106 % / (1.693 sqrt 3) of three normal draws
    assert "Noise: by how far repeats differ, a run is known to 36.2% (at worst 36.2%," in text
    assert "served.csv row 2), a speedup of two to 51.1%; noisy runs count less." in text
    assert "Noise" not in do(FIT)


def test_from_two_files_to_a_schedule_and_costs(do: Any) -> None:
    """The way of a new user: files, profile, prediction, schedule, cost table."""
    do(FIT)
    plan = do(f"schedule --for sglang {WHERE} --tokens-per-step 1.86 --measured-draft-length 3"
              " --engine mine.toml --max-batch-size 64")  # fmt: skip
    assert "SGLang spec v1 (own runs)" in plan
    where = WHERE.replace("eagle3", "parallel")
    costs = do(f"cost-table --for sglang {where} --draft-length 7 --engine mine.toml"
               " --fragment-only")  # fmt: skip
    assert json.loads(costs)


def changed(name: str, **values: Any) -> str:
    """Return a copy of a file with other values, under another name."""
    own = json.loads(Path(name).read_text())
    Path(f"odd_{name}").write_text(json.dumps(own | values) + "\n")
    return f"odd_{name}"


@pytest.mark.parametrize(
    ("name", "values", "fragments"),
    [
        ("plain.jsonl", {"completed": 0}, ("odd_plain.jsonl completed", "one finished request")),
        ("plain.jsonl", {"mean_tpot_ms": 0.0}, ("odd_plain.jsonl mean_tpot_ms", "0.0")),
        ("plain.jsonl", {"mean_tpot_ms": 0.0045}, ("milliseconds, not seconds",)),
        ("plain.jsonl", {"mean_tpot_ms": 4465.0}, ("odd_plain.jsonl", "another unit")),
        ("eagle3.jsonl", {"accept_length": 5.2}, ("tokens_per_step: got 5.2", "= 4")),
    ],
)
def test_one_line_names_the_file_and_what_would_do(
    name: str, values: Any, fragments: tuple[str, ...], do: Any, folder: Path
) -> None:
    command = FIT.replace(f" {name}", f" {changed(name, **values)}")
    line = do(command, 2)
    assert all(fragment in line for fragment in fragments)
    assert len(line.splitlines()) == 1
    assert not (folder / "mine.toml").exists()


def test_runs_faster_than_their_kernels_are_a_question_unless_forced(do: Any, folder: Path) -> None:
    """Both files are of a GPU that is four times as fast as the one that was named."""
    command = FIT.replace("h100_sxm", "l4")
    line = do(command, 2)
    assert len(line.splitlines()) == 1
    assert "of their kernels alone" in line
    assert re.search(
        r"hosts take \((plain|eagle3).jsonl[^:]*: a step of [\d.]+ ms, its kernels [\d.]+ ms\)",
        line,
    )
    assert "do target, tensor_parallel, the dtypes and hardware say what ran?" in line
    assert "--force takes the fit as it is" in line
    assert not (folder / "mine.toml").exists()
    out = " ".join(do(f"{command} --force").split())
    assert "Warning: forced: 0.35 times the time of their kernels alone" in out
    assert load_engine("mine.toml").gpu_time_factor < 0.7


@pytest.mark.parametrize(
    ("command", "fragments"),
    [
        (FIT.replace("plain.jsonl ", ""), ("a plain run as well",)),
        (FIT.replace("qwen3-30b-a3b", "gpt-oss-20b"), ("plain.jsonl model", "qwen3-30b-a3b")),
        (FIT.replace("plain.jsonl", "none.jsonl"), ("none.jsonl", "No such file")),
        (FIT.replace(" --hardware h100_sxm", ""), ("--hardware", "the files do not tell")),
        (f"{FIT} --engine ideal", ("--engine: got 'ideal'", "was fitted")),
        (f"{FIT} --host-speed 2", ("--host-speed: got 2.0", "the runs tell it")),
        (FIT.replace("mine.toml", "plain.jsonl"), ("--output", "another file")),
        (f"{FIT} --vary pass_time", ("--vary", "python calibration/overheads.py")),
        (
            FIT.replace("plain.jsonl", "plain.json"),
            ("gpt-oss-120b",),
        ),
    ],
)
def test_faults_of_the_command_are_one_line(
    command: str, fragments: tuple[str, ...], do: Any
) -> None:
    line = do(command, 2)
    assert all(fragment in line for fragment in fragments)
    assert len(line.splitlines()) == 1


def test_the_kernels_that_were_named_go_into_the_profile(do: Any) -> None:
    do(f"{FIT} --stack trtllm")
    assert load_engine("mine.toml").stack == "trtllm"


def test_ten_times_the_batch_that_ran_is_said(do: Any) -> None:
    do(FIT)
    out = do(f"predict {WHERE} --batch-size 10 --draft-length 3 --tokens-per-step 1.86"
             " --engine mine.toml")  # fmt: skip
    assert "was not fitted on batch size 10" in " ".join(out.split())
