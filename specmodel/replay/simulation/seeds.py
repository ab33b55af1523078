"""Streams of random numbers that never meet: by seed, purpose and number."""

import numpy as np

TRACE, LUCK, POLICY = range(3)
"""Purposes."""


def stream(seed: int, purpose: int, *numbers: int) -> np.random.Generator:
    """Return the generator of a purpose.

    Parameters
    ----------
    seed
        At least 0 [-].
    purpose
        One of those above [-].
    numbers
        What tells several of that purpose apart, such as the number of a request [-].

    Returns
    -------
    numpy.random.Generator
        Always the same for the same arguments, and independent of all others, of
        ``default_rng(seed)`` too.
    """
    key = (purpose, *numbers)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
