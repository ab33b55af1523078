"""The words of each kind of note: warnings, a sentence each, and values that were assumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from operator import mul
from typing import Any

from specmodel.core.base.notes import Note
from specmodel.core.base.ranges import ranges_text
from specmodel.core.base.text import listed
from specmodel.show.glossary import PAGES, TABLES

Values = Mapping[str, Any]

_SLOTS_OF = {"chain": "vLLM without prefix caching", "aligned": "vLLM", "scratch": "SGLang"}
"""Who reserves states in each way."""


def words(note: Note) -> str:
    """Return the words of a note.

    Parameters
    ----------
    note
        Its kind is one of those below.
    """
    form = _WORDS[note.kind]
    return form.format_map(note.values) if isinstance(form, str) else form(note.values)


def in_words(assumed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the assumptions for JSON, with notes as text."""
    return {name: str(v) if isinstance(v, Note) else v for name, v in assumed.items()}


def si(value: float, unit: str) -> str:
    """Return a number with a metric prefix and its unit."""
    from specmodel.core.base.units import format_si  # which imports what help does not need

    return format_si(value, unit)


def _beyond_memory(v: Values) -> str:
    places = " and ".join(f"{name} {value}" for name, value in v["fewest_at"].items())
    at = f" at {places}" if places else ""
    if v["largest_of_own"]:
        largest = f"the largest of these that fits with its own draft is {v['largest_of_own']}"
        largest += f"; with drafts of {v['longest']} throughout, {v['largest']} fit"
    elif v["largest"]:
        largest = f"the largest batch that fits is {v['largest']}{at}"
    elif v["do_weights_fit"]:
        largest = f"the weights fit, but not one request{at}"
    else:
        largest = "not even the weights fit"
    if v["plain"]:
        largest += f" (without a drafter {v['plain']}): so many run at once, the others wait"
    names = ("needed_bytes", "usable_bytes", "capacity_bytes")
    needed, usable, whole = (si(v[name], "B") for name in names)
    return (
        f"batch size {v['batch_size']} needs {needed} of the {usable} ({100 * v['share']:g} % of"
        f" {whole}) that an engine uses of a GPU ({v['hardware']}); {largest}"
    )


def _with_drafts(v: Values) -> str:
    """Return as text the draft lengths that a note is about; "" if it is about all."""
    if v.get("scheduled"):
        return f" with drafts of {listed([*map(str, v['scheduled'])])}"
    if not v["drafts"]:
        return ""
    first, last = v["drafts"]
    words = f" with drafts of {first:.0f} or more tokens"
    return words + ("" if first == last else f", {last:.0f} at {v['batch_sizes'][1]},")


def _beyond_graphs(v: Values) -> str:
    default = f", {v['default_of']}'s default" if v["default_of"] else ""
    return (
        f"at batch size {ranges_text([v['batch_sizes']])} steps{_with_drafts(v)} are larger than"
        f" any CUDA graph ({v['count']} {v['unit']}s{default}), so that the host launches each"
        f" kernel, here taken as {1e3 * v['kernel_time']:.2g} ms each: {v['option']}"
        f" {v['needed']} avoids that, here --graph-limit {v['needed']}"
    )


def _memory_ends_drafts(v: Values) -> str:
    at = f" at {v['batch_size']:.0f}" if v["are_several"] else ""
    needed, usable = (si(v[name], "B") for name in ("needed_bytes", "usable_bytes"))
    return (
        f"no memory at batch size {v['batch_sizes']} for {v['draft_length']:.0f} drafted{at}:"
        f" {needed} of {usable}, so that {v['running']:.0f} would run at once, the others wait"
        f" ({v['speedup']:.2f}x)"
    )


def rates_read(v: Values) -> str:
    """Return as text how rates by position were read, and tokens per step of the other ways.

    With `length`, these are of drafts of at most so many tokens; with `rate`, over all steps.
    """
    (read, rates), *others = v["ways"].items()
    kind, _, listed = read.partition(":")
    of = "all drafts, as vLLM prints them" if kind == "cumulative" else "the drafts that got there"
    left = any(len(each) > len(rates) for _, each in others)
    told = ", ".join(
        f"{way} is {1 + v.get('rate', 1.0) * sum(accumulate(each[: v.get('length')], mul)):.2f}"
        for way, each in others
    )
    bonus = ", without the 1 of the token that each step emits" if left else ""
    return f"{listed}, of {of}{bonus}" + (f"; {told} tokens a step" if told else "")


def _loaded_drafter(v: Values) -> str:
    spent = {"its pass": v["draft_time"], "the host's work": v["host_time"]}
    least = 0.1 * sum(spent.values())
    parts = [f"{name} {si(time, 's')}" for name, time in spent.items() if time > least]
    return (
        f"at batch size {v['batch_sizes']} nothing is drafted, and the drafter, which stays loaded,"
        f" takes its time in each step all the same ({' and '.join(parts)}): down to"
        f" {v['speedup']:.2f}x, which an engine started without speculation avoids"
    )


def _beyond_measured(v: Values) -> str:
    of_what = "acceptance was measured at" if v["is_measured"] else "the head is trained for"
    return (
        f"{of_what} {v['known']:g} drafted token{'s' if v['known'] > 1 else ''}; up to"
        f" {v['longest']:g} the same rate is assumed at each position, where it usually falls:"
        " acceptance by position tells"
    )


def _walked_keys(v: Values) -> str:
    count = f"{v['split_tokens']} token{'s' if v['split_tokens'] > 1 else ''}"
    cache = "an 8-bit KV cache (--kv-dtype fp8) or " if v["cache_helps"] else ""
    return (
        f"at {v['context']:,.0f} of context drafts take long: of a sequence with more than {count}"
        " in a pass, attention on this GPU reads the keys of a head one after another;"
        f" {cache}an engine that spreads them (--set engine.{v['way_out']}) avoids that"
    )


def _gpus(v: Values) -> str:
    held = f"{v['requests']} requests" if v["requests"] > 1 else "a request"
    kept = "weights, drafter and" if v["has_drafter"] else "weights and"
    others = "; compare tries other layouts of them" if v["count"] > 1 else ""
    return f"{v['count']} (the fewest that hold {kept} {held} of {v['tokens']:,} tokens{others})"


def _state_slots(v: Values) -> str:
    """Return as text the states reserved for a request, and the engine that does so."""
    first, second = v["states"]
    count = f"{first:g}" if first == second else f"draft_length + {first - 1:g}"
    noun = "state" if first == second == 1 else "states"
    return f"{count} {noun} a request, as {_SLOTS_OF[v['slots']]}"


def _kernels(v: Values) -> str:
    """Return as text the kernels whose fit a kind uses, and whether they are typical ones."""
    from specmodel.core.layers.kinds import KINDS

    taken = [KINDS[v["taken"]].assumption] if v["taken"] else []
    return ", ".join([*taken, *(["typical kernels"] if v["is_typical"] else [])])


def _borrowed(v: Values) -> str:
    """Return as text whose kernels are used: those of a stack, or typical ones."""
    from specmodel.core.machines.kernels import TYPICAL

    return "typical kernels" if v["of"] == TYPICAL else f"kernels of {v['of']}, on the same GPU"


_WORDS: dict[str, str | Callable[[Values], str]] = {
    **PAGES["notes"],
    "beyond_memory": _beyond_memory,
    "beyond_graphs": _beyond_graphs,
    "earlier_graphs": lambda v: (
        f"before 0.28, CUDA graphs of {v['engine']} ended at {v['count']} tokens: there, steps"
        f"{_with_drafts(v)} at batch size {ranges_text([v['batch_sizes']])} are launched kernel by"
        " kernel (--engine vllm-0.24 says what they take)"
    ),
    "graphs_end_drafts": lambda v: (
        f"Graphs ({v['count']} tokens) end drafts at {ranges_text([v['batch_sizes']])}:"
        f" {v['option']} {v['needed']}."
    ),
    "memory_ends_drafts": _memory_ends_drafts,
    "loaded_drafter": _loaded_drafter,
    "beyond_measured": _beyond_measured,
    "between_modules": lambda v: (
        f"with {v['modules']} modules vLLM takes a draft length of at most {v['modules']}, or a"
        f" multiple of it, and not {', '.join(f'{length:g}' for length in v['draft_lengths'])}"
    ),
    "walked_keys": _walked_keys,
    "gpus": _gpus,
    "rates_read": rates_read,
    "dtypes": lambda v: " and ".join(map(str, v["dtypes"])),
    "tables_on_host": lambda v: f"{v['bytes'] / 1e9:.0f} GB of tables on the host",
    "state_slots": _state_slots,
    "kernels": _kernels,
    "borrowed": _borrowed,
    "exchange": lambda v: TABLES["exchanges"][v["exchange"]],
    "typical_all_reduce": lambda v: (
        "typical of other stacks or GPUs"
        + f", 80 % within a factor of {v['factor']:.1f}" * (v["factor"] > 1)
    ),
    "fits_at_bound": lambda v: " and ".join("{} {} {:.3g}".format(*fit) for fit in v["fits"]),
}
"""Words by the kind of a note: a template of its values, or a function of these."""
