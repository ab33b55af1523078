"""Evaluate Cascade again: 5 MoEs, 7 workloads, fixed draft lengths against the policy [1]_.

`cascade_suite` runs the evaluation, `suite_claims` compares our figures with those of the paper,
and `suite_terms` splits the speedups of fixed lengths into terms. The suite varies what the paper
does not state: how far tokens share experts, output lengths, the first draft length, the smallest
number of tokens that the look-up matches, and the texts. Nothing here is fitted to its results.

References
----------
.. [1] A. Saxena et al., "Utility-Driven Speculative Decoding for Mixture-of-Experts,"
   arXiv:2506.20675, 2025.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct
from msgspec.structs import replace

from answer_traces import answers_trace
from specmodel.core.base.units import check
from specmodel.core.cost.deploying import deploy
from specmodel.plan.sweeps.workers import results
from specmodel.simulate.policies import CascadeSettings
from specmodel.simulate.replays import simulate
from specmodel.simulate.sampling import TRACE, stream
from specmodel.simulate.times_alone import replay_times
from specmodel.simulate.traces import Trace, join_traces, load_preset, sample_trace

MODELS = {
    "mixtral-8x7b": "fp8",
    "phi-3.5-moe": "fp8",
    "olmoe-1b-7b": "fp8",
    "deepseek-moe-16b": "fp16",
    "qwen1.5-moe-a2.7b": "fp16",
}
"""Targets of the paper and the dtype of their weights."""

HARDWARE = "rtx_6000_ada"
DEFAULT_FIRST = CascadeSettings().first_draft_length

TASKS = {"code": "code-ngram", "math": "math-ngram", "extraction": "summaries-ngram"}
"""Preset for each task of the paper. HumanEval: edits of code, although look-up finds more in them.
GSM8K: itself, by another model. Extraction tasks of MT-Bench: summaries of news, which also copy
from the prompt."""

SHORT_SHARES = {"code": 0.88, "math": 0.79, "extraction": 0.89}
"""Share of output positions with a proposal if one last token is enough, counted in the traces that
the presets were fitted to [-]."""

LOST_SHARES = {"code": 0.16, "math": 0.10, "extraction": 0.10}
"""Share of the right proposals with 3 to 7 last tokens that a look-up with 1 to 3 tokens misses,
because the shorter run occurs elsewhere in the text before. Counted in texts of `recordings`: files
with a changed name for code, licences for the other tasks [-]."""

LOOK_UPS: dict[str, Sequence[float] | None] = {
    "1..3": (0.335, 0.185, 0.13, 0.09, 0.063, 0.044, 0.031),
    "3..7": None,
    "1..3 bound": (),
}
"""P(at least i tokens accepted) of the proposals that matches of one or two tokens add to those of
three, by the numbers of last tokens that are looked up [-]. Values for i = 1 to 3 are those of
exact look-ups in the same traces, in the middle of four tasks, and fall on in the same way. In the
worst case, no proposal is right. None if nothing is added."""

_ASKED = {"math": "gsm8k", "extraction": "mt_bench_extraction"}
ANSWERS = {
    "answers": {"code": "humaneval_chat", **_ASKED},
    "bare code": {"code": "humaneval_bare", **_ASKED},
}
"""Exact look-ups of 1 to 3 tokens in answers (`answer_traces`): by name, the trace of each task.
For code, these are HumanEval's own solutions, either after the repeated prompt, as in chats, or
bare."""

TEXTS = {
    "code, chat": ("answers", "code"),
    "code, bare": ("bare code", "code"),
    "math": ("answers", "math"),
    "extraction": ("answers", "extraction"),
}
"""Which look-up and task each kind of answers is found under."""

WORKLOADS = {
    "+".join(tasks): tasks for size in (1, 2, 3) for tasks in itertools.combinations(TASKS, size)
}
"""Tasks and their mixes, of equal parts."""

FIXED = ("fixed:1", "fixed:2", "fixed:3")
LONGEST_FIXED = "fixed:7"
"""The longest draft that the paper shows the cost of."""
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

PAPER = {
    "worst slowdown, fixed:1": "26",
    "worst slowdown, fixed:2": "38",
    "worst slowdown, fixed:3": "54",
    "worst slowdown, cascade": "5",
    "worst slowdown, no back-off": "14",
    "back-off cuts it, times": "2.8",
    "mean gain over fixed:1": "7-14",
    "mean gain over fixed:2": "7-14",
    "mean gain over fixed:3": "7-14",
    "pairs a fixed length slows": "18/35",
    "Mixtral code, cascade": "57",
    "Mixtral code, fixed:3": "39",
    "Mixtral math, best fixed": "< 0",
    "Mixtral extraction, best fixed": "< 0",
    "Mixtral, over best fixed": "18",
    "OLMoE, cascade": "29",
    "OLMoE, fixed:2": "31",
    "OLMoE, fixed:3": "33",
    "DeepSeekMoE, cascade": "1",
}
"""The paper's figures by claim, as quoted elsewhere, in % except for the cut and the pairs. A claim
about a target and a task is the gain of a policy on it; a claim about a target alone is the mean
gain over its seven workloads."""

WORST_FIXED = {n: float(PAPER[f"worst slowdown, fixed:{n}"]) / 100 for n in (1, 2, 3)}
"""The paper's worst slowdowns, by draft length [-]."""

SETTING = ["look_up", "routing_correlation", "output_tokens"]
"""What the paper leaves open of its runs."""


class SuiteSettings(Struct, frozen=True, kw_only=True):
    """What the suite runs: names in `LOOK_UPS` and `ANSWERS`, and all that the paper leaves open.

    ``first_draft_lengths`` are those of Cascade's very first trial; ``num_requests`` are of each
    task, and published answers are taken over and over and end after ``output_tokens`` at the
    latest; ``engine`` gives the overheads of the serving stack, on a host ``host_speed`` times as
    fast.
    """

    look_ups: Sequence[str] = (*LOOK_UPS, *ANSWERS)
    routing_correlations: Sequence[float] = (0.0, 0.18, 0.3)
    output_tokens: Sequence[int] = (256, 512, 1024)
    first_draft_lengths: Sequence[int] = (1, 2, 3)
    num_requests: int = 200
    context_length: int = 512
    engine: str = "vllm-moesd-2025"
    host_speed: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check("num_requests", self.num_requests, minimum=1, whole=True)
        check("seed", self.seed, minimum=0, whole=True)

    @property
    def centre(self) -> tuple[float, int]:
        """Middle of the routing correlations and of the output tokens that are run [-] [token]."""
        values = (self.routing_correlations, self.output_tokens)
        correlation, tokens = (sorted(each)[len(each) // 2] for each in values)
        return correlation, int(tokens)

    @property
    def num_cases(self) -> int:
        """Simulations to run [-]."""
        settings = (self.look_ups, self.routing_correlations, self.output_tokens)
        return len(MODELS) * math.prod(map(len, settings))


def cascade_suite(
    settings: SuiteSettings, *, workers: int = 1, progress: Callable[[int], None] | None = None
) -> pd.DataFrame:
    """Return how every policy did on every target and workload.

    A row for each look_up, routing_correlation, output_tokens, model, workload and policy, by the
    policy's name in `simulate`, with its speedup, slowdown, test_share, tokens_per_step and
    drafted_tokens_per_step. `progress` is called with the number of simulations done since its last
    call.
    """
    sums = list[pd.DataFrame]()
    for _, table in results(_cases(settings), _run, workers, processes=True):
        sums.append(table)
        if progress is not None:
            progress(1)
    keys, by_task = [*SETTING, "model", "policy"], pd.concat(sums)
    pooled = {
        workload: by_task[by_task["task"].isin(tasks)].groupby(keys).sum(numeric_only=True)
        for workload, tasks in WORKLOADS.items()
    }
    table = pd.concat(pooled, names=["workload"]).reset_index()
    speedup = table["plain_time"] / table["time"]
    return table[[*keys, "workload"]].assign(
        speedup=speedup,
        slowdown=np.maximum(0, 1 / speedup - 1),
        test_share=table["test_steps"] / table["steps"],
        tokens_per_step=table["emitted_tokens"] / table["steps"],
        drafted_tokens_per_step=table["drafted_tokens"] / table["steps"],
    )


def suite_policy(variant: str, first_draft_length: int) -> str:
    """Return the name of Cascade with a variant's settings and a first draft length [token]."""
    return f"cascade:first_draft_length={first_draft_length}{variant}"


def task_trace(
    task: str, look_up: str, num_requests: int, output_tokens: int, generator: np.random.Generator
) -> Trace:
    """Return requests of a task: published answers, or its preset with what shorter matches do.

    In a preset a position without a proposal gets one with the chance that makes their share that
    of the task.
    """
    if look_up in ANSWERS:
        return answers_trace(ANSWERS[look_up][task], num_requests, output_tokens)
    trace = sample_trace(load_preset(TASKS[task]), num_requests, output_tokens, generator)
    survival = LOOK_UPS[look_up]
    if survival is None:
        return trace
    proposed, accepted = trace.proposed_tokens.copy(), trace.accepted_tokens.copy()
    empty = np.flatnonzero(proposed == 0)
    chance = 1 - (1 - SHORT_SHARES[task]) * len(proposed) / max(len(empty), 1)
    found = empty[generator.random(len(empty)) < chance]
    proposed[found] = trace.max_draft_length
    accepted[generator.random(len(accepted)) < LOST_SHARES[task]] = 0
    ends = np.repeat(trace.starts + trace.output_tokens, trace.output_tokens)
    right = (generator.random(len(found))[:, None] < np.array(survival)).sum(axis=1)
    accepted[found] = np.minimum(right, ends[found] - found)
    return replace(trace, proposed_tokens=proposed, accepted_tokens=accepted)


def _cases(settings: SuiteSettings) -> Iterator[dict[str, Any]]:
    """Yield the arguments of `_run` for each simulation: a target at a setting, on all tasks."""
    longest = min(process.max_draft_length for process in map(load_preset, TASKS.values()))
    policies = ["none", *FIXED, LONGEST_FIXED]
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
            host_speed=settings.host_speed,
            routing_correlation=correlation,
        )
        times = replay_times(
            deployment,
            max_draft_length=min(CascadeSettings().max_draft_length, longest),
            context_length=settings.context_length,
        )
        for look_up, length in itertools.product(settings.look_ups, settings.output_tokens):
            extra = choices if (correlation, length) == settings.centre else []
            yield {
                "setting": dict(zip(SETTING, (look_up, correlation, length), strict=True)),
                "model": model,
                "times": times,
                "policies": list(dict.fromkeys([*policies, *extra])),
                "size": settings.num_requests,
                "seed": settings.seed,
            }


def _run(case: dict[str, Any]) -> pd.DataFrame:
    """Return sums by task and policy; the same seed gives all targets the same requests."""
    size, seed, setting = case["size"], case["seed"], case["setting"]
    tasks = [
        task_trace(task, setting["look_up"], size, setting["output_tokens"], stream(seed, TRACE, i))
        for i, task in enumerate(TASKS)
    ]
    trace = join_traces(tasks)
    records = simulate(trace, case["times"], case["policies"], seed=seed)
    records["task"] = np.array(list(TASKS))[records["request"] // size]
    names = ["time", "plain_time", "steps", "test_steps", "drafted_tokens"]
    sums = records.groupby(["policy", "task"], observed=True)[[*names, "output_tokens"]].sum()
    sums = sums.rename(columns={"output_tokens": "emitted_tokens"}).reset_index()
    return sums.assign(policy=sums["policy"].astype(str), model=case["model"], **setting)


def suite_claims(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return our figure for each claim of the paper, under every setting that it leaves open.

    A row for each look_up, routing_correlation, output_tokens and first_draft_length; a column for
    each claim of `PAPER` and three more variants. Shares are fractions, NaN where there is no
    slowdown to cut.
    """
    firsts = pairs["policy"].str.extract(r"first_draft_length=(\d+)")[0].dropna().unique()
    rows = []
    for setting, part in pairs.groupby(SETTING):
        speedup = part.pivot_table(
            index=["model", "workload"], columns="policy", values="speedup", observed=True
        )
        for first in sorted(map(int, firsts)):
            if not {suite_policy(variant, first) for variant in VARIANTS.values()} <= set(speedup):
                continue  # the default one, which `CHOICES` add at the centre only
            row = dict(zip(SETTING, setting, strict=True)) | {"first_draft_length": first}
            rows.append(row | _claims(speedup, first))
    return pd.DataFrame(rows)


def _claims(speedup: pd.DataFrame, first: int) -> dict[str, float]:
    """Return our figures by claim, from the speedup by model and workload, policy by policy."""
    fixed, own = [*FIXED], suite_policy("", first)
    slowdown: Any = (1 / speedup - 1).clip(lower=0)
    policies = {name: suite_policy(variant, first) for name, variant in VARIANTS.items()}
    worst = slowdown.max()
    mixtral: Any = speedup.loc["mixtral-8x7b"] - 1
    mean: Any = {model: speedup.loc[model].mean() - 1 for model in MODELS}
    best_fixed = mean["mixtral-8x7b"][fixed].max()
    return {
        **{f"worst slowdown, {name}": worst[name] for name in fixed},
        **{f"worst slowdown, {name}": worst[policy] for name, policy in policies.items()},
        "back-off cuts it, times": worst[policies["no back-off"]] / (worst[own] or np.nan),
        **{f"mean gain over {k}": (speedup[own] / speedup[k]).mean() - 1 for k in fixed},
        "pairs a fixed length slows": float(np.count_nonzero(slowdown[fixed].max(axis=1))),
        "Mixtral code, cascade": mixtral.loc["code", own],
        "Mixtral code, fixed:3": mixtral.loc["code", "fixed:3"],
        "Mixtral math, best fixed": mixtral.loc["math", fixed].max(),
        "Mixtral extraction, best fixed": mixtral.loc["extraction", fixed].max(),
        "Mixtral, over best fixed": (1 + mean["mixtral-8x7b"][own]) / (1 + best_fixed) - 1,
        "OLMoE, fixed:2": mean["olmoe-1b-7b"]["fixed:2"],
        "OLMoE, fixed:3": mean["olmoe-1b-7b"]["fixed:3"],
        "OLMoE, cascade": mean["olmoe-1b-7b"][own],
        "DeepSeekMoE, cascade": mean["deepseek-moe-16b"][own],
    }


def suite_terms(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return what fixed draft lengths gain and cost on each task, term by term.

    By look_up, routing_correlation, output_tokens, model, task and draft_length: proposing_steps,
    the share of steps with a proposal; tokens_per_step; relative_step_time, the mean cost of a step
    in plain ones; verify_cost, that of a step with a proposal; and the speedup, tokens per step
    over the mean cost.
    """
    is_fixed = pairs["policy"].isin([*FIXED, LONGEST_FIXED]) & pairs["workload"].isin([*TASKS])
    part = pairs[is_fixed].rename(columns={"workload": "task"})
    length = part["policy"].str.removeprefix("fixed:").astype(int)
    proposing = part["drafted_tokens_per_step"] / length
    cost = part["tokens_per_step"] / part["speedup"]
    return part[[*SETTING, "model", "task"]].assign(
        draft_length=length,
        proposing_steps=proposing,
        tokens_per_step=part["tokens_per_step"],
        relative_step_time=cost,
        verify_cost=1 + (cost - 1) / proposing,
        speedup=part["speedup"],
    )


def suite_choices(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return what each choice of ours in the policy does, at the settings where it was varied.

    By look_up and choice: worst slowdown over the 35 pairs, mean speedup and mean share of steps in
    tests.
    """
    names = {suite_policy(setting, DEFAULT_FIRST): name for name, setting in CHOICES.items()}
    everywhere = {suite_policy(variant, DEFAULT_FIRST) for variant in VARIANTS.values()}
    varied = pairs[pairs["policy"].isin(set(names) - everywhere)]
    part = pairs[pairs["policy"].isin(names)].merge(varied[SETTING].drop_duplicates())
    part = part.assign(choice=pd.Categorical(part["policy"].map(names), categories=list(CHOICES)))
    return (
        part.groupby(["look_up", "choice"], observed=True)
        .agg(
            worst_slowdown=("slowdown", "max"),
            mean_speedup=("speedup", "mean"),
            mean_test_share=("test_share", "mean"),
        )
        .reset_index()
    )
