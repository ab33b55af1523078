"""Cascade's evaluation, redone: 5 MoEs, 7 workloads, fixed draft lengths against the policy [1]_.

What the paper does not state is varied: how far tokens share experts, output lengths, the very
first draft length, and how few last tokens the look-up asks for. Nothing here was fitted to the
paper's results.

References
----------
.. [1] A. Saxena et al., "Utility-Driven Speculative Decoding for Mixture-of-Experts,"
   arXiv:2506.20675, 2025.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specmodel.base.units import check
from specmodel.cost.deploy import deploy
from specmodel.replay.policies import CascadeSettings
from specmodel.replay.simulation.run import simulate
from specmodel.replay.simulation.seeds import TRACE, stream
from specmodel.replay.simulation.times import ReplayTimes, replay_times
from specmodel.replay.simulation.workers import spread
from specmodel.replay.traces import AcceptanceProcess, join_traces, load_preset, sample_trace

MODELS = {
    "mixtral-8x7b": "fp8",
    "phi-3.5-moe": "fp8",
    "olmoe-1b-7b": "fp8",
    "deepseek-moe-16b": "fp16",
    "qwen1.5-moe-a2.7b": "fp16",
}
"""Targets of the paper and the dtype of their weights."""

HARDWARE = "rtx_6000_ada"
DEFAULT_FIRST = CascadeSettings.first_draft_length

TASKS = {"code": "code-ngram", "math": "math-ngram", "extraction": "summaries-ngram"}
"""Preset that stands for each task. HumanEval: edits of code, where look-up finds more. GSM8K:
itself, by another model. MT-Bench extraction: summaries of news, which copy from the prompt too."""

PROPOSAL_SHARES = {
    3: {"code": 0.63, "math": 0.28, "extraction": 0.44},
    1: {"code": 0.88, "math": 0.79, "extraction": 0.89},
}
"""Share of output positions with a proposal, by the fewest last tokens that are looked up, in the
traces that the presets were fitted to [-]."""

LOOK_UPS = {
    "3+": (3, ()),
    "1+": (1, (0.19, 0.09, 0.06, 0.04, 0.03)),
    "1+ bound": (1, ()),
}
"""Fewest last tokens that are looked up; and what is accepted of the proposals that one token adds
to those of three, P(at least i): as we measured it on licence texts, or nothing, the worst case."""

WORKLOADS = {
    "+".join(tasks): tasks for size in (1, 2, 3) for tasks in itertools.combinations(TASKS, size)
}
"""Tasks and their mixes, of equal parts."""

FIXED = ("fixed:1", "fixed:2", "fixed:3")
VARIANTS = {
    "cascade": "",
    "no back-off": ":backoff_factor=1",
    "no climb": ":climb=false",
    "no early exit": ":early_exit=false",
    "plain by climb": ":plain_competes=false",
}
"""The policy and its ablations."""

CHOICES = {
    "as it is": "",
    "longest draft 4": ":max_draft_length=4",
    "climb by 2": ":climb_step=2",
    "climb up first": ":first_direction=up",
    "climb down first": ":first_direction=down",
    "baseline of 8 iterations": ":baseline_iterations=8",
    "baseline every 50": ":baseline_interval=50",
    "baseline every 200": ":baseline_interval=200",
}
"""What the paper leaves open, one at a time."""

SETTING = ["look_up", "routing_correlation", "output_tokens"]
"""What the paper leaves open of its runs."""


@dataclass(frozen=True, kw_only=True)
class SuiteSettings:
    """What is run.

    Parameters
    ----------
    look_ups
        How the drafter looks up, of `LOOK_UPS`.
    routing_correlations
        How far tokens of a sequence share experts [-].
    output_tokens
        Output tokens of a request [token].
    first_draft_lengths
        Of Cascade's very first trial [token].
    num_requests
        Of each task [request].
    context_length
        KV entries before a step [token].
    engine
        Overheads of the serving stack.
    seed
        Of all that is drawn [-].
    """

    look_ups: Sequence[str] = tuple(LOOK_UPS)
    routing_correlations: Sequence[float] = (0.0, 0.18, 0.3)
    output_tokens: Sequence[int] = (256, 512, 1024)
    first_draft_lengths: Sequence[int] = (1, 2, 3)
    num_requests: int = 200
    context_length: int = 512
    engine: str = "vllm"
    seed: int = 0

    def __post_init__(self) -> None:
        check("num_requests", self.num_requests, minimum=1, whole=True)
        check("seed", self.seed, minimum=0, whole=True)

    @property
    def centre(self) -> tuple[float, int]:
        """Routing correlation and output tokens in the middle of those run [-] [token]."""
        values = (self.routing_correlations, self.output_tokens)
        correlation, tokens = (sorted(each)[len(each) // 2] for each in values)
        return correlation, int(tokens)

    @property
    def num_cases(self) -> int:
        """Simulations to run [-]."""
        settings = (self.look_ups, self.routing_correlations, self.output_tokens)
        return len(MODELS) * math.prod(map(len, settings))


@dataclass(frozen=True, kw_only=True)
class _Case:
    """One simulation: a target at a correlation, on all tasks at an output length and a look-up."""

    look_up: str
    model: str
    routing_correlation: float
    output_tokens: int
    times: ReplayTimes
    policies: Sequence[str]
    settings: SuiteSettings


def cascade_suite(
    settings: SuiteSettings,
    *,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> pd.DataFrame:
    """Return how every policy did on every target and workload.

    Parameters
    ----------
    settings
        What is run.
    workers
        Processes [-].
    progress
        Called with the simulations done since it was called last [-].

    Returns
    -------
    pandas.DataFrame
        A row for each look_up, routing_correlation, output_tokens, model, workload and policy:
        speedup, slowdown and test_share. Names of policies are those of `simulate`.
    """
    sums = []
    for _, table in spread(_run, list(_cases(settings)), workers):
        sums.append(table)
        if progress is not None:
            progress(1)
    keys = [*SETTING, "model", "policy"]
    by_task = pd.concat(sums)
    pairs = []
    for workload, tasks in WORKLOADS.items():
        pooled = (
            by_task[by_task["task"].isin(tasks)].groupby(keys, sort=True).sum(numeric_only=True)
        )
        pairs.append(pooled.reset_index().assign(workload=workload))
    table = pd.concat(pairs, ignore_index=True)
    speedup = table["plain_time"] / table["time"]
    return table[[*keys, "workload"]].assign(
        speedup=speedup,
        slowdown=np.maximum(0, 1 / speedup - 1),
        test_share=table["test_steps"] / table["steps"],
    )


def suite_policy(variant: str, first_draft_length: int) -> str:
    """Return the name of a policy of the suite.

    Parameters
    ----------
    variant
        Settings after the name of Cascade, a value of `VARIANTS` or `CHOICES`.
    first_draft_length
        Of its very first trial [token].

    Returns
    -------
    str
        As `simulate` takes it.
    """
    return f"cascade:first_draft_length={first_draft_length}{variant}"


def task_process(task: str, look_up: str) -> AcceptanceProcess:
    """Return the acceptance of a task.

    Parameters
    ----------
    task
        Of `TASKS`.
    look_up
        Of `LOOK_UPS`.

    Returns
    -------
    AcceptanceProcess
        The preset, with the proposals that shorter matches add.
    """
    preset = load_preset(TASKS[task])
    fewest, accepted = LOOK_UPS[look_up]
    share = PROPOSAL_SHARES[fewest][task]
    survival = np.array(preset.survival)
    survival[: len(accepted)] += (share - preset.proposal_share) * np.array(accepted)
    changes = {"proposal_share": share, "survival": survival.tolist()}
    return preset.with_changes("process", changes)


def _cases(settings: SuiteSettings) -> Iterator[_Case]:
    longest = min(process.max_draft_length for process in map(load_preset, TASKS.values()))
    policies = ["none", *FIXED]
    for first in settings.first_draft_lengths:
        policies += [suite_policy(variant, first) for variant in VARIANTS.values()]
    choices = [suite_policy(setting, DEFAULT_FIRST) for setting in CHOICES.values()]
    for correlation, model in itertools.product(settings.routing_correlations, MODELS):
        deployment, _ = deploy(
            target=model,
            weight_dtype=MODELS[model],
            hardware=HARDWARE,
            drafter="ngram",
            engine=settings.engine,
            routing_correlation=correlation,
        )
        times = replay_times(
            deployment,
            max_draft_length=min(CascadeSettings.max_draft_length, longest),
            context_length=settings.context_length,
        )
        for look_up, length in itertools.product(settings.look_ups, settings.output_tokens):
            extra = choices if (correlation, length) == settings.centre else []
            yield _Case(
                look_up=look_up,
                model=model,
                routing_correlation=correlation,
                output_tokens=length,
                times=times,
                policies=list(dict.fromkeys([*policies, *extra])),
                settings=settings,
            )


def _run(case: _Case) -> pd.DataFrame:
    """Return sums by task and policy; the same seed gives all targets the same requests."""
    size, seed = case.settings.num_requests, case.settings.seed
    trace = join_traces(
        [
            sample_trace(
                task_process(task, case.look_up), size, case.output_tokens, stream(seed, TRACE, i)
            )
            for i, task in enumerate(TASKS)
        ]
    )
    records = simulate(trace, case.times, case.policies, seed=seed)
    records["task"] = np.array(list(TASKS))[records["request"] // size]
    names = ["time", "plain_time", "steps", "test_steps"]
    sums = records.groupby(["policy", "task"], observed=True)[names].sum().reset_index()
    return sums.assign(
        policy=sums["policy"].astype(str),
        model=case.model,
        look_up=case.look_up,
        routing_correlation=case.routing_correlation,
        output_tokens=case.output_tokens,
    )
