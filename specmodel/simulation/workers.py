"""Pieces of work spread over processes."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import TypeVar

from specmodel.errors import InputError

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def spread(
    function: Callable[[Piece], Result], pieces: Sequence[Piece], workers: int
) -> Iterator[tuple[Piece, Result]]:
    """Give the result of each piece of work, in any order, a few ahead of what is taken.

    Parameters
    ----------
    function
        Does a piece; importable where there are several workers.
    pieces
        What is to be done.
    workers
        Processes; with one, or one piece, nothing is started [-].

    Yields
    ------
    tuple
        A piece and its result.

    Raises
    ------
    InputError
        If there is no worker.
    """
    if workers < 1:
        raise InputError("workers", workers, "at least 1")
    workers = min(workers, len(pieces))
    if workers == 1:
        yield from ((piece, function(piece)) for piece in pieces)
        return
    waiting, running = list(reversed(pieces)), dict[Future[Result], Piece]()
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        while waiting or running:
            while waiting and len(running) < 2 * workers:
                piece = waiting.pop()
                running[pool.submit(function, piece)] = piece
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
    finally:
        pool.shutdown(cancel_futures=True)
