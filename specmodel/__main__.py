"""Run the program as ``python -m specmodel``."""

import sys

from specmodel.cli import run

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the current folder, whose modules must not be imported
    raise SystemExit(run())
