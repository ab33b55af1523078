"""The command fit engine on benchmark files: what it prints and writes, one line for a fault."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from printed import in_one_line, typed_wrong, widest
from rows import each_listed, each_row

from specmodel import load_engine

FILES = Path(__file__).parents[1] / "data" / "benchmarks"
WHERE = "--target qwen3-30b-a3b --drafter eagle3 --hardware h100_sxm --tensor-parallel 2"
FIT = f"fit engine plain.jsonl eagle3.jsonl {WHERE} --output mine.toml --overwrite"
VLLM = "fit engine plain.json eagle3.json --drafter eagle3 --hardware h200"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder of a user with two files of SGLang, each of one run, and two of vLLM."""
    for kind in ("plain", "eagle3"):
        first, *_ = (FILES / f"specforge_{kind}.jsonl").read_text().splitlines()
        (tmp_path / f"{kind}.jsonl").write_text(first + "\n")
        shutil.copy(FILES / f"vllm_{kind}.json", tmp_path / f"{kind}.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_two_files_move_a_profile_to_the_host_that_ran_them(run):
    out = run(FIT)
    text = in_one_line(out)
    assert "Engine profile before the fit: SGLang spec v1." in text
    assert len(widest(out)) <= 80
    engine, shipped = load_engine("mine.toml"), load_engine("sglang-v1")
    assert engine.host_speed < 0.8 < shipped.host_speed
    assert (engine.name, engine.hides_host) == ("SGLang spec v1 (own runs)", "plain")
    assert engine.source == "plain.jsonl, eagle3.jsonl, from the profile SGLang spec v1"
    assert engine.fit.fitted_on.version == "sglang 0.5.5"
    assert engine.fit.fitted_on.batch_size == (1, 1)
    rows = [line.split() for line in out.splitlines() if line.startswith(("plain", "eagle3"))]
    assert [row[1:4] for row in rows] == [["1", "1", "4.46ms"], ["1", "1.86", "6.23ms"]]
    moved, _, assumed = out.partition("\nparameter ")[2].partition("Assumed")
    left_open = [line.split()[0] for line in moved.splitlines() if "not determined" in line]
    assert "host_speed" not in left_open
    written = f"{1e6 * engine.draft_pass_time:.3g}us"
    assert re.search(rf"draft_pass_time .* {written} +not determined", moved)
    assert "host" not in assumed  # which is fitted
    whole = f"predict {WHERE} --acceptance-rate 0.6 --verbose --engine"
    assert "Engine overheads: fitted to runs of sglang 0.5.5" in in_one_line(
        run(f"{whole} ./mine.toml")
    )
    run(f"{VLLM} --output new.toml")
    told = "Engine overheads: fitted to runs of an unrecorded version"
    assert told in in_one_line(run(f"{whole} ./new.toml"))


def test_vllm_s_files_start_from_its_profile_and_say_what_ran(run):
    text = in_one_line(run(f"{VLLM} --output mine.toml --name ours"))
    assert "Engine profile before the fit: vLLM." in text
    assert re.search(r"plain\.json +1\.58 ", text)
    assert load_engine("mine.toml").name == "ours"


def test_a_drafter_is_asked_for_only_where_runs_draft(run, refuse):
    told = "--target gpt-oss-120b --hardware h200_sxm"
    assert "\nparameter " in run(f"fit engine plain.json {told}")
    for none in ("", "--drafter none"):
        refuse(f"fit engine plain.json eagle3.json {told} {none}", "--drafter: none given")


@pytest.mark.parametrize("drafter", ["", "--drafter eagle3"])
def test_plain_runs_are_fitted_to_no_drafter(drafter, run):
    shutil.copy("plain.json", "plain2.json")
    out = run(f"fit engine plain.json plain2.json --hardware h200 {drafter} --output mine.toml")
    fitted_on = load_engine("mine.toml").fit.fitted_on
    assert (fitted_on.drafters, fitted_on.draft_length) == ([], (0, 0))
    printed = out[out.index("specmodel predict") :].replace("\\\n", " ")
    assert " similar published runs on " in run(printed.removeprefix("specmodel "))


def test_a_table_of_pairs_starts_from_vllm_s_profile_unless_another_is_named(run):
    names = "draft_length,tokens_per_step,concurrency,base_tpot_ms,speedup"
    Path("pairs.csv").write_text(f"{names}\n3,1.86,1,4.46,0.72\n")
    command = f"fit engine pairs.csv {WHERE}"
    text = in_one_line(run(command))
    assert "Engine profile before the fit: vLLM." in text
    text = in_one_line(run(f"{command} --engine sglang-v1"))
    assert "pairs.csv row 1" in text
    assert "Engine profile before the fit: SGLang spec v1." in text


def test_what_the_noise_of_repeats_allows_is_said(run):
    names = "engine,draft_length,tokens_per_step,concurrency,step_ms,step_spread,repeats"
    plain, drafted = "sglang,0,1,1,4.46,0.02,4", "sglang,3,1.86,1,11.6,1.06,3"
    Path("served.csv").write_text("\n".join([names, plain, drafted]) + "\n")
    text = in_one_line(run(f"fit engine served.csv {WHERE}"))
    # 106 % / (1.693 sqrt 3) of three normal draws
    assert "36.2% in a typical run, 36.2% in the noisiest one (served.csv row 2)." in text
    assert "Noise" not in run(FIT)


def changed(name, **values):
    """Return a copy of a file with other values, under another name."""
    own = json.loads(Path(name).read_text())
    Path(f"odd_{name}").write_text(json.dumps(own | values) + "\n")
    return f"odd_{name}"


def test_runs_faster_than_their_kernels_are_refused_unless_forced(run, ended):
    """Both files are of a GPU that is four times as fast as the one that was named."""
    command = FIT.replace("h100_sxm", "l4")
    status, out, line = ended(command)
    page = in_one_line(out)
    assert (status, len(line.splitlines())) == (2, 1)
    assert "to write it anyway, add --force" in line
    assert not Path("mine.toml").exists()
    said = re.search(r"jsonl: ([\d.]+) ms/token, ([\d.]+) times the ([\d.]+) ms of its", line)
    own, ratio, kernels = map(float, said.groups())
    assert own / kernels == pytest.approx(ratio, abs=0.006)  # as the figures beside it give
    causes = (
        "Likely causes of times that are shorter than predicted: - The server has more or faster"
    )
    assert f"{causes} GPUs than 2 x NVIDIA L4." in page
    run(f"{command} --force")
    assert load_engine("mine.toml").gpu_time_factor < 0.7


def uncertainties(path):
    """The standard deviations of what was fitted."""
    return np.sqrt(np.diagonal(load_engine(path).fit.covariance))


def test_runs_that_take_three_times_as_long_are_written_with_a_warning(run):
    """A slow server may be true: its owner gets an engine, less certain, and likely causes."""
    run(FIT)
    before = uncertainties("mine.toml")
    for name in ("plain", "eagle3"):
        values = json.loads(Path(f"{name}.jsonl").read_text())
        changed(f"{name}.jsonl", mean_tpot_ms=3 * values["mean_tpot_ms"])
    page = in_one_line(run(re.sub(r"(plain|eagle3)\.jsonl", r"odd_\1.jsonl", FIT)))
    factor = (
        r"like those of no known host: runs take ([\d.]+) to ([\d.]+) times as long as predicted"
    )
    times = re.findall(r"([\d.]+)ms ([\d.]+) -> [\d.]+ms [+-]", page)
    ratios = sorted(float(measured) / float(before) for measured, before in times)
    told = [*map(float, re.search(factor, page).groups())]
    assert ratios == pytest.approx(told, rel=0.01)  # as the table has them
    assert "without CUDA graphs (--enforce-eager)" in page
    assert (uncertainties("mine.toml") > before).all()


@pytest.mark.parametrize(("ran", "named", "kind"), [(4, 1, "shorter"), (1, 4, "longer")])
def test_the_number_of_gpus_that_ran_is_found(ran, named, kind, run, ended):
    load = "--batch-size 16 --draft-length 3 --tokens-per-step 2.4 --context-length 1000 --json"
    told = run(f"predict qwen3-30b-a3b {ran}xh100 --drafter eagle3 {load}")
    (row,) = json.loads(told)["rows"]
    lines = ["draft_length,tokens_per_step,concurrency,step_ms"]
    lines += [f"0,1,16,{1e3 * row['forward_time']}", f"3,2.4,16,{1e3 * row['step_time']}"]
    Path("runs.csv").write_text("\n".join(lines) + "\n")
    command = "fit engine runs.csv --target qwen3-30b-a3b --drafter eagle3 --hardware"
    page = in_one_line(ended(f"{command} {named}xh100")[1])
    assert f"Likely causes of times that are {kind} than predicted:" in page
    told = "the measured times are 1.00 times those predicted for"
    assert f"- The server has {ran} GPUs: {told} {ran}." in page
    assert "Likely causes" not in run(f"{command} {ran}xh100")


def test_a_profile_that_is_there_is_kept(run, refuse):
    Path("mine.toml").write_text("mine\n")
    told = "--output: got 'mine.toml'. This file exists. Choose a new name"
    refuse(FIT.removesuffix(" --overwrite"), told, "--overwrite")
    assert Path("mine.toml").read_text() == "mine\n"


def test_without_an_output_the_fit_is_shown(run, folder, refuse):
    before = sorted(folder.iterdir())
    text = in_one_line(run(VLLM))
    assert "\ngpt-oss-120b + EAGLE-3 head on NVIDIA H200 SXM\n" in run(VLLM)  # as the files say
    assert text.endswith("Not written: --output ./mine.toml writes the engine.")
    assert sorted(folder.iterdir()) == before
    unknown = changed("plain.json", model_id="ours/tuned")
    refuse(f"fit engine {unknown} --hardware h200", "their model ours/tuned does not ship")


def test_the_command_printed_last_predicts_what_was_measured(run):
    """Place, options and acceptance are those of the runs; the prediction is the fit's."""
    own = "--routing-correlation 0.1 --set target.experts_per_token=6 --set engine.tree_time=0.0"
    out = run(f"{FIT} {own}")
    printed = in_one_line(out[out.index("specmodel predict") :].replace("\\\n", " "))
    where = "specmodel predict qwen3-30b-a3b 2xh100_sxm "
    assert printed.startswith(where)
    assert all(words in printed for words in ("--tensor-parallel 2", "--engine ./mine.toml", own))
    assert "--tokens-per-step 1.86 --measured-draft-length 3" in printed
    command = f"{printed.removeprefix('specmodel ')} --batch-size 1 --draft-length 3 --json"
    (row,) = json.loads(run(command))["rows"]
    now = [float(time) for time in re.findall(r"-> ([\d.]+)ms +[+-][\d.]+%", out)]
    assert [1e3 * row["forward_time"], 1e3 * row["tpot"]] == pytest.approx(now, rel=0.01)


def test_speedups_stand_beside_those_of_the_model(run):
    out = run(VLLM)
    ((measured, now),) = re.findall(r"^eagle3\.json .*% +([\d.]+) +([\d.]+)$", out, re.M)
    assert float(measured) == pytest.approx(5.1167 / 3.3, abs=0.005)  # mean TPOT of both files
    times = [*map(float, re.findall(r"-> ([\d.]+)ms", out))]
    assert float(now) == pytest.approx(times[0] / times[1], rel=0.01)


@each_listed
def test_weights_have_the_dtype_of_the_name_in_the_files(name, dtype, target, run, refuse):
    """Also where the shape was typed and one of two files tells; --weight-dtype goes before."""
    drafted, plain = Path("eagle3.jsonl"), Path("plain.jsonl")
    drafted.write_text(drafted.read_text().replace("Qwen/Qwen3-30B-A3B", name))
    fit = f"fit engine plain.jsonl eagle3.jsonl {target} --drafter eagle3 --hardware h100"
    out = in_one_line(run(f"{fit} --output mine.toml").replace("\\", ""))
    assert f"weights in {dtype}, as the name {name} tells" in out
    assert f"specmodel predict {name} 2xh100" in out  # as the server told
    assert "weights in" not in run(f"{fit} --weight-dtype bf16")
    assert f"predict {name} " in run("acceptance eagle3.jsonl")
    plain.write_text(plain.read_text().replace("Qwen3-30B-A3B", "Qwen3-30B-A3B-W8A8"))
    refuse(fit, "expected runs whose weights have the same dtype")


def test_acceptance_reads_the_same_files(run, refuse):
    text = run("acceptance plain.json eagle3.json")
    lines = text.splitlines()
    assert "eagle3.json" in lines[2]
    assert "plain.json  " not in text
    # 0.4074 / 0.7037, ...
    assert "    --acceptance-by-position conditional:0.7037,0.5789,0.4546" in lines
    assert "--tokens-per-step 2.2963 --measured-draft-length 3" in lines
    assert "--tokens-per-step 1.86 --measured-draft-length 3" in run("acceptance eagle3.jsonl")
    document = json.loads(run("acceptance eagle3.json --json"))
    assert document["runs"][0]["accepted_fraction"] == pytest.approx(35 / 81, abs=1e-4)
    refuse("acceptance plain.json", "expected a run with counts of drafts")


@each_row(("command", "fragments"), typed_wrong("fit_engine", fit=FIT))
def test_faults_of_the_command_are_one_line(command, fragments, refuse):
    refuse(command, *fragments)
