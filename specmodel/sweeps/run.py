"""Parts of a sweep computed ahead of whoever takes them, on threads or any other executor."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from specmodel.errors import InputError
from specmodel.sweeps.plan import Part, Plan

Result = TypeVar("Result")

AHEAD = 2
"""Parts in work or waiting for each worker [-]."""


def results(
    plan: Plan,
    function: Callable[[Part], Result],
    executor: Executor,
    num_workers: Callable[[], int],
) -> Iterator[Result]:
    """Give the result of each part in the order of the rows, a few ahead of what is taken.

    Parameters
    ----------
    plan
        The sweep.
    function
        Computes a part; importable where the executor's workers are.
    executor
        Runs it.
    num_workers
        Says how many parts the executor can run at once, now [-].

    Yields
    ------
    Result
        Of each part; what is not taken is cancelled.
    """
    waiting: deque[Future[Result]] = deque()
    try:
        for part in plan.parts():
            waiting.append(executor.submit(function, part))
            if len(waiting) >= AHEAD * max(num_workers(), 1):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


@contextmanager
def threads(workers: int) -> Iterator[tuple[Executor, Callable[[], int]]]:
    """Give threads of this process: NumPy and Arrow leave each its core.

    Parameters
    ----------
    workers
        How many [-].

    Yields
    ------
    tuple
        As `results` takes them.
    """
    if workers < 1:
        raise InputError("workers", workers, "at least 1")
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool, lambda: workers
    finally:
        pool.shutdown(cancel_futures=True)
