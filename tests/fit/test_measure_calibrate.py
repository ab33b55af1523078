"""The short form of a calibration and of the closed loop on this machine's CPU (needs torch)."""

import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rows import each_listed

torch = pytest.importorskip("torch")
pytest.importorskip("filelock")

import closed_loop as loop
import specmodel
from specmodel import load_hardware
from specmodel.calibrate.measure.kernels import bench as benches
from specmodel.calibrate.measure.kernels.bench import Bench, Stopwatch, Workload
from specmodel.calibrate.measure.kernels.device import find_device
from specmodel.calibrate.measure.kernels.layers import Product
from specmodel.calibrate.measure.kernels.operators import timed_on
from specmodel.calibrate.measure.kernels.session import _row
from specmodel.calibrate.measure.kernels.suite import CORRELATION, suite
from specmodel.cli import main
from specmodel.core.algebra.experts import correlated_active_experts
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Threads that wait for each other on a busy machine take a thousand times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calibrated") / "mine.toml"
    assert main(["calibrate", "--device", "cpu", "--tiny", "--output", str(path)]) == 0
    return path


def test_a_tiny_suite_makes_a_profile_that_predicts(calibrated: Path) -> None:
    hardware = load_hardware(calibrated)
    assert hardware.kind == "cpu"
    assert hardware.default_stack == "torch"
    stack = hardware.fitted["torch"]
    assert stack.version == torch.__version__
    for kind in ("experts", "gemm", "attention", "elementwise"):
        assert getattr(stack, kind)["bf16"].num_points > 5
    p = specmodel.predict(
        target="qwen2-57b-a14b", drafter="qwen2-0.5b", hardware=hardware, batch_size=[1, 8],
        draft_length=3, acceptance=0.7,
    )  # fmt: skip
    assert (p.target_efficiency > 0).all()
    assert (p.target_efficiency < 1).all()


def test_a_cpu_without_bf16_is_timed_in_fp32() -> None:
    info = find_device("cpu", "fp32")
    assert info.identity["dtype"] == "fp32"
    point = next(p for p in suite("cpu", "tiny") if p.component == "gemm")
    timed = Bench(info, [point]).measure(point)
    assert float(timed["latency"]) > 0
    assert _row(timed, point, 0, info)["weight_dtype"] == "fp32"


def test_products_of_quantised_weights_are_products() -> None:
    arena = benches.Arena(2**20, CPU)
    x = arena.fresh(3, 256)
    timed = timed_on("cpu")
    assert [dtype for kind, dtype in timed.rows if kind == "experts"] == [
        "fp8", "fp8_block", "int8", "int4",
    ]  # fmt: skip
    assert {*timed.reasons} == {*BYTES_PER_ELEMENT} - {"bf16", "fp32", *(d for _, d in timed.rows)}
    for row in (row for (kind, _), row in timed.rows.items() if kind == "gemm"):
        product = Product(row, arena.take, x, {"m": 3, "k": 256, "n": 128})
        stored = product.weights()
        out, w = product(product.activations(x), stored), stored.to(torch.float32)
        assert out.shape == (3, 128)
        assert out.isfinite().all()
        scales = product._scales["ws"].to(torch.float32)
        if row["weight_dtype"] == "int4":  # values of 0 to 15 in pairs, less 8, and a zero point
            stored.fill_(0x88)
            expected = x.float().view(3, 2, 128).sum(2) @ scales[..., 1]
            out = product(x, stored)
        elif row["weight_dtype"] == "fp8_block":
            expected = (
                x.float() @ (w.view(1, 128, 2, 128) * scales[:, None, :, None]).view(128, 256).T
            )
        else:
            expected = x.float() @ w.T * scales
        assert torch.allclose(out.float(), expected, rtol=0.05, atol=0.05 * expected.abs().max())


def test_quantised_experts_are_fitted_and_taken(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    words = ["--tiny", "--weight-dtype", "int4", "--weight-dtype", "fp8", "--output", str(path)]
    assert main(["calibrate", "--device", "cpu", *words]) == 0
    stack = load_hardware(path).fitted["torch"]
    assert {*stack.experts} >= {"int4", "fp8"}
    asked = {"target": "olmoe-1b-7b", "drafter": "eagle3", "acceptance": 0.7, "batch_size": 1}
    taken = specmodel.predict(hardware=path, draft_length=1, weight_dtype="int4_g128", **asked)
    assert taken.deployment.kernels.place("experts", "int4_g128", "bf16") == ("experts", "int4")


def test_rows_can_be_fitted_and_judged_by_the_commands_for_any_table(calibrated, tmp_path, run):
    rows, again = calibrated.with_suffix(".csv"), tmp_path / "again.toml"
    words = f"--hardware {calibrated} --measured-on {find_device('cpu').hardware}"
    run(f"fit kernels {rows} {words} --output {again}")
    fitted, refitted = (load_hardware(path).fitted["torch"] for path in (calibrated, again))
    for kind in ("experts", "gemm", "attention", "elementwise"):
        assert getattr(refitted, kind) == getattr(fitted, kind)
    assert "elementwise" in run(f"fit check {calibrated} {rows}")


def test_recorded_unions_meet_the_law() -> None:
    generator = np.random.default_rng(0)
    arena = benches.Arena(2**25, CPU)
    for tokens, correlation in ((1, 0.0), (4, 0.0), (4, CORRELATION)):
        sizes = {
            "hidden_size": 16, "expert_size": 16, "num_experts": 32, "experts_per_token": 4,
            "num_tokens": 8, "tokens_per_sequence": tokens, "routing_correlation": correlation,
            "popularity_exponent": 0.0,
        }  # fmt: skip
        active = np.concatenate([
            benches.prepare("experts", sizes, arena, str(generator.random())).active_experts
            for _ in range(40)
        ])  # fmt: skip
        law = correlated_active_experts(8 // tokens, tokens, 32, 4, correlation)
        assert abs(active.mean() - law) < 4 * active.std(ddof=1) / np.sqrt(len(active))


def test_a_stopwatch_measures_time() -> None:
    taken: list[int] = []

    def call(index: int) -> None:
        taken.append(index)
        time.sleep(2e-3)

    watch = Stopwatch(Workload(call), CPU, least_calls=2)
    taken.clear()
    for _ in range(2):
        seconds, _ = watch.time()
        assert 2e-3 <= seconds < 2e-2
    assert taken == list(range(2 * watch.calls))  # the next timing takes the next inputs


def test_what_cannot_be_timed_on(tmp_path, refuse, monkeypatch) -> None:
    output = f"--output {tmp_path}/a.toml"
    if not torch.cuda.is_available():
        refuse(f"calibrate --device cuda {output}", "got 'cuda'; expected a GPU of CUDA")
    monkeypatch.setitem(sys.modules, "torch", None)
    refuse(f"calibrate --device cpu {output}", "pip install '.[calibrate]'")
    assert list(tmp_path.iterdir()) == []


@each_listed
def test_outputs_that_cannot_be_written(tmp_path, refuse, name, expected) -> None:
    (tmp_path / "theirs.toml").write_text("mine = 1\n")
    command = f"calibrate --device cpu --tiny --output {tmp_path / name}"
    refuse(command, "error: --output: got", expected)
    assert (tmp_path / "theirs.toml").read_text() == "mine = 1\n"


def test_a_tiny_loop_closes(calibrated, tmp_path, capsys) -> None:
    dtypes = ["--weight-dtype", "bf16", "--weight-dtype", "int8"]
    loop.main([str(calibrated), "--tiny", *dtypes, "--output", str(tmp_path)])
    out = capsys.readouterr().out
    summary = pd.read_csv(tmp_path / "closed_loop_summary.csv")
    assert summary.groupby("weight_dtype")["quantity"].nunique().to_dict() == {"bf16": 6, "int8": 6}
    for quantity in loop.QUANTITIES:
        assert quantity in out
    rows = pd.read_csv(tmp_path / "closed_loop.csv")
    setting = loop.SETTINGS["tiny"]
    assert len(rows) == rows.drop_duplicates([*loop.KEY, "repeat", "quantity"]).shape[0]
    assert set(rows["quantity"]) == {*loop.QUANTITIES, "tokens_per_step"}
    assert rows["repeat"].nunique() == setting.repeats
    assert (rows["value"] > 0).all()
    unions = pd.read_csv(tmp_path / "closed_loop_unions.csv")
    assert (unions["standard_errors"] < 4.5).all()
    assert (tmp_path / "closed_loop.png").stat().st_size > 5000


def test_a_loop_refuses_a_dtype_by_the_name_that_was_typed(capsys) -> None:
    with pytest.raises(SystemExit):
        loop.main(["mine.toml", "--tiny", "--weight-dtype", "nvfp4"])
    assert "got 'nvfp4'. This dtype cannot be timed here: torch" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["intel_xeon_2_threads", "amd_epyc_2_threads"])
def test_committed_predictions_are_those_of_today(name: str) -> None:
    folder = Path(loop.__file__).parent / "results" / name
    rows, then = (pd.read_csv(folder / f"closed_loop{end}.csv") for end in ("", "_summary"))
    now = loop.predict(loop.SETTINGS["cpu"], load_hardware(folder / "cpu.toml"), "torch", rows)
    assert now["predicted"].to_numpy() == pytest.approx(then["predicted"].to_numpy(), rel=1e-4)
