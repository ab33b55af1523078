"""Parts of a sweep computed ahead of whoever takes them, on threads or other workers."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

from specmodel.base.errors import InputError
from specmodel.sweeps.plan import Part, Plan

Result = TypeVar("Result")

Workers: TypeAlias = tuple[Callable[..., Any], Callable[[], int]]
"""What starts a function on an argument and returns its future, and how many can run now [-]."""

AHEAD = 2
"""Parts in work or waiting for each worker [-]."""


def results(
    plan: Plan,
    function: Callable[[Part], Result],
    workers: Workers,
) -> Iterator[Result]:
    """Give the result of each part in the order of the rows, a few ahead of what is taken.

    Parameters
    ----------
    plan
        The sweep.
    function
        Computes a part; importable where the workers are.
    workers
        Run it [-].

    Yields
    ------
    Result
        Of each part; what is not taken is cancelled.
    """
    submit, num_workers = workers
    waiting: deque[Any] = deque()
    try:
        for part in plan.parts():
            waiting.append(submit(function, part))
            if len(waiting) >= AHEAD * max(num_workers(), 1):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


@contextmanager
def threads(workers: int) -> Iterator[Workers]:
    """Give threads of this process: NumPy and Arrow leave each its core.

    Parameters
    ----------
    workers
        How many [-].

    Yields
    ------
    Workers
        As `results` takes them.
    """
    if workers < 1:
        raise InputError("workers", workers, "at least 1")
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool.submit, lambda: workers
    finally:
        pool.shutdown(cancel_futures=True)
