"""Resolve the lengths of the requests of a load: typed, by law, by task or recorded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from specmodel.core.base.errors import InputError, given, nearest, refuse_given
from specmodel.core.base.units import check, single
from specmodel.core.prediction.predicting import plain_points
from specmodel.simulate.arguments import FileArguments
from specmodel.simulate.requests import (
    LONGEST,
    LONGEST_DRAWN,
    MOST_TOGETHER,
    WORKLOADS,
    Lengths,
    Requests,
)

OF_FILES = tuple(FileArguments.__annotations__)
_USUAL = "chat"
"""Default workload."""


def lengths_asked(
    asked: Mapping[str, Any], positions: int, *, is_drawn: bool
) -> tuple[Lengths | Requests, dict[str, Any]]:
    """Return the law or record of request lengths, and the assumptions made."""
    name = asked.get("workload")
    if given(asked, ("prompt_length", "output_length")):
        refuse_given(asked, ("workload",), "Give either a workload or lengths, not both.")
        laws = {n: _law_of(n, asked.get(n)) for n in ("prompt_length", "output_length")}
        plain_points(1, None, *(mean for mean, _ in laws.values()))  # refuses one that is missing
        (prompt, prompt_spread), (output, output_spread) = laws.values()
        # log-normal lengths are cut to the rest of the context
        fixed = [int(mean or 0) for mean, spread in laws.values() if not spread]
        left = min(LONGEST_DRAWN, (positions or LONGEST) - sum(fixed)) if len(fixed) < 2 else 1
        typed = Lengths(
            prompt_tokens=prompt or 0,
            output_tokens=output or 0,
            prompt_spread=prompt_spread,
            output_spread=output_spread,
            longest=max(left, *fixed, 1),
            together=positions if positions and len(fixed) < 2 else MOST_TOGETHER,
        )
        return typed, {}
    if not isinstance(name, str | Path) or not Path(name).suffix:
        refuse_given(asked, OF_FILES, "This needs a file of recorded requests as the `workload`.")
        if isinstance(name, Lengths | Requests):
            return name, {}
        if name and name not in WORKLOADS:
            expected = f"a name such as {nearest(str(name), WORKLOADS)}, or a file"
            raise InputError("workload", name, expected)
        law = WORKLOADS[name or _USUAL]
        mean = f"on average {law.prompt_tokens:g} prompt and {law.output_tokens:g} output tokens"
        return law, {} if name else {"workload": f"{_USUAL} ({mean})"}
    from specmodel.simulate.recorded import read_requests  # imports pandas

    told, file = dict[str, Any](), str(name).removeprefix("lognormal:")
    found = read_requests(file, **given(asked, OF_FILES))
    if file != str(name):
        law = replace(Lengths.fitted(found), together=positions or MOST_TOGETHER)
        told["workload"] = (
            f"log-normal, fitted to the file: prompts of {law.prompt_tokens:.0f} tokens (spread"
            f" {law.prompt_spread:.2f}), outputs of {law.output_tokens:.0f}"
            f" ({law.output_spread:.2f}), correlation {law.correlation:.2f}"
        )
        return law, told
    if found.cached_tokens is not None:
        alone = ("prefix_hit_rate", "shared_prefix")
        refuse_given(asked, alone, "The hash_ids of the file show what is cached. Remove it.")
        told["prefix_hit_rate"] = "all leading blocks (hash_ids) of earlier requests"
    taken = [found.reading]
    if not is_drawn and given(asked, ("arrivals", "requests")):
        taken.insert(0, "pairs of lengths drawn from the file")
        told |= {} if "arrivals" in asked else {"arrivals": "poisson"}
    return found, told | ({"workload": ", ".join(filter(None, taken))} if any(taken) else {})


def _law_of(name: str, value: Any) -> tuple[float | None, float]:
    """Return the mean of a length [token] and its spread, 0 if all requests have the mean [-]."""
    if not isinstance(value, str):
        return single(name, value, "one length of all requests, or lognormal:MEAN:SPREAD"), 0.0
    kind, *numbers = value.split(":")
    try:
        mean, spread = map(float, numbers) if kind == "lognormal" else (float(value), 0.0)
    except ValueError:
        expected = "tokens, or lognormal:MEAN:SPREAD, such as lognormal:4000:1"
        raise InputError(name, value, expected) from None
    check(name, spread, minimum=0, maximum=5)
    most = LONGEST_DRAWN if spread else LONGEST
    return round(float(check(name, mean, minimum=1, maximum=most))), spread
