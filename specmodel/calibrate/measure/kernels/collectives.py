"""Time all-reduces over the GPUs of a node (NCCL) or over processes on a CPU (gloo)."""

import faulthandler
import json
import re
import tempfile
import textwrap
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from specmodel.calibrate.measure.kernels import device as devices
from specmodel.calibrate.measure.kernels.suite import ALL_REDUCE
from specmodel.core.base.errors import InputError

SIZES = (2**11, 2**13, 2**15, 2**17, 2**19, 2**21, 2**23, 2**26)  # sizes of the reduced tensor [B]
REPEATS = 20  # timings of each size [-]
TIMEOUT = 120.0  # a rank that waits longer than this for the others fails [s]

_WARM_UP = 5
_VALUE_BYTES = 2
_TRACEBACK = re.compile(r"\A.*?^(?=[\w.]*(?:Error|Exception)\b)", re.MULTILINE | re.DOTALL)


def time_all_reduces(
    kind: str, num_ranks: int, sizes: Sequence[int] = SIZES, repeats: int = REPEATS
) -> list[dict[str, Any]]:
    """Time all-reduces of bf16 tensors of the given sizes [B], with one process for each rank.

    The processes import the main module of the program again, which therefore needs a ``__main__``
    guard. A latency is the mean of back-to-back all-reduces on the slowest rank [s].
    """
    processes = devices.import_torch().multiprocessing
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        job = (kind, num_ranks, sizes, repeats, path)
        try:
            # daemons end if the parent is interrupted
            processes.spawn(_run, job, nprocs=num_ranks, daemon=True)
            return list(json.loads(path.read_text()))
        except (processes.ProcessRaisedException, processes.ProcessExitedException, OSError) as e:
            reason = textwrap.shorten(_TRACEBACK.sub("", str(e)), 200)
            expected = f"a device on which {num_ranks} processes can all-reduce ({reason})"
            raise InputError("device", kind, expected) from None


def _run(
    rank: int, kind: str, num_ranks: int, sizes: Sequence[int], repeats: int, path: Path
) -> None:
    """Time all-reduces in one of several processes. Rank 0 writes the rows."""
    _defer_alarm()
    import torch

    gpu = torch.device("cuda", rank) if kind == "cuda" else None
    if gpu:
        torch.cuda.set_device(gpu)
    torch.distributed.init_process_group(
        "nccl" if gpu else "gloo", init_method=path.with_name("ranks").as_uri(), rank=rank,
        world_size=num_ranks, timeout=timedelta(seconds=TIMEOUT), device_id=gpu,
    )  # fmt: skip
    values = torch.randn(max(sizes) // _VALUE_BYTES, device=gpu, dtype=torch.bfloat16)
    calls = {size: _needed_calls(values[: size // _VALUE_BYTES]) for size in sizes}
    rows = []
    for repeat in range(repeats):
        for size in sizes:
            latency = _seconds(values[: size // _VALUE_BYTES], calls[size])
            rows.append({"component": ALL_REDUCE, "num_gpus": num_ranks, "bytes": size,
                         "repeat": repeat, "latency": latency})  # fmt: skip
    if rank == 0:
        path.write_text(json.dumps(rows))
    torch.distributed.destroy_process_group()


def _needed_calls(values: Any) -> int:
    """Warm up, and return how many calls need a millisecond, the same number on all ranks [-]."""
    _seconds(values, _WARM_UP)
    return int(min(1e-3 / max(_seconds(values, _WARM_UP), 1e-9) + 1, 200))


def _seconds(values: Any, calls: int) -> float:
    """Return the mean time of back-to-back calls on the slowest rank [s]."""
    import torch

    _defer_alarm()
    sums = values.clone()  # sums of the last timing may have overflowed
    torch.distributed.barrier()

    def reduce() -> None:
        for _ in range(calls):
            torch.distributed.all_reduce(sums)

    slowest = torch.tensor(devices.seconds_of(reduce, values.device), device=values.device)
    torch.distributed.all_reduce(slowest, op=torch.distributed.ReduceOp.MAX)
    return float(slowest) / calls


def _defer_alarm() -> None:
    """End this process with a traceback after 1.5 `TIMEOUT`, if the group has not timed out."""
    faulthandler.dump_traceback_later(1.5 * TIMEOUT, exit=True)
