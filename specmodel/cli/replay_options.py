"""Options of ``specmodel simulate`` as step times, requests and variation."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specmodel.base.errors import InputError, nearest
from specmodel.base.records import is_path
from specmodel.base.units import check
from specmodel.cli.options import deployment_from, flag
from specmodel.replay import (
    ReplayTimes,
    Sample,
    Variation,
    read_replay_times,
    replay_times,
)
from specmodel.replay.blocks import Source
from specmodel.replay.times import DEFAULT_DRAFTER_UPKEEP
from specmodel.replay.traces import AcceptanceProcess, list_presets, load_preset, read_trace
from specmodel.replay.traces.files import SUFFIXES

DEFAULT_REQUESTS = 300
DEFAULT_OUTPUT_TOKENS = 512
DEFAULT_MAX_DRAFT_LENGTH = 7
DEFAULT_CONTEXT_LENGTH = 1024

MOST = 10**7
"""Most requests drawn [request], and most tokens of each [token]."""
MOST_POSITIONS = 10**11
"""Most output tokens of all requests drawn [token]."""

_DEPLOYED = ("target", "drafter", "hardware")
_PREDICTED = (
    *(*_DEPLOYED, "engine", "stack", "tensor_parallel", "expert_parallel", "draft_tensor_parallel"),
    *("weight_dtype", "expert_dtype", "embedding_dtype", "activation_dtype", "kv_dtype"),
    *("routing_correlation", "popularity_exponent", "popularity", "lookup_time", "changes"),
    *("context_length", "drafter_upkeep"),
)
"""Options that only predicted times depend on."""
_SPREADS = ("timing_noise", "request_expert_spread", "step_expert_spread")
_TIMELINE = ("request", "timeline_policy")


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
    def default_policies(self) -> list[str]:
        """Policies that are replayed unless others are asked for."""
        lengths = range(1, min(3, self.times.max_draft_length) + 1)
        return ["none", *(f"fixed:{k}" for k in lengths), "best-fixed", "cascade", "oracle"]

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
    if options["timeline"] is None:
        refuse_given(options, _TIMELINE, "--timeline FILE with it")
    source, acceptance, drafters = _source(options)
    variation = Variation(**_given(options, _SPREADS))
    if options["step_times"] is None:
        times, heading, assumed, is_lookup = _predicted_times(options, source)
        warnings = _mismatch(drafters, is_lookup=is_lookup)
    else:
        times, assumed, warnings = _measured_times(options, source), {}, []
        heading = f"Times of {Path(options['step_times']).name}"
    if options["max_draft_length"] is None:
        assumed["max_draft_length"] = times.max_draft_length
    varied: Sequence[str] = _SPREADS
    if not times.expert_time.any():
        refuse_given(options, _SPREADS[1:], "none, as no step time depends on experts")
        varied = _SPREADS[:1]
    assumed |= {name: getattr(variation, name) for name in varied if options[name] is None}
    return Replay(
        heading=f"{heading}; {acceptance}",
        source=source,
        times=times,
        variation=variation,
        assumptions=assumed,
        warnings=warnings,
    )


def refuse_given(options: dict[str, Any], names: Iterable[str], expected: str) -> None:
    """Refuse options that would be without effect.

    Parameters
    ----------
    options
        Values by name of the option.
    names
        Those that must not be given.
    expected
        What would do.

    Raises
    ------
    InputError
        Names the first that is given.
    """
    for name, value in _given(options, names).items():
        raise InputError(name, value, expected)


def _given(options: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: options[name] for name in names if options[name] not in (None, ())}


def _measured_times(options: dict[str, Any], source: Source) -> ReplayTimes:
    path = options["step_times"]
    for name in _given(options, _PREDICTED):
        typed = "set" if name == "changes" else name
        raise InputError("step_times", path, f"no {flag(typed)} with it: the times are given")
    times = read_replay_times(path)
    return times.up_to(_longest(options, min(times.max_draft_length, source.max_draft_length)))


def _predicted_times(
    options: dict[str, Any], source: Source
) -> tuple[ReplayTimes, str, dict[str, Any], bool]:
    """Return the times, what they are of, what was assumed, and whether the drafter looks up."""
    for name in _DEPLOYED:
        if options[name] is None:
            raise InputError(name, None, "a name or path, or --step-times in place of all three")
    deployment, assumed = deployment_from(options)
    defaults = {"context_length": DEFAULT_CONTEXT_LENGTH, "drafter_upkeep": DEFAULT_DRAFTER_UPKEEP}
    is_lookup = deployment.drafter.is_lookup
    if is_lookup:
        refuse_given(options, ["drafter_upkeep"], "a model or head as drafter with it")
        del defaults["drafter_upkeep"]
        assumed.pop("proposal_rate", None)
    values = defaults | _given(options, ["context_length", "drafter_upkeep"])
    times = replay_times(
        deployment, max_draft_length=_longest(options, source.max_draft_length), **values
    )
    assumed |= {name: value for name, value in defaults.items() if options[name] is None}
    heading = f"{deployment.target.name} + {deployment.drafter.name} on {deployment.hardware.name}"
    return times, heading, assumed, is_lookup


def _longest(options: dict[str, Any], known: int) -> int:
    """Return the longest draft considered: the default, if shorter what is known, or as asked."""
    asked = options["max_draft_length"]
    if asked is None:
        return min(DEFAULT_MAX_DRAFT_LENGTH, known)
    if not 1 <= asked <= known:
        expected = f"from 1 to {known}, the longest with acceptance and a step time"
        raise InputError("max_draft_length", asked, expected)
    return int(asked)


def _source(options: dict[str, Any]) -> tuple[Source, str, Sequence[str]]:
    """Return the requests, how they read in a heading, and the presets among them."""
    name = options["trace"]
    if Path(name).suffix in SUFFIXES:
        refuse_given(options, ["requests", "output_tokens"], "none, as the trace has its own")
        trace = read_trace(name)
        heading = f"{Path(name).name}, {trace.num_requests} requests"
        return trace, heading, ()
    presets = [preset.strip() for preset in name.split("+")]
    sizes = {"requests": DEFAULT_REQUESTS, "output_tokens": DEFAULT_OUTPUT_TOKENS}
    sizes |= _given(options, sizes)
    for option, size in sizes.items():
        check(option, size, minimum=1, maximum=MOST, whole=True)
    requests, length = sizes.values()
    if requests * length > MOST_POSITIONS:
        expected = f"at most {MOST_POSITIONS // length} of {length} tokens each"
        raise InputError("requests", requests, expected)
    sample = Sample(
        processes=[_process(preset) for preset in presets],
        num_requests=requests,
        output_tokens=length,
    )
    return sample, f"{' + '.join(presets)}, {requests} requests of {length} tokens", presets


def _process(preset: str) -> AcceptanceProcess:
    if preset not in list_presets() and not is_path(preset):
        known = nearest(preset, list_presets())
        expected = f"a {' or '.join(SUFFIXES)} file, or a preset such as {known}"
        raise InputError("trace", preset, expected)
    try:
        return load_preset(preset)
    except InputError as error:
        argument = error.argument.replace("preset", "trace", 1)
        raise InputError(argument, error.value, error.expected) from None


def _mismatch(presets: Sequence[str], *, is_lookup: bool) -> list[str]:
    """Return a warning if the acceptance is that of another kind of drafter."""
    known = [preset for preset in presets if not is_path(preset)]
    others = [preset for preset in known if preset.endswith("-ngram") != is_lookup]
    if not others:
        return []
    kind = "n-gram look-up" if is_lookup else "a model or head"
    return [f"the drafter is {kind}, but the acceptance that of {', '.join(others)}"]
