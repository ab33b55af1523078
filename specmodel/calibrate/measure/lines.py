"""Read tables in texts: in Markdown, or drawn with box characters or dashes."""

import re
from collections.abc import Iterator

_BARS = str.maketrans("│┃║", "|||")
_ALNUM = re.compile(r"\w")


def with_tables(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    r"""Yield the lines of a text, with cells by the names of their columns for rows of a table.

    >>> [row for _, row in with_tables("| B | t/s |\n|---|-----|\n| 2 | 79.0 |") if row]
    [{'B': '2', 't/s': '79.0'}]
    """
    names: list[str] | None = None
    for line in text.translate(_BARS).splitlines():
        if not _ALNUM.search(line):  # an empty line, or a line of a table's frame
            names = names if line.strip() else None
            yield line, {}
            continue
        is_row = line.lstrip().startswith("|")
        cells = [cell.strip(" *") for cell in line.strip().strip("|").split("|")] if is_row else []
        yield line, dict(zip(names, cells, strict=False)) if names and is_row else {}
        names = (names or cells) if is_row else None
