"""Rows are appended, kept and continued whatever happens to the run (no torch needed)."""

import json
import random
import re
from collections import Counter, defaultdict

import pandas as pd
import pytest
from msgspec.structs import replace

pytest.importorskip("filelock")

from benched import INFO, OUT_OF_MEMORY, FakeBench, put
from rows import cases, each_listed

from specmodel import InputError, load_architecture, load_hardware
from specmodel.calibrate.fit.calibration import calibrate_rows
from specmodel.calibrate.measure.kernels.operators import timed_on
from specmodel.calibrate.measure.kernels.rows import COLUMNS, RowFile
from specmodel.calibrate.measure.kernels.session import run_suite
from specmodel.calibrate.measure.kernels.suite import REPEATS, shapes_of, suite
from specmodel.cli import main

IDENTITY = {"device": "a", "driver": "1", "torch": "2.13", "suite_version": "1"}


@pytest.fixture(autouse=True)
def _fake(monkeypatch):
    put(FakeBench, monkeypatch)


def row(point="p", repeat=0):
    return {"point": point, "group": "g", "repeat": repeat, "component": "copy", "latency": 1.0,
            "reference_latency": 1.0}  # fmt: skip


def opened(path, **changes):
    return RowFile(path, IDENTITY | changes, {"started": "now"})


def test_rows_are_found_again(tmp_path):
    path = tmp_path / "rows.csv"
    with opened(path) as rows:
        for repeat in range(3):
            rows.append(row(repeat=repeat))
        rows.append(row("q") | {"latency": None, "note": OUT_OF_MEMORY})
    with opened(path) as rows:
        assert rows.done == {("p", 0), ("p", 1), ("p", 2), ("q", 0)}
        assert rows.skipped == {"q"}
        rows.append(row(repeat=3))
        rows.note_session(flags=["busy"])
    assert len(pd.read_csv(path)) == 5
    provenance = json.loads(rows.provenance_path.read_text())
    assert provenance["identity"] == IDENTITY
    assert [s.get("flags") for s in provenance["sessions"]] == [None, ["busy"]]


def test_no_lock_is_left_behind(tmp_path):
    path = tmp_path / "rows.csv"
    with opened(path):
        with pytest.raises(InputError, match="another one is writing"), opened(path):
            pass
        assert (tmp_path / ".rows.csv.lock").exists()  # the other one's
    with pytest.raises(InputError, match="device"), opened(path, device="x") as rows:
        rows.append(row())
    assert {found.name for found in tmp_path.iterdir()} == {"rows.csv", "rows.json"}


def test_the_beginning_of_a_row_is_cut_off(tmp_path):
    path = tmp_path / "rows.csv"
    with opened(path) as rows:
        rows.append(row())
    whole = path.read_bytes()
    path.write_bytes(whole + b"p,g,1,co")
    with opened(path) as rows:
        assert rows.done == {("p", 0)}
        rows.append(row(repeat=1))
    assert path.read_bytes().startswith(whole)
    assert pd.read_csv(path)["repeat"].tolist() == [0, 1]


@cases(
    "name damage expected",
    ("rows.csv", lambda _: b"a,b\n1,2\n", "other columns"),
    ("rows.csv", lambda rows: rows + b"p,g,1,copy\n", "whole rows; line 3 is damaged"),
    ("rows.csv", lambda rows: rows + b"p,g,1.5,copy" + b",1" * 33 + b"\n", "line 3 is damaged"),
    ("rows.csv", lambda rows: rows + b"p,g,1,copy,,,,,nan" + b"," * 28 + b"\n", "line 3 is"),
    ("rows.csv", lambda rows: rows + b"\xff\xfe\n", "UTF-8"),
    ("rows.json", lambda told: told + b"]", "a description from specmodel calibrate"),
    ("rows.json", None, "its description rows.json too"),
)
def test_a_damaged_file_is_named_and_kept(tmp_path, name, damage, expected):
    path, damaged = tmp_path / "rows.csv", tmp_path / name
    with opened(path) as rows:
        rows.append(row())
    if damage is None:
        damaged.unlink()
    else:
        damaged.write_bytes(damage(damaged.read_bytes()))
    before = path.read_bytes()
    with pytest.raises(InputError, match=expected), opened(path):
        pass
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", IDENTITY)
def test_rows_of_another_device_are_refused_and_kept(tmp_path, name):
    path = tmp_path / "rows.csv"
    with opened(path) as rows:
        rows.append(row())
    before = path.read_bytes()
    with pytest.raises(InputError, match=f"output.*{name}"), opened(path, **{name: "x"}):
        pass
    assert path.read_bytes() == before


def test_what_is_timed_again_replaces_what_was_there(tmp_path):
    path = tmp_path / "rows.csv"
    list(run_suite(path, INFO, "tiny"))
    before = path.read_bytes()
    kept = [line for line in before.splitlines() if b",gemm," not in line]
    first, *rest = run_suite(path, INFO, "tiny", again=["gemm"])
    assert first.total - first.done == len(rest) == 12
    assert path.read_bytes().splitlines()[: len(kept)] == kept
    assert set(names(path)) == expected_names("tiny")
    assert len(names(path)) == len(expected_names("tiny"))
    dropped = tmp_path / "rows.dropped.csv"
    assert {*kept, *dropped.read_bytes().splitlines()} == {*before.splitlines()}
    list(run_suite(path, INFO, "tiny", again=["gemm", "copy"]))
    assert len(names(dropped)) == 12 + 14  # nothing that was dropped before is lost
    assert len(names(path)) == len(expected_names("tiny"))


def names(path):
    table = pd.read_csv(path)
    assert list(table) == list(COLUMNS)
    return list(zip(table["point"], table["repeat"], strict=True))


def expected_names(length):
    return {(p.name, r) for p in suite("cpu", length) for r in range(REPEATS["cpu"][length])}


def test_a_drifting_machine_is_flagged(tmp_path, monkeypatch):
    class Slower(FakeBench):
        def measure(self, point):
            self.calls[point.name] = self.calls.get(point.name, 0) + 1
            timed, factor = super().measure(point), 1 + self.calls[point.name] / 4
            latencies = {n: str(float(timed[n]) * factor) for n in timed if "latency" in n}
            return timed | latencies

    put(Slower, monkeypatch)
    list(run_suite(tmp_path / "rows.csv", INFO, "tiny"))
    made = calibrate_rows(tmp_path / "rows.csv", INFO, date="2026-11-21")
    assert any("drift: " in flag for flag in made.flags)
    assert made.noise["raw"] > 0.1
    assert made.noise["ratio"] < 1e-3  # the reference drifted alike


@each_listed
def test_noisy_timings_are_kept_and_warned_of(tmp_path, monkeypatch, factor, told):
    """A kind that cannot be fitted used to end the command: days of timings and no profile."""
    generator = random.Random(3)

    class Noisy(FakeBench):
        def measure(self, point):
            timed = super().measure(point)
            if point.component == "gemm":
                timed["latency"] = str(float(timed["latency"]) * factor ** -generator.random())
            return timed

    put(Noisy, monkeypatch)
    list(run_suite(tmp_path / "rows.csv", INFO, "tiny"))
    made = calibrate_rows(tmp_path / "rows.csv", INFO, date="2026-11-21")
    assert f"gemm is {made.doubtful['gemm']}".startswith(told)
    assert {kind for kind, _ in made.fits} >= {"experts", "attention", "elementwise"}
    assert (("gemm", "bf16") in made.fits) == ("mean error" in told)
    (tmp_path / "made.toml").write_text(made.text)
    assert load_hardware(tmp_path / "made.toml").fitted["torch"].experts


def test_a_law_that_does_not_hold_is_told_from_noise(tmp_path, monkeypatch):
    """Repeats that agree need not be timed again."""

    class Odd(FakeBench):
        def measure(self, point):
            timed, odd = super().measure(point), point.sizes.get("context_length") == 128
            return timed | {"latency": str(float(timed["latency"]) * 8**odd)}

    put(Odd, monkeypatch)
    list(run_suite(tmp_path / "rows.csv", INFO, "tiny"))
    made = calibrate_rows(tmp_path / "rows.csv", INFO, date="2026-11-21")
    assert not made.doubtful
    told = r"attention is fitted with a mean error of \d\d% .* differ by 0.0%, noise is not"
    assert re.search(told, "".join(made.flags))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("length", ["quick", "full", "tiny"])
def test_suites_name_each_point_once_and_judge_other_shapes(device, length):
    points = suite(device, length)
    assert len({p.name for p in points}) == len(points)
    groups = {(p.group, tuple(p.reference.items())) for p in points}
    assert len(groups) == len({p.group for p in points})
    for kind in ("experts", "gemm", "attention", "elementwise"):
        own = [p for p in points if p.component == kind]
        fitted = {p.group for p in own if p.role == "fit"}
        judged = {p.group for p in own if p.role == "judge"}
        assert fitted
        assert length == "tiny" or judged
        assert not fitted & judged


@pytest.fixture
def calibrate(tmp_path, monkeypatch):
    """The command on a device that is not there, with a profile in the folder of the test."""
    monkeypatch.setattr("specmodel.calibrate.measure.kernels.device.find_device", lambda *_: INFO)
    words = ["calibrate", "--device", "cpu", "--tiny", "--output", str(tmp_path / "mine.toml")]
    return lambda *more: main([*words, *more])


def test_a_dry_run_lists_what_is_left_and_times_nothing(calibrate, tmp_path, capsys):
    assert calibrate("--dry-run") == 0
    head, *lines, into = capsys.readouterr().out.splitlines()
    assert head.startswith("80 of 80 timings left, of 40 points, in about 1.")
    assert into == f"Into: {tmp_path}/mine.csv"
    kinds = Counter(p.component for p in suite("cpu", "tiny"))
    assert [line.split() for line in lines] == [[kind, str(2 * n)] for kind, n in kinds.items()]
    assert list(tmp_path.iterdir()) == []
    timings = run_suite(tmp_path / "mine.csv", INFO, "tiny")
    for _ in range(42):
        next(timings)
    timings.close()
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert calibrate("--dry-run") == 0
    assert capsys.readouterr().out.startswith("39 of 80 timings left, of 39 points, ")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@each_listed
def test_parts_fail(calibrate, monkeypatch, capsys, failing, status, told):
    class Failing(FakeBench):
        def measure(self, point):
            if point.component in failing.split():
                return {"elapsed": "0", "note": "boom"}
            return super().measure(point)

    put(Failing, monkeypatch)
    assert calibrate() == status
    said = capsys.readouterr()
    assert told in " ".join((said.out + said.err).split())
    assert "nan" not in said.out + said.err


@cases("more same", ([], "command"), (["--again", "gemm"], "without --again"))
def test_interruptions(calibrate, monkeypatch, capsys, tmp_path, more, same):
    if more:
        list(run_suite(tmp_path / "mine.csv", INFO, "tiny"))

    class Interrupted(FakeBench):
        def measure(self, point):
            self.calls[point.name] = 1
            if len(self.calls) == 4:
                raise KeyboardInterrupt
            return super().measure(point)

    put(Interrupted, monkeypatch)
    assert calibrate(*more) == 130
    assert f"{same} continues this run." in capsys.readouterr().err
    assert len(names(tmp_path / "mine.csv")) == (80 - 12 if more else 0) + 3
    put(FakeBench, monkeypatch)
    assert calibrate() == 0
    assert len(names(tmp_path / "mine.csv")) == 80


def test_alone_it_takes_the_device_that_is_there_and_is_known_as_mine(
    monkeypatch, capsys, tmp_path
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("specmodel.calibrate.measure.kernels.device.find_device", lambda *_: INFO)
    monkeypatch.setattr("specmodel.calibrate.measure.kernels.device.found_kind", lambda: "cpu")
    asked = ["predict", "olmoe-1b-7b", "mine"]
    assert main(asked) == 2
    assert f"not calibrated yet: {tmp_path}/specmodel/mine" in capsys.readouterr().err
    assert main(["calibrate", "--dry-run"]) == 0
    assert not list(tmp_path.iterdir())
    assert main(["calibrate", "--tiny"]) == 0
    assert "specmodel predict MODEL mine" in capsys.readouterr().out
    assert main(asked) == 0
    day = load_hardware("mine").fitted["torch"].date
    assert f"Kernels: measured here, {day}." in capsys.readouterr().out
    assert main([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["deployment"]
    assert (told["stack"], told["kernels"]) == ("torch", f"measured here, {day}")
    assert main(["predict", "olmoe-1b-7b", "mine", "--engine", "vllm", "--verbose"]) == 0
    assert f"measured here, {day} (torch 2.13.0); mean error " in capsys.readouterr().out
    again = ["--hardware", "mine", "--output", f"{tmp_path}/b.toml"]
    assert main(["calibrate", "--tiny", *again]) == 0


def test_of_one_model_its_layers_are_timed_and_matrices_of_all_sizes(calibrate, capsys):
    assert calibrate("--dry-run", "qwen3.6-35b-a3b") == 0
    timed = timed_on("cpu")
    one = replace(timed, shapes=shapes_of(load_architecture("qwen3.6-35b-a3b")))
    points: dict[str, list] = defaultdict(list)
    for point in suite("cpu", "quick", one):
        points[point.component].append(point)
    assert {tuple(p.fixed.values()) for p in points["experts"]} == {(2048, 512, 256, 8)}
    assert {tuple(p.fixed.values())[:3] for p in points["attention"]} == {(16, 2, 256)}
    assert {tuple(p.fixed.values())[:4] for p in points["recurrence"]} == {(16, 32, 128, 128)}
    assert {p.sizes["vocabulary_size"] for p in points["sampling"]} == {248320}
    assert not points["latent_attention"]
    assert "recurrence" not in {p.component for p in suite("cuda", "quick", one)}
    assert {p.weight_dtype for p in points["experts"]} == {"", "int8", "int4", "fp8", "fp8_block"}
    every = [p for p in suite("cpu", "quick", timed) if p.component == "gemm"]
    assert [p.name for p in points["gemm"]] == [p.name for p in every]


@each_listed
def test_what_is_not_there_is_told_in_one_line(calibrate, capsys, words, told):
    assert calibrate(*words.split()) == 2
    assert told in capsys.readouterr().err
