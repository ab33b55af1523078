"""The command line as a program: streams, signals and exit status.

This module imports nothing heavy before `main` runs, which handles Ctrl-C during imports.
"""

import os
import signal
import sys
from collections.abc import Sequence


def run() -> int:
    """Run as the program ``specmodel``; Ctrl-C, SIGTERM and SIGHUP end it without a traceback."""
    import gc

    for name in ("SIGTERM", "SIGHUP"):  # the latter not on Windows
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # both are the process's
    gc.disable()  # in so short a life, looking for cycles costs a fifth of the time
    if "calibrate" not in sys.argv:  # which times kernels of torch
        # a thread for each core takes longer to start than all small matrices here
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    status = main()
    gc.freeze()
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, by default with the arguments of the process.

    The exit status is 0, 2 for input that cannot be used, 130 for Ctrl-C, 1 for a closed pipe.
    """
    try:
        from specmodel.cli.commands import carry_out

        return carry_out(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return 130


def _open_closed_streams() -> None:
    """Open standard streams that the shell closed, so that no other file gets their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDONLY if number < 2 else os.O_WRONLY)  # as the least number
            mode = "r" if number == 0 else "w"
            # a stream has a number and no path, and stays open as long as the program
            setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - see above
