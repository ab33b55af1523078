"""The program as a process of its own."""

import shlex
import subprocess
import sys


def start(command: str, code: str = "", **options: object) -> subprocess.Popen:
    """Run the program in a process of its own, after some code.

    A shell's background has Ctrl-C ignored, and its children inherit that.
    """
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{heed}\n{code}\nfrom specmodel.cli import run; raise SystemExit(run())"
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen([sys.executable, "-c", program, *shlex.split(command)], **options)
