"""Define the exception for invalid input, and its text: argument, value, remedy."""

from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from typing import Any


class InputError(ValueError):
    """Report an invalid argument in one line.

    Parameters
    ----------
    argument
        Name of the invalid argument, key or file.
    value
        The invalid value. The message shows its first 80 characters.
    expected
        Description of valid values, or sentences if no value is valid: a capital first, a full
        stop last. Put arguments in backquotes, with or without a Python value.
        The command line turns them into options, and Python shows them without backquotes.

    Examples
    --------
    >>> str(InputError("batch_size", -1, "a positive number"))
    'batch_size: got -1; expected a positive number'
    >>> str(InputError("acceptance", None, "a rate, such as `acceptance_rate=0.7`"))
    'acceptance: got None; expected a rate, such as acceptance_rate=0.7'
    >>> str(InputError("workers", 4, "A Dask scheduler has its own workers. Remove `workers`."))
    'workers: got 4. A Dask scheduler has its own workers. Remove workers.'
    """

    def __init__(self, argument: str, value: object, expected: str) -> None:
        advice = with_advice("", expected.replace("`", ""))
        super().__init__(in_one_line(f"{argument}: got {_abbreviate(value)}{advice}"))
        self.argument = argument
        self.value = value
        self.expected = expected

    def __reduce__(self) -> tuple[type, tuple[str, object, str]]:
        return type(self), (self.argument, self.value, self.expected)


def with_advice(text: str, expected: str) -> str:
    """Return a text with what was expected instead, a description or sentences, after it."""
    is_sentence = expected[:1].isupper() and expected.endswith(".")
    return f"{text}. {expected}" if is_sentence else f"{text}; expected {expected}"


def given(arguments: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the arguments in `names` that were given: not None and not an empty tuple."""
    found = {name: arguments.get(name) for name in names}
    return {n: v for n, v in found.items() if not (v is None or (isinstance(v, tuple) and not v))}


def refuse_given(arguments: Mapping[str, Any], names: Iterable[str], expected: str) -> None:
    """Refuse the first argument in `names` that was given, because it would have no effect."""
    for name, value in given(arguments, names).items():
        raise InputError(name, value, expected)


def refuse_unknown(arguments: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse the first argument that is not in `known`; the error names similar ones."""
    for name, value in arguments.items():
        if name not in known:
            raise InputError(name, value, f"an argument such as {nearest(name, known)}")


def import_extra(
    package: str, extra: str, argument: str, value: object = None, expected: str = ""
) -> Any:
    """Return a module of an optional package; an error names the extra that installs it."""
    whole = package.partition(".")[0]
    try:
        return import_module(whole) and import_module(package)
    except ImportError:
        lacking = f"The package {whole} is not installed: {install(extra)}."
        advice = f"{expected} {install(extra)}" if expected else lacking
        raise InputError(argument, value or whole, advice) from None


def install(extra: str) -> str:
    """Return the command that installs one of our extras."""
    return f"pip install '.[{extra}]' in the folder of specmodel's source"


def in_one_line(text: str) -> str:
    """Return a text in one line, with escapes for control characters."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _abbreviate(value: Any) -> str:
    """Return the representation of a value in one line, cut in the middle."""
    value = value.tolist() if hasattr(value, "tolist") else value  # the form that people type
    try:
        return cut(in_one_line(repr(value)))
    except (RecursionError, ValueError):  # nested too deeply, or a number with too many digits
        return f"a {type(value).__name__} too large to show"


def cut(text: str, most: int = 80) -> str:
    """Return a text of at most `most` characters (80 or more), cut in the middle."""
    return text if len(text) <= most else f"{text[: most - 28]}...{text[-25:]}"


_FEW, _MOST = 25, 6
"""Number of names that are all listed [-]."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return as text the known names most like `name`, joined by commas.

    The result lists names that contain `name`, at most six "and N more". Without any, it lists up
    to four names of similar spelling. Without these, it lists all known names if there are at most
    25, or the five nearest "and N more".

    Examples
    --------
    >>> nearest("h200", ["h100_sxm", "h200_sxm", "t4"])
    'h200_sxm'
    """
    from difflib import get_close_matches

    names, typed = sorted(known), name.lower()
    containing = [candidate for candidate in names if typed and typed in candidate]
    close = containing or get_close_matches(typed, names, n=4, cutoff=0.5)
    if not close and len(names) > _FEW:
        few = get_close_matches(typed, names, n=5, cutoff=0.0) if typed else names[:5]
        return f"{', '.join(few)} and {len(names) - 5} more"
    more = f" and {len(close) - _MOST} more" if len(close) > _MOST else ""
    return ", ".join(close[:_MOST] or names) + more
