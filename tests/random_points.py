"""Random deployments and operating points, and conditions that every one must meet.

From a shell: ``python tests/random_points.py SEED COUNT`` prints each violation on a line.
"""

import json
import sys
from pathlib import Path

import numpy as np

from specmodel import InputError, list_architectures, list_engines, list_hardware
from specmodel.core.cost import resolve
from specmodel.core.prediction import predict_deployed

AT_ONCE = 20
"""Points of each random deployment."""

NEWEST_GPUS = ("strix_halo", "a40", "arc_pro_b60", "arc_pro_b70", "gh200", "h200_nvl")
NEWEST_GPUS += ("mi350x", "r9700", "rtx_pro_5000", "rx_7900_xtx", "rtx_5060_ti", "rtx_5070_ti")
NEWEST_GPUS += ("rtx_4060_ti", "m2_ultra", "m3_max", "m3_ultra", "m4_max", "m5_max")
"""GPUs that are never drawn, so that a seed gives the same points as before they were added."""

ENGINES = [name for name in list_engines() if name != "llama.cpp"]
"""Engines whose times never fall if work grows; llama.cpp's do where it changes its kernels."""

SOMETIMES = json.loads((Path(__file__).parent / "data/random_points.json").read_text("utf-8"))
"""Arguments of some deployments: their values, and the probability that one is given [-]."""
CLOSE = 1e-12
LONGEST = 1e-9
"""Relative decrease that rounding may cause in a value that should not fall."""


def random_names(rng):
    """Return the names of a random deployment, which may be impossible."""

    def some(values, chance=1.0):
        return values[rng.integers(len(values))] if rng.random() < chance else None

    drafters = ["eagle", "eagle3", "mtp", "parallel", "llama-3.2-1b", "ngram", "ngram"]
    hardware = [name for name in list_hardware() if name not in NEWEST_GPUS]
    names = {"target": some(list_architectures()), "drafter": some(drafters)}
    names |= {"hardware": some(hardware), "engine": some(ENGINES, 0.6)}
    names |= {name: some(values, chance) for name, (values, chance) in SOMETIMES.items()}
    if names["drafter"] == "ngram":
        rates = [0.0, 0.01, float(rng.random()), 1.0]
        names |= {"proposal_rate": some(rates), "lookup_time": some([1e-5, 1e-3], 0.3)}
    return {name: value for name, value in names.items() if value is not None}


def random_deployment(rng):
    """Return the first random deployment that is possible, and its names."""
    while True:
        names = random_names(rng)
        try:
            return resolve(names)[0], names
        except InputError:
            continue


def random_points(rng):
    """Return random points, small and large ones."""
    return {
        "batch_size": np.floor(2 ** rng.uniform(0, 11, AT_ONCE)),
        "draft_length": rng.integers(0, 11, AT_ONCE).astype(float),
        "context_length": np.floor(rng.integers(0, 2, AT_ONCE) * 2 ** rng.uniform(0, 17, AT_ONCE)),
        "acceptance": rng.choice([0.0, 1.0, *rng.random(8)], AT_ONCE),
    }


def violations(seed, count):
    """Yield the conditions that some of `count` random points violate."""
    rng = np.random.default_rng(seed)
    for _ in range(0, count, AT_ONCE):
        deployment, names = random_deployment(rng)
        points = random_points(rng)
        try:
            predict_deployed(deployment, {}, **points)
        except InputError:  # a drafter that cannot be cut over so many GPUs
            continue

        def at(**changes):
            return predict_deployed(deployment, {}, **(points | changes))  # noqa: B023 - called within this round

        here = at()
        for name, holds in {
            **roofs(here),
            **identities(here),
            **monotone(here, at, points),
            **limits(here, at),
            "scalar equals array": equals_scalars(here, at, points),
        }.items():
            for i in np.flatnonzero(~np.broadcast_to(holds, AT_ONCE)):
                point = {n: float(v[i]) for n, v in points.items()}
                yield f"{name}: {names} {point}"


def same(a, b, relative=CLOSE):
    """Return whether two arrays agree up to rounding, for each element."""
    return np.isclose(a, b, rtol=relative, atol=0, equal_nan=True)


def identities(p):
    """Return the points at which columns satisfy their definitions."""
    gamma, batch, capacity = p.draft_length, p.batch_size, p.evaluation.memory.capacity_bytes
    plain, step = p.forward_time, p.step_time
    growth, takes_turns = p.times.growth_by_cause(), p.evaluation.at_once is not None
    total = np.broadcast_to(sum(growth.values()), gamma.shape)
    may_lack = ("break_even_acceptance_rate", "max_graph_batch_size")
    known = [name for name in p.units() if not name.startswith(may_lack)]
    finite = [np.isfinite(p.values[name]) for name in known]
    return {
        "utility is speedup": p.utility == p.speedup,
        "speedup": same(p.speedup, p.tokens_per_step * plain / step),
        "step is its parts": same(step, p.draft_time + p.verify_time + p.reject_time),
        "tpot": same(p.tpot, step / p.tokens_per_step),
        "throughput": same(p.throughput * p.tpot, batch),
        "efficiency": same(p.target_efficiency, np.minimum(plain / p.verify_time, 1)),
        "step efficiency": same(p.step_efficiency * (gamma + 1), p.tokens_per_step),
        "causes sum": np.isclose(total, step - plain, rtol=0, atol=1e-9 * step) | takes_turns,
        "tokens from 1": p.tokens_per_step >= 1,
        "tokens to all": p.tokens_per_step <= (gamma + 1) * (1 + CLOSE),
        "times above 0": (plain > 0) & (step > 0) & (p.verify_time > 0),
        "finite": np.all(finite, axis=0),
        "best is of those considered": (p.best_draft_length >= 0) & (p.best_draft_length <= 10),
        "fits as told": (p.max_batch_size >= batch) == (p.memory_bytes <= capacity),
    }


def roofs(p):
    """Return the points at which no pass or component is faster than its bytes and its arithmetic
    allow.

    Activations may stay in a cache between kernels, so they give no lower bound for a component. A
    component on a second stream may be hidden, so its own time is compared.
    """
    hardware, least = p.deployment.hardware, 1 - 1e-9
    bandwidth, kernels = hardware.memory.peak_bytes_per_s, p.deployment.kernels
    found = {}
    for label, time in p.evaluation.passes.items():
        read = moved = computed = spent = 0.0
        for name, part in time.work().components.items():
            took = time.components[name]
            dtype = kernels.arithmetic(part.kind, part.stored_dtype, part.dtype)
            flop = part.flop / hardware.peak_flops_per_s(dtype)
            read = (part.weight_bytes + part.cache_bytes) / bandwidth
            moved = moved + read + part.activation_bytes / bandwidth
            computed, spent = computed + flop, spent + took.total_time
            found[f"{label}, {name} by bytes"] = took.own_time >= read * least
            found[f"{label}, {name} by arithmetic"] = took.own_time >= flop * least
            is_beside = bool(part.beside)
            found[f"{label}, {name} hides behind others"] = (took.hidden_time == 0) | is_beside
        found[f"{label} by bytes"] = time.gpu_time >= moved * least
        found[f"{label} by arithmetic"] = time.gpu_time >= computed * least
        found[f"{label} is its components"] = same(time.gpu_time, spent, 1e-9)
    return found


def limits(p, at):
    """Return the points at which special cases are exact."""
    none = at(draft_length=0)
    sure = at(acceptance=1.0)
    rate, needed = p.deployment.drafter.proposal_rate, p.break_even_acceptance_rate
    breaks_even = at(acceptance=np.nan_to_num(needed)).speedup
    is_idle = p.deployment.runs_idle_drafter  # then a best length of 0 says that none is loaded
    takes_turns = is_idle and none.evaluation.at_once is not None  # for room that it takes
    best_speedup = at(draft_length=p.best_draft_length).speedup
    best_speedup = np.where(p.best_draft_length == 0, 1.0, best_speedup)
    return {
        "breaks even": np.where(needed > 0, same(breaks_even, 1, 1e-9), True),
        "pays from 0 on": np.where(needed == 0, breaks_even >= 1, True),
        "never pays": ~np.isnan(needed) | (p.draft_length == 0) | (sure.speedup <= 1 + CLOSE),
        # of lengths that fit, where recurrent states of longer ones do not
        "best is best": (best_speedup >= p.speedup * (1 - CLOSE)) | ~p.fits,
        "no draft, speedup 1": none.speedup < 1 if is_idle else none.speedup == 1,
        "no draft, one token": none.tokens_per_step == 1,
        "no draft, decode step": (is_idle | (none.step_time == none.forward_time))
        & (takes_turns | (none.verify_time == none.forward_time))
        & (takes_turns | (none.target_efficiency == 1)),
        "no draft, no cause": none.limited_by == "none",
        "all accepted": same(sure.tokens_per_step, 1 + rate * p.draft_length),
        "none accepted": at(acceptance=0.0).tokens_per_step == 1,
    }


def monotone(p, at, points):
    """Return the points at which more work takes no less time, and better drafts gain no less."""

    def grows(more, name):
        return more.values[name] >= p.values[name] * (1 - LONGEST)

    batch = at(batch_size=points["batch_size"] + 1)
    context = at(context_length=points["context_length"] + 64)
    longer = at(draft_length=points["draft_length"] + 1)
    better = at(acceptance=np.minimum(points["acceptance"] + 0.01, 1))
    found = {"speedup by acceptance": grows(better, "speedup")}
    for how, more in (("batch", batch), ("context", context), ("draft", longer)):
        names = ["forward_time", "step_time", "memory_bytes"]
        names += ["active_experts", "active_experts_verify", "tokens_per_step"]
        if p.deployment.engine.hides_host == "none":  # elsewhere a longer step hides more of these
            names += ["verify_time", "draft_time", "reject_time"]
        found |= {f"{name} by {how}": grows(more, name) for name in names}
    # past the CUDA graphs, the GPU hides a little more of what an idle drafter has the host do
    is_idle = p.values["draft_length"] == 0
    nearly = context.values["step_time"] >= p.values["step_time"] * (1 - 1e-3)
    found["step_time by context"] |= is_idle & nearly
    return found


def equals_scalars(p, at, points):
    """Return the points that give the same numbers alone as among others.

    Powers of a single number and of an array may differ in the last digit.
    """
    holds = np.ones(AT_ONCE, dtype=bool)
    for i in range(0, AT_ONCE, 7):
        alone = at(**{name: float(values[i]) for name, values in points.items()})
        holds[i] = all(
            np.allclose(values[i], alone.values[name], rtol=1e-12, atol=0, equal_nan=True)
            if values.dtype.kind == "f"
            else np.array_equal(values[i], alone.values[name])
            for name, values in p.values.items()
        )
    return holds


if __name__ == "__main__":
    for violation in violations(int(sys.argv[1]), int(sys.argv[2])):
        print(violation, flush=True)
