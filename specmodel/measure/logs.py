"""Acceptance in what people paste: log lines of engines, printed results, gauges of SGLang."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from specmodel.base.errors import InputError

_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_RATES = r"((?:[0-9]*\.?[0-9]+, )*[0-9]*\.?[0-9]+)"


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
    """What one line or result says: tokens a step, weight, shares by position, requests running."""

    engine: str
    tokens: float
    weight: float
    reached: tuple[float, ...] = ()
    running: float | None = None


def logged_acceptance(text: str, where: str) -> LoggedAcceptance | None:
    """Return the acceptance that a text tells, None if it has no line of a kind that is known.

    Known are vLLM's ``SpecDecoding metrics`` (0.9 and newer), SGLang's ``Decode batch``, its gauges
    and the tables that benchmarks of both print, and llama.cpp's ``draft acceptance``.

    Parameters
    ----------
    text, where
        The text, and what an InputError calls it.

    Examples
    --------
    >>> logged_acceptance("Decode batch. #running-req: 1, accept len: 2.53", "log").tokens_per_step
    2.53
    """
    lines = [*_vllm(text), *_sglang(text), *_llama(text), *_tables(text), *_gauges(text)]
    if not lines:
        return None
    lengths = {len(line.reached) for line in lines}
    if len(lengths) > 1:
        told = ", ".join(map(str, sorted(lengths)))
        raise InputError(where, f"drafts of {told} positions", "lines of one draft length")
    weights = np.array([line.weight for line in lines])
    if not weights.any():
        raise InputError(
            where, f"{len(lines)} lines without a draft", "lines of steps that drafted"
        )

    def mean(values: list[Any]) -> Any:
        return np.average(values, axis=0, weights=weights)

    tokens = float(mean([line.tokens for line in lines]))
    reached = tuple(map(float, mean([line.reached for line in lines])))
    length = len(reached) or None
    if not 1 <= tokens <= 1 + (length or np.inf) or any(share > 1 for share in reached):
        expected = "tokens a step from 1 to the draft length + 1, and shares of at most 1"
        raise InputError(where, round(tokens, 4), expected)
    running = [line.running for line in lines if line.running]
    engines = dict.fromkeys(line.engine for line in lines)
    return LoggedAcceptance(
        engine=" and ".join(engines),
        num_lines=len(lines),
        tokens_per_step=tokens,
        draft_length=length,
        accepted_by_position=reached,
        running_requests=float(np.mean(running)) if running else None,
    )


def _found(pattern: str, text: str) -> float | None:
    match = re.search(pattern, text)
    return float(match[1]) if match else None


def _shares(pattern: str, text: str) -> tuple[float, ...]:
    match = re.search(pattern, text)
    return tuple(map(float, match[1].split(", "))) if match else ()


def _counted(
    engine: str,
    tokens: float | None,
    accepted: float | None,
    drafted: float | None,
    reached: tuple[float, ...],
) -> _Line | None:
    """Return what counts of accepted and drafted tokens say, exactly where they tell the drafts."""
    gained = sum(reached)
    if accepted and gained:
        return _Line(engine, 1 + gained, accepted / gained, reached)
    if tokens is None:
        return None
    return _Line(engine, tokens, (drafted or 0.0) / len(reached) if reached else 1.0, reached)


def _vllm(text: str) -> Iterator[_Line]:
    """Yield lines of vLLM's log."""
    for line in text.splitlines():
        if "SpecDecoding metrics:" in line:
            tokens = _found(rf"[Mm]ean acceptance length: {_NUMBER}", line)
            accepted = _found(rf"Accepted: {_NUMBER} tokens", line)
            drafted = _found(rf"Drafted: {_NUMBER} tokens", line)
            reached = _shares(rf"Per-position acceptance rate: {_RATES}", line)
            found = _counted("vLLM", tokens, accepted, drafted, reached)
            if found is not None:
                yield found


def _sglang(text: str) -> Iterator[_Line]:
    """Yield lines of SGLang's log."""
    for line in text.splitlines():
        tokens = _found(rf"accept len: {_NUMBER}", line)
        if tokens is not None:
            running = _found(rf"#running-req: {_NUMBER}", line)
            yield _Line("SGLang", tokens, 1.0 if running is None else running, running=running)


def _llama(text: str) -> Iterator[_Line]:
    """Yield lines of llama.cpp's server."""
    for line in text.splitlines():
        tokens = _found(rf"draft acceptance = .*mean acceptance length = +{_NUMBER}", line)
        if tokens is not None:
            accepted = _found(rf"{_NUMBER} accepted", line)
            drafted = _found(rf"{_NUMBER} generated", line)
            reached = _shares(rf"acceptance rate per position = \({_RATES}\)", line)
            found = _counted("llama.cpp", tokens, accepted, drafted, reached)
            if found is not None:
                yield found


def _tables(text: str) -> Iterator[_Line]:
    """Yield results that benchmarks printed."""
    for table in re.split(r"=+ Serving Benchmark Result =+", text)[1:]:
        tokens = _found(rf"(?m)^Acceptance length: +{_NUMBER}", table)
        if tokens is not None:
            drafts = _found(rf"(?m)^Drafts: +{_NUMBER}", table)
            found = re.findall(rf"(?m)^ +Position \d+: +{_NUMBER}", table)
            reached = tuple(float(share) / 100 for share in found)
            tokens = 1 + sum(reached) if reached else tokens
            yield _Line("vllm bench serve", tokens, drafts or 1.0, reached)
        tokens = _found(rf"(?m)^Accept length: +{_NUMBER}", table)
        if tokens is not None:
            yield _Line("SGLang's bench_serving", tokens, 1.0)


def _gauges(text: str) -> Iterator[_Line]:
    """Yield SGLang's gauge, one of each engine that a scrape of its metrics has."""
    labelled = rf"(\{{[^\n]*\}})? {_NUMBER}"
    running = dict(re.findall(rf"(?m)^sglang:num_running_reqs{labelled}", text))
    for labels, tokens in re.findall(rf"(?m)^sglang:spec_accept_length{labelled}", text):
        if float(tokens):
            requests = float(running.get(labels, 0)) or None
            yield _Line("SGLang", float(tokens), requests or 1.0, running=requests)
