"""Define the kinds of kernels, from the table ``data/kinds.toml``.

Kinds use a GPU in different ways, so each kind has its own fits. Fitted stacks, intervals,
sensitivities, words and plots read their lists of kinds from here.
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
        Name in `Work.kind`, in tables of measurements and in profiles.
    follows
        The data whose dtype names the fits; "" for kinds without fits, such as messages.
    fallback
        Kind whose fits are used if neither the stack nor typical kernels have a fit of this kind;
        without a fallback, this kind must be fitted.
    own_fallback_first
        Whether the stack's own fits of `fallback` have priority over typical fits of this kind.
    errors_of
        Kind whose errors are used, because this kind has too few points for its own.
    untimed
        For a kind that nobody timed, increase of its errors if it uses the fits of `fallback`:
        minimum mean error, and standard deviations of ln(measured / predicted), first common to a
        table, then between decoding and verifying [-].
    computes_as_fitted
        Whether arithmetic runs in the fitted dtype for every dtype of a cache.
    assumption
        In words, the assumption about kernels of another kind that use the fits of this kind.
    launches
        Time that the host needs to launch one of these kernels outside a CUDA graph, relative to a
        kernel of compiled code [-].
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
        """Name of the kind for readers."""
        return self.name.replace("_", " ")


_ROWS = toml_tables(Path(__file__).parent / "data/kinds.toml")
KINDS = {name: KernelKind(name=name, **row) for name, row in _ROWS.items()}
"""Rows by name."""

FITTED_KINDS = tuple(name for name, row in KINDS.items() if row.follows)
"""Kinds that have fits, in the order of profiles."""

MAIN_KINDS = tuple(name for name in FITTED_KINDS if not KINDS[name].errors_of)
"""Kinds that have their own errors."""


def kernel_kind(name: str) -> KernelKind:
    """Return the row of a kind of kernels; raise an InputError for an unknown name."""
    try:
        return KINDS[name]
    except KeyError:
        known = nearest(name, KINDS)
        expected = f"a kind of kernels from layers/data/kinds.toml, such as {known}"
        raise InputError("kind", name, expected) from None
