"""Tables of drafters that are published: what they are like, and what was measured of them."""

import csv
from functools import cache
from pathlib import Path

from specmodel.records.architecture import Architecture

_FOLDER = Path(__file__).parent / "data"


def published_head(target: Architecture) -> int:
    """Return the feed-forward width of the EAGLE-3 head that is published for a target.

    Parameters
    ----------
    target
        The model, known by its shape, as names vary: what shares a shape shares a head's.

    Returns
    -------
    int
        The width, 0 if none is known [-].

    Examples
    --------
    >>> from specmodel.records.architecture import load_architecture
    >>> published_head(load_architecture("deepseek-v3"))
    40960
    """
    keys = ("hidden_size", "num_layers", "num_experts", "vocabulary_size")
    shape = {key: str(getattr(target, key)) for key in keys}
    fitting = (row for row in _rows("eagle3_heads.csv") if row | shape == row)
    return int(next(fitting, {}).get("ffn_size", 0))


@cache
def _rows(name: str) -> tuple[dict[str, str], ...]:
    """Return the rows of a table that ships, by its columns."""
    lines = (_FOLDER / name).read_text(encoding="utf-8").splitlines()
    return tuple(csv.DictReader(line for line in lines if not line.startswith("#")))
