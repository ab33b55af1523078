"""Where the parts of a sweep are computed: threads of this process, or a Dask cluster."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from specmodel import __version__
from specmodel.base.errors import InputError
from specmodel.sweeps.plan import Part, Plan

if TYPE_CHECKING:
    from distributed import Client

Result = TypeVar("Result")

Workers: TypeAlias = tuple[Callable[..., Any], Callable[[], int]]
"""What starts a function on an argument and returns its future, and how many can run now [-]."""

AHEAD = 2
"""Parts in work or waiting for each worker [-]."""

PATIENCE = 10
"""Seconds that a scheduler may take to answer, and to have a worker [s]."""


def results(plan: Plan, function: Callable[[Part], Result], workers: Workers) -> Iterator[Result]:
    """Give the result of each part in the order of the rows, computing a few parts ahead.

    Dask's own ``map`` and ``as_completed`` would hold every part of the sweep at once.

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
        Of each part. If no more are taken, the parts that were started are cancelled.
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


def chosen_workers(
    workers: int | None, client: Client | str | None
) -> AbstractContextManager[Workers]:
    """Return the cluster that is given, or else threads: by default one for each core."""
    if client is None:
        return threads(_num_cores() if workers is None else workers)
    if workers is not None:
        raise InputError("workers", workers, "none with a scheduler, which has its own")
    return dask_workers(client)


@contextmanager
def threads(workers: int) -> Iterator[Workers]:
    """Give threads of this process; NumPy and Arrow let them run at the same time."""
    if workers < 1:
        raise InputError("workers", workers, "at least 1")
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool.submit, lambda: workers
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def dask_workers(client: Client | str) -> Iterator[Workers]:
    """Give the workers of a Dask cluster; Dask computes again what a lost worker held.

    Parameters
    ----------
    client
        A client, or the address of a scheduler, to which one is opened and closed.

    Yields
    ------
    Workers
        As `results` takes them.

    Raises
    ------
    InputError
        If Dask is missing, the scheduler does not answer, has no workers or loses them, or they
        have another version of this package.
    """
    try:
        import distributed
        from distributed.client import ClosedClientError
    except ImportError:
        expected = "none, or pip install 'specmodel[dask]' for a cluster"
        raise InputError("scheduler", str(client), expected) from None
    if isinstance(client, str):
        with _connected(client) as opened, dask_workers(opened) as workers:
            yield workers
        return
    address = str(client.scheduler.address) if client.scheduler else str(client)
    try:
        _check_workers(client, address)
        # Dask's executor would wait forever for what is lost with the scheduler
        yield partial(client.submit, pure=False), lambda: sum(client.nthreads().values())
    except distributed.KilledWorker as error:
        expected = "workers with more memory, as a part ended several of them"
        raise InputError("scheduler", address, expected) from error
    except (CancelledError, ClosedClientError, OSError) as error:
        raise InputError("scheduler", address, "a scheduler that stays up") from error


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    from distributed import Client
    from distributed.comm.addressing import get_address_host_port

    try:
        get_address_host_port(address)  # a client would fail half open on a malformed address
        client = Client(address, timeout=PATIENCE)
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else "no answer"
        expected = f"a Dask scheduler that answers ({reason})"
        raise InputError("scheduler", address, expected) from None
    with client:
        yield client


def _check_workers(client: Client, address: str) -> None:
    """Refuse a cluster without workers, or whose workers would compute other numbers."""
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError:
        raise InputError("scheduler", address, "a scheduler with a worker") from None
    try:
        found = set(client.run(installed_version).values()) - {__version__}
    except ImportError:
        found = {"none"}
    if found:
        expected = f"workers that have specmodel {__version__}, not {', '.join(sorted(found))}"
        raise InputError("scheduler", address, expected)


def installed_version() -> str:
    """Return the version of this package where it is called."""
    return __version__


def _num_cores() -> int:
    """Return the cores that this process may use, where the system says it."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
