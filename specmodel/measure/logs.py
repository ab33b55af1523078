"""Acceptance in what people paste: log lines of engines, printed results, answers, gauges."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from specmodel.algebra.speculation import MAX_DRAFT_LENGTH
from specmodel.base.classes import dataclass
from specmodel.base.errors import InputError

_FIGURES = {
    "tokens": (
        *("acceptance length", "accept length", "accept len", "acc len", "mean len"),
        "decoded tokens per iter",
    ),
    "reached": (
        *("per position acceptance rate", "per position acceptance rates"),
        *("acceptance rate per position", "acc rate/pos"),
    ),
    "position": ("position", "acceptance at token"),
    "histogram": ("acceptance histogram", "correct drafts histogram"),
    "accepted": (
        *("accepted", "accepted tokens", "accepted draft tokens", "draft n accepted"),
        *("correct drafts", "accept token num", "acc tokens", "acc", "n accept"),
    ),
    "drafted": (
        *("drafted", "draft tokens", "draft token num", "draft n", "proposed drafts"),
        *("gen tokens", "draft"),
    ),
    "drafts": ("drafts", "num spec steps", "verify ct"),
    "made": ("predicted n", "pred", "n predict"),
    "emitted": ("emitted tokens",),
    "length": ("number of speculative tokens", "num spec tokens", "n draft"),
    "running": ("running", "running req"),
    "": ("acc drafts", "t draft", "speculative num draft tokens"),  # others that end like these
}
"""How engines and benchmarks end the name of a figure, by what it is here."""
_ENDS = {f" {end}": name for name, ends in _FIGURES.items() for end in ends}
_ANY = tuple(_ENDS)
_SPACES = str.maketrans("#_-", "   ")

_VALUE = r"[0-9]*\.?[0-9]+"
_FIGURE = re.compile(
    r"(?P<name>[\w#/. -]++)(?:(?:\((?!server)[\w/]+\))?[\"']?\s*+[:=|│]\s*+[(\[]?\s*+"
    rf"(?P<values>{_VALUE}(?:,\s*{_VALUE})*))?"
)
"""What may be a name, and a number or several where they follow as in a line, a table or JSON."""

_REWRITTEN = (
    (r"\( *([0-9]+) accepted / +([0-9]+) generated\)", r"accepted: \1, drafted: \2"),
    (r"(?m)(?<!prompt )eval time = .*/ +([0-9]+) tokens.*$", r"predicted_n: \1"),
)
"""Figures of llama.cpp that stand before their names, and how they are read."""

_ENGINES = {
    "SGLang": r"accept len:|verify_ct|sglang:|Accept length|[Bb]ackend: +sglang",
    "llama.cpp": r"draft acceptance|predicted_n|pred=|statistics +\S+:",
    "TensorRT-LLM": r"decoded_tokens_per_iter",
}
"""What tells that an engine is not vLLM."""

_WHOLE = 0.02
"""By so much the mean draft may be shorter than all others, as requests end [-]."""
_MOST = 1e15
"""Largest figure that is read."""


@dataclass(frozen=True, kw_only=True)
class LoggedAcceptance:
    """Acceptance as an engine or a benchmark printed it, over all lines that tell it.

    Parameters
    ----------
    engine, num_lines
        Who printed it, and how many lines or results were read [-].
    tokens_per_step
        Emitted per request and step, accepted and one more: the mean of lines, by their drafts if
        they tell them, else by the requests that ran [token].
    draft_length
        Positions that were counted; None where lines do not tell them [token].
    accepted_by_position
        Shares of all drafts of which at least the first 1, 2, ... tokens were accepted; empty where
        lines do not tell them [-].
    running_requests
        Requests that ran, in the mean of lines; None where they do not tell [request].
    """

    engine: str
    num_lines: int
    tokens_per_step: float
    draft_length: int | None
    accepted_by_position: tuple[float, ...] = ()
    running_requests: float | None = None


@dataclass(frozen=True)
class _Line:
    """What one line or result says: tokens a step, weight, draft length, shares, requests."""

    tokens: float
    weight: float
    length: int | None = None
    reached: tuple[float, ...] = ()
    running: float | None = None


def logged_acceptance(text: str, where: str) -> LoggedAcceptance | None:
    """Return the acceptance in a text; None if it has no figure of a known kind.

    Known are lines of logs, printed results and answers to requests of vLLM, SGLang, llama.cpp and
    TensorRT-LLM, and gauges of SGLang. What llama.cpp counts over all requests is read only where
    no request is told alone.

    Parameters
    ----------
    text, where
        The text, and what an InputError calls it.

    Examples
    --------
    >>> logged_acceptance("Decode batch. #running-req: 1, accept len: 2.53", "log").tokens_per_step
    2.53
    """
    totals = {found[1]: found[0] for found in re.finditer(r" statistics +(\S+): .*", text)}
    plain = "\n".join(line for line in text.splitlines() if " statistics " not in line)
    records = list(_records(plain))
    lines = [*filter(None, map(_line, records)), *_gauges(text)]
    lines = lines or [*filter(None, map(_line, _records("\n".join(totals.values()))))]
    if not lines:
        _refuse_counts(records, where)
        return None
    lengths = sorted({line.length for line in lines if line.length})
    if len(lengths) > 1:
        told = ", ".join(map(str, lengths))
        raise InputError(where, f"drafts of {told} positions", "lines of one draft length")
    weights = np.array([line.weight for line in lines])
    if not weights.any():
        raise InputError(
            where, f"{len(lines)} lines without a draft", "lines of steps that drafted"
        )

    def mean(values: list[Any]) -> Any:
        return np.average(values, axis=0, weights=weights)

    length = lengths[0] if lengths else None
    tokens = float(mean([line.tokens for line in lines]))
    has_shares = all(line.reached for line in lines)
    reached = tuple(map(float, mean([line.reached for line in lines]))) if has_shares else ()
    if not 1 <= tokens <= 1 + (length or MAX_DRAFT_LENGTH) or any(share > 1 for share in reached):
        expected = "tokens per step from 1 to the draft length + 1, accepted shares of at most 1"
        raise InputError(where, round(tokens, 4), expected)
    running = [line.running for line in lines if line.running]
    engines = [name for name, sign in _ENGINES.items() if re.search(sign, text)] or ["vLLM"]
    return LoggedAcceptance(
        engine=" and ".join(engines),
        num_lines=len(lines),
        tokens_per_step=tokens,
        draft_length=length,
        accepted_by_position=reached,
        running_requests=float(np.mean(running)) if running else None,
    )


def _records(text: str) -> Iterator[dict[str, list[float]]]:
    """Yield records: dicts of values by name; a name that occurs again begins a new record."""
    told: dict[str, list[float]] = {}
    for pattern, form in _REWRITTEN:
        text = re.sub(pattern, form, text)
    for found in _FIGURE.finditer(text):
        if not found["values"]:
            continue
        words = f" {found['name'].strip().lower()}".translate(_SPACES)
        ending = words.rstrip("0123456789 ")
        ends = [end for end in _ENDS if ending.endswith(end)] if ending.endswith(_ANY) else []
        name = _ENDS[max(ends, key=len)] if ends else ""
        name = name and name + words[len(ending) :]
        if name in told:
            yield told
            told = {}
        if name:
            told[name] = [min(float(value), _MOST) for value in found["values"].split(",")]
    yield told


def _line(told: dict[str, list[float]]) -> _Line | None:
    """Return the acceptance in a record; None if tokens per step cannot be computed from it."""
    one = {name: values[0] for name, values in told.items()}
    accepted, tokens, drafts = (one.get(name) for name in ("accepted", "tokens", "drafts"))
    reached = _shares(told)
    length = len(reached) or one.get("length")
    gained = sum(reached) if reached else (tokens or 1) - 1
    if drafts is None and "made" in one and accepted is not None:
        drafts = max(one["made"] - 1 - accepted, 0.0)  # the first token is the prompt's
    if drafts is None and accepted and gained:
        drafts = accepted / gained
    if drafts is None and length and "drafted" in one:
        drafts = one["drafted"] / length
    if reached:
        tokens = 1 + gained
    elif tokens is None and drafts and accepted is not None:
        tokens = one.get("emitted", accepted + drafts) / drafts
    if tokens is None:
        return None
    if drafts and not length and "drafted" in one:
        mean = one["drafted"] / drafts
        length = round(mean) if abs(round(mean) - mean) <= _WHOLE * mean else None
    weight = one.get("running", 1.0) if drafts is None else drafts
    return _Line(tokens, weight, int(length) if length else None, reached, one.get("running"))


def _shares(told: dict[str, list[float]]) -> tuple[float, ...]:
    """Return the shares of drafts of which the first 1, 2, ... tokens were accepted [-]."""
    if any(told.get("histogram", ())):
        counts = np.array(told["histogram"])
        return tuple(counts[::-1].cumsum()[-2::-1] / counts.sum())
    rows = [values[0] for name, values in told.items() if name.startswith("position")]
    percent = 100 if max(rows, default=0) > 1 else 1
    return tuple(told.get("reached", ())) or tuple(row / percent for row in rows)


def _refuse_counts(records: list[dict[str, list[float]]], where: str) -> None:
    """Refuse records with only accepted and drafted tokens, and name the options that take them."""
    counts = [record for record in records if {"accepted", "drafted"} <= record.keys()]
    accepted, drafted = (sum(each[name][0] for each in counts) for name in ("accepted", "drafted"))
    if drafted and accepted <= drafted:
        expected = "the number of drafts or a mean length as well; for these alone, predict has"
        expected += f" --accepted-fraction {accepted / drafted:.4g} --measured-draft-length STEPS"
        raise InputError(where, f"{accepted:g} accepted of {drafted:g} drafted tokens", expected)


def _gauges(text: str) -> Iterator[_Line]:
    """Yield SGLang's gauge, one of each engine that a scrape of its metrics has."""
    labelled = rf"(\{{[^\n]*\}})? ({_VALUE})"
    running = dict(re.findall(rf"(?m)^sglang:num_running_reqs{labelled}", text))
    for labels, tokens in re.findall(rf"(?m)^sglang:spec_accept_length{labelled}", text):
        if float(tokens):
            requests = float(running.get(labels, 0)) or None
            yield _Line(float(tokens), requests or 1.0, running=requests)
