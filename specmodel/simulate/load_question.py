"""Resolve a question about a load: the requests, their server, and the policies.

The command and Python both use this module. An argument that is not given has its usual value,
which is listed as an assumption.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from specmodel.core.base.errors import InputError, given, refuse_given
from specmodel.core.base.ranges import parse_numbers, parse_values, whole_of
from specmodel.core.base.text import Viewed
from specmodel.core.base.units import LARGEST_PRICE, check, parse_seconds
from specmodel.core.cost.where import USUAL, Manner
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.models.architecture import Architecture
from specmodel.core.prediction.accepted import ACCEPTANCE
from specmodel.core.prediction.case import Case, case_of
from specmodel.simulate.arguments import (
    DrainArguments,
    LimitArguments,
    LoadArguments,
    SearchArguments,
    TrafficArguments,
)
from specmodel.simulate.capacity import Targets
from specmodel.simulate.carried import check_alone, largest_rates
from specmodel.simulate.drains import Drain, drain_of, drained, usual_policies
from specmodel.simulate.lengths import lengths_asked
from specmodel.simulate.machine_code import has_numba
from specmodel.simulate.requests import MOST_REQUESTS, MOST_VARIATION, Arrivals, Lengths, Requests
from specmodel.simulate.sampling import TRACE, stream
from specmodel.simulate.sources import named_requests
from specmodel.simulate.study import Row, Study, under_load
from specmodel.simulate.traces import Trace, join_traces, sample_trace
from specmodel.simulate.trial import RUNS, Trial

LIMITS = tuple(LimitArguments.__annotations__)
OF_SEARCH = tuple(SearchArguments.__annotations__)
FOR_LARGEST = (
    "Only a search for the highest rate uses this: give `tpot_target`, no rates and no users."
)
OF_DRAINS = tuple(DrainArguments.__annotations__)
_OF_TRACE = "The acceptance comes from `trace`. Remove one of the two."
_OF_ARRIVALS = ("request_rate", "users", "arrivals", "requests", "tpot_target", "ttft_target")
"""Arguments that a drain refuses."""
_OF_STUDY = ("seed", "policy_state", "prefix_hit_rate", "shared_prefix", "acceptance_by_request")
"""Arguments that become fields of the study unchanged."""
OF_LOADS = (*TrafficArguments.__annotations__, "prefill", "gpu_hour_price")
"""Arguments of a load, in addition to those of a case."""

_USUAL = 3
"""Draft length to compare if none is given, and the longest with a trace [token]."""
_TTFT, _SHARE = 1.0, 0.9
"""Default target of TTFT [s], and the default share of requests that should meet targets [-]."""
_DRAWN, _DRAWN_TOKENS = 500, 1000
"""Requests drawn from each preset of acceptance [request], and their tokens [token]."""


class Loaded(Viewed, Struct, frozen=True, kw_only=True, eq=False):
    """The resolved question of `load`, and the simulated answer.

    Parameters
    ----------
    study, policies
        The study, and its policies by name.
    targets
        Targets of TTFT and TPOT, None for no target [s].
    assumed, is_usual
        Assumed values by argument, and whether the policies are the default ones.
    costs
        The price and the total rate, if given.
    loads, trial, drain
        The loads to simulate. A search for the largest rate has a trial instead, and a question
        about a drain has the drain, whose study has the lengths of all answers.
    rows, tried
        A row for each load and policy. A search has a row for each policy, and in `tried` a row for
        each rate tried. Both are empty before the simulation.
    """

    room = "simulated:load"

    study: Study
    policies: Sequence[str]
    targets: tuple[float | None, float | None]
    assumed: Mapping[str, Any]
    is_usual: bool
    costs: Mapping[str, Any]
    loads: Sequence[Arrivals] = ()
    trial: Trial | None = None
    drain: Drain | None = None
    rows: list[Row] = field(default_factory=list)
    tried: Sequence[Row] = ()

    def answered(self, progress: Callable[[int], object] = lambda done: None, **how: Any) -> Loaded:
        """Return the load with its rows; `how` contains the arguments of `capacities`."""
        settings: dict[str, Any] = {**self.costs, "progress": progress}
        if self.trial is not None:
            rows, tried = largest_rates(self.trial, self.policies, **settings, **how)
            return replace(self, rows=rows, tried=tried)
        if self.drain is not None:
            return replace(self, rows=drained(self.drain, self.policies, **settings))
        rows = under_load(self.study, self.loads, self.policies, self.targets, **settings)
        return replace(self, rows=rows)


def load(
    target: Architecture | str | Path,
    hardware: HardwareProfile | str | Path,
    *,
    workers: int = 1,
    client: Any = None,
    **arguments: Unpack[LoadArguments],
) -> Loaded:
    """Simulate a server under load: the effect of request rates, or the largest rate.

    Parameters
    ----------
    target, hardware
        Model and GPU, as in `specmodel.predict`.
    workers, client
        Where a search runs, as in `capacities` [-].
    **arguments
        Arguments of `simulate.arguments.LoadArguments`: the options of the command, as numbers,
        lists or text. A target (`tpot_target`, `ttft_target` [s]) without `request_rate`
        [request/s] or `users` asks for the largest rate. With `drain`, so many prompts arrive at
        once, and the server answers them to the end [request].

    Examples
    --------
    >>> words = {"acceptance": 0.7, "requests": 50, "policy": "none,fixed:2"}
    >>> answer = load("qwen3-30b-a3b", "h200", request_rate=[1.0], **words)
    >>> [row["policy"] for row in answer.rows]
    ['none', 'fixed:2']
    """
    question = load_question({**arguments, "target": target, "hardware": hardware})
    return question.answered(workers=workers, client=client)


def load_question(arguments: Mapping[str, Any], manner: Manner = USUAL) -> Loaded:
    """Return the question of the arguments of `load`, checked and not yet answered.

    `manner` is the manner of the question.
    """
    options = given(arguments, arguments)
    of_case = {name: options.pop(name) for name in [*options] if name not in OF_LOADS}
    case = case_of(of_case, manner)
    targets, policies = _targets(options), _policies(options, case)
    costs = given(options, ("gpu_hour_price", "for_rate"))
    check("for_rate", costs.get("for_rate", 1.0), above=0)
    check("gpu_hour_price", costs.get("gpu_hour_price", 0.0), minimum=0, maximum=LARGEST_PRICE)
    is_usual = "policy" not in options
    fields: dict[str, Any] = {"costs": costs, "targets": targets, "is_usual": is_usual}
    if "drain" in options:
        expected = "With `drain`, all prompts are submitted at the start, so this has no effect."
        refuse_given(options, (*_OF_ARRIVALS, *OF_SEARCH), expected)
        study, fields["assumed"] = _study(options, case, policies)
        drain = drain_of(study, options["drain"], **given(options, OF_DRAINS))
        if isinstance(study.lengths, Requests):
            held, count = study.lengths.count, drain.study.num_requests
            taken = filter(None, (f"{count} of {held} in their order", study.lengths.reading))
            fields["assumed"] |= {"workload": ", ".join(taken)}
        fields["policies"] = usual_policies(drain) if is_usual else policies
        return Loaded(study=drain.study, drain=drain, **fields)
    refuse_given(options, OF_DRAINS, "This needs `drain`.")
    fields["policies"] = policies
    if not given(options, ("request_rate", "users")) and targets != (None, None):
        trial, fields["assumed"] = trial_of(case, options, policies)
        return Loaded(study=trial.study, trial=trial, **fields)
    study, fields["assumed"] = _study(options, case, policies)
    loads = _arrivals(options, study.lengths)
    refuse_given(options, OF_SEARCH, FOR_LARGEST)
    return Loaded(study=study, loads=loads, **fields)


def trial_of(
    case: Case, arguments: Mapping[str, Any], policies: Sequence[str], *, must_meet: bool = True
) -> tuple[Trial, dict[str, Any]]:
    """Return the `Trial` that searches for the largest rate, and the assumptions.

    `arguments` are those of the load. With `must_meet`, refuse targets that a single request misses
    under all policies.
    """
    options = given(arguments, arguments)
    others = ("request_rate", "users", "drain", *OF_DRAINS)
    refuse_given(options, others, "The highest rate is searched, so this has no effect.")
    (ttft, tpot), notes = _targets(options), dict[str, Any]()
    if ttft is None and tpot is not None:
        ttft, notes["ttft_target"] = _TTFT, f"{_TTFT:g}s"
    share = options.get("attainment")
    if share is None:
        share = notes["attainment"] = _SHARE
    targets = Targets(ttft=ttft, tpot=tpot, attainment=share)
    usual = dict(zip(("replications", "requests"), RUNS[has_numba()], strict=True))
    runs, requests = (usual | given(options, usual)).values()
    study, assumed = _study({**options, "requests": requests}, case, policies, is_drawn=True)
    notes["requests"] = f"{requests} and more, {runs} times"
    law = Arrivals(request_rate=1.0, **_law(options.get("arrivals")))
    is_coarse = not has_numba() and not given(options, usual)
    how = {"replications": runs, "arrivals": law, "is_coarse": is_coarse}
    trial = Trial(study=study, targets=targets, **how)
    if must_meet:
        check_alone(trial, policies, notes)
    return trial, assumed | notes


def _study(
    options: Mapping[str, Any], case: Case, policies: Sequence[str], *, is_drawn: bool = False
) -> tuple[Study, dict[str, Any]]:
    """Return the `Study`, and the assumptions; `is_drawn` draws from recorded lengths."""
    drafts = any(name != "none" for name in policies)
    longest = max(map(_length_of, policies))
    typed, seed, acceptance = case.max_draft_length, options.get("seed", 0), None
    assumed, trace = {**case.assumed}, _trace(options.get("trace"), seed)
    if trace is not None:
        refuse_given(case.accepted.form, ACCEPTANCE, _OF_TRACE)
        refuse_given(options, ("acceptance_by_request",), _OF_TRACE)
        longest = max(typed or _USUAL, longest) if drafts else longest
    elif drafts:
        are_open = (n != "none" and not _length_of(n) for n in policies)
        is_open = typed is None and any(are_open)
        longest = max(case.longest_draft() if is_open else typed or 1, longest)
        try:
            case.longest_draft(longest)
        except InputError as error:
            policy = max(policies, key=_length_of)
            if _length_of(policy) < longest:
                raise
            raise InputError("policy", policy, error.expected) from None
        assumed |= case.longest_told(longest) if is_open else {}
        acceptance = case.known_acceptance
        assumed |= {"acceptance": acceptance.source} if acceptance.source else {}
    positions = case.deployment.target.max_positions
    lengths, notes = lengths_asked({**case.points, **options}, positions, is_drawn=is_drawn)
    if given(options, ("shared_prefix",)):
        expected = "This has no effect with `shared_prefix`, which sets it."
        refuse_given(options, ("prefix_hit_rate",), expected)
    study = Study(
        deployment=case.deployment,
        acceptance=acceptance,
        max_draft_length=longest,
        lengths=lengths,
        is_redrawn=isinstance(lengths, Requests)
        and not is_drawn
        and bool(given(options, ("arrivals", "requests"))),
        num_requests=options.get("requests", getattr(lengths, "count", 2000)),
        limits=tuple(given(options, LIMITS).items()),
        trace=trace,
        prefill_servers=_servers(options.get("prefill")),
        **given(options, _OF_STUDY),
    )
    return study, assumed | notes | {"scheduling": "as vLLM 0.33"} | study.assumed


def _policies(options: Mapping[str, Any], case: Case) -> list[str]:
    """Return the given policies, or the usual ones: none, a fixed draft length and a schedule."""
    typed = options.get("policy")
    if typed is None:
        is_known = "trace" not in options
        longest = case.longest_draft() if is_known else case.max_draft_length or _USUAL
        typed = f"none,fixed:{min(longest, _USUAL)},schedule"
    policies = [name.strip() for name in (typed.split(",") if isinstance(typed, str) else typed)]
    if not policies or len({*policies}) < len(policies):
        raise InputError("policy", typed, "each policy once")
    return policies


def _length_of(policy: str) -> int:
    """Return the draft length of a policy with a single one, or else 0 [token]."""
    name, *numbers = policy.split(":")
    is_single = len(numbers) == {"fixed": 1, "below": 2}.get(name)
    return (is_single and whole_of(numbers[-1])) or 0


def _servers(text: str | None) -> int:
    """Return the number of prefill servers, 0 if the same server prefills and decodes [-]."""
    if text in (None, "together"):
        return 0
    name, _, number = str(text).partition(":")
    servers = whole_of(number) if name and "disaggregated".startswith(name) else None
    if not servers:
        raise InputError("prefill", text, "together, or disaggregated:N, such as disaggregated:2")
    return servers


def _trace(name: Trace | str | None, seed: int) -> Trace | None:
    """Return the trace, read from a file or drawn from presets."""
    if name is None:
        return None
    source, _, _ = named_requests(name, {})
    if isinstance(source, Trace):
        return source
    drawn = [
        sample_trace(process, _DRAWN, _DRAWN_TOKENS, stream(seed, TRACE, i))
        for i, process in enumerate(source.processes)
    ]
    return join_traces(drawn)


def _arrivals(options: Mapping[str, Any], lengths: Lengths | Requests) -> list[Arrivals]:
    """Return the loads to simulate."""
    law = _law(options.get("arrivals"))
    users, rates = options.get("users"), options.get("request_rate")
    if users is not None:
        expected = "Give either this or `users`, not both."
        refuse_given(options, ("request_rate", "arrivals"), expected)
        users = parse_values("users", users) if isinstance(users, str) else np.ravel(users)
        check("users", users, minimum=1, whole=True)
        return [Arrivals(users=int(n)) for n in users]
    if rates is not None:
        rates = parse_numbers("request_rate", rates) if isinstance(rates, str) else np.ravel(rates)
    elif isinstance(lengths, Requests):
        rates = [lengths.rate]
        if not 0 < rates[0] <= 1e6:
            expected = "These requests have no different arrival times. Add `request_rate`."
            raise InputError("workload", str(options["workload"]), expected)
    else:
        expected = (
            "requests per second such as 1,2,4, `users`, or `tpot_target` for the highest rate"
        )
        raise InputError("request_rate", None, expected)
    check("request_rate", rates, above=0, maximum=1e6)
    return [Arrivals(request_rate=float(rate), **law) for rate in rates]


def _law(text: str | None) -> dict[str, Any]:
    """Return the fields of `Arrivals` for a law: poisson, gamma:2 or bursts:8."""
    if text in (None, "poisson"):
        return {}
    name, _, number = text.partition(":")
    with suppress(ValueError):
        if name == "gamma" and 0 < float(number) <= MOST_VARIATION:
            return {"process": name, "variation": float(number)}
        if name == "bursts" and 1 <= int(number) <= MOST_REQUESTS:
            return {"process": name, "burst": int(number)}
    expected = f"poisson, gamma:CV such as gamma:2 (at most {MOST_VARIATION}), or bursts:N"
    raise InputError("arrivals", text, expected)


def _targets(options: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the targets of TTFT and TPOT, None if not given [s]."""
    typed = {name: options.get(name) for name in ("ttft_target", "tpot_target")}
    ttft, tpot = (None if v is None else parse_seconds(n, v) for n, v in typed.items())
    return ttft, tpot
