"""Compute exact traces of a prompt-lookup drafter from token ids, without a model or a GPU.

With greedy decoding, the output does not depend on the drafts. The proposal of the look-up at each
position, and its accepted tokens, therefore follow from the token ids alone.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.core.base.errors import InputError
from specmodel.core.base.units import check
from specmodel.simulate.traces.files import json_lines, need_keys
from specmodel.simulate.traces.record import LONGEST_DRAFT, Trace, whole_numbers

MATCHES = ("first", "last")
"""Which of several earlier occurrences the look-up uses."""

ID_KEYS = ("prompt_token_ids", "output_token_ids")

MOST_ID = 2**53
"""Largest token id, which a float represents exactly [-]."""

TokenIds = NDArray[np.int64]
"""Token ids of a text, in order."""


def ngram_trace(
    prompts: Sequence[ArrayLike],
    outputs: Sequence[ArrayLike],
    *,
    min_ngram: int = 3,
    max_ngram: int = 5,
    match: str = "first",
    max_proposal: int = 20,
    is_filled: bool = False,
    metadata: Mapping[str, str] | None = None,
) -> Trace:
    """Return the proposals of a prompt-lookup drafter at each output position, and those accepted.

    The context of a position is the prompt and the output before it. The look-up searches the
    context for an earlier occurrence of its last `max_ngram` tokens, then of one token less, and so
    on down to `min_ngram`. The tokens that follow the first hit are the proposal. The defaults are
    our own; the benchmark to which the n-gram presets were fitted searches for 7 to 3 tokens, uses
    the first match, and proposes at most 20 tokens.

    vLLM 0.6.6 uses the first match and fills the proposal (``vllm/spec_decode/ngram_worker.py``:
    `first_match` is where ``matches.max(dim=-1)`` finds the first of the largest, and
    ``spec_indices.clamp_`` stops at the last token of the context). It searches for `max_ngram`
    tokens down to 1 by default, and has no default of `max_ngram`.

    Parameters
    ----------
    prompts, outputs
        One sequence of token ids for each request; a prompt may be empty, an output may not [-].
    min_ngram, max_ngram, max_proposal
        Smallest and largest number of last tokens to search for, and the longest proposal; a
        proposal is shorter if the context ends [token].
    match, metadata
        "first" for the earliest of several occurrences, "last" for the latest; metadata of the
        trace, to which the options are added.
    is_filled
        Whether a shorter proposal is filled with the last token of the context.

    Examples
    --------
    >>> trace = ngram_trace([[7, 8, 9]], [[7, 8, 9, 7]], min_ngram=1, max_ngram=2)
    >>> trace.proposed_tokens, trace.accepted_tokens
    (array([0, 3, 3, 3], dtype=uint8), array([0, 3, 2, 1], dtype=uint8))
    """
    check("min_ngram", min_ngram, minimum=1, whole=True)
    check("max_proposal", max_proposal, minimum=1, maximum=LONGEST_DRAFT, whole=True)
    if max_ngram < min_ngram:
        raise InputError("max_ngram", max_ngram, f"at least min_ngram = {min_ngram}")
    if match not in MATCHES:
        raise InputError("match", match, " or ".join(MATCHES))
    if not len(outputs):
        raise InputError("outputs", "no requests", "at least one request")
    if len(prompts) != len(outputs):
        raise InputError("prompts", f"{len(prompts)} requests", f"{len(outputs)}, as in outputs")
    heads = [_ids(ids, f"prompts[{i}]") for i, ids in enumerate(prompts)]
    tails = [_ids(ids, f"outputs[{i}]") for i, ids in enumerate(outputs)]
    for i, tail in enumerate(tails):
        if not len(tail):
            raise InputError(f"outputs[{i}]", "no tokens", "at least one token")
    counts: list[tuple[int, int]] = []
    for head, tail in zip(heads, tails, strict=True):
        ids = [*head.tolist(), *tail.tolist()]
        sources = _sources(ids, min_ngram, max_ngram, match)
        places = range(len(head), len(ids))
        counts += (_compared(ids, at, sources[at], max_proposal, is_filled) for at in places)
    proposed, accepted = np.array(counts, dtype=np.uint8).T.copy()
    options = {"min_ngram": min_ngram, "max_ngram": max_ngram, "match": match}
    said = {name: str(value) for name, value in options.items()}
    if is_filled:
        said["filled"] = "with the last token"
    return Trace(
        proposed_tokens=proposed,
        accepted_tokens=accepted,
        output_tokens=np.array([len(tail) for tail in tails], dtype=np.int64),
        max_draft_length=max_proposal,
        metadata={**(metadata or {}), "drafter": "ngram", **said},
        prompt_tokens=np.array([len(head) for head in heads], dtype=np.int64),
    )


def _sources(ids: list[int], min_ngram: int, max_ngram: int, match: str) -> list[int]:
    """Return the start of each position's proposal, after the longest match; -1 for none."""
    sources = [-1] * (len(ids) + 1)
    for n in range(min_ngram, max_ngram + 1):
        seen: dict[tuple[int, ...], int] = {}
        ngrams = zip(*(ids[place:] for place in range(n)), strict=False)
        for start, earlier in enumerate(map(seen.setdefault, ngrams, count())):
            if earlier < start:  # a longer n-gram, in a later round, replaces a shorter one
                sources[start + n] = earlier + n
                if match == "last":
                    seen[tuple(ids[start : start + n])] = start
        if len(seen) == len(ids) - n + 1:
            break  # nothing occurs twice, so nothing longer does
    return sources


def _compared(
    ids: list[int], at: int, source: int, max_proposal: int, is_filled: bool
) -> tuple[int, int]:
    """Return the length of a proposal, and the number of its tokens that are accepted [token]."""
    if source < 0:
        return 0, 0
    proposed = max_proposal if is_filled else min(max_proposal, at - source)
    most, held = min(proposed, len(ids) - at), 0
    while held < most and ids[min(source + held, at - 1)] == ids[at + held]:
        held += 1
    return proposed, held


def _ids(values: Any, name: str) -> TokenIds:
    is_empty = isinstance(values, Sequence | np.ndarray) and not len(values)
    return np.zeros(0, np.int64) if is_empty else whole_numbers(values, name, MOST_ID)


def read_tokens(path: str | Path) -> tuple[list[TokenIds], list[TokenIds]]:
    """Return the prompts and outputs of a file of JSON lines, with a request on each line.

    Parameters
    ----------
    path
        A file whose lines have prompt_token_ids and output_token_ids; other keys are ignored.
    """
    prompts, outputs = list[TokenIds](), list[TokenIds]()
    for where, row in json_lines(path, "input"):
        need_keys(row, ID_KEYS, where)
        for key, found in zip(ID_KEYS, (prompts, outputs), strict=True):
            found.append(_ids(row[key], f"{where} {key}"))
        if not len(outputs[-1]):
            expected = "at least one token"
            raise InputError(f"{where} {ID_KEYS[1]}", "no tokens", expected)
    if not outputs:
        raise InputError("input", str(path), "at least one request")
    return prompts, outputs
