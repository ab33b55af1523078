"""Tokens per step by draft length, as InferenceX lists them in YAML."""

import re
from collections import defaultdict

from specmodel.core.base.errors import InputError

_ENTRY = re.compile(r"([^\s{}:,\"'][^{}:,\"']{0,99}+)[\"']? *:(?: +([^\s{},]+))?(?=[\s{},]|$)")
"""A key and its value, if that stands beside it."""
_LEAST = 0.9
"""Share of the tokens of a shorter draft that a longer one has at least, as errors make some fall
[-]."""


def lengths_by_table(text: str, where: str) -> dict[str, dict[int, float]]:
    """Return tokens per step by draft length, by the headings of a table; empty if there is none.

    Parameters
    ----------
    text, where
        The text, and what an InputError calls it.

    Examples
    --------
    >>> lengths_by_table("some-model: {thinking_on: {1: 1.8, 2: 2.4}}", "text")
    {'some-model thinking_on': {1: 1.8, 2: 2.4}}
    """
    tables = defaultdict[str, dict[int, float]](dict)
    headings: list[tuple[tuple[int, int], str]] = []
    for line in re.sub(r"(?m)#.*|^.{1000,}", "", text).splitlines():  # lines of tables are short
        for entry in _ENTRY.finditer(line):
            key, value, before = entry[1].strip(), entry[2] or "", line[: entry.start()]
            level = len(line) - len(line.lstrip()), before.count("{") - before.count("}")
            headings = [heading for heading in headings if heading[0] < level]
            if re.fullmatch(r"[1-9][0-9]{0,2} [0-9]*\.?[0-9]+", f"{key} {value}"):
                tables[" ".join(name for _, name in headings)][int(key)] = float(value)
            else:
                headings.append(((-1, 0), value) if key == "model" else (level, key))
    return {name: _checked(table, f"{where} {name}".strip()) for name, table in tables.items()}


def _checked(table: dict[int, float], where: str) -> dict[int, float]:
    """Return a table by length; refuse tokens that no draft of a length can make."""
    least = 1.0
    for length, tokens in sorted(table.items()):
        if not least <= tokens <= length + 1:
            expected = "tokens per step from 1 to the draft length + 1, which rise with it"
            raise InputError(where, f"{length}: {tokens:g}", expected)
        least = max(least, _LEAST * tokens)
    return dict(sorted(table.items()))
