"""Exact traces of a prompt-lookup drafter from token ids or texts: no model, no GPU.

With greedy decoding the output is the same whatever is drafted: what the look-up would propose at
each position, and how much of it holds, follows from the tokens alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.base.errors import InputError
from specmodel.base.units import check
from specmodel.replay.traces.files import json_lines, need_keys
from specmodel.replay.traces.record import LONGEST_DRAFT, Counts, Trace, whole_numbers

MATCHES = ("first", "last")
"""Which of several earlier occurrences is taken."""

GROUP_TOKENS = 1_000_000
"""Tokens looked up at once, to bound the memory; a longer request is taken as a whole [token]."""

ID_KEYS = ("prompt_token_ids", "output_token_ids")

MOST_ID = 2**62
"""Largest token id [-]."""

TokenIds = NDArray[np.int64]
"""Token ids of a text in their order."""


def ngram_trace(
    prompts: Sequence[ArrayLike],
    outputs: Sequence[ArrayLike],
    *,
    min_ngram: int = 3,
    max_ngram: int = 5,
    match: str = "first",
    max_proposal: int = 20,
    metadata: Mapping[str, str] | None = None,
) -> Trace:
    """Return what a prompt-lookup drafter would propose at each output position, and what holds.

    The context of a position is the prompt and the output before it. Its last `max_ngram` tokens
    are looked for earlier in the context, then one token less, and so on down to `min_ngram`; the
    tokens that follow the first hit are the proposal. The defaults are our own: the benchmark that
    the n-gram presets were fitted to looks for 7 to 3 tokens, first match, at most 20 proposed.

    Parameters
    ----------
    prompts, outputs
        One sequence of token ids for each request; a prompt may be empty, an output may not [-].
    min_ngram, max_ngram, max_proposal
        Shortest and longest run of last tokens looked for, and the longest proposal; it is shorter
        where the context ends [token].
    match, metadata
        "first" takes the earliest of several occurrences, "last" the latest; where the tokens come
        from, to which the options are added.

    Examples
    --------
    >>> trace = ngram_trace([[7, 8, 9]], [[7, 8, 9, 7]], min_ngram=1, max_ngram=2)
    >>> trace.proposed_tokens, trace.accepted_tokens
    (array([0, 3, 3, 3], dtype=uint8), array([0, 3, 2, 1], dtype=uint8))
    """
    _check_options(min_ngram, max_ngram, match, max_proposal)
    heads, tails = _checked_ids(prompts, outputs)
    lengths = [len(head) + len(tail) for head, tail in zip(heads, tails, strict=True)]
    counts = []
    for group in _groups(lengths):
        tokens = _Tokens(heads[group], tails[group])
        sources = _sources(tokens, min_ngram, max_ngram, match)
        counts.append(_compared(tokens, sources, max_proposal))
    options = {"min_ngram": min_ngram, "max_ngram": max_ngram, "match": match}
    said = {name: str(value) for name, value in options.items()}
    return Trace(
        proposed_tokens=np.concatenate([proposed for proposed, _ in counts]),
        accepted_tokens=np.concatenate([accepted for _, accepted in counts]),
        output_tokens=np.array([len(tail) for tail in tails], dtype=np.int64),
        max_draft_length=max_proposal,
        metadata={**(metadata or {}), "drafter": "ngram", **said},
        prompt_tokens=np.array([len(head) for head in heads], dtype=np.int64),
    )


def _checked_ids(
    prompts: Sequence[ArrayLike], outputs: Sequence[ArrayLike]
) -> tuple[list[TokenIds], list[TokenIds]]:
    if not len(outputs):
        raise InputError("outputs", "no requests", "at least one request")
    if len(prompts) != len(outputs):
        raise InputError("prompts", f"{len(prompts)} requests", f"{len(outputs)}, as in outputs")
    heads = [_ids(ids, f"prompts[{i}]") for i, ids in enumerate(prompts)]
    tails = [_ids(ids, f"outputs[{i}]") for i, ids in enumerate(outputs)]
    for i, tail in enumerate(tails):
        if not len(tail):
            raise InputError(f"outputs[{i}]", "no tokens", "at least one token")
    return heads, tails


class _Tokens:
    """The tokens of a group of requests in a row, and where their outputs are."""

    def __init__(self, prompts: Sequence[TokenIds], outputs: Sequence[TokenIds]) -> None:
        pairs = zip(prompts, outputs, strict=True)
        self.ids = np.concatenate([ids for pair in pairs for ids in pair])
        output_tokens = np.array([len(output) for output in outputs])
        lengths = np.array([len(prompt) for prompt in prompts]) + output_tokens
        ends = np.cumsum(lengths)
        self.request = np.repeat(np.arange(len(lengths)), lengths)
        before = np.cumsum(output_tokens) - output_tokens
        self.position = np.arange(output_tokens.sum()) + np.repeat(
            ends - output_tokens - before, output_tokens
        )
        self.start = np.repeat(ends - lengths, output_tokens)
        self.end = np.repeat(ends, output_tokens)


def _sources(tokens: _Tokens, min_ngram: int, max_ngram: int, match: str) -> TokenIds:
    """Return where the proposal of each output position starts, -1 for none.

    Every n-gram is numbered by the place of its first occurrence in its request. This is exact: two
    are the same if they start with the same (n-1)-gram and go on with the same token. N-grams that
    reach into the next request start after all those that do not, and so are never taken for an
    earlier occurrence.
    """
    sources = np.full(len(tokens.position), -1)
    distinct, token = np.unique(tokens.ids, return_inverse=True)
    first = tokens.request
    for n in range(1, min(max_ngram, len(token)) + 1):
        places = len(token) - n + 1
        keys = first[:places] * len(distinct) + token[n - 1 :]
        first, previous = _occurrences(keys)
        if n >= min_ngram:
            start = tokens.position - n
            has_room = start >= tokens.start
            start = np.where(has_room, start, 0)
            earlier = (first if match == "first" else previous)[start]
            # a longer n-gram, which comes later, takes over from a shorter one
            sources = np.where(has_room & (earlier < start), earlier + n, sources)
        if (first == np.arange(places)).all():
            break  # nothing occurs twice, so nothing longer does
    return sources


def _occurrences(keys: TokenIds) -> tuple[TokenIds, TokenIds]:
    """Return where each key occurs first, and where it occurred last before, else its own place."""
    order = np.argsort(keys, kind="stable")
    repeats = np.zeros(len(keys), dtype=bool)
    repeats[1:] = keys[order[1:]] == keys[order[:-1]]
    first = np.empty_like(order)
    first[order] = order[~repeats][np.cumsum(~repeats) - 1]
    previous = np.arange(len(keys))
    previous[order[repeats]] = order[np.flatnonzero(repeats) - 1]
    return first, previous


def _compared(tokens: _Tokens, sources: TokenIds, max_proposal: int) -> tuple[Counts, Counts]:
    """Return the length of each proposal and how much of it is the output's own [token]."""
    longest = np.minimum(max_proposal, tokens.position - sources)
    proposed = np.where(sources >= 0, longest, 0)
    room = np.minimum(proposed, tokens.end - tokens.position)
    accepted = np.zeros_like(proposed)
    live = np.arange(len(proposed))
    for k in range(max_proposal):
        live = live[k < room[live]]
        offered, wanted = tokens.ids[sources[live] + k], tokens.ids[tokens.position[live] + k]
        live = live[offered == wanted]
        accepted[live] += 1
    return proposed.astype(np.uint8), accepted.astype(np.uint8)


def _groups(lengths: Sequence[int]) -> Iterator[slice]:
    """Cut requests into runs of at most `GROUP_TOKENS` tokens, or of one request."""
    first = total = 0
    for i, length in enumerate(lengths):
        if i > first and total + length > GROUP_TOKENS:
            yield slice(first, i)
            first, total = i, 0
        total += length
    yield slice(first, len(lengths))


def _check_options(min_ngram: int, max_ngram: int, match: str, max_proposal: int) -> None:
    check("min_ngram", min_ngram, minimum=1, whole=True)
    check("max_proposal", max_proposal, minimum=1, maximum=LONGEST_DRAFT, whole=True)
    if max_ngram < min_ngram:
        raise InputError("max_ngram", max_ngram, f"at least min_ngram = {min_ngram}")
    if match not in MATCHES:
        raise InputError("match", match, " or ".join(MATCHES))


def _ids(values: Any, name: str) -> TokenIds:
    kind = "token ids, whole numbers of at least 0"
    return whole_numbers(values, name, kind, MOST_ID).astype(np.int64)


def read_tokens(path: str | Path) -> tuple[list[TokenIds], list[TokenIds]]:
    """Return prompts and outputs of a file of JSON lines, one request a line, none skipped.

    Parameters
    ----------
    path
        Each line has prompt_token_ids and output_token_ids; other keys are ignored.
    """
    prompts, outputs = list[TokenIds](), list[TokenIds]()
    for where, row in json_lines(path, "input"):
        need_keys(row, ID_KEYS, where)
        for key, found in zip(ID_KEYS, (prompts, outputs), strict=True):
            found.append(_ids(row[key], f"{where} {key}"))
        if not len(outputs[-1]):
            expected = "at least one token, as there is nothing to replay"
            raise InputError(f"{where} {ID_KEYS[1]}", "no tokens", expected)
    if not outputs:
        raise InputError("input", str(path), "at least one request")
    return prompts, outputs
