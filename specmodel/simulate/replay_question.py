"""Resolve a question about policies: the requests to replay, and the times of their steps.

The command and Python both use this module. An argument that is not given has its usual value,
which is listed as an assumption.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Required, TypedDict, Unpack

import numpy as np
import pandas as pd
from msgspec import Struct, field
from msgspec.structs import replace

from specmodel.core.base.errors import InputError, given, refuse_given, refuse_unknown
from specmodel.core.base.notes import Note
from specmodel.core.base.text import Viewed
from specmodel.core.cost.arguments import RunArguments, WhatIfArguments
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.layouts import HELD
from specmodel.core.cost.memory import MemoryUse
from specmodel.core.cost.usual import deployed
from specmodel.core.cost.where import ARGUMENTS, NAMES, USUAL, Manner, Where, where_of
from specmodel.core.drafters.passes import Drafter
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.models.architecture import Architecture
from specmodel.core.prediction.cautions import notes_of_run
from specmodel.simulate.choices import choose
from specmodel.simulate.policies.sglang import METHODS
from specmodel.simulate.replays import assumed as assumed_of, simulate, summarise
from specmodel.simulate.sampling import Variation
from specmodel.simulate.sources import Sample, Source, named_requests
from specmodel.simulate.times_alone import (
    DEFAULT_DRAFTER_UPKEEP,
    ReplayTimes,
    read_replay_times,
    replay_times,
)
from specmodel.simulate.traces import Trace

LONGEST_REPLAYED = 7
"""Default longest draft that policies may choose, as in Cascade's paper [token]."""
DEFAULT_CONTEXT_LENGTH = 1024
VARIATION = Variation.__struct_fields__


class _OfReplays(TypedDict, total=False):
    """Arguments of a replay, without those of the deployment."""

    step_times: str | Path | None
    trace: Required[Trace | str]
    requests: int | None
    output_tokens: int | None
    max_draft_length: int | None
    context_length: int | None
    drafter_upkeep: float | None
    timing_noise: float | None
    request_expert_spread: float | None
    step_expert_spread: float | None
    fixed_context: bool | None
    policies: Sequence[str] | str | None
    policy_state: str | None
    seed: int | None


class ReplayArguments(RunArguments, WhatIfArguments, _OfReplays, total=False):
    """Arguments of `replayed`, with those of `RunArguments` and `WhatIfArguments`.

    Parameters
    ----------
    drafter
        The drafter, as in `specmodel.predict`.
    step_times
        A file of measured step times, instead of a model and a GPU.
    trace, requests, output_tokens
        A trace, its file, or a preset. From a preset, so many requests [request] with so many
        output tokens [token] are drawn.
    max_draft_length, context_length, fixed_context
        Longest draft to consider, 7 by default; KV entries before the first step [token]; and
        whether their number stays fixed.
    drafter_upkeep
        Time that a model drafter adds to a step without a draft, as a share of the step [-].
    timing_noise, request_expert_spread, step_expert_spread
        As in `Variation` [-].
    policies, policy_state
        Policies by name, and who keeps their states, as in `simulate`.
    seed
        Seed of all random draws [-].
    """

    drafter: Drafter | Architecture | str | Path | None


OF_REPLAYS = tuple(_OfReplays.__annotations__)
"""Arguments of a replay, in addition to those of a deployment."""


class Replayed(Viewed, Struct, frozen=True, kw_only=True, eq=False):
    """The resolved question of `replayed`, and the results of each policy on the same requests.

    Parameters
    ----------
    source, requests
        The requests, and their name.
    times, deployment
        Times of steps, and the deployment, None if the times were given.
    policies, sampling
        Names of policies, and settings of the draws, as in `simulate`.
    assumed, warnings
        Assumptions by argument, and warnings.
    fits, heading
        Whether a request fits in memory, None if unknown; text to show instead of a deployment.
    records, summary
        Tables with a row for each policy and request, and for each policy; empty before the replay.
    """

    room = "simulated:replay"

    source: Source
    requests: str
    times: ReplayTimes
    deployment: Deployment | None
    policies: Sequence[str]
    sampling: Mapping[str, Any]
    assumed: Mapping[str, Any]
    warnings: Sequence[Note | str]
    fits: bool | None = None
    heading: str = ""
    records: pd.DataFrame = field(default_factory=pd.DataFrame)
    summary: pd.DataFrame = field(default_factory=pd.DataFrame)

    def answered(
        self, *, workers: int = 1, progress: Callable[[int], None] | None = None
    ) -> Replayed:
        """Replay the requests under each policy; `progress` receives the count of requests done."""
        chosen = [choose(policy, Path.cwd()) for policy in self.policies]
        run = partial(simulate, self.source, self.times, chosen, workers=workers)
        records = run(progress=progress, **self.sampling)
        summary = summarise(records, np.random.default_rng(self.sampling["seed"]))
        assumed = [assumed_of(choice, self.sampling.get("policy_state")) for choice in chosen]
        return replace(self, records=records, summary=summary.assign(assumed=assumed))


def replayed(
    target: Architecture | str | Path | None = None,
    hardware: HardwareProfile | str | Path | None = None,
    *,
    workers: int = 1,
    **arguments: Unpack[ReplayArguments],
) -> Replayed:
    """Replay policies over an acceptance trace at batch size 1, as ``specmodel simulate`` does.

    Parameters
    ----------
    target, hardware
        Model and GPU, as in `specmodel.predict`; not needed with `step_times`.
    workers
        Number of processes [-].
    **arguments
        Arguments of `ReplayArguments`: the options of the command, as numbers or text.

    Examples
    --------
    >>> words = {"trace": "code-eagle", "requests": 20, "output_tokens": 64}
    >>> answer = replayed("qwen3-30b-a3b", "h200", policies=["none", "fixed:2"], **words)
    >>> answer.summary["policy"].tolist()
    ['none', 'fixed:2']
    """
    where = {"target": target, "hardware": hardware}
    return replay_question({**arguments, **where}).answered(workers=workers)


def replay_question(arguments: Mapping[str, Any], manner: Manner = USUAL) -> Replayed:
    """Return the question of the arguments of `replayed`, checked and not yet answered.

    `manner` is the manner of the question.
    """
    asked = given(arguments, arguments)
    refuse_unknown(asked, (*ARGUMENTS, *OF_REPLAYS))
    named = {name: value for name, value in asked.items() if name not in OF_REPLAYS}
    where = where_of(named, manner)
    if "trace" not in asked:
        raise InputError("trace", None, "a trace file or a preset (specmodel list presets)")
    sizes = given(asked, ("requests", "output_tokens"))
    source, requests, presets = named_requests(asked["trace"], sizes)
    if isinstance(source, Trace) and "context_length" in asked:
        source = replace(source, prompt_tokens=None)  # all begin with the given context
    found = _timed(asked, where, source)
    times, deployment = found["times"], found["deployment"]
    policies = asked.get("policies")
    if policies is None:
        fixed = (f"fixed:{k}" for k in range(1, min(3, times.max_draft_length) + 1))
        policies = ["none", *fixed, "best-fixed", "cascade", "oracle"]
    policies = policies.split(",") if isinstance(policies, str) else policies
    policies = [name.strip() for name in policies]
    warnings = [*found["warnings"], *_refusals(where, policies)]
    assumed = found["assumed"]
    if "max_draft_length" not in asked:
        assumed["max_draft_length"] = times.max_draft_length
    is_lookup = deployment and deployment.drafter.is_lookup
    others = [name for name in presets if name.endswith("-ngram") != is_lookup]
    if others and deployment:
        kind = "n-gram look-up" if is_lookup else "a model or head"
        warnings.append(f"the drafter is {kind}, but the acceptance is that of {', '.join(others)}")
    names, variation = VARIATION, Variation(**given(asked, VARIATION))
    if not times.expert_time.any():
        refuse_given(asked, names[1:], "No step time depends on experts. Remove it.")
        names = names[:1]
    assumed |= {name: getattr(variation, name) for name in names if name not in asked}
    sampling = {"seed": 0, **given(asked, ("seed", "policy_state")), "variation": variation}
    found |= {"warnings": warnings, "policies": policies, "sampling": sampling}
    return Replayed(source=source, requests=requests, **found)


def _refusals(where: Where, policies: Sequence[str]) -> list[str]:
    """Return why SGLang would not run its adaptive policy with this drafter or layout."""
    if not any(name.split(":")[0] == "sglang" for name in policies):
        return []
    reasons, drafter = [], where.named.get("drafter")
    if drafter is not None and drafter not in METHODS:
        reasons.append(f"it adapts only {', '.join(METHODS)}, not {drafter}")
    if (where.named.get("data_parallel") or 1) > 1:
        reasons.append("it does not adapt under data-parallel attention")
    return [f"SGLang would keep a static draft length: {reason}" for reason in reasons]


def _timed(asked: Mapping[str, Any], where: Where, source: Source) -> dict[str, Any]:
    """Return fields of the question that follow from the step times, such as the deployment."""
    own = {"context_length": DEFAULT_CONTEXT_LENGTH, "drafter_upkeep": DEFAULT_DRAFTER_UPKEEP}
    path = asked.get("step_times")
    if path is not None:
        for name in given(asked, (*NAMES, "num_gpus", "changes", *own, "fixed_context")):
            expected = f"This file has the step times, so `{name}` has no effect. Remove it."
            raise InputError("step_times", path, expected)
        times = read_replay_times(path)
        longest = _longest(asked, min(times.max_draft_length, source.max_draft_length))
        said = {"heading": f"Times of {Path(path).name}", "assumed": {}, "warnings": []}
        return said | {"times": times.up_to(longest), "deployment": None}
    for name in ("target", *([] if where.manner.is_drafting else ["drafter"]), "hardware"):
        if name not in asked:
            expected = "a name or path, or `step_times` instead of target, drafter and hardware"
            raise InputError(name, None, expected)
    deployment, assumed = deployed(where, (1, HELD[1]))
    if deployment.drafter.is_lookup:
        refuse_given(asked, ["drafter_upkeep"], "Only draft models and heads use this. Remove it.")
        del own["drafter_upkeep"]
        assumed.pop("proposal_rate", None)
    longest = _longest(asked, source.max_draft_length, deployment.drafter.block_size)
    own["context_length"] = start = asked.get("context_length", DEFAULT_CONTEXT_LENGTH)
    if asked.get("fixed_context"):
        growth = 0
    elif isinstance(source, Sample) or source.prompt_tokens is None:
        growth = int(np.max(source.output_tokens))
    else:
        own["context_length"] = start = int(source.prompt_tokens.min())
        growth = int((source.prompt_tokens + source.output_tokens).max()) - start
    values: dict[str, Any] = own | given(asked, own)
    times = replay_times(deployment, max_draft_length=longest, growth=growth, **values)
    assumed |= {name: value for name, value in own.items() if name not in asked}
    if growth:
        assumed["growth_of_context"] = growth
    memory = MemoryUse(deployment, values["context_length"] + growth, longest + 1)
    warnings = [
        *memory.warnings(np.ones(1), longest),
        *notes_of_run(deployment, values["context_length"]),
    ]
    found: dict[str, Any] = {"times": times, "deployment": deployment, "assumed": assumed}
    return found | {"warnings": warnings, "fits": bool(memory.max_batch_size >= 1)}


def _longest(asked: Mapping[str, Any], known: int, block: int | None = None) -> int:
    """Return the longest draft to consider, as given or as usual [token]."""
    longest, known = asked.get("max_draft_length"), min(known, block or known)
    if longest is None:
        return min(LONGEST_REPLAYED, known)
    if not 1 <= longest <= known:
        expected = f"1 to {known}; no longer draft has an acceptance and a step time"
        raise InputError("max_draft_length", longest, expected)
    return int(longest)
