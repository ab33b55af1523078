"""A fixed sample of a product of cases, for tests that need not run all of them."""

from collections.abc import Sequence
from itertools import product
from typing import Any


def sampled(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return cases that include each value of each axis, and each pair of ends of two axes.

    With more than two axes, every other corner is enough for these pairs.
    """
    longest = max(map(len, axes))
    diagonal = [tuple(axis[i % len(axis)] for axis in axes) for i in range(longest)]
    corners = [
        tuple(axis[end] for axis, end in zip(axes, ends, strict=True))
        for ends in product((0, -1), repeat=len(axes))
        if len(axes) == 2 or sum(ends) % 2 == 0
    ]
    return [*diagonal, *(case for case in corners if case not in diagonal)]
