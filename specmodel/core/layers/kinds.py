"""The table of kinds of kernels: whoever adds a kind adds a row, and layers that run it.

Kinds use a GPU in different ways, so that each has fits of its own. All that lists kinds reads this
table: fitted stacks, intervals, sensitivities, words and plots.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from specmodel.core.base.errors import InputError, nearest
from specmodel.core.base.files import toml_tables


class KernelKind(Struct, frozen=True, kw_only=True):
    """One kind of kernels.

    Parameters
    ----------
    name
        What `Work.kind`, tables of measurements and profiles call it.
    follows
        What has the dtype that its fits are named by; "" for what has no fits, as messages.
    fallback
        Kind whose fits are taken where neither the stack nor typical kernels have one of this kind;
        without it this kind must be fitted.
    own_fallback_first
        Whether the stack's own fits of `fallback` are taken before typical ones of this kind.
    errors_of
        Kind whose errors it has, where it has too few points for its own.
    untimed
        Of a kind that nobody timed, what its errors grow by where it takes the fits of `fallback`:
        least mean error, and the standard deviations of ln(measured / predicted) that a table has
        in common and between decoding and verifying [-].
    computes_as_fitted
        Whether arithmetic runs in the dtype that was fitted, whatever a cache has.
    assumption
        What is assumed of kernels of another kind that take the fits of this one, in words.
    launches
        How many times as long the host takes to launch one of these as a kernel of compiled code,
        where no CUDA graph holds it [-].
    """

    name: str
    follows: Literal["weights", "cache", "state", "activations", ""] = "cache"
    fallback: str = ""
    own_fallback_first: bool = False
    errors_of: str = ""
    untimed: Sequence[float] | None = None
    computes_as_fitted: bool = False
    assumption: str = ""
    launches: float = 1.0

    @property
    def words(self) -> str:
        """Name of the kind as readers see it."""
        return self.name.replace("_", " ")


_ROWS = toml_tables(Path(__file__).parent / "data/kinds.toml")
KINDS = {name: KernelKind(name=name, **row) for name, row in _ROWS.items()}
"""Rows by name."""

FITTED_KINDS = tuple(name for name, row in KINDS.items() if row.follows)
"""Kinds that are fitted, in the order in which profiles list them."""

MAIN_KINDS = tuple(name for name in FITTED_KINDS if not KINDS[name].errors_of)
"""Kinds that have errors of their own."""


def kernel_kind(name: str) -> KernelKind:
    """Return the row of a kind of kernels; raise an InputError for an unknown name."""
    try:
        return KINDS[name]
    except KeyError:
        known = nearest(name, KINDS)
        expected = f"a kind of kernels from layers/data/kinds.toml, such as {known}"
        raise InputError("kind", name, expected) from None
