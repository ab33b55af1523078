"""Fits in words: kernels and their errors; of an engine runs, what moved, and warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from specmodel.base.text import SCREEN, align, table_width, wrap
from specmodel.prediction.table import seconds

if TYPE_CHECKING:
    from specmodel.base.units import FloatArray
    from specmodel.cost.deployment import Deployment
    from specmodel.fit import EngineUpdate, KernelFitting
    from specmodel.fit.measured import Run
    from specmodel.fit.measured.tables import Served


def kernels_text(fits: Mapping[tuple[str, str], KernelFitting]) -> str:
    """Return fitted parameters, errors and warnings, a block for each kind and dtype."""
    blocks = []
    for (kind, dtype), fitting in fits.items():
        found = fitting.fit
        title = (
            f"{kind} {dtype}: {found.num_points} points fitted, {found.num_judged} judged: error "
            f"{found.mean_error:.1%} mean over shapes, {found.median_error:.1%} median, "
            f"{found.percentile_90_error:.1%} 90th percentile"
        )
        values = fitting.result.parameters | {"sharpness": found.sharpness}
        lines = [wrap(title), *(f"  {name} = {value:.4g}" for name, value in values.items())]
        lines += [wrap(f"  Warning: {warning}.") for warning in fitting.result.warnings]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def runs_table(runs: Sequence[Run], update: EngineUpdate) -> str:
    """Return each run's TPOT (or speedup) measured and predicted, before and after."""
    names = [Path(run.source).name for run in runs]
    tokens = [run.tokens_per_step if run.quantity == "step_time" else 1.0 for run in runs]

    def cells(values: FloatArray) -> list[str]:
        pairs = zip(runs, (values / tokens).tolist(), strict=True)
        return [seconds(x) if r.quantity == "step_time" else f"{x:.3f}" for r, x in pairs]

    is_tpot = all(run.quantity == "step_time" for run in runs)
    ratios, errors = update.measured / update.before, update.predicted / update.measured - 1
    made = [
        f"{run.tokens_per_step:.3g} of {run.draft_length}" if run.is_speculative else "1"
        for run in runs
    ]
    columns = [
        ("batch\nsize", [f"{run.batch_size:.3g}" for run in runs]),
        ("tokens\na step", made),
        ("TPOT\nmeasured" if is_tpot else "\nmeasured", cells(update.measured)),
        ("model\nbefore", cells(update.before)),
        ("meas./\nmodel", [f"{ratio:.2f}" for ratio in ratios]),
        ("model\nnow", cells(update.predicted)),
        ("\nerror", [f"{error:+.1%}" for error in errors]),
    ]
    room = max(SCREEN.get() - table_width(columns) - 2, 12)
    return align([("run", [_end_of(name, room) for name in names]), *columns], left=["run"])


def _end_of(name: str, room: int) -> str:
    return name if len(name) <= room else f"...{name[3 - room :]}"


def speedups_text(update: EngineUpdate, rows: Sequence[Served]) -> str:
    """Return the speedups of runs that draft beside plain ones of their load, a line each."""
    from specmodel.fit.steps import nearest_plain

    lines = []
    for place, row in enumerate(rows):
        plain = nearest_plain(row, rows) if row.points["draft_length"] else None
        if plain is not None and row.quantity != "speedup":
            told = [
                f"{times[plain] / times[place] * (row.tokens_per_step or 1.0):.2f}"
                for times in (update.measured, update.before, update.predicted)
            ]
            name = _end_of(Path(row.row).name, 30)
            lines.append("Speedup, {}: measured {}, model {} before, {} now.".format(name, *told))
    return "\n".join(lines)


def run_notes(runs: Sequence[Run], rows: Sequence[Served]) -> list[str]:
    """Return notes and warnings on single runs, and the noise between repeats, a line each."""
    notes = [f"Note: {run.batch_note}." for run in runs if run.batch_note]
    asking = "if it drafted, --drafter and --draft-length take it so"
    notes += [f"Warning: {run.draft_note}: {asking}." for run in runs if run.may_draft]
    if rows[0].deployment.get("drafter") and not any(run.is_speculative for run in runs):
        notes.append("Note: no run drafts, so that drafting stays as the profile has it.")
    known = sorted((row.noise, row.row) for row in rows if row.noise)
    if not known:
        return notes
    (middle, _), (most, worst) = known[len(known) // 2], known[-1]
    return [
        *notes,
        f"Noise: by how far repeats differ, a run is known to {middle:.1%} (at worst {most:.1%},"
        f" {Path(worst).name}), a speedup of two to {2**0.5 * middle:.1%}; noisy runs count less.",
    ]


def unlike_texts(update: EngineUpdate) -> list[str]:
    """Return notes on runs that no known host explains, or that overheads do not explain."""
    texts = []
    if update.is_unlike_known:
        per_request = float(update.profile.overheads.on_host().reject_time_per_request)
        texts.append(
            f"Note: {seconds(per_request)} for each request of a step with a draft explain these"
            " runs better than any host like known ones."
        )
    if excess := update.excess_speedup:
        how, takes = ("high", "longer") if excess > 0 else ("low", "shorter")
        texts.append(
            f"Warning: the fit predicts speedups of these runs {abs(excess):.0%} too {how}, more"
            " than errors of kernels and runs explain: on this server, steps with a draft are"
            f" {takes} than predicted, for a reason that is not modelled. Speedups at other loads"
            " may be as wrong."
        )
    return texts


def moved_text(update: EngineUpdate) -> str:
    """Return as text the parameters that the runs moved, and those left open."""
    told = [item for item in update.moved if not item.is_open]
    lines = ["What the runs moved, with 80 % intervals:"]
    rows = [
        ("", [f"  {item.name}" for item in told]),
        ("before", [_ends(item.name, item.before, item.spread_before) for item in told]),
        ("now", [_ends(item.name, item.after, item.spread_after) for item in told]),
    ]
    lines.append(align(rows, left=["", "before", "now"]) if told else "  nothing")
    left = ", ".join(
        f"{item.name} {_shown(item.name, item.after)}" for item in update.moved if item.is_open
    )
    lines += [wrap(text) for text in _slow_terms(update)]
    if left:
        start = "Left open: these runs do not tell what follows. Each is written at its likeliest"
        lines.append(wrap(f"{start} value, as uncertain as before (see list words): {left}."))
    return "\n".join(lines)


_TERMS = {
    "scheduling and sampling, by step": ("pass_time", "reject_time"),
    "scheduling and sampling, by request": ("reject_time_per_request",),
    "passes of the drafter": ("draft_pass_time",),
    "launches of kernels outside graphs": ("eager_kernel_time",),
    "the GPU's kernels": ("gpu_time_factor",),
}
"""What a step is made of, and the overheads and factors of each."""
_NOTABLE = 1.2


def _slow_terms(update: EngineUpdate) -> list[str]:
    """Return a sentence on which terms of a step take longer, or less, on this server."""
    before, after = (
        {item.name: getattr(item, when) for item in update.moved} for when in ("before", "after")
    )
    speeds = after.get("host_speed", 1.0) / before.get("host_speed", 1.0)
    ratios = {}
    for words, names in _TERMS.items():
        if known := [name for name in names if name in after]:
            own = 1.0 if "gpu_time_factor" in known else speeds
            ratio = sum(after[n] for n in known) / sum(before[n] for n in known) / own
            if not 1 / _NOTABLE < ratio < _NOTABLE:
                ratios[words] = ratio
    told = [f"{words} ({ratio:.2g} times)" for words, ratio in ratios.items()]
    return [f"Beside the engine as shipped, this server differs in {', '.join(told)}."] * bool(told)


def _ends(name: str, value: float, spread: float) -> str:
    """Return a value and its central 80 % interval."""
    from math import exp

    from specmodel.base.units import NORMAL_80

    end = exp(NORMAL_80 * spread)
    low, high = _shown(name, value / end), _shown(name, value * end)
    return f"{_shown(name, value)} ({low} to {high})"


def _shown(name: str, value: float) -> str:
    """Return an overhead as a time, a factor as a number."""
    is_time = name.endswith("time") or "_per_" in name
    return seconds(value) if is_time else f"{value:.2f}"


_CAUSES = {
    True: (
        "fewer or slower GPUs, or another layout, than {gpus}{count}",
        "weights of more bits than {dtype}{model}",
        "no CUDA graphs (--enforce-eager), or a busy machine",
        "TPOT with the prompts in it: it is mean_tpot_ms, not duration over tokens",
    ),
    False: (
        "more or faster GPUs than {gpus}{count}",
        "weights of fewer bits than {dtype}{model}",
        "a smaller model than {target}",
        "a run called plain that drafted too",
    ),
}
"""Why runs take longer than predicted (True) or less, the likeliest first."""
_COUNTS = (1, 2, 4, 8)
_NEAR = 0.15  # logarithm of times over those predicted, below which GPUs may be those that ran [-]
_WIDE = ("bf16", "fp16", "fp32")  # dtypes than which hardly any weights are wider


def fit_warnings_text(
    update: EngineUpdate, deployment: Deployment, runs: Sequence[Run], rows: Sequence[Served]
) -> str:
    """Return the warning about an unlikely fit with its likely causes; "" without a warning."""
    if not update.fit_warnings:
        return ""
    first, target = update.fit_warnings[0], deployment.target
    who = "no server seems able to make these runs" if first.is_refused else "like no known host"
    wider = f" The fit counts as {update.widened:.1f} times as uncertain."
    text = f"Warning: {who}: {first.found}, expected {first.expected}."
    named = ", ".join(dict.fromkeys(run.model for run in runs if run.model))
    facts = {
        "gpus": f"{deployment.layout.num_gpus} x {deployment.hardware.name}",
        "count": _count_that_fits(rows),
        "dtype": target.expert_dtype or target.weight_dtype,
        "model": f" (the files name {named})" if named else "",
        "target": target.name,
    }
    longer = "longer" if first.is_slow else "shorter"
    lines = [wrap(text + ("" if first.is_refused else wider)), f"Likely causes of {longer} times:"]
    for cause in _CAUSES[first.is_slow]:
        if not (first.is_slow and "{dtype}" in cause and facts["dtype"] in _WIDE):
            lines.append(wrap(f"- {cause.format(**facts)}", "  "))
    return "\n".join(lines)


def _count_that_fits(rows: Sequence[Served]) -> str:
    """Return as text a number of GPUs on which a known host matches the runs; "" for none."""
    import numpy as np

    from specmodel.base.errors import InputError
    from specmodel.fit.steps import measured_steps
    from specmodel.machines.engine import load_engine

    overheads = load_engine(rows[0].deployment["engine"]).overheads
    for count in _COUNTS:
        degrees = {"tensor_parallel": count, "data_parallel": 1, "expert_parallel": 1}
        own = [replace(row, deployment={**row.deployment, **degrees}) for row in rows]
        try:
            steps = measured_steps(own)
        except InputError:  # the model cannot be cut so
            continue
        ratios = steps.measured / steps.predicted(overheads)
        if np.abs(np.log(ratios)).max() < _NEAR and not steps.is_ratio.any():
            low, high = ratios.min(), ratios.max()
            return f"; on {count}, {low:.2f} to {high:.2f} times what is predicted"
    return ""
