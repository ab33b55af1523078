"""Run a function of many items in threads or processes of this machine, or on a Dask cluster."""

from __future__ import annotations

import gc
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import islice
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, TypeAlias

from specmodel import __version__
from specmodel.core.base.errors import InputError, import_extra

if TYPE_CHECKING:
    from distributed import Client

_Workers: TypeAlias = tuple[Callable[..., Any], int]
"""Function that starts another on an argument and returns its future; number of workers [-]."""

PATIENCE = 10
"""Longest time to wait for a scheduler's answer [s]."""

WORKER_TIMEOUT = 60.0
"""Longest time to wait until a scheduler has a worker [s]."""


def results(
    items: Iterable[Any],
    function: Callable[[Any], Any],
    workers: int | None = None,
    client: Client | str | None = None,
    *,
    processes: bool = False,
) -> Iterator[tuple[Any, Any]]:
    """Yield each item with its result, in order, with at most two items started for each worker.

    The workers are those of the `client`, or else threads or `processes`, by default one for each
    core. A single process is the calling one.
    """
    if client is not None and workers is not None:
        raise InputError("workers", workers, "A Dask scheduler has its own workers. Remove this.")
    if processes and workers == 1:
        yield from ((item, function(item)) for item in items)
        return
    # Dask's own map and as_completed would keep all parts of a sweep in memory
    pool = _pool(workers, processes=processes) if client is None else _cluster(client)
    with pool as (submit, at_once):
        started = ((item, submit(function, item)) for item in items)
        waiting = deque(islice(started, 2 * at_once))
        try:
            while waiting:
                item, future = waiting.popleft()
                yield item, future.result()
                waiting.extend(islice(started, 1))
        finally:
            for _, future in waiting:
                future.cancel()


@contextmanager
def _pool(workers: int | None, *, processes: bool) -> Iterator[_Workers]:
    has_affinity = hasattr(os, "sched_getaffinity")  # macOS and Windows lack it
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    count = cores if workers is None else workers
    if not isinstance(count, int) or count < 1:
        raise InputError("workers", count, "at least 1")
    how: dict[str, Any] = {"mp_context": get_context("spawn"), "initializer": _end_quietly}
    try:
        # threads suffice where NumPy and Arrow do the work, as they release the GIL
        kind: Any = partial(ProcessPoolExecutor, **how) if processes else ThreadPoolExecutor
        with kind(count) as pool:
            yield pool.submit, count
    except BrokenProcessPool:
        expected = "A worker ended too early. Use fewer workers or more memory."
        raise InputError("workers", count, expected) from None


def _end_quietly() -> None:
    """Let Ctrl-C end a worker process without a traceback, unless the process ignores Ctrl-C."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def _cluster(client: Client | str) -> Iterator[_Workers]:
    """Yield the workers of a Dask cluster, from a client or the address of a scheduler."""
    dask = import_extra("distributed", "dask", "scheduler", str(client), "no Dask, or first")
    address = str(getattr(getattr(client, "scheduler", None), "address", client))
    lost = CancelledError, OSError, ImportError, dask.KilledWorker, dask.client.ClosedClientError
    try:
        with _connected(client) if isinstance(client, str) else nullcontext(client) as opened:
            opened.wait_for_workers(1, timeout=WORKER_TIMEOUT)
            if others := {*opened.run(installed_version).values()} - {__version__}:
                raise ImportError(f"there is {', '.join(others)}")
            yield partial(opened.submit, pure=False), sum(opened.nthreads().values())
    except lost as error:
        reason = str(error).partition("\n")[0] or "no answer"
        expected = f"a reachable Dask scheduler, with workers that have specmodel {__version__}"
        raise InputError("scheduler", address, f"{expected} ({reason})") from error


def _connected(address: str) -> Client:
    """Return a client of a scheduler, with the certificates of Dask's configuration."""
    from distributed import Client
    from distributed.comm.addressing import get_address_host_port

    try:
        get_address_host_port(address)  # a malformed address would leave a client half open
        return Client(address, timeout=PATIENCE)
    except (OSError, TypeError, ValueError) as error:  # a TypeError if certificates are missing
        reason = str(error)
    # A failed client waits for the lock of Dask's loops when it is garbage-collected. While another
    # loop starts, both would wait for ever. Collecting the client here avoids that.
    gc.collect()
    raise OSError(reason)


def installed_version() -> str:
    """Return the version of this package on the worker that calls the function."""
    return __version__
