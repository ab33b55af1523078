"""Replay policies over requests, or over one request step by step, and summarise the results."""

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray
from specmodel.plan.sweeps.workers import results
from specmodel.simulate.blocks import SERVERS, Work, make_blocks, replay_adapted, replay_blocks
from specmodel.simulate.choices import (
    BEST_FIXED,
    HINDSIGHT,
    Choice,
    PolicyLike,
    check_choice,
    choose,
    policy_maker,
)
from specmodel.simulate.feedback import Policies
from specmodel.simulate.policies.policy import is_number
from specmodel.simulate.sampling import Variation
from specmodel.simulate.sources import Source
from specmodel.simulate.times_alone import ReplayTimes

Row = dict[str, Any]
WINDOW = 16
"""Number of steps over which `window_utility` is averaged [-]."""
RESAMPLES = 1000
"""Resamples of the bootstrap [-]."""
GROUPS = 2000
"""Most groups of requests; the bootstrap resamples each group as a whole [-]."""
INTERVAL = (0.025, 0.975)
PERCENTILES = (50, 95, 99)
LOW = 5
"""Percentile of the speedups of requests that is reported [-]."""


def simulate(
    source: Source,
    times: ReplayTimes,
    policies: Sequence[PolicyLike],
    *,
    seed: int,
    variation: Variation | None = None,
    workers: int = 1,
    policy_state: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> pd.DataFrame:
    """Replay policies over requests at batch size 1.

    All policies have the same requests and the same noise. A policy that learns observes only what
    an engine would show it: tokens and times, never the model. Its state starts anew with each
    request, or one of eight servers, which receive requests in turn, keeps it. By default, each
    policy follows its source: servers keep the states of goodput and of SGLang's rule.

    Parameters
    ----------
    source, times, variation
        A trace, or a `Sample` of requests to draw. Step times; times of drafts longer than recorded
        are ignored. Variation of times, by default `Variation()`.
    policies
        Names or classes, as in `choices.choose`.
    seed, workers
        Seed of all draws, and number of processes, which does not change the records. With several
        processes, all policies must be importable [-].
    policy_state
        "request" or "server", for all policies that learn.
    progress
        Called with the number of requests done since the last call [request].

    Returns
    -------
    pandas.DataFrame
        A row for each policy and request: policy (the best fixed one with its length), request,
        output_tokens, steps, test_steps, drafted_tokens, time,
        expected_time (without noise), plain_time (without speculation).

    Examples
    --------
    >>> import numpy as np
    >>> from specmodel.simulate import Sample
    >>> from specmodel.simulate.traces import AcceptanceProcess
    >>> times = ReplayTimes(forward_time=1.0, paused_time=1.0, step_time=np.array([1.0, 1.5]),
    ...                     expert_time=np.zeros(2))
    >>> sample = Sample(processes=[AcceptanceProcess(name="all", survival=[1.0])],
    ...                 num_requests=2, output_tokens=100)
    >>> records = simulate(sample, times, ["none", "fixed:1"], seed=0)
    >>> records.groupby("policy", observed=True)["expected_time"].sum().tolist()
    [200.0, 150.0]
    """
    chosen = [choose(policy).kept_by(policy_state) for policy in policies]
    names = [choice.name for choice in chosen]
    if not chosen:
        raise InputError("policies", [], "at least one policy")
    if len({*names}) < len(names):
        raise InputError("policies", max(names, key=names.count), "each policy once")
    times = times.up_to(source.max_draft_length)
    replayed = [choice for choice in chosen if choice.name != BEST_FIXED]
    if BEST_FIXED in names:  # all lengths are replayed to find the best
        every = (f"fixed:{length}" for length in range(times.max_draft_length + 1))
        replayed += [choose(name) for name in every if name not in names]
    for choice in replayed:
        check_choice(choice, times)
    blocks = make_blocks(source, times, variation or Variation(), seed, len(replayed))
    # servers keep the state of a policy from block to block
    kept = [choice for choice in replayed if choice.state == "server"]
    others = [choice for choice in replayed if choice.state != "server"]
    pieces: list[Work] = [([block], others) for block in blocks if others]
    pieces += [(blocks, [choice]) for choice in kept]
    workers = min(workers, len(pieces))
    _check_workers(workers, replayed)
    tables: dict[str, list[pd.DataFrame]] = {choice.name: [] for choice in replayed}
    for (own, policies), found in results(pieces, replay_blocks, workers, processes=True):
        for name, table in found:
            tables[name].append(table)
        if progress is not None and policies[0] is pieces[0][1][0]:
            progress(sum(block.last - block.first for block in own))
    return _joined(chosen, tables)


def _check_workers(workers: int, policies: Sequence[Choice]) -> None:
    """Refuse several workers if a policy cannot be sent to other processes."""
    try:
        pickle.dumps(policies if workers > 1 else None)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        expected = f"1, as this policy cannot be sent to other processes ({error})"
        raise InputError("workers", workers, expected) from None


def assumed(policy: PolicyLike, policy_state: str | None = None) -> str:
    """Return the assumptions of a replay about a policy, as text.

    Parameters
    ----------
    policy, policy_state
        As in `simulate`.
    """
    choice = choose(policy).kept_by(policy_state)
    whose = {"request": "learned per request", "server": f"learned per server ({SERVERS} servers)"}
    learned = [whose[choice.state]] if choice.learns else []
    return "; ".join([*learned, *choice.notes])


def _joined(chosen: Sequence[Choice], tables: dict[str, list[pd.DataFrame]]) -> pd.DataFrame:
    """Return the records of all blocks, policy by policy."""
    names = {choice.name: choice.name for choice in chosen}
    if BEST_FIXED in names:
        names[BEST_FIXED] = min(
            (name for name in tables if name.startswith("fixed:")),
            key=lambda name: sum(float(table["time"].sum()) for table in tables[name]),
        )
    every = [table for name in names.values() for table in tables[name]]
    records = pd.concat(every, ignore_index=True)
    policies = np.repeat(np.arange(len(names)), len(records) // len(names))
    labels = [
        name.replace("fixed", label, 1) if label == BEST_FIXED else label
        for label, name in names.items()
    ]
    column = pd.Series(pd.Categorical.from_codes(policies, pd.Index(labels)))
    records.insert(0, "policy", column)
    return records


def timeline(
    source: Source,
    times: ReplayTimes,
    policy: PolicyLike,
    *,
    request: int,
    seed: int,
    variation: Variation | None = None,
    policy_state: str | None = None,
) -> pd.DataFrame:
    """Return the steps of one request, as `simulate` replays it with the same seed.

    Parameters
    ----------
    source, times, policy, request, seed, variation, policy_state
        As in `simulate`, and the index of the request [-].

    Returns
    -------
    pandas.DataFrame
        A row for each step: position, draft_length, drafted_tokens, emitted_tokens, step_time,
        phase (text) and utility (number) if the policy has them, and window_utility, the utility of
        the last 16 steps.
    """
    choice = choose(policy).kept_by(policy_state)
    if choice.name in HINDSIGHT:
        raise InputError("policy", choice.name, "a policy without hindsight, such as fixed:3")
    times = times.up_to(source.max_draft_length)
    check_choice(choice, times)
    blocks = make_blocks(source, times, variation or Variation(), seed)
    if not 0 <= request < blocks[-1].last:
        raise InputError("request", request, f"a number from 0 to {blocks[-1].last - 1}")
    steps: list[dict[str, Any]] = []
    servers = SERVERS if choice.state == "server" else 0
    # if a server keeps the policy, it has seen the server's earlier requests
    wanted = range(request % SERVERS if servers else request, request + 1, SERVERS)
    policies = Policies(policy_maker(choice, times.asked_time, seed), servers)
    for block in blocks:
        own = [number for number in wanted if block.first <= number < block.last]
        if own:
            steps.clear()
            replay_adapted(policies, block.draw(), pauses=choice.learns, numbers=own, log=steps)
    table = pd.DataFrame(steps)
    names = ("emitted_tokens", "step_time")
    tokens, seconds = (table[name].rolling(WINDOW).sum() for name in names)
    return table.assign(
        phase=table["phase"].map(str),
        utility=[float(value) if is_number(value) else np.nan for value in table["utility"]],
        window_utility=tokens * times.forward_time / seconds,
    )


def summarise(records: pd.DataFrame, generator: np.random.Generator) -> pd.DataFrame:
    """Return the figures of each policy over all requests.

    Parameters
    ----------
    records, generator
        A table from `simulate`, and the generator of the bootstrap's draws.

    Returns
    -------
    pandas.DataFrame
        A row for each policy. The 95 % interval of speedup (speedup_low, speedup_high) is a
        bootstrap over requests; it is too wide for drawn requests, because these are stratified.
        Figures of single requests are mean_speedup, speedup_p5 (the 5th percentile), worst_speedup
        and worst_request, and percentiles of tpot. Others are slowdown, tokens_per_step,
        drafted_tokens_per_step and test_share, the share of steps in tests. With the oracle, regret
        is the share by which the expected time exceeds the oracle's. It may be negative without
        speculation, which has no upkeep. time_over_best is the time divided by that of the fastest
        policy without hindsight. Its 95 % interval (time_over_best_low, time_over_best_high)
        resamples the same requests for both policies. Policies with hindsight have none.
    """
    oracle = records.loc[records["policy"] == "oracle", "expected_time"].sum()
    rows = []
    for policy, own in records.groupby("policy", observed=True, sort=False):
        time, plain = own["time"].sum(), own["plain_time"].sum()
        steps, speedup = own["steps"].sum(), plain / time
        low, high = _interval(own["plain_time"], own["time"], generator)
        tpot = np.percentile(own["time"] / own["output_tokens"], PERCENTILES)
        single = (own["plain_time"] / own["time"]).to_numpy()
        rows.append(
            {
                "policy": str(policy),
                "requests": len(own),
                "output_tokens": own["output_tokens"].sum(),
                "steps": steps,
                "speedup": speedup,
                "speedup_low": low,
                "speedup_high": high,
                "mean_speedup": single.mean(),
                "speedup_p5": np.percentile(single, LOW),
                "worst_speedup": single.min(),
                "worst_request": int(own["request"].iloc[int(single.argmin())]),
                "slowdown": max(0.0, 1 / speedup - 1),
                "tokens_per_step": own["output_tokens"].sum() / steps,
                "drafted_tokens_per_step": own["drafted_tokens"].sum() / steps,
                "test_share": own["test_steps"].sum() / steps,
                **{f"tpot_p{p}": t for p, t in zip(PERCENTILES, tpot, strict=True)},
                "regret": own["expected_time"].sum() / oracle - 1 if oracle else np.nan,
            }
        )
    return pd.DataFrame([row | _over_best(row, rows, records, generator) for row in rows])


def _over_best(
    row: Row, rows: Sequence[Row], records: pd.DataFrame, generator: np.random.Generator
) -> Row:
    """Return a policy's time divided by that of the best without hindsight, and its interval."""
    names = ("time_over_best", "time_over_best_low", "time_over_best_high")
    named = [other for other in rows if other["policy"].split(":")[0] not in HINDSIGHT]
    if row not in named:
        return dict.fromkeys(names, np.nan)
    best = max(named, key=lambda other: other["speedup"])
    both = (records[records["policy"] == each["policy"]] for each in (row, best))
    own, least = (each.set_index("request")["time"] for each in both)
    ends = _interval(own, least[own.index], generator)
    return dict(zip(names, (own.sum() / least.sum(), *ends), strict=True))


def _interval(over: pd.Series, under: pd.Series, generator: np.random.Generator) -> FloatArray:
    """Return the bootstrap interval of the ratio of two sums over the same requests [-].

    Many requests are resampled in groups, which is faster.
    """
    if len(over) == 1:
        return np.full(2, np.nan)
    group = np.arange(len(over)) % min(len(over), GROUPS)
    above, below = (np.bincount(group, values) for values in (over, under))
    counts = generator.multinomial(len(above), np.full(len(above), 1 / len(above)), RESAMPLES)
    return np.quantile((counts @ above) / (counts @ below), INTERVAL)
