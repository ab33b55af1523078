"""A bench that replaces the one of a calibration: it computes times by a formula, without torch."""

import math
import sys
from types import SimpleNamespace

import pytest

from specmodel.calibrate.measure.kernels.device import DeviceInfo
from specmodel.calibrate.measure.kernels.suite import Point

INFO = DeviceInfo(
    kind="cpu", name="Some CPU, 2 threads", hardware="some_cpu_2_threads", driver="AVX, 2 threads",
    torch="2.13.0", num_multiprocessors=2, capacity_bytes=8e9, l2_bytes=3e7,
)  # fmt: skip
OUT_OF_MEMORY = "out of memory"


class FakeBench:
    """Times that depend on the point by a smooth formula."""

    fault = ""

    def __init__(self, info: DeviceInfo, points: list[Point]) -> None:
        self.calls: dict[str, int] = {}

    def clear(self) -> None:
        pass

    def close(self) -> None:
        pass

    def measure(self, point: Point) -> dict[str, str]:
        def seconds(sizes: dict[str, float]) -> float:
            if point.component == "copy":
                return 2 * sizes["bytes"] / 2e10
            size = math.prod(sizes.get(n, 1.0) for n in ("input_size", "output_size"))
            size *= sizes.get("hidden_size", 1.0) * sizes.get("context_length", 1.0)
            rows = sizes.get("num_tokens", 1.0) * sizes.get("query_tokens", 1.0)
            return 1e-5 + 2 * size / 2e10 + 2 * size * rows / 1e12

        both = {"latency": point.sizes, "reference_latency": point.reference_sizes}
        timed = {name: f"{seconds(sizes):.6g}" for name, sizes in both.items()} | {"elapsed": "0"}
        if point.component == "experts":
            k, E = point.sizes["experts_per_token"], point.sizes["num_experts"]
            timed["active_experts"] = str(min(k * point.sizes["num_tokens"], E))
        return timed


def put(bench: type, patch: pytest.MonkeyPatch) -> None:
    """Replace the module of the real bench, which needs torch, by this bench."""
    module = SimpleNamespace(Bench=bench)
    patch.setitem(sys.modules, "specmodel.calibrate.measure.kernels.bench", module)
