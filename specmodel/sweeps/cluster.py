"""A Dask cluster as an executor of parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from specmodel import __version__
from specmodel.errors import InputError

if TYPE_CHECKING:
    from distributed import Client

PATIENCE = 10
"""Seconds that a scheduler may take to answer, and to have a worker [s]."""


@contextmanager
def cluster(client: Client | str) -> Iterator[tuple[Executor, Callable[[], int]]]:
    """Give the workers of a Dask cluster; parts that a lost worker held are computed again.

    Parameters
    ----------
    client
        A client, or the address of a scheduler, to which one is opened and closed.

    Yields
    ------
    tuple
        As `results` takes them.

    Raises
    ------
    InputError
        If Dask is missing, the scheduler does not answer, has no workers or loses them, or they
        have another version of this package.
    """
    try:
        import distributed
        from distributed.comm.core import CommClosedError
    except ImportError:
        expected = "none, or pip install 'specmodel[dask]' for a cluster"
        raise InputError("scheduler", str(client), expected) from None
    if isinstance(client, str):
        with _connected(client) as opened, cluster(opened) as workers:
            yield workers
        return
    address = str(client.scheduler.address) if client.scheduler else str(client)
    _check_workers(client, address)
    pool = client.get_executor(pure=False)
    try:
        yield pool, lambda: sum(client.nthreads().values())
    except distributed.KilledWorker as error:
        expected = "workers with more memory, as a part ended several of them"
        raise InputError("scheduler", address, expected) from error
    except (CancelledError, CommClosedError, TimeoutError) as error:
        raise InputError("scheduler", address, "a scheduler that stays up") from error
    finally:
        pool.shutdown(wait=False)


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    from distributed import Client

    try:
        client = Client(address, timeout=PATIENCE)
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else "no answer"
        raise InputError(
            "scheduler", address, f"a Dask scheduler that answers ({reason})"
        ) from None
    with client:
        yield client


def _check_workers(client: Client, address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
        versions = set(client.run(installed_version).values())
    except TimeoutError:
        raise InputError("scheduler", address, "a scheduler with a worker") from None
    except ImportError:
        versions = {"none"}
    if versions != {__version__}:
        found = ", ".join(sorted(versions - {__version__}))
        expected = f"workers that have specmodel {__version__}, not {found}"
        raise InputError("scheduler", address, expected)


def installed_version() -> str:
    """Return the version of this package where it is called."""
    return __version__
