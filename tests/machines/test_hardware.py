"""Hardware profiles against data sheets typed a second time, and what is refused."""

import tomllib

import pytest
from printed import refused
from published_tables import read_table
from rows import each_listed, each_row, faults
from sampled import sampled

from specmodel import HardwareProfile, deploy, list_hardware, load_engine, load_hardware
from specmodel.core.base import records
from specmodel.core.machines import hardware

DTYPES = ("bf16", "fp16", "fp8", "int8", "fp4")
SHEET = read_table("hardware.csv")


def toml_data(name):
    path = hardware.FOLDER / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def build(data):
    return records.build(HardwareProfile, data, "hardware")


def test_every_shipped_profile_is_in_the_sheet():
    assert sorted(row["name"] for row in SHEET) == list_hardware()


@each_row("row", SHEET)
def test_values_as_on_the_data_sheet_and_every_one_with_a_source(row):
    profile = load_hardware(row["name"])

    memory, link = profile.memory, profile.link
    assert (profile.kind, memory.capacity_bytes) == ("gpu", float(row["memory_gib"]) * 2**30)
    assert memory.peak_bytes_per_s == pytest.approx(float(row["bandwidth_gb_per_s"]) * 1e9)
    assert memory.l2_bytes == pytest.approx(float(row["l2_mb"]) * 1e6)
    assert profile.num_multiprocessors == int(row["num_multiprocessors"])
    assert all(part.source.strip() for part in (memory, link, *profile.dtype.values()) if part)
    assert bool(link) == bool(row["link_gb_per_s"])
    if link:
        assert link.peak_bytes_per_s == pytest.approx(float(row["link_gb_per_s"]) * 1e9)
    peaks = {dtype: peak.peak_flops_per_s for dtype, peak in profile.dtype.items()}
    expected = {dtype: float(row[dtype]) * 1e12 for dtype in DTYPES if row[dtype]}
    assert peaks == pytest.approx(expected)


def test_a_gpu_is_one_file(tmp_path, monkeypatch):
    """A profile that is added is listed, loaded, found by its reported name, and deployed."""
    text = (hardware.FOLDER / "a10.toml").read_text(encoding="utf-8")
    text = text.replace('"NVIDIA A10"', '"NVIDIA X1"').replace('["A10"]', '["X1 SXM", "X1 PCIe"]')
    (tmp_path / "x1.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(hardware, "FOLDER", tmp_path)
    hardware.profiles_by_reported_name.cache_clear()
    assert hardware.profiles_by_reported_name() == {"X1 SXM": "x1", "X1 PCIe": "x1"}
    hardware.profiles_by_reported_name.cache_clear()
    assert list_hardware() == ["x1"]
    deployment, _ = deploy(target="mixtral-8x7b", hardware="x1")
    assert deployment.hardware.name == "NVIDIA X1"


def test_no_two_profiles_are_of_a_reported_name():
    profiles = map(load_hardware, list_hardware())
    told = [name for profile in profiles for name in profile.reported_names]
    assert len(set(told)) == len(told) == len(hardware.profiles_by_reported_name())


WRONG = [(1e-9, 1), (1e-12, 1), (1, 1e-12), (1, 1e-9), (1e-9, 1e-12)]


@each_row(("name", "factors"), sampled(list_hardware(), WRONG))
def test_wrong_units_are_refused(name, factors):
    """Such as GB/s, TB/s, TFLOP/s, GFLOP/s, and GB/s with TFLOP/s."""
    bandwidth_factor, rate_factor = factors
    data = toml_data(name)
    data["memory"]["peak_bytes_per_s"] *= bandwidth_factor
    for peak in data["dtype"].values():
        peak["peak_flops_per_s"] *= rate_factor
    refused(r"memory\.peak_bytes_per_s: got .*B/s, not GB/s", build, data)


@each_row(("changes", "message"), [*faults("hardware"), ({"link.num_gpus": 10**400}, "num_gpus")])
def test_refuses(changes, message):
    refused(message, load_hardware("h100_sxm").with_changes, "hardware", changes)


@each_listed
def test_compute_dtype_is_the_next_wider(name, dtype, expected):
    profile = load_hardware(name)
    assert profile.compute_dtype(dtype) == expected
    peak = profile.dtype[expected].peak_flops_per_s
    assert profile.ridge_point(dtype) == peak / profile.memory.peak_bytes_per_s


def test_a_parameter_at_a_bound_is_one_that_was_fitted():
    data = toml_data("h200_sxm")
    data["fitted"]["vllm"]["gemm"]["bf16"]["at_bound"] = ["launch_tim"]
    refused(r"at_bound: got \['launch_tim'\]; .*launch_time", build, data)


def test_a_profile_by_its_file_or_its_name(tmp_path):
    refused(r"hardware: got 'h201'.*h200_sxm", load_hardware, "h201")
    path = tmp_path / "mine.toml"
    path.write_bytes((hardware.FOLDER / "l4.toml").read_bytes())
    assert load_hardware(path) == load_hardware(str(path)) == load_hardware("L4")


@pytest.mark.parametrize("field", ["kernel_time", "reject_time_per_request"])
def test_engine_with_any_overhead_is_not_ideal(field):
    engine = load_engine("ideal")
    assert engine.is_ideal
    assert not engine.with_changes("engine", {field: 1e-6}).is_ideal
    refused(rf"engine\.{field}: got -1e-06", engine.with_changes, "engine", {field: -1e-6})


@pytest.mark.parametrize(("kind", "is_taken"), [("cpu", True), ("gpu", False)])
def test_a_cpu_may_compute_slower_than_it_reads(kind, is_taken):
    data = toml_data("h200_sxm") | {"kind": kind, "fitted": {}}
    bandwidth = data["memory"]["peak_bytes_per_s"]
    data["dtype"] = {"bf16": {"peak_flops_per_s": 0.5 * bandwidth, "source": "test"}}
    if is_taken:
        assert build(data).ridge_point("bf16") == 0.5
    else:
        refused("peak_bytes_per_s", build, data)
