"""Requests by name: of a trace, or drawn from presets of acceptance. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError, nearest, refuse_given
from specmodel.simulate import traces

if TYPE_CHECKING:
    from specmodel.simulate.blocks import Source

DEFAULT_REQUESTS = 300
DEFAULT_OUTPUT_TOKENS = 512
MOST = 10**7
"""Most requests drawn [request], and most tokens of each [token]."""
MOST_POSITIONS = 10**11
"""Most output tokens of all requests drawn [token]."""


def named_requests(name: str, sizes: dict[str, Any]) -> tuple[Source, str, list[str]]:
    """Return the requests of a trace, or drawn from presets that are joined by +.

    Also return a heading, and which of the presets ship with the package. `sizes` are the requests
    and output_tokens to draw, if typed [request] [token].
    """
    from specmodel.base.records import is_path
    from specmodel.base.units import check
    from specmodel.simulate.blocks import Sample
    from specmodel.simulate.traces.files import SUFFIXES, TAKEN

    if Path(name).suffix in SUFFIXES:
        refuse_given(sizes, sizes, "none, as the trace has its own")
        trace = traces.read_trace(name)
        told = [Path(name).name, f"{trace.num_requests} requests", trace.metadata.get(TAKEN)]
        return trace, ", ".join(filter(None, told)), []
    presets = [preset.strip() for preset in name.split("+")]
    sizes = {"requests": DEFAULT_REQUESTS, "output_tokens": DEFAULT_OUTPUT_TOKENS} | sizes
    for option, size in sizes.items():
        check(option, size, minimum=1, maximum=MOST, whole=True)
    requests, length = sizes.values()
    if requests * length > MOST_POSITIONS:
        expected = f"at most {MOST_POSITIONS // length} of {length} tokens each"
        raise InputError("requests", requests, expected)
    shipped = traces.list_presets()
    for preset in presets:
        if preset not in shipped and not is_path(preset):
            known = nearest(preset, shipped)
            expected = f"a {' or '.join(SUFFIXES)} file, or a preset such as {known}"
            raise InputError("trace", preset, expected)
    processes = [traces.load_preset(preset, "trace") for preset in presets]
    sample = Sample(processes=processes, num_requests=requests, output_tokens=length)
    heading = f"{' + '.join(presets)}, {requests} requests of {length} tokens"
    return sample, heading, [preset for preset in presets if preset in shipped]
