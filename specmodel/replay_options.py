"""Options of ``specmodel simulate`` as step times, requests and variation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specmodel.errors import InputError, nearest
from specmodel.options import deployment_from
from specmodel.records import is_path
from specmodel.simulation import ReplayTimes, Sample, Variation, read_replay_times, replay_times
from specmodel.simulation.sources import Source
from specmodel.simulation.times import DEFAULT_DRAFTER_UPKEEP
from specmodel.traces import list_presets, load_preset, read_trace
from specmodel.traces.files import SUFFIXES

DEFAULT_CONTEXT_LENGTH = 1024
_DEPLOYED = ("target", "drafter", "hardware")
_SPREADS = ("timing_noise", "request_expert_spread", "step_expert_spread")


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What is replayed on what.

    Parameters
    ----------
    heading
        Names it for people.
    source, times, variation
        Requests, step times, and how much these vary.
    assumptions
        What was not given, by name.
    warnings
        What does not fit together.
    """

    heading: str
    source: Source
    times: ReplayTimes
    variation: Variation
    assumptions: dict[str, Any]
    warnings: Sequence[str] = ()

    @property
    def num_requests(self) -> int:
        """Requests in all [request]."""
        return self.source.num_requests


def replay_from(options: dict[str, Any]) -> Replay:
    """Return what the options of the command line ask to replay.

    Parameters
    ----------
    options
        Values by name of the option.

    Returns
    -------
    Replay
        Ready for `simulation.simulate`.

    Raises
    ------
    InputError
        Names the option at fault.
    """
    if options["trace"] is None:
        raise InputError("trace", None, "a trace file or a preset (specmodel list presets)")
    source, acceptance, drafters = _source(options)
    spreads = {name: options[name] for name in _SPREADS if options[name] is not None}
    variation = Variation(**spreads)
    assumptions: dict[str, Any] = {
        name: getattr(variation, name) for name in _SPREADS if name not in spreads
    }
    if options["step_times"] is not None:
        given = [name for name in _DEPLOYED if options[name] is not None]
        if given:
            expected = f"no --{given[0]} with it: the times are given"
            raise InputError("step_times", options["step_times"], expected)
        times = read_replay_times(options["step_times"])
        longest = min(options["max_draft_length"], times.max_draft_length)
        heading = f"Times of {Path(options['step_times']).name}; {acceptance}"
        return Replay(
            heading=heading,
            source=source,
            times=times.up_to(longest),
            variation=variation,
            assumptions=assumptions,
        )
    for name in _DEPLOYED:
        if options[name] is None:
            raise InputError(name, None, "a name or path, or --step-times in place of all three")
    deployment, assumed = deployment_from(options)
    for name, default in (
        ("context_length", DEFAULT_CONTEXT_LENGTH),
        ("drafter_upkeep", DEFAULT_DRAFTER_UPKEEP),
    ):
        if options[name] is None:
            assumed[name] = default
    if deployment.drafter.architecture is None:
        assumed.pop("drafter_upkeep", None)
        assumed.pop("proposal_rate", None)
    times = replay_times(
        deployment,
        max_draft_length=min(options["max_draft_length"], source.max_draft_length),
        context_length=options["context_length"] or assumed["context_length"],
        drafter_upkeep=assumed.get("drafter_upkeep", options["drafter_upkeep"] or 0.0),
    )
    drafter = deployment.drafter.name
    return Replay(
        heading=f"{deployment.target.name} + {drafter} on {deployment.hardware.name}; {acceptance}",
        source=source,
        times=times,
        variation=variation,
        assumptions=assumed | assumptions,
        warnings=_mismatch(drafters, is_lookup=deployment.drafter.architecture is None),
    )


def _source(options: dict[str, Any]) -> tuple[Source, str, Sequence[str]]:
    """Return the requests, how they read in a heading, and the presets among them."""
    name = options["trace"]
    if Path(name).suffix in SUFFIXES:
        trace = read_trace(name)
        heading = f"{Path(name).name}, {trace.num_requests} requests"
        return trace, heading, ()
    presets = name.split("+")
    for preset in presets:
        if preset not in list_presets() and not is_path(preset):
            known = nearest(preset, list_presets())
            expected = f"a {' or '.join(SUFFIXES)} file, or a preset such as {known}"
            raise InputError("trace", preset, expected)
    for option in ("requests", "output_length"):
        if options[option] < 1:
            raise InputError(option, options[option], "a whole number of at least 1")
    sample = Sample(
        processes=[load_preset(preset) for preset in presets],
        num_requests=options["requests"],
        output_tokens=options["output_length"],
    )
    size = f"{sample.num_requests} requests of {sample.output_tokens} tokens"
    return sample, f"{' + '.join(presets)}, {size}", presets


def _mismatch(presets: Sequence[str], *, is_lookup: bool) -> list[str]:
    """Return a warning if the acceptance is that of another kind of drafter."""
    others = [preset for preset in presets if preset.endswith("-ngram") != is_lookup]
    if not others:
        return []
    kind = "n-gram look-up" if is_lookup else "a model or head"
    return [f"the drafter is {kind}, but the acceptance that of {', '.join(others)}"]
