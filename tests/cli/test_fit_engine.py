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
FIT = f"fit engine plain.jsonl eagle3.jsonl {WHERE} --output mine.toml --overwrite"
VLLM = "fit engine plain.json eagle3.json --drafter eagle3 --hardware h200"


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
    assert [row[1:5] for row in rows] == [["1", "1", "4.46ms", "4.46ms"], ["1", "1.86", "of", "3"]]
    assert re.search(r"tokens +TPOT +model +meas\./ +model\n.*  a step  measured +before", out)
    left_open = " ".join(out[out.index("Left open") : out.index("Assumed")].split())
    assert f"draft_pass_time {1e6 * engine.draft_pass_time:.3g}us" in left_open  # as written
    assert "host_speed" not in out[out.index("Assumed") :]  # which is fitted
    moved = out[out.index("What the runs moved") : out.index("Left open")]
    assert "host_speed" in moved
    whole = f"predict {WHERE} --acceptance-rate 0.6 --verbose --engine"
    predict = " ".join(do(f"{whole} ./mine.toml").split())
    assert "Engine: sglang 0.5.5, fitted" in predict
    do("fit engine plain.json eagle3.json --drafter eagle3 --hardware h200 --output new.toml")
    predict = " ".join(do(f"{whole} ./new.toml").split())
    assert "Engine: version not recorded (fit engine --version tells it), fitted" in predict


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
    told += " --overwrite"
    for none in ("", "--drafter none"):
        line = do(f"fit engine plain.json eagle3.json {told} {none}", 2)
        assert "--drafter: none given" in line


@pytest.mark.parametrize("drafter", ["", "--drafter none", "--drafter eagle3"])
@pytest.mark.parametrize("files", ["plain.json", "plain.json plain2.json"])
def test_plain_runs_are_fitted_to_no_drafter(files: str, drafter: str, do: Any) -> None:
    shutil.copy("plain.json", "plain2.json")
    out = do(f"fit engine {files} --hardware h200 {drafter} --output mine.toml")
    assert ("no run drafts" in out) == ("eagle3" in drafter)
    fit = load_engine("mine.toml").fit
    assert fit is not None
    assert fit.fitted_on is not None
    assert (fit.fitted_on.drafters, fit.fitted_on.draft_length) == ([], (0, 0))
    printed = out[out.index("specmodel predict") :].replace("\\\n", " ")
    assert "was not fitted on EAGLE-3 head" in do(printed.removeprefix("specmodel "))


def test_a_table_of_pairs_starts_from_vllm_s_profile_unless_another_is_named(
    do: Any, folder: Path
) -> None:
    lines = ["draft_length,tokens_per_step,concurrency,base_tpot_ms,speedup", "3,1.86,1,4.46,0.72"]
    (folder / "pairs.csv").write_text("\n".join(lines) + "\n")
    command = f"fit engine pairs.csv {WHERE} --output mine.toml --overwrite"
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


def told(capsys: pytest.CaptureFixture[str], command: str) -> tuple[int, str, str]:
    """Status, words and error line of a command."""
    status = cli.main(shlex.split(command))
    out, err = capsys.readouterr()
    return status, " ".join(out.split()), err


def test_runs_faster_than_their_kernels_are_refused_unless_forced(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both files are of a GPU that is four times as fast as the one that was named."""
    command = FIT.replace("h100_sxm", "l4")
    status, page, line = told(capsys, command)
    assert status == 2
    assert len(line.splitlines()) == 1
    assert "--force writes it all the same" in line
    assert not (folder / "mine.toml").exists()
    said = re.search(
        r"jsonl: ([\d.]+) ms a token, ([\d.]+) times the ([\d.]+) ms of its kern", line
    )
    assert said is not None
    own, ratio, kernels = map(float, said.groups())
    assert own / kernels == pytest.approx(ratio, abs=0.006)  # as the figures beside it give
    assert said[0] in page
    assert "Likely causes of shorter times: - more or faster GPUs than 2 x NVIDIA L4" in page
    assert "What the runs moved" not in page
    status, page, _ = told(capsys, f"{command} --force")
    assert status == 0
    assert load_engine("mine.toml").gpu_time_factor < 0.7


def uncertainties(path: str) -> np.ndarray:
    """The standard deviations of what was fitted."""
    fit = load_engine(path).fit
    assert fit is not None
    return np.sqrt(np.diagonal(fit.covariance))


def test_runs_that_take_three_times_as_long_are_written_with_a_warning(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slow server may be true: its owner gets an engine, less certain, and likely causes."""
    told(capsys, FIT)
    widths = [uncertainties("mine.toml")]
    for name in ("plain", "eagle3"):
        values = json.loads((folder / f"{name}.jsonl").read_text())
        changed(f"{name}.jsonl", mean_tpot_ms=3 * values["mean_tpot_ms"])
    status, page, _ = told(capsys, re.sub(r"(plain|eagle3)\.jsonl", r"odd_\1.jsonl", FIT))
    assert status == 0
    factor = re.search(
        r"like no known host: runs take ([\d.]+) to ([\d.]+) times what is predicted", page
    )
    ratios = [float(ratio) for ratio in re.findall(r"ms ([\d.]+) [\d.]+ms [+-]", page)]
    assert factor is not None
    assert sorted(ratios) == [float(ratio) for ratio in factor.groups()]  # as the table has them
    assert "no CUDA graphs (--enforce-eager)" in page
    widths.append(uncertainties("mine.toml"))
    assert (widths[1] > widths[0]).all()


@pytest.mark.parametrize(("ran", "named", "is_slow"), [(4, 1, False), (1, 4, True)])
def test_the_number_of_gpus_that_ran_is_found(
    ran: int, named: int, is_slow: bool, do: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = "qwen3-30b-a3b {}xh100 --drafter eagle3"
    load = "--batch-size 16 --draft-length 3 --tokens-per-step 2.4 --context-length 1000 --json"
    (row,) = json.loads(do(f"predict {where.format(ran)} {load}"))["rows"]
    lines = ["draft_length,tokens_per_step,concurrency,step_ms"]
    lines += [f"0,1,16,{1e3 * row['forward_time']}", f"3,2.4,16,{1e3 * row['step_time']}"]
    (folder / "runs.csv").write_text("\n".join(lines) + "\n")
    command = f"fit engine runs.csv --target qwen3-30b-a3b --drafter eagle3 --hardware {named}xh100"
    _, page, _ = told(capsys, command)
    assert f"Likely causes of {'longer' if is_slow else 'shorter'} times" in page
    assert f"NVIDIA H100 SXM; on {ran}, 1.00 to 1.00 times what is predicted" in page
    _, page, _ = told(capsys, command.replace(f"{named}xh100", f"{ran}xh100"))
    assert "Likely causes" not in page


def test_a_profile_that_is_there_is_kept(do: Any, folder: Path) -> None:
    (folder / "mine.toml").write_text("mine\n")
    line = do(FIT.removesuffix(" --overwrite"), 2)
    assert "--output: got 'mine.toml'; expected another name" in line
    assert "--overwrite" in line
    assert (folder / "mine.toml").read_text() == "mine\n"


def test_without_an_output_the_fit_is_shown(do: Any, folder: Path) -> None:
    before = sorted(folder.iterdir())
    text = " ".join(do(VLLM).split())
    assert text.startswith("gpt-oss-120b + EAGLE-3 head on NVIDIA H200 SXM")  # as the files say
    assert text.endswith("Not written: --output ./mine.toml writes the engine.")
    assert sorted(folder.iterdir()) == before
    unknown = changed("plain.json", model_id="ours/tuned")
    line = do(f"fit engine {unknown} --hardware h200", 2)
    assert "--target: none given" in line
    assert "their model ours/tuned does not ship" in line


def test_files_that_name_a_checkpoint_tell_its_dtype(do: Any) -> None:
    names = " ".join(changed(f"{n}.json", model_id="/m/Qwen3-8B-FP8") for n in ("plain", "eagle3"))
    command = f"fit engine {names} --drafter eagle3 --hardware h200"
    for more in ("", "--target qwen3-8b"):
        text = " ".join(do(f"{command} {more}").split())
        assert text.startswith("Qwen3-8B + EAGLE-3 head on NVIDIA H200 SXM")
        assert "weight_dtype fp8_block" in text
    assert "fp8_block" not in do(f"{command} --weight-dtype bf16")


def test_the_command_printed_last_predicts_what_was_measured(do: Any) -> None:
    """Place, options and acceptance are those of the runs; the prediction is the fit's."""
    own = "--routing-correlation 0.1 --set target.experts_per_token=6 --set engine.tree_time=0.0"
    out = do(f"{FIT} {own}")
    printed = out[out.index("specmodel predict") :]
    command = shlex.split(printed.replace("\\\n", " "))[1:]
    assert command[:3] == ["predict", "qwen3-30b-a3b", "2xh100_sxm"]
    assert [command[command.index(word) + 1] for word in ("--tensor-parallel", "--engine")] == [
        "2",
        "./mine.toml",
    ]
    for words in ("--tokens-per-step 1.86 --measured-draft-length 3", own):
        assert words in " ".join(command)
    more = "--batch-size 1 --draft-length 3 --json"
    (row,) = json.loads(do(f"{shlex.join(command)} {more}"))["rows"]
    now = [float(time) for time in re.findall(r"([\d.]+)ms +[+-][\d.]+%", out)]
    assert [1e3 * row["forward_time"], 1e3 * row["tpot"]] == pytest.approx(now, rel=0.01)


def test_speedups_stand_beside_those_of_the_model(do: Any) -> None:
    out = do(VLLM)
    told = re.search(
        r"Speedup, eagle3.json: measured ([\d.]+), model ([\d.]+) before, ([\d.]+) n", out
    )
    assert told is not None
    assert float(told[1]) == pytest.approx(5.1167 / 3.3, abs=0.005)  # mean TPOT of both files
    plain, drafting = re.findall(
        r"^(?:plain|eagle3)\.json .*?ms +([\d.]+)ms .* ([\d.]+)ms", out, re.M
    )
    for place in (0, 1):
        expected = float(plain[place]) / float(drafting[place])
        assert float(told[2 + place]) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", "fp8_block"),
        ("nvidia/Qwen3-30B-A3B-NVFP4", "fp4"),
        ("QuantTrio/Qwen3-30B-A3B-Instruct-2507-AWQ", "int4_g128"),
    ],
)
@pytest.mark.parametrize("target", ["", "--target qwen3-30b"])
def test_weights_have_the_dtype_of_the_name_in_the_files(
    name: str, dtype: str, target: str, do: Any, folder: Path
) -> None:
    """Also where the shape was typed and one of two files tells; --weight-dtype goes before."""
    drafted, plain = folder / "eagle3.jsonl", folder / "plain.jsonl"
    drafted.write_text(drafted.read_text().replace("Qwen/Qwen3-30B-A3B", name))
    fit = f"fit engine plain.jsonl eagle3.jsonl {target} --drafter eagle3 --hardware h100"
    out = " ".join(do(f"{fit} --output mine.toml").replace("\\", "").split())
    own = name.removeprefix("/models/")
    assert f"Weights in {dtype}, as the name {own} tells" in out
    assert f"specmodel predict {own} 2xh100" in out
    assert "Weights in" not in do(f"{fit} --weight-dtype bf16")
    assert f"predict {own} " in do("acceptance eagle3.jsonl")
    plain.write_text(plain.read_text().replace("Qwen3-30B-A3B", "Qwen3-30B-A3B-W8A8"))
    assert "expected runs of weights of one dtype" in do(fit, 2)


def test_the_gpus_are_those_that_the_server_told(do: Any) -> None:
    where = "--drafter eagle3 --hardware"
    out = do(f"fit engine plain.jsonl eagle3.jsonl {where} h100 --output mine.toml")
    assert "on 2 x NVIDIA H100 SXM" in out
    assert "specmodel predict qwen3-30b-a3b 2xh100" in out
    line = do(f"fit engine plain.jsonl eagle3.jsonl {where} 4xh100", 2)
    assert "--hardware: got '4 GPUs'; expected 2, on which the server of these files ran" in line


def test_acceptance_reads_the_same_files(do: Any) -> None:
    text = do("acceptance plain.json eagle3.json")
    lines = text.splitlines()
    assert "eagle3.json" in lines[2]
    assert "plain.json  " not in text
    # 0.4074 / 0.7037, ...
    assert "    --acceptance-by-position conditional:0.7037,0.5789,0.4546" in lines
    assert "--tokens-per-step 2.2963 --measured-draft-length 3" in lines
    assert "--tokens-per-step 1.86 --measured-draft-length 3" in do("acceptance eagle3.jsonl")
    document = json.loads(do("acceptance eagle3.json --json"))
    assert document["runs"][0]["accepted_fraction"] == pytest.approx(35 / 81, abs=1e-4)
    assert "expected a run that counts drafts" in do("acceptance plain.json", 2)


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
