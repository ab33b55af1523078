"""Files written as a whole or not at all."""

import errno
import os
import tempfile
from pathlib import Path

from specmodel.base.errors import InputError


def write_text(path: str | Path, text: str, argument: str = "output") -> None:
    """Write a text file in UTF-8 as `write_bytes` does."""
    write_bytes(path, text.encode(), argument)


def check_writable(path: str | Path, argument: str = "output") -> None:
    """Refuse a path that `write_bytes` could not write to, before anything is computed."""
    folder, fault = Path(path).resolve().parent, None
    if Path(path).is_dir():
        fault = errno.EISDIR
    elif not folder.is_dir():
        fault = errno.ENOENT
    elif not os.access(folder, os.W_OK):
        fault = errno.EACCES
    if fault:
        expected = f"a file that can be written ({os.strerror(fault)})"
        raise InputError(argument, str(path), expected)


def write_bytes(path: str | Path, content: bytes, argument: str = "output") -> None:
    """Write a file as a whole or not at all.

    Parameters
    ----------
    path
        Where; a file that is there is replaced.
    content
        Its content.
    argument
        Name that an error should carry.

    Raises
    ------
    InputError
        If it cannot be written; then nothing has changed.
    """
    typed, path = str(path), Path(path).resolve()
    temporary = None
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)  # a device; a folder raises
            return
        mode = path.stat().st_mode if path.exists() else 0o644
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = file.name
            file.write(content)
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise InputError(argument, typed, f"a file that can be written ({reason})") from None
