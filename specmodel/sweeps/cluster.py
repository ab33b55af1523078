"""A Dask cluster as workers of a sweep."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from specmodel import __version__
from specmodel.base.errors import InputError
from specmodel.sweeps.run import Workers

if TYPE_CHECKING:
    from distributed import Client

PATIENCE = 10
"""Seconds that a scheduler may take to answer, and to have a worker [s]."""


@contextmanager
def dask_workers(client: Client | str) -> Iterator[Workers]:
    """Give the workers of a Dask cluster; parts that a lost worker held are computed again.

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
        # not its executor, which waits forever for what is lost with the scheduler
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
        get_address_host_port(address)  # or else the client would fail half open
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
