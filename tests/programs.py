"""Start the program as a separate process."""

import shlex
import subprocess
import sys


def start(command: str, code: str = "", **options: object) -> subprocess.Popen:
    """Run the program in a separate process, after some code.

    The process heeds Ctrl-C, which processes in a shell's background ignore.
    """
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{heed}\n{code}\nfrom specmodel.cli import run; raise SystemExit(run())"
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen([sys.executable, "-c", program, *shlex.split(command)], **options)
