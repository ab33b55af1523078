"""Decode with a real MoE model, plainly and speculatively, and compare with predictions.

Usage: python calibration/closed_loop.py PROFILE [--device cpu|cuda|xpu|mps] [--weight-dtype DTYPE]
       [--output FOLDER] [--tiny]

PROFILE is the profile that specmodel calibrate wrote on the same machine. --weight-dtype may be
repeated: targets are decoded in each dtype, the drafter always in bf16.

The script writes every repeat (closed_loop.csv), measured and predicted values
(closed_loop_summary.csv) and a figure, and prints errors and noise floors. The models have random
weights: acceptance is scripted, and routing is forced to the unions of independent and of
correlated tokens.
"""

import argparse
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import product, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from msgspec.structs import replace
from torch import Tensor

import specmodel
from closed_loop_settings import SETTINGS, Setting, stored_in
from decoder import Decoder, Pass, Speculator, State, decode, speculate
from specmodel.calibrate.measure.kernels.device import find_device
from specmodel.calibrate.measure.kernels.layers import has_grouped_kernel
from specmodel.core.algebra.acceptance import Acceptance
from specmodel.core.algebra.experts import correlated_active_experts
from specmodel.core.algebra.routing import sample_routing
from specmodel.core.base.errors import InputError
from specmodel.core.base.files import write_text
from specmodel.core.base.units import FloatArray
from specmodel.core.cost.deploying import deploy
from specmodel.core.drafters.passes import Drafter, DraftPasses
from specmodel.core.machines.engine import load_engine
from specmodel.core.machines.hardware import HardwareProfile, load_hardware
from specmodel.core.models.architecture import Architecture
from specmodel.show import plots

BARE = load_engine("ideal").with_changes("engine", {"fuses_all": False})
"""Kernels one after another, and no overhead."""

CORRELATION = 0.3
DRAWS = 12
"""Number of routings that the passes of one shape use in turn."""

QUANTITIES = (
    "target_efficiency", "forward_time", "verify_time", "draft_time", "step_time", "speedup",
)  # fmt: skip
KEY = ["target", "routing_correlation", "context_length", "batch_size", "draft_length"]


class Stage:
    """One target and drafter with their caches, and passes of any shape over them."""

    def __init__(self, target: Architecture, setting: Setting, device: torch.device) -> None:
        self.target, self.device = target, device
        self._decoders = (Decoder(target, device, seed=1), Decoder(setting.drafter, device, seed=2))
        self._capacity = max(setting.contexts) + 64 * setting.steps
        self._caches: dict[tuple[int, int], list[Tensor]] = {}
        self._passes: dict[tuple[int, int, int, float], Pass] = {}
        self.active: dict[tuple[int, int, float], list[float]] = {}

    def passed(self, who: int, batch: int, count: int, correlation: float = 0.0) -> Pass:
        """Return passes of the target (0), or of the drafter (1) for the last token."""
        key = (who, batch, count, correlation)
        if key not in self._passes:
            decoder = self._decoders[who]
            if (who, batch) not in self._caches:
                self._caches[who, batch] = decoder.new_cache(batch, self._capacity)
            draws = self._drawn(batch, count, correlation) if who == 0 else repeat(None)
            self._passes[key] = Pass(
                decoder, self._caches[who, batch], count, lambda _: next(draws), 1 if who else None
            )
        return self._passes[key]

    def _drawn(self, batch: int, count: int, correlation: float) -> Iterator[Tensor]:
        """Yield experts of all layers, a dozen draws in turn; they are drawn beforehand."""
        a = self.target
        generator = np.random.default_rng([batch, count, round(1000 * correlation)])
        shape = (a.num_experts, a.experts_per_token, correlation, generator)
        layers = [sample_routing(batch, count, *shape) for _ in range(DRAWS * a.num_layers)]
        self.active[batch, count, correlation] = [float(len(np.unique(d))) for d in layers]
        flat = np.stack(layers).reshape(DRAWS, a.num_layers, batch * count, -1)
        draws = [torch.from_numpy(draw).to(self.device) for draw in flat]
        while True:
            yield from draws

    def passes_of(self, batch: int, gamma: int, correlation: float) -> tuple[Pass, Speculator]:
        """Return the pass of plain decoding, and the passes of a draft-and-verify step."""
        verify = self.passed(0, batch, gamma + 1, correlation)
        drafter = self.passed(1, batch, 2), self.passed(1, batch, 1)
        return self.passed(0, batch, 1, correlation), Speculator(verify, *drafter, gamma)

    def state(self, batch: int, context: int) -> State:
        tokens = torch.ones((batch, 2), dtype=torch.int64, device=self.device)
        return State(tokens, torch.full((batch,), context, device=self.device))

    def seconds(self, work: Callable[[], object]) -> float:
        is_cpu = self.device.type == "cpu"
        wait = (lambda: None) if is_cpu else getattr(torch, self.device.type).synchronize
        wait()
        started = time.perf_counter()
        work()
        wait()
        return time.perf_counter() - started


def points(setting: Setting) -> list[tuple[float, int, int, int]]:
    """Routing correlation, context, batch size and draft length of each point."""
    grid = product(setting.contexts, setting.batch_sizes, setting.draft_lengths)
    some = [(setting.contexts[0], b, setting.draft_lengths[-1]) for b in setting.batch_sizes[:3]]
    return [(0.0, *p) for p in grid] + [(CORRELATION, *p) for p in some]


def measure(setting: Setting, device: torch.device) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return every repeat of every quantity, and the distinct experts of each routing drawn."""
    rows, unions = [], []
    for target in setting.targets:
        stage = Stage(target, setting, device)
        for number, point in product(range(-1, setting.repeats), points(setting)):
            found = passes(stage, *point)
            if 0 <= number < setting.end_to_end_repeats and point[1] == setting.contexts[0]:
                found |= end_to_end(stage, setting, *point)
            if number >= 0:  # the first warms up
                key = dict(zip(KEY, (target.name, *point), strict=True)) | {"repeat": number}
                rows += [key | {"quantity": name, "value": v} for name, v in found.items()]
        unions += [union(target, *drawn, active) for drawn, active in stage.active.items()]
        del stage
        gc.collect()
    return pd.DataFrame(rows), pd.DataFrame(unions)


def union(
    target: Architecture, batch: int, count: int, correlation: float, active: list[float]
) -> dict[str, object]:
    """Return the mean of the distinct experts drawn, and how far it is from the law."""
    shape = (target.num_experts, target.experts_per_token)
    law = float(correlated_active_experts(batch, count, *shape, correlation))
    mean, error = np.mean(active), np.std(active, ddof=1) / np.sqrt(len(active))
    return {
        "target": target.name, "routing_correlation": correlation, "batch_size": batch,
        "tokens_per_sequence": count, "active_experts": mean, "law": law,
        "standard_errors": abs(mean - law) / max(error, 1e-9) if error else 0.0,
    }  # fmt: skip


def passes(
    stage: Stage, correlation: float, context: int, batch: int, gamma: int
) -> dict[str, float]:
    """Time plain, verify and decode step and drafting, back to back."""
    plain, step = stage.passes_of(batch, gamma, correlation)
    state = stage.state(batch, context)
    tokens = torch.ones((batch, gamma + 1), dtype=torch.int64, device=stage.device)

    def forward() -> float:
        return stage.seconds(lambda: plain(tokens[:, :1], state.positions))

    before = forward()
    verify = stage.seconds(lambda: step.verify(tokens, state.positions))
    plainly = (before + forward()) / 2
    return {
        "forward_time": plainly,
        "verify_time": verify,
        "target_efficiency": plainly / verify,
        "draft_time": stage.seconds(lambda: step.propose(state)),
    }


def end_to_end(
    stage: Stage, setting: Setting, correlation: float, context: int, batch: int, gamma: int
) -> dict[str, float]:
    """Time plain decoding, the draft-verify-reject loop, and plain decoding again.

    All repeats of a point accept the same tokens, so that they differ by the machine alone.
    """
    plain, step = stage.passes_of(batch, gamma, correlation)
    generator = np.random.default_rng([batch, gamma])
    lengths = generator.geometric(1 - setting.acceptance_rate, (setting.steps, batch)) - 1
    scripts = list(torch.from_numpy(np.minimum(lengths, gamma)).to(stage.device))
    state = stage.state(batch, context)
    before = stage.seconds(lambda: decode(plain, stage.state(batch, context), setting.steps))
    loop = stage.seconds(lambda: speculate(step, state, scripts))
    after = stage.seconds(lambda: decode(plain, stage.state(batch, context), setting.steps))
    emitted = sum(map(len, state.sequences())) / (batch * setting.steps)
    return {
        "step_time": loop / setting.steps,
        "tokens_per_step": emitted,
        "speedup": emitted * (before + after) / 2 / loop,
    }


class CatchingUp(Drafter, frozen=True):
    """A draft model as `decoder.Speculator` runs it: its first pass has two tokens."""

    def run_by(self, first: str) -> "CatchingUp":
        """Return the drafter for any engine."""
        return replace(self, parts=tuple((model, two_first) for model, _ in self.parts))


def two_first(
    model: Architecture, gamma: FloatArray, drafted: FloatArray
) -> tuple[DraftPasses, ...]:
    """Return a pass of two tokens, of which the last drafts, and one for each further draft."""
    first, one = np.minimum(gamma, 1.0), np.ones(())
    caught_up = DraftPasses(model, 2 * one, first, one, "first draft pass")
    return caught_up, DraftPasses(model, one, gamma - first)


def predict(
    setting: Setting, hardware: HardwareProfile, stack: str, measured: pd.DataFrame
) -> pd.DataFrame:
    """Return medians of measurements with predictions, in a row for each point and quantity.

    `by_peaks` is the prediction of the data sheet alone.
    """
    rows = measured[measured["quantity"].isin(QUANTITIES)]
    by_quantity = rows.groupby([*KEY, "quantity"])["value"]
    halves = rows.groupby([*KEY, "quantity", rows["repeat"] % 2])["value"].median().unstack()
    table = pd.DataFrame({
        "measured": by_quantity.median(),
        "predicted": predictions(setting, hardware, stack, measured),
        "by_peaks": predictions(setting, hardware, "datasheet", measured),
        "spread": by_quantity.std(),
        "split_half": (halves[0] / halves[1] - 1).abs(),
    }).reset_index()  # fmt: skip
    table["quantity"] = pd.Categorical(table["quantity"], QUANTITIES)
    table = table.sort_values([*KEY, "quantity"], ignore_index=True).astype({"quantity": str})
    case = table["target"] + f" on {hardware.name}"
    dtype = table["target"].map({target.name: target.weight_dtype for target in setting.targets})
    error = table["predicted"] / table["measured"] - 1
    return table.assign(error=error, case=case, weight_dtype=dtype)


def predictions(
    setting: Setting, hardware: HardwareProfile, stack: str, measured: pd.DataFrame
) -> pd.Series:
    """Return the prediction for each point and quantity; speedups are for the tokens emitted."""
    by_name = {target.name: target for target in setting.targets}
    drafter = CatchingUp(name=setting.drafter.name, parts=((setting.drafter, two_first),))
    wide = measured.pivot_table(index=KEY, columns="quantity", values="value", aggfunc="median")
    found: dict[tuple[Any, ...], float] = {}
    for key, row in zip(wide.index.tolist(), wide.to_dict("records"), strict=True):
        name, correlation, context, batch, gamma = key
        tokens = row["tokens_per_step"] if np.isfinite(row["tokens_per_step"]) else 1.0
        p = specmodel.predict(
            target=by_name[name], hardware=hardware, drafter=drafter, stack=stack,
            engine=BARE,
            routing_correlation=correlation, batch_size=batch, draft_length=gamma,
            context_length=context, acceptance=Acceptance(tokens_per_step=tokens),
        )  # fmt: skip
        measured_here = [quantity for quantity in QUANTITIES if np.isfinite(row[quantity])]
        found |= {(*key, quantity): float(getattr(p, quantity)) for quantity in measured_here}
    return pd.Series(found).rename_axis([*KEY, "quantity"])


def report(table: pd.DataFrame, unions: pd.DataFrame) -> str:
    """Return errors and noise floors by dtype and quantity, and whether unions meet the law."""
    table = table.assign(
        size=table["error"].abs(),
        spread=table["spread"] / table["measured"],
        peaks=(table["by_peaks"] / table["measured"] - 1).abs(),
    )
    told = table.groupby(["weight_dtype", "quantity"], sort=False).agg(
        points=("size", "size"), mean=("size", "mean"), worst=("size", "max"),
        bias=("error", "median"), repeats_differ_by=("spread", "median"),
        noise_floor=("split_half", "mean"), by_the_peaks_alone=("peaks", "mean"),
    )  # fmt: skip
    shares = dict.fromkeys(told.columns[1:], "{:.1%}".format)
    worst = unions["standard_errors"].max()
    met = f"distinct experts: {len(unions)} unions, at most {worst:.1f} s.e. from the law"
    return f"{told.to_string(formatters=shares)}\n\n{met}"


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw measured and predicted target efficiency, a panel for each target and context."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    chosen = table[(table["quantity"] == "target_efficiency") & (table["routing_correlation"] == 0)]
    panels = chosen.groupby(["target", "context_length"])
    figure = Figure(figsize=(2.6 * len(panels), 2.6), dpi=200, layout="constrained")
    with rc_context({"font.size": 7}):
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for ax, ((name, context), part) in zip(axes, panels, strict=True):
            plots.closed_loop(part, ax).label_outer()
            if ax is not axes[-1]:
                ax.get_legend().remove()
            ax.text(0.03, 0.03, f"{name}\ncontext {context}", transform=ax.transAxes)
        figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("profile", help="hardware profile that specmodel calibrate wrote")
    parser.add_argument("--device", choices=["cpu", "cuda", "xpu", "mps"], default="cpu")
    parser.add_argument(
        "--weight-dtype", action="append", metavar="DTYPE",
        help="of targets, such as int8 or fp8; repeatable (default: bf16)",
    )  # fmt: skip
    parser.add_argument("--stack", default="torch", help="whose kernels (default: torch)")
    parser.add_argument("--output", type=Path, help="folder for the results")
    parser.add_argument("--tiny", action="store_true", help="models of a few kilobytes")
    options = parser.parse_args(arguments)
    setting = SETTINGS["tiny" if options.tiny else "cpu" if options.device == "cpu" else "cuda"]
    device = torch.device(options.device)
    try:
        find_device(options.device)
        if options.output and find_spec("matplotlib") is None:
            expected = "matplotlib for its figure: pip install '.[plots]'"
            raise InputError("output", str(options.output), expected)
        if device.type == "cuda" and not has_grouped_kernel(device):
            raise InputError("device", "cuda", "a GPU with grouped products, Hopper or B200")
        setting = stored_in(setting, options.weight_dtype or ["bf16"], device)
        hardware = load_hardware(options.profile, "profile")
        for target in setting.targets:  # what cannot be predicted is said before it is timed
            deploy(target=target, hardware=hardware, drafter=setting.drafter, stack=options.stack)
    except InputError as error:
        parser.error(str(error))
    started = time.monotonic()
    with torch.inference_mode():
        measured, unions = measure(setting, device)
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        save(measured, options.output / "closed_loop.csv")
        save(unions, options.output / "closed_loop_unions.csv")
    table = predict(setting, hardware, options.stack, measured)
    print(f"{hardware.name}: {time.monotonic() - started:.0f} s\n\n{report(table, unions)}")
    if options.output:
        save(table, options.output / "closed_loop_summary.csv")
        draw(table, options.output / "closed_loop.png")


def save(table: pd.DataFrame, path: Path) -> None:
    write_text(path, table.to_csv(index=False, float_format="%.6g"))


if __name__ == "__main__":
    main()
