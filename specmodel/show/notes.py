"""Write the text of each kind of note: warnings and assumed values.

``pages.toml`` has the sentences. This module computes words for them that a note does not have.
"""

from collections.abc import Callable, Mapping
from itertools import accumulate
from operator import mul
from typing import Any

from specmodel.core.base.notes import Note
from specmodel.core.base.ranges import ranges_text
from specmodel.core.base.text import listed
from specmodel.show.glossary import PAGES, TABLES

Values = Mapping[str, Any]

_TEXTS: dict[str, str] = PAGES["notes"]


def words(note: Note) -> str:
    """Return the text of a note.

    Parameters
    ----------
    note
        The note, of one of the kinds below.
    """
    more = _WORDS[note.kind](note.values)
    return _TEXTS.get(note.kind, "{told}").format_map({**note.values, **more})


def in_words(assumed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the assumptions for JSON, with notes as text."""
    return {name: str(v) if isinstance(v, Note) else v for name, v in assumed.items()}


def si(value: float, unit: str) -> str:
    """Return a number with a metric prefix and its unit."""
    from specmodel.core.base.units import format_si  # slow to import for help

    return format_si(value, unit)


def _beyond_memory(v: Values) -> Values:
    places = " and ".join(f"{name} {value}" for name, value in v["fewest_at"].items())
    at = f" at {places}" if places else ""
    if v["largest_of_own"]:
        largest = f"The largest given batch that fits with its draft is {v['largest_of_own']}"
        largest += f"; with {v['longest']} drafted at all sizes, {v['largest']} requests fit"
    elif v["largest"]:
        largest = f"The largest batch that fits is {v['largest']}{at}"
    elif v["do_weights_fit"]:
        largest = f"The weights fit, but not a single request{at}"
    else:
        largest = "Not even the weights fit in memory"
    if v["plain"]:
        largest += f" ({v['plain']} without a drafter); further requests wait"
    return _bytes(v, "needed", "usable", "capacity") | {"told": largest, "share": 100 * v["share"]}


def _bytes(v: Values, *names: str) -> dict[str, Any]:
    """Return sizes as text."""
    return {name: si(v[f"{name}_bytes"], "B") for name in names}


def _with_drafts(v: Values) -> str:
    """Return the draft lengths of a note as text; "" for all lengths."""
    if v.get("unit") == "request":
        return ""
    if v.get("scheduled"):
        return f" with {listed([*map(str, v['scheduled'])])} drafted"
    if not v.get("drafts"):
        return ""
    first, last = v["drafts"]
    words = f" with {first:.0f} or more drafted"
    largest = f" (at batch size {v['batch_sizes'][1]}: {last:.0f} or more)"
    return words + ("" if first == last else largest)


def _graphs(v: Values) -> Values:
    told = {"drafts": _with_drafts(v), "sizes": ranges_text([v["batch_sizes"]])}
    default = f", {v['default_of']}'s default" if v.get("default_of") else ""
    return told | {"default": default, "milliseconds": 1e3 * v.get("kernel_time", 0.0)}


def _memory_ends_drafts(v: Values) -> Values:
    at = f" at batch size {v['batch_size']:.0f}" if v["are_several"] else ""
    return _bytes(v, "needed", "usable") | {"at": at}


def rates_read(v: Values) -> str:
    """Return how rates by position were read, and tokens per step if read otherwise, as text.

    `length` is the longest draft of these tokens per step, and `rate` the share of steps with a
    draft.
    """
    (read, rates), *others = v["ways"].items()
    kind, _, listed = read.partition(":")
    of = "all drafts, as in vLLM's logs" if kind == "cumulative" else "drafts accepted so far"
    left = any(len(each) > len(rates) for _, each in others)
    ways = ", ".join(
        f"{way} gives {1 + v.get('rate', 1.0) * sum(accumulate(each[: v.get('length')], mul)):.2f}"
        for way, each in others
    )
    bonus = ", without the 1 for the target's own token" if left else ""
    return f"{listed}, shares of {of}{bonus}" + (f"; {ways} tokens per step" if ways else "")


def _loaded_drafter(v: Values) -> Values:
    spent = {"drafter pass": v["draft_time"], "host": v["host_time"]}
    least = 0.1 * sum(spent.values())
    parts = [f"{name} {si(time, 's')}" for name, time in spent.items() if time > least]
    return {"parts": " and ".join(parts), "worst": f"{v['worst']:.0f}"}


def _beyond_measured(v: Values) -> Values:
    of_what = "acceptance was measured with" if v["is_measured"] else "the head is trained for"
    return {"of_what": of_what, "s": "s" * (v["known"] > 1)}


def _walked_keys(v: Values) -> Values:
    cache = "an 8-bit KV cache (--kv-dtype fp8) or " if v["cache_helps"] else ""
    return {"cache": cache, "s": "s" * (v["split_tokens"] > 1)}


def _gpus(v: Values) -> Values:
    held = f"{v['requests']} requests" if v["requests"] > 1 else "a request"
    kept = "weights, drafter and" if v["has_drafter"] else "weights and"
    others = "; specmodel compare tries other layouts" if v["count"] > 1 else ""
    return {"held": held, "kept": kept, "others": others}


def _state_slots(v: Values) -> Values:
    """Return the number of states reserved for a request, and the engine that reserves them."""
    first, second = v["states"]
    count = f"{first:g}" if first == second else f"drafted tokens + {first - 1:g}"
    noun = "state" if first == second == 1 else "states"
    return {"count": count, "noun": noun, "engine": TABLES["slots"][v["slots"]]}


def _kernels(v: Values) -> Values:
    """Return the kernels whose fit is used, and whether they are typical ones."""
    from specmodel.core.layers.kinds import KINDS

    taken = [KINDS[v["taken"]].assumption] if v["taken"] else []
    return {"told": ", ".join([*taken, *(["typical kernels"] if v["is_typical"] else [])])}


def _borrowed(v: Values) -> Values:
    """Return the kernels that are used: those of a stack, or typical ones."""
    from specmodel.core.machines.kernels import TYPICAL

    of_stack = f"kernels of {v['of']}, on the same GPU"
    return {"told": "typical kernels" if v["of"] == TYPICAL else of_stack}


def _between_modules(v: Values) -> Values:
    return {"others": ", ".join(f"{length:g}" for length in v["draft_lengths"])}


def _typical_all_reduce(v: Values) -> Values:
    return {"within": f" (80 %: within a factor of {v['factor']:.1f})" * (v["factor"] > 1)}


_WORDS: dict[str, Callable[[Values], Values]] = {
    **dict.fromkeys(_TEXTS, dict),
    **dict.fromkeys(("beyond_graphs", "earlier_graphs", "graphs_end_drafts"), _graphs),
    "beyond_memory": _beyond_memory,
    "memory_ends_drafts": _memory_ends_drafts,
    "loaded_drafter": _loaded_drafter,
    "beyond_measured": _beyond_measured,
    "between_modules": _between_modules,
    "walked_keys": _walked_keys,
    "gpus": _gpus,
    "rates_read": lambda v: {"told": rates_read(v)},
    "dtypes": lambda v: {"told": " and ".join(map(str, v["dtypes"]))},
    "tables_on_host": lambda v: {"size": f"{v['bytes'] / 1e9:.0f} GB"},
    "state_slots": _state_slots,
    "kernels": _kernels,
    "borrowed": _borrowed,
    "exchange": lambda v: {"told": TABLES["exchanges"][v["exchange"]]},
    "typical_all_reduce": _typical_all_reduce,
    "fits_at_bound": lambda v: {"told": " and ".join("{} {} {:.3g}".format(*f) for f in v["fits"])},
}
"""Functions that add words to the values of a note, by kind; ``told`` is the whole text."""
