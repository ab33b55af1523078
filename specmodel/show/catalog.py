"""List the records in the package, and show single records as TOML."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any

import specmodel
from specmodel.core.base.ranges import among
from specmodel.core.base.text import align
from specmodel.core.drafters.names import named_drafters
from specmodel.show.behind import cell_text, off_by
from specmodel.show.columns import meanings
from specmodel.show.glossary import LIMITS, PAGES, WORDS, policy_words
from specmodel.show.notes import si
from specmodel.simulate import traces

Row = dict[str, str]
"""A row of a listing: cells by title, the name of the record first."""


def _hardware_row(name: str) -> Row:
    gpu = specmodel.load_hardware(name)
    peaks = [f"{dtype} {peak.peak_flops_per_s / 1e12:.0f}" for dtype, peak in gpu.dtype.items()]
    memory, bandwidth = gpu.memory.capacity_bytes, gpu.memory.peak_bytes_per_s
    cells = {"memory": si(memory, "B"), "bandwidth": si(bandwidth, "B/s")}
    return {"name": name, **cells, "peak TFLOP/s": ", ".join(peaks)}


def _architecture_row(name: str) -> Row:
    model, experts = specmodel.load_architecture(name), "dense"
    if model.experts:
        zero = model.experts.num_zero_experts
        experts = f"{model.experts_per_token} of {model.num_experts}"
        experts += f" and {zero} empty" if zero else ""
    parameters = f"{model.total_parameters / 1e9:.4g}e9"
    active = f"{model.active_parameters / 1e9:.3g}e9"
    return {"name": name, "parameters": parameters, "active": active, "experts": experts}


def _ground_rows() -> Iterable[Row]:
    """Yield the errors for published runs of each kind, and the share of right predictions."""
    from specmodel.core.prediction.ground import grounds

    for ground in grounds().values():
        shares = ground.given._asdict().items()
        yield {
            "ground": cell_text(ground.cell),
            "runs": f"{ground.rows}",
            "hosts": f"{ground.hosts}",
            "off by": f"{ground.error:.0%}",
            "mean": f"{ground.bias:+.0%}",
            "spread": f"{ground.spread:.2f}",
            **{name: "" if share != share else f"{share:.0%}" for name, share in shares},
        }


def _wrapped(texts: Mapping[str, str], name: str = "name", what: str = "what") -> Iterable[Row]:
    """Yield a row for each line of the wrapped texts; the first line of a text has its name."""
    room = 78 - max(map(len, texts))
    for each, words in texts.items():
        for at, line in enumerate(textwrap.wrap(words, room, break_on_hyphens=False)):
            yield {name: "" if at else each, what: line}


def _engine_words(name: str) -> str:
    """Return the version on which an engine was fitted, and its error, as text; else its source."""
    engine = specmodel.load_engine(name)
    words = engine.source
    if engine.fit:
        version = engine.fit.fitted_on.version if engine.fit.fitted_on else words
        words = f"{version}: {off_by(engine.fit)}"
    return words + (f"; rules from the code of {engine.code_read}" if engine.code_read else "")


_LENGTHS = (1, 3, 5)
_TOKENS = "tokens per step\nat 1, 3, 5 drafted"


def _acceptance_rows() -> Iterable[Row]:
    """Yield rows of published acceptance by target and drafter, then rows of heads by kind."""
    from specmodel.core.drafters.measured_heads import NAMES, acceptance_by_name, typical_heads

    for name, published in sorted(acceptance_by_name().items()):
        longest, base = published.longest, published.tasks[published.base]
        yield {
            "name": name,
            _TOKENS: _reached(published.acceptance(), longest),
            "measured\nlengths": among(range(1, longest + 1), base.lengths),
            "measured\non": _kinds(published.tasks),
        }
    for found in filter(None, map(typical_heads, named_drafters())):
        reached = [_reached(level, found.max_draft_length) for level in found.acceptance]
        titles = [f"--acceptance\n{name}" for name in NAMES]
        yield {
            "heads\n(targets)": f"{found.drafter} ({found.num_targets})",
            **dict(zip(titles, reached, strict=True)),
            "low, high\nare": "extremes" if found.levels[0] == "lowest" else "quartiles",
        }


def _kinds(tasks: Iterable[str]) -> str:
    """Return the name of a single kind of task, or the number of kinds."""
    names = [*tasks]
    return names[0] if len(names) == 1 else f"{len(names)} kinds"


def _reached(acceptance: specmodel.Acceptance, longest: int) -> str:
    """Return the tokens per step at a few draft lengths, up to the longest measured one."""
    lengths = [length for length in _LENGTHS if length <= longest]
    return ", ".join(f"{float(acceptance.expected_tokens_per_step(n)):.2f}" for n in lengths)


def _preset_rows() -> Iterable[Row]:
    """Yield rows of presets: tokens per step by draft length, and the share of proposing steps."""
    for name in traces.list_presets():
        process = traces.load_preset(name)
        row = {"name": name, "of": process.name}
        if shown := process.measured:
            tokens = dict(zip(shown.draft_lengths, shown.tokens_per_step, strict=True))
            row[_TOKENS] = ", ".join(f"{tokens[n]:.2f}" for n in _LENGTHS)
            row["steps that\npropose"] = f"{shown.proposing_steps or 0:.0%}"
        yield row


ROWS: dict[str, Callable[[], Iterable[Row]]] = {
    "hardware": lambda: map(_hardware_row, specmodel.list_hardware()),
    "architectures": lambda: map(_architecture_row, specmodel.list_architectures()),
    "engines": lambda: _wrapped({name: _engine_words(name) for name in specmodel.list_engines()}),
    "drafters": lambda: _wrapped(
        {name: row.words for name, row in named_drafters().items()}
        | {"NAME|PATH": "any architecture, as a draft model"}
    ),
    "acceptance": _acceptance_rows,
    "grounds": _ground_rows,
    "policies": lambda: _wrapped(policy_words()),
    "presets": _preset_rows,
    "columns": lambda: _wrapped(meanings(), "column", "what it means"),
    "words": lambda: _wrapped(
        WORDS | {f"limited by {name}": limit for name, limit in LIMITS.items() if name != "none"},
        *("word", "what it means"),
    ),
}


def listing(kind: str) -> str:
    """Return a table of all records of a kind of `ROWS`."""
    blocks = []
    for names, alike in groupby(ROWS[kind](), key=tuple):
        block = list(alike)
        lists = [name for name in names if any(", " in row[name] for row in block)]
        columns = [(name, [row[name] for row in block]) for name in names]
        blocks.append(align(columns, left=[names[0], names[-1], *lists]))
    return "\n\n".join([*blocks, *([f"GB: {WORDS['GB']}."] if kind == "hardware" else [])])


def record_text(record: Any) -> str:
    """Return a record of any kind as TOML, after figures that are derived from it."""
    from specmodel.core.base.records import toml_text

    return "\n".join([*(f"# {note}" for note in _notes(record)), toml_text(record)])


def template_text(gpu: specmodel.HardwareProfile) -> str:
    """Return a GPU without its fits as TOML, which a user can change into another GPU."""
    from msgspec.structs import replace

    from specmodel.core.base.records import toml_text
    from specmodel.core.machines.kernels import TYPICAL

    common = {k: v for k, v in gpu.link.all_reduce.items() if k == TYPICAL} if gpu.link else {}
    link = gpu.link and replace(gpu.link, all_reduce=common)
    text = toml_text(replace(gpu, name="My GPU", fitted={}, link=link))
    text = re.sub(r'(source) = (?!"all-reduces).*', r'\1 = "where this is from"', text)
    return f"{PAGES['catalog']['to_fill_in'].format(name=gpu.name)}{text}"


def _notes(record: Any) -> Iterable[str]:
    """Yield figures derived from a record, with their titles."""
    from specmodel.core.drafters.measured_heads import PublishedHead
    from specmodel.core.drafters.published import usual_drafter

    if isinstance(record, specmodel.Architecture):
        yield f"total parameters: {record.total_parameters:.4g}"
        active = f"{record.active_parameters:.4g} (LM head in, input embedding out)"
        yield f"active parameters: {active}"
        if usual := usual_drafter(record):
            yield f"usual drafter: {usual}"
    elif isinstance(record, specmodel.HardwareProfile):
        ridges = [f"{dtype} {record.ridge_point(dtype):.0f}" for dtype in record.dtype]
        yield f"ridge point [FLOP/B]: {', '.join(ridges)}"
    elif isinstance(record, PublishedHead):
        yield f"as an option: --acceptance {record.name}"
        rates: Any = record.acceptance().acceptance_by_position
        if isinstance(rates[0], float):  # drafters of blocks have rates for each length
            by_position = ",".join(f"{rate:.4g}" for rate in rates)
            yield f"to change it: --acceptance-by-position {by_position}"
