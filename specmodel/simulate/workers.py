"""Pieces of work spread over processes."""

import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
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
    """Keep two pieces waiting for each other process, and work on one here in the meantime."""
    waiting, running = list(reversed(pieces)), dict[Future[Result], Piece]()
    others = workers - 1  # this process works too: it need not start, and nothing is sent to it
    pool = ProcessPoolExecutor(others, get_context("spawn"), initializer=_end_quietly)
    try:
        while waiting or running:
            while waiting and len(running) < 2 * others:
                piece = waiting.pop()
                running[pool.submit(function, piece)] = piece
            if waiting:
                piece = waiting.pop()
                yield piece, function(piece)
            done = wait(running, 0 if waiting else None, FIRST_COMPLETED).done
            for future in done:
                yield running.pop(future), future.result()
    except BrokenProcessPool:
        expected = "fewer workers, or more memory: one ended before its work was done"
        raise InputError("workers", workers, expected) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _end_quietly() -> None:
    """Let Ctrl-C end a worker without a traceback, unless it is ignored."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
