"""The simulator: policies over requests, on step times with luck, to records by request."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd

from specmodel.base.errors import InputError
from specmodel.replay.policies import CascadeSettings, Policy
from specmodel.replay.simulation.block import Block, replay_block
from specmodel.replay.simulation.chance import Variation
from specmodel.replay.simulation.choices import BEST_FIXED, Choice, choose
from specmodel.replay.simulation.makers import check_choice
from specmodel.replay.simulation.sources import Source, block_bounds
from specmodel.replay.simulation.times import ReplayTimes
from specmodel.replay.simulation.workers import spread
from specmodel.replay.traces import Trace

PolicyLike = str | CascadeSettings | Callable[..., Policy] | Choice
"""What `simulate` takes for a policy; see `choices.choose`."""


def simulate(
    source: Source,
    times: ReplayTimes,
    policies: Sequence[PolicyLike],
    *,
    seed: int,
    variation: Variation | None = None,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> pd.DataFrame:
    """Replay policies over requests at batch size 1.

    All policies meet the same requests and the same luck. A policy that learns starts anew with
    each request and sees what it would see in an engine: tokens and times, never the model.

    Parameters
    ----------
    source
        A trace, or a `Sample` of requests to draw.
    times
        Step times; drafts longer than recorded are left out.
    policies
        Names, settings of Cascade, or classes; see `choose`.
    seed
        Of all that is drawn; the same seed gives the same records on any number of workers [-].
    variation
        How much times vary, by default `Variation()`.
    workers
        Processes to work on it; policies must then be importable [-].
    progress
        Called with the requests done since it was called last [request].

    Returns
    -------
    pandas.DataFrame
        A row for each policy and request: policy (the best fixed one with its length), request,
        output_tokens, steps, test_steps, drafted_tokens, time,
        expected_time (without luck), plain_time (without speculation).

    Raises
    ------
    InputError
        If an argument or what a policy does cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> from specmodel.replay.traces import iid_process
    >>> from specmodel.replay.simulation import Sample
    >>> times = ReplayTimes(forward_time=1.0, paused_time=1.0, step_time=np.array([1.0, 1.5]),
    ...                     expert_time=np.zeros(2))
    >>> sample = Sample(processes=[iid_process(1.0, 1)], num_requests=2, output_tokens=100)
    >>> records = simulate(sample, times, ["none", "fixed:1"], seed=0)
    >>> records.groupby("policy", observed=True)["expected_time"].sum().tolist()
    [200.0, 150.0]
    """
    chosen = _chosen(policies)
    times = times.up_to(min(times.max_draft_length, source.max_draft_length))
    replayed = tuple(_with_all_fixed(chosen, times))
    for choice in replayed:
        check_choice(choice, times)
    blocks = list(make_blocks(source, times, variation or Variation(), seed))
    done: dict[int, dict[str, pd.DataFrame]] = {}
    work = partial(replay_block, choices=replayed)
    for block, tables in spread(work, blocks, workers):
        done[block.first] = tables
        if progress is not None:
            progress(block.last - block.first)
    return _joined(chosen, [done[first] for first in sorted(done)])


def make_blocks(
    source: Source, times: ReplayTimes, variation: Variation, seed: int
) -> Iterator[Block]:
    """Give the pieces of work.

    Parameters
    ----------
    source, times, variation, seed
        As for `simulate` [-].

    Yields
    ------
    Block
        In the order of the requests.
    """
    if seed < 0:
        raise InputError("seed", seed, "a whole number of at least 0")
    for i, (first, last) in enumerate(block_bounds(source)):
        yield Block(
            requests=source.part(first, last) if isinstance(source, Trace) else source,
            first=first,
            last=last,
            times=times,
            variation=variation,
            seed=seed,
            number=i,
        )


def _chosen(policies: Sequence[PolicyLike]) -> list[Choice]:
    chosen = [choose(policy) for policy in policies]
    names = [choice.name for choice in chosen]
    if not chosen:
        raise InputError("policies", [], "at least one policy")
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise InputError("policies", doubled, "each policy once")
    return chosen


def _with_all_fixed(chosen: Sequence[Choice], times: ReplayTimes) -> Iterator[Choice]:
    """Give all that is to be replayed: the best fixed length is known once all were."""
    names = {choice.name for choice in chosen}
    yield from (choice for choice in chosen if choice.name != BEST_FIXED)
    if BEST_FIXED in names:
        every = [f"fixed:{length}" for length in range(times.max_draft_length + 1)]
        yield from (choose(name) for name in every if name not in names)


def _joined(chosen: Sequence[Choice], blocks: Sequence[dict[str, pd.DataFrame]]) -> pd.DataFrame:
    names = {choice.name: choice.name for choice in chosen}
    if BEST_FIXED in names:
        names[BEST_FIXED] = min(
            (name for name in blocks[0] if name.startswith("fixed:")),
            key=lambda name: sum(float(block[name]["time"].sum()) for block in blocks),
        )
    tables = [block[name] for name in names.values() for block in blocks]
    records = pd.concat(tables, ignore_index=True)
    policies = np.repeat(np.arange(len(names)), len(records) // len(names))
    labels = [
        name.replace("fixed", label, 1) if label == BEST_FIXED else label
        for label, name in names.items()
    ]
    column = pd.Series(pd.Categorical.from_codes(policies, pd.Index(labels)))
    records.insert(0, "policy", column)
    return records
