"""Read only ordinary files, and write files completely or not at all."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tomli  # a compiled tomllib, because a first answer reads 140 kB

from specmodel.core.base.errors import InputError

_WRITABLE = "a file that can be written"
_PIECE = 2**18
"""Bytes written at a time; one large write would take the kernel twice as long [B]."""
_MOST_JSON, _EACH = 700_000_000, 40
"""Maximum memory of JSON as text and values, and approximate memory of a value [B]."""


def file_mode(path: Path) -> int:
    """Return the mode of a file after following links; 0 if there is no file [-]."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def toml_tables(file: Path) -> dict[str, Any]:
    """Return the tables of a shipped TOML file."""
    return tomli.loads(file.read_text(encoding="utf-8"))


def parsed_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; raise a ValueError also if it is nested too deeply."""
    import json  # shipped records do not need it

    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def json_text(path: Path, argument: str, less: str) -> str:
    """Return a JSON file as text; refuse one that needs too much memory, and suggest `less`."""
    check_readable(path, argument, "JSON")
    size = path.stat().st_size
    with refusing(path, argument, "a JSON file in UTF-8"):
        text = path.read_text(encoding="utf-8-sig") if 3 * size < _MOST_JSON else ""
    needed = max(3 * size, 2 * text.__sizeof__() + _EACH * sum(map(text.count, ",:[{")))
    if needed > _MOST_JSON:
        most = f"at most {_MOST_JSON / 1e6:g} MB of JSON and its values, not {needed / 1e6:.0f} MB"
        raise InputError(argument, str(path), f"{most}: {less}")
    return text


@contextmanager
def refusing(path: str | Path, argument: str, expected: str) -> Iterator[None]:
    """Turn an OSError or ValueError into an InputError with path, `expected` and reason."""
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError) as error:
        # the system's message, because Arrow's also names calls inside Arrow
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if number else str(error)
        raise InputError(argument, str(path), f"{expected} ({reason})") from None


def check_readable(path: Path, argument: str, kind: str) -> None:
    """Refuse a path that is not an ordinary file; `kind` is the format's name in errors."""
    with refusing(path, argument, f"a readable {kind} file"):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise OSError("it is a directory" if stat.S_ISDIR(mode) else "it is no ordinary file")


def check_writable(path: str | Path, argument: str = "output") -> None:
    """Refuse a path that `write_bytes` could not write; call it before computing anything."""
    with refusing(path, argument, _WRITABLE):
        if not str(path):
            raise OSError(errno.ENOENT, "")
        folder = followed(Path(path)).parent
        is_folder = stat.S_ISDIR(folder.stat().st_mode)
        if stat.S_ISDIR(file_mode(Path(path))):
            raise OSError(errno.EISDIR, "")
        if not is_folder or not os.access(folder, os.W_OK):
            raise OSError(errno.EACCES if is_folder else errno.ENOTDIR, "")


def write_text(path: str | Path, text: str, argument: str = "output") -> None:
    """Write a text file in UTF-8, like `write_bytes`."""
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        lost = error.object[error.start : error.end]
        raise InputError(argument, lost, "text that can be written in UTF-8") from None
    write_bytes(path, content, argument)


def write_bytes(path: str | Path, content: bytes, argument: str = "output") -> None:
    """Write a file completely, or change nothing and raise an InputError.

    An existing file is replaced and keeps its mode. Links are followed.
    """
    with refusing(path, argument, _WRITABLE):
        target = followed(Path(path))
        mode = file_mode(target)
        if mode and not stat.S_ISREG(mode):
            target.write_bytes(content)  # a device; a folder raises an error
            return
        import secrets  # imports cryptography, which only writing needs

        temporary = target.with_name(f".specmodel-{secrets.token_hex(8)}")
        try:
            new = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)  # less the umask
            with os.fdopen(new, "wb") as file:
                for start in range(0, len(content), _PIECE):
                    file.write(memoryview(content)[start : start + _PIECE])
            if mode:
                temporary.chmod(stat.S_IMODE(mode))
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)


def followed(path: Path) -> Path:
    """Return the target of links, which may not exist; raise an error for circular links."""
    with suppress(FileNotFoundError):
        path.stat()
    return path.resolve()
