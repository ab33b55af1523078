"""Prompts for a running engine: random token ids, random words, or one's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from specmodel.base.errors import InputError
from specmodel.base.records import read_text
from specmodel.measure.live.answers import whole
from specmodel.measure.live.client import Form, Server

LEAST_ID, MOST_ID = 100, 20_000
"""Bounds of random token ids [-]: special tokens are mostly below, or at the end of vocabularies
of more than 32,000."""
_FEWEST = 1_000
"""Ids that a vocabulary has whose size no server tells [-]."""
_CHARACTERS = 4
"""Characters of a token in text, about [-]."""

WORDS = (
    *("the", "of", "and", "to", "in", "is", "you", "that", "it", "he", "was", "for", "on", "are"),
    *("as", "with", "his", "they", "at", "be", "this", "have", "from", "or", "one", "had", "by"),
    *("word", "but", "not", "what", "all", "were", "we", "when", "your", "can", "said", "there"),
    *("use", "an", "each", "which", "she", "do", "how", "their", "if", "will", "up", "other"),
)
"""Words that, with the blank before them, are one token in the vocabularies of most models."""


class Prompts(Protocol):
    """Makes a prompt of some length for a request; another key gives another prompt."""

    def __call__(self, length: int, key: Sequence[int] = ()) -> Sequence[int] | str:
        """Return the prompt, as token ids or text."""


Own = Sequence[str] | Sequence[list[int]]
"""One's own prompts: all of them text, or all of them token ids."""


def random_ids(lowest: int, highest: int, seed: int | None = None) -> Prompts:
    """Return a maker of prompts of random token ids.

    With a seed, a key gives the same prompt each time; without, no prompt comes twice.
    """

    def prompt(length: int, key: Sequence[int] = ()) -> list[int]:
        ids = _drawn(seed, key).integers(lowest, highest, length, endpoint=True)
        return list(ids.tolist())

    return prompt


def random_words(seed: int | None = None) -> Prompts:
    """Return a maker of prompts of random common words, seeded as `random_ids`."""

    def prompt(length: int, key: Sequence[int] = ()) -> str:
        return " ".join(_drawn(seed, key).choice(WORDS, max(length, 1)).tolist())

    return prompt


def _drawn(seed: int | None, key: Sequence[int]) -> np.random.Generator:
    return np.random.default_rng(None if seed is None else [seed, *key])


async def fitted_words(server: Server, words: Prompts, lengths: Sequence[int]) -> Prompts:
    """Return a maker of prompts in text with so many tokens as the server counts them."""
    counts = {length: await _words_of(server, words, length) for length in set(lengths)}
    return lambda length, key=(): words(counts[length], key)


async def _words_of(server: Server, words: Prompts, length: int) -> int:
    """Return how many words have so many tokens, by a line through the last two tries [-]."""
    count, tries = length, dict[int, int]()
    while count not in tries and len(tries) < 4:
        answer = await server.complete(words(count), 1, streams=False)
        if answer.fault:
            raise InputError("url", server.url, f"a server that answers: {answer.fault}")
        tries[count] = answer.prompt_tokens
        (first, less), (last, found) = [(0, 0), *tries.items()][-2:]
        if len(tries) == 1:  # one word a token, and what a chat begins with
            first, less = last - 1, found - 1
        slope = (found - less) / (last - first) or 1.0
        count = max(round(last + (length - found) / slope), 1)
    found = min(tries.values(), key=lambda tokens: abs(tokens - length))
    if found > 1.1 * length + 1:
        raise InputError("prompt_length", length, f"at least {found}, as chats begin with more")
    return next(words for words, tokens in tries.items() if tokens == found)


async def found_prompts(
    server: Server,
    lengths: Sequence[int],
    *,
    own: Own | None = None,
    token_ids: tuple[int, int] | None = None,
    form: Form | None = None,
    seed: int | None = None,
) -> tuple[Prompts, str]:
    """Return a maker of prompts in the first form that a server takes, and why it took no ids.

    `own` are prompts to draw from instead of random ones, `form` is the only one to try.
    """
    tries = await _tries(server, own, token_ids, seed)
    tries = [each for each in tries if form in (None, each[0])]
    if not tries:
        raise InputError("prompt_form", form, "ids, as the prompts that were asked for are")
    number, refused = await server.find_form([(name, sample) for name, _, sample in tries])
    found, prompts, _ = tries[number]
    if own is None and found != "ids":
        return await fitted_words(server, prompts, lengths), refused
    return prompts, ""


async def _tries(
    server: Server, own: Own | None, token_ids: tuple[int, int] | None, seed: int | None
) -> list[tuple[Form, Prompts, Any]]:
    """Return forms to try, each with a maker of prompts and a sample of them."""
    # SGLang computes with ids that the model lacks, where vLLM refuses them
    known = await server.vocabulary_size()
    if own is not None:
        is_text = isinstance(own[0], str)
        if not is_text:
            _check_ids("prompts", max(max(prompt) for prompt in own), known)
        forms: tuple[Form, ...] = ("text", "chat") if is_text else ("ids",)
        return [(form, _drawn_from(own, seed), own[0]) for form in forms]
    highest = [MOST_ID, _FEWEST - 1] if known is None else [min(MOST_ID, known - 1)]
    bounds = [token_ids] if token_ids else [(min(LEAST_ID, last // 2), last) for last in highest]
    ids: list[Any] = [("ids", random_ids(*each, seed), [*each]) for each in bounds]
    if token_ids:
        _check_ids("token_ids", token_ids[1], known)
        return ids
    words = random_words(seed)
    return [*ids, ("text", words, words(8)), ("chat", words, words(8))]


def _check_ids(argument: str, highest: Any, known: int | None) -> None:
    if known is not None and highest >= known:
        raise InputError(argument, highest, f"ids below {known}, as the served model has them")


def read_prompts(path: str | Path) -> Own:
    """Return the prompts of a file: JSON lines by its suffix ``.jsonl``, else a prompt a line.

    Parameters
    ----------
    path
        A text, or JSON lines of objects with a ``prompt``, which is text or a list of token ids.
    """
    from specmodel.replay.traces.files import json_lines, need_keys

    if Path(path).suffix != ".jsonl":
        lines = read_text(Path(path), "prompts", "text").split("\n")
        return _one_form([line for line in map(str.strip, lines) if line], path)
    found = []
    for where, row in json_lines(path, "prompts"):
        need_keys(row, ["prompt"], where)
        prompt = row["prompt"]
        is_ids = isinstance(prompt, list) and all(whole(one) is not None for one in prompt)
        if not prompt or not (is_ids or isinstance(prompt, str)):
            raise InputError(f"{where} prompt", prompt, "a text, or a list of token ids")
        found.append(prompt)
    return _one_form(found, path)


def _one_form(prompts: list[Any], path: str | Path) -> Own:
    forms = {type(prompt) for prompt in prompts}
    if len(forms) != 1:
        found = "text and token ids" if prompts else "no prompt"
        raise InputError("prompts", str(path), f"prompts of one form; this has {found}")
    return prompts


def _drawn_from(own: Own, seed: int | None) -> Prompts:
    """Return a maker that draws from one's own prompts, by its key and whatever the length."""

    def prompt(length: int, key: Sequence[int] = ()) -> str | list[int]:
        return own[int(_drawn(seed or 0, key).integers(len(own)))]

    return prompt


def mean_length(prompts: Own) -> int:
    """Return the mean length of prompts."""
    lengths = [len(prompt) for prompt in prompts]
    per_token = _CHARACTERS if isinstance(prompts[0], str) else 1
    return max(round(sum(lengths) / len(lengths) / per_token), 1)
