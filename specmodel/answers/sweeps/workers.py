"""Where the parts of a sweep are computed: threads of this process, or a Dask cluster."""

from __future__ import annotations

import gc
import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from specmodel import __version__
from specmodel.answers.sweeps.plan import Part, Plan
from specmodel.base.errors import InputError, import_extra

if TYPE_CHECKING:
    from distributed import Client

Result = TypeVar("Result")

Workers: TypeAlias = tuple[Callable[..., Any], Callable[[], int], Callable[[Any], Any]]
"""What starts a function on an argument and returns its future, how many can run now [-], and what
waits for the result of a future."""

AHEAD = 2
"""Parts in work or waiting for each worker [-]."""

PATIENCE = 10
"""Seconds that a scheduler may take to answer [s]."""

WORKER_TIMEOUT = 60.0
"""Seconds that a scheduler may be without workers [s]."""

_LOOK = 1.0
"""Seconds between two looks at whether there are workers [s]."""


class _NoWorkersError(Exception):
    """A scheduler was without workers for too long."""


def results(
    plan: Plan, function: Callable[[Part], Result], workers: Workers, first: int = 0
) -> Iterator[Result]:
    """Give the result of each part from the first on, in order, computing a few parts ahead."""
    # Dask's own map and as_completed would hold every part of the sweep at once
    submit, num_workers, wait = workers
    waiting: deque[Any] = deque()
    try:
        for part in itertools.islice(plan.parts(), first, None):
            waiting.append(submit(function, part))
            if len(waiting) >= AHEAD * max(num_workers(), 1):
                yield wait(waiting.popleft())
        while waiting:
            yield wait(waiting.popleft())
    finally:
        for future in waiting:
            future.cancel()


def chosen_workers(
    workers: int | None, client: Client | str | None
) -> AbstractContextManager[Workers]:
    """Return the cluster that is given, or else threads: by default one for each core."""
    if client is None:
        has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS and Windows
        cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
        return threads(cores if workers is None else workers)
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
        yield pool.submit, lambda: workers, Future.result
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def dask_workers(client: Client | str) -> Iterator[Workers]:
    """Give the workers of a Dask cluster, by a client or the address of a scheduler."""
    distributed = import_extra(
        "distributed", "dask", "scheduler", str(client), "none, or for a cluster"
    )
    if isinstance(client, str):
        with _connected(client) as opened, dask_workers(opened) as workers:
            yield workers
        return
    address = str(client.scheduler.address) if client.scheduler else str(client)
    try:
        _check_workers(client, address)
        # Dask's executor would wait forever for results that are lost with the scheduler
        wait = partial(_result, client)
        yield partial(client.submit, pure=False), lambda: sum(client.nthreads().values()), wait
    except distributed.KilledWorker as error:
        expected = "workers with more memory, as a part ended several of them"
        raise InputError("scheduler", address, expected) from error
    except _NoWorkersError:
        raise InputError("scheduler", address, "a scheduler that keeps a worker") from None
    except (CancelledError, distributed.client.ClosedClientError, OSError) as error:
        raise InputError("scheduler", address, "a scheduler that stays up") from error


def _result(client: Client, future: Any) -> Any:
    """Wait for a result, but not for ever on a scheduler that has lost all workers."""
    from distributed import wait

    last_seen = time.monotonic()
    while True:
        with suppress(TimeoutError):
            wait(future, timeout=_LOOK)
            # a finished result is lost again if its worker leaves before it is fetched
            return future.result(timeout=WORKER_TIMEOUT)
        if client.nthreads():
            last_seen = time.monotonic()
        elif time.monotonic() - last_seen > WORKER_TIMEOUT:
            raise _NoWorkersError


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    """Open a client, with the certificates of Dask's configuration, and close it."""
    from distributed import Client
    from distributed.comm.addressing import get_address_host_port

    try:
        get_address_host_port(address)  # a client would fail half open on a malformed address
        client = Client(address, timeout=PATIENCE)
    except TypeError:  # from Python's ssl, which was given nothing
        keys = "distributed.comm.tls.ca-file, .client.cert and .client.key"
        expected = f"certificates in Dask's configuration ({keys}), or another protocol"
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else "no answer"
        expected = f"a Dask scheduler that answers ({reason})"
    else:
        with client:
            yield client
        return
    # A client that failed waits for the lock of Dask's loops when it is collected. If that happened
    # while another loop starts, both would wait for ever: it is collected here.
    gc.collect()
    raise InputError("scheduler", address, expected)


def _check_workers(client: Client, address: str) -> None:
    """Refuse a cluster without workers, or whose workers would compute other numbers."""
    try:
        client.wait_for_workers(1, timeout=WORKER_TIMEOUT)
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
