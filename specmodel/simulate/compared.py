"""Compare alternatives, and the largest rate of each within targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeAlias, Unpack

from msgspec.structs import asdict, replace

from specmodel.core.base.errors import given, refuse_given
from specmodel.core.base.units import single
from specmodel.core.cost.where import USUAL, Manner
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.models.architecture import Architecture
from specmodel.core.prediction.case import DEFAULT_BATCH_SIZES
from specmodel.plan.alternatives import Alternatives, alternatives
from specmodel.simulate.arguments import CompareArguments

Searching: TypeAlias = Callable[[int], AbstractContextManager[Mapping[str, Any]]]
"""Function of a number of searches; its context yields arguments of `capacities` for them."""

_OF_EACH = ("prefill", "gpu_hour_price")
"""Arguments of a load that may differ between alternatives."""
_LONGEST = 3
"""Longest draft of the schedules that are simulated under a load [token]."""


def compare(
    target: Architecture | str | Path | Sequence[str],
    hardware: HardwareProfile | str | Path | Sequence[str],
    *,
    workers: int = 1,
    client: Any = None,
    **arguments: Unpack[CompareArguments],
) -> Alternatives:
    """Compare models, GPUs, layouts, dtypes, engines, drafters or draft lengths.

    Parameters
    ----------
    target, hardware
        Models and GPUs, one or a list of each. ``8xh200`` means eight GPUs.
    workers, client
        Where the search for capacities runs, as in `capacities` [-].
    **arguments
        Arguments of `simulate.arguments.CompareArguments`. Every combination of lists is an
        alternative. If there is only one combination, all layouts of its GPUs are compared. With
        `tpot_target` [s], the answer has each alternative's largest batch within the target. With
        `for_load` and targets, as in `specmodel.load`, it has each alternative's largest rate.
        `gpu_hour_price` is then one price, or one for each GPU [-].

    Returns
    -------
    Alternatives
        The alternatives. They print as the command's answer.

    Examples
    --------
    >>> answer = compare("mixtral-8x7b", ["2xh100", "2xh200"], acceptance=0.7, batch_size=[1, 64])
    >>> [*answer.predictions]
    ['2xh100', '2xh200']
    """
    usual = {"batch_size": DEFAULT_BATCH_SIZES, "target": target, "hardware": hardware}
    how = {"workers": workers, "client": client}
    return compared(usual | arguments, lambda _: nullcontext(how))


def compared(
    arguments: Mapping[str, Any], searching: Searching, manner: Manner = USUAL
) -> Alternatives:
    """Return alternatives and, under a load, the largest rate of each within the targets.

    Parameters
    ----------
    arguments
        Arguments of `compare`.
    searching, manner
        How to compute the searches, and the manner of the question.
    """
    options = given(arguments, arguments)
    if not options.pop("for_load", False):
        refuse_given(options, ["prefill"], "This needs `for_load`.")
        if "tpot_target" not in options:
            refuse_given(options, ["gpu_hour_price"], "This needs `tpot_target`.")
        return alternatives(options, manner)
    from specmodel.simulate.carried import carried_by
    from specmodel.simulate.load_question import OF_LOADS, trial_of

    refuse_given(options, ["policy", "for_rate"], "This has no effect with `for_load`.")
    load = {name: options[name] for name in OF_LOADS if name in options and name not in _OF_EACH}
    every, trials = alternatives({n: v for n, v in options.items() if n not in load}, manner), {}
    notes = list(every.notes)
    for name, case in every.cases.items():
        length = single("draft_length", case.draft_length, "one of each alternative")
        policies, longest = ["none"], 1
        if case.deployment.has_drafter:
            policies.append("schedule" if length is None else f"fixed:{length}")
            longest = max(min(case.longest_draft(), _LONGEST), length or 1)
        case = replace(case, max_draft_length=longest)
        fields = {**load, "prefill": every.prefill[name]}
        trial, _ = trial_of(case, fields, policies, must_meet=False)
        trials[name] = trial, policies
        if trial.study.prefill_servers:
            notes.append(f"{name}: {trial.study.prefill_told}.")
    with searching(2 * len(trials)) as how:
        carried = carried_by(trials, every.prices, **how)
    return replace(every, targets=asdict(trial.targets), carried=carried, notes=notes)
