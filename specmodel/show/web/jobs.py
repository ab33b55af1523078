"""Loads that are simulated beside the page, each in a process that can be ended."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any

from specmodel.base.classes import dataclass
from specmodel.base.errors import InputError

_SPAWN = get_context("spawn")
_LEFT = 120.0
"""Time after which one who does not ask any more has left [s]."""


def _simulate(arguments: Mapping[str, Any], pipe: Connection) -> None:
    """Simulate a load, and send how much is done, and the answer in all forms or a message."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal; the server ends it
    from specmodel.serving.asked import load_question
    from specmodel.show.forms import as_csv, as_json
    from specmodel.show.web.told import told

    try:
        answer = load_question(arguments).answered(progress=pipe.send).view()
        pipe.send({"parts": told(answer), "json": as_json(answer), "csv": as_csv(answer)})
    except InputError as error:
        pipe.send(error)


@dataclass(kw_only=True)
class Job:
    """A load in simulation: its process, its pipe, the runs done, and its answer or error."""

    process: Any
    pipe: Connection
    done: int = 0
    found: dict[str, Any] | InputError | None = None
    asked_at: float = field(default_factory=monotonic)

    @property
    def runs(self) -> bool:
        """Whether the load still runs; one not asked about for `_LEFT` is cancelled."""
        if self.look().found is None and monotonic() - self.asked_at > _LEFT:
            self.cancel()
        return self.found is None

    def look(self) -> Job:
        """Read the messages sent so far, and return the job."""
        try:
            while self.found is None and self.pipe.poll():
                sent = self.pipe.recv()
                if isinstance(sent, int):
                    self.done += sent
                else:
                    self.found = sent
        except (EOFError, OSError):
            self.found = InputError("load", "ended", "a load that runs to its end: start it again")
        return self

    def cancel(self) -> None:
        """End the process; a load without an answer counts as cancelled."""
        self.process.terminate()
        self.process.join()
        self.found = self.found or InputError("load", "cancelled", "a load that runs to its end")


def start(arguments: Mapping[str, Any]) -> Job:
    """Start a process that simulates a load, and return its job."""
    pipe, end = _SPAWN.Pipe(duplex=False)
    process = _SPAWN.Process(target=_simulate, args=(arguments, end), daemon=True)
    process.start()
    end.close()
    return Job(process=process, pipe=pipe)
