"""Where the parts of a sweep are computed: threads of this process, or a Dask cluster."""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from specmodel import __version__
from specmodel.base.errors import InputError, import_extra

if TYPE_CHECKING:
    from distributed import Client

_Workers: TypeAlias = tuple[Callable[..., Any], Callable[[], int]]
"""What starts a function on an argument and returns its future, and how many can run now [-]."""

PATIENCE = 10
"""Seconds that a scheduler may take to answer [s]."""

WORKER_TIMEOUT = 60.0
"""Seconds that a scheduler may take to get a worker [s]."""


def results(
    items: Iterable[Any],
    function: Callable[[Any], Any],
    workers: int | None = None,
    client: Client | str | None = None,
) -> Iterator[tuple[Any, Any]]:
    """Give each item with its result, in order, with two in work or waiting for each worker.

    On the cluster that is named, or else in threads: by default one for each core.
    """
    if client is not None and workers is not None:
        raise InputError("workers", workers, "none with a scheduler, which has its own")
    # Dask's own map and as_completed would hold every part of the sweep at once
    waiting: deque[tuple[Any, Any]] = deque()
    with _threads(workers) if client is None else _cluster(client) as (submit, num_workers):
        try:
            for item in items:
                waiting.append((item, submit(function, item)))
                if len(waiting) >= 2 * max(num_workers(), 1):
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            for _, future in waiting:
                future.cancel()


@contextmanager
def _threads(workers: int | None) -> Iterator[_Workers]:
    has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS and Windows
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    count = cores if workers is None else workers
    if count < 1:
        raise InputError("workers", count, "at least 1")
    with ThreadPoolExecutor(count) as pool:  # NumPy and Arrow let threads run at the same time
        yield pool.submit, lambda: count


@contextmanager
def _cluster(client: Client | str) -> Iterator[_Workers]:
    """Give the workers of a Dask cluster, by a client or the address of a scheduler."""
    dask = import_extra("distributed", "dask", "scheduler", str(client), "none, or first")
    with _connected(client) if isinstance(client, str) else nullcontext(client) as opened:
        address = str(opened.scheduler.address) if opened.scheduler else str(opened)
        try:
            _check_workers(opened, address)
            yield partial(opened.submit, pure=False), lambda: sum(opened.nthreads().values())
        except (CancelledError, OSError, dask.KilledWorker, dask.client.ClosedClientError) as error:
            expected = "a scheduler that stays up, with workers that do"
            raise InputError("scheduler", address, expected) from error


def _connected(address: str) -> Client:
    """Return a client, with the certificates of Dask's configuration."""
    from distributed import Client
    from distributed.comm.addressing import get_address_host_port

    try:
        get_address_host_port(address)  # a client would fail half open on a malformed address
        return Client(address, timeout=PATIENCE)
    except (OSError, TypeError, ValueError) as error:  # a TypeError where certificates lack
        reason = str(error).partition("\n")[0] or "no answer"
    # A client that failed waits for the lock of Dask's loops when it is collected. If that happened
    # while another loop starts, both would wait for ever: it is collected here.
    gc.collect()
    raise InputError("scheduler", address, f"a Dask scheduler that answers ({reason})")


def _check_workers(client: Client, address: str) -> None:
    """Refuse a cluster without workers, or whose workers would compute other numbers."""
    try:
        client.wait_for_workers(1, timeout=WORKER_TIMEOUT)
        others = set(client.run(installed_version).values()) - {__version__}
    except TimeoutError:
        raise InputError("scheduler", address, "a scheduler with a worker") from None
    except ImportError:
        others = {"none"}
    if others:
        expected = f"workers that have specmodel {__version__}, not {', '.join(sorted(others))}"
        raise InputError("scheduler", address, expected)


def installed_version() -> str:
    """Return the version of this package where it is called."""
    return __version__
