"""Pieces of work spread over processes."""

import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

from specmodel.base.errors import InputError

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def spread(
    function: Callable[[Piece], Result],
    pieces: Sequence[Piece],
    workers: int,
    policies: object = None,
) -> Iterator[tuple[Piece, Result]]:
    """Return each piece of work and its result, in any order, as soon as the result is there.

    What pieces hold of policies is tried first, as not all of it can be sent to other processes.
    """
    if workers < 1:
        raise InputError("workers", workers, "at least 1")
    workers = min(workers, len(pieces))
    if workers == 1:
        return ((piece, function(piece)) for piece in pieces)
    try:
        pickle.dumps((function, policies))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        expected = f"1, as not all policies can be handed to other processes ({error})"
        raise InputError("workers", workers, expected) from None
    return _spread(function, pieces, workers)


def _spread(
    function: Callable[[Piece], Result], pieces: Sequence[Piece], workers: int
) -> Iterator[tuple[Piece, Result]]:
    """Yield each piece of work and its result from processes that were started for them."""
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_end_quietly)
    try:
        running = {pool.submit(function, piece): piece for piece in pieces}
        for future in as_completed(running):
            yield running.pop(future), future.result()
    except BrokenProcessPool:
        expected = "fewer, or more memory: one ended before its work was done"
        raise InputError("workers", workers, expected) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _end_quietly() -> None:
    """Let Ctrl-C end a worker without a traceback, unless it is ignored."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
