"""Sweeps on a Dask cluster of real processes: the same parts, also if a worker is lost."""

import itertools
import os
import signal

import pytest
from printed import check_one_line, refused

import specmodel
from specmodel import cli
from specmodel.plan.sweeps import plan_sweep, sweep_to_file, workers

distributed = pytest.importorskip("distributed")
pytest.importorskip("pyarrow")

pytestmark = pytest.mark.slow

AXES = {
    "target": ["mixtral-8x7b", "olmoe-1b-7b"], "drafter": "eagle", "hardware": "h100_sxm",
    "tensor_parallel": 2, "batch_size": range(1, 101), "draft_length": range(1, 6),
    "acceptance_rate": [0.5, 0.7],
}  # fmt: skip


def start(num_workers):
    how = {"threads_per_worker": 1, "processes": True, "dashboard_address": "127.0.0.1:0"}
    return distributed.LocalCluster(n_workers=num_workers, **how)


@pytest.fixture(scope="module")
def client():
    with start(2) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr("specmodel.plan.sweeps.plan.PART", 40)
    monkeypatch.setattr("specmodel.plan.sweeps.workers.PATIENCE", 1)


@pytest.fixture
def expected(tmp_path):
    """Parts computed in this process, by name."""
    sweep_to_file(plan_sweep(AXES), f"{tmp_path}/local/", workers=1)
    return content(tmp_path / "local")


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def at_part(number, act):
    """Return a callback that acts once, after this number of parts."""
    done = itertools.count(1)
    return lambda num_points: act() if num_points and next(done) == number else None


def test_parts_are_the_same_byte_by_byte(client, expected, tmp_path):
    assert len(expected) == 50
    sweep_to_file(plan_sweep(AXES), f"{tmp_path}/parts/", client=client)
    assert content(tmp_path / "parts") == expected
    address = client.scheduler.address
    sweep_to_file(plan_sweep(AXES), tmp_path / "one.csv", client=address)
    sweep_to_file(plan_sweep(AXES), tmp_path / "local.csv", workers=1)
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "local.csv").read_bytes()


def test_a_closed_scheduler_is_told_and_keeps_the_parts(expected, tmp_path, capsys, monkeypatch):
    with start(2) as cluster:
        close = at_part(3, cluster.close)
        bar = "click._termui_impl.ProgressBar.update"
        monkeypatch.setattr(bar, lambda _, points: close(points))
        command = "sweep --target mixtral-8x7b,olmoe-1b-7b --drafter eagle --hardware h100_sxm"
        command += " --tensor-parallel 2 --batch-size 1:100 --draft-length 1:5"
        command += f" --acceptance-rate 0.5,0.7 --scheduler {cluster.scheduler_address}"
        status = cli.main([*command.split(), "--output", f"{tmp_path}/x/"])
    kept = content(tmp_path / "x")
    assert 3 <= len(kept) < len(expected)
    assert kept.items() <= expected.items()
    told = "a reachable Dask scheduler, with workers that have specmodel"
    check_one_line(status, *capsys.readouterr(), ("error: --scheduler: got 'tcp://", told))


def test_a_scheduler_without_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "WORKER_TIMEOUT", 1)
    with start(0) as cluster, distributed.Client(cluster) as client:
        message, plan = r"^scheduler: got .*reachable .*, with workers that", plan_sweep(AXES)
        refused(message, sweep_to_file, plan, tmp_path / "one.csv", client=client)
    assert not list(tmp_path.iterdir())


def test_workers_of_another_version(client, tmp_path):
    change = "import specmodel.plan.sweeps.workers as c; c.__version__ = {}"
    client.run(exec, change.format("'0.0'"), {})
    message = r"^scheduler: got .*workers that have specmodel .*there is 0\.0"
    refused(message, sweep_to_file, plan_sweep(AXES), tmp_path / "one.csv", client=client)
    client.run(exec, change.format(repr(specmodel.__version__)), {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nowhere", "localhost:port", ""])
def test_addresses_that_do_not_answer(address, tmp_path):
    told, plan = f"^scheduler: got '{address}'; expected a reachable Dask", plan_sweep(AXES)
    refused(told, sweep_to_file, plan, tmp_path / "one.csv", client=address)
    assert not list(tmp_path.iterdir())


def test_a_killed_worker_costs_no_points(client, expected, tmp_path):
    pids = client.run(os.getpid).values
    progress = at_part(3, lambda: os.kill(next(iter(pids())), signal.SIGKILL))
    sweep_to_file(plan_sweep(AXES), f"{tmp_path}/parts/", client=client, progress=progress)
    assert content(tmp_path / "parts") == expected
