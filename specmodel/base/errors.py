"""The one exception a user can cause, and how it reads: argument, value, what would do."""

from collections.abc import Iterable


class InputError(ValueError):
    """Report an argument that cannot be used, in one line.

    Parameters
    ----------
    argument
        Name of the argument, key or file at fault.
    value
        What was given; abbreviated in the message.
    expected
        What would be accepted.

    Examples
    --------
    >>> str(InputError("batch_size", -1, "a positive number"))
    'batch_size: got -1; expected a positive number'
    """

    def __init__(self, argument: str, value: object, expected: str) -> None:
        message = f"{argument}: got {abbreviate(value)}; expected {expected}"
        super().__init__(" ".join(message.split()))
        self.argument = argument
        self.value = value
        self.expected = expected

    def __reduce__(self) -> tuple[type, tuple[str, object, str]]:
        return type(self), (self.argument, self.value, self.expected)


def abbreviate(value: object, width: int = 60) -> str:
    """Return `value` as text of one line and at most `width` characters.

    Parameters
    ----------
    value
        Anything.
    width
        Most characters, from 12 on [-].

    Returns
    -------
    str
        Its representation, cut in the middle.

    Examples
    --------
    >>> abbreviate("x" * 100, width=12)
    "'xxxxx...xx'"
    """
    text = " ".join(repr(value).split())
    if len(text) <= width:
        return text
    tail = (width - 3) // 3
    return f"{text[: width - 3 - tail]}...{text[-tail:]}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known names most like `name`, or all of them, as a phrase.

    Parameters
    ----------
    name
        What was typed.
    known
        The names that would do.

    Returns
    -------
    str
        Names separated by commas.

    Examples
    --------
    >>> nearest("h200", ["h100_sxm", "h200_sxm", "t4"])
    'h200_sxm'
    """
    from difflib import get_close_matches

    names = sorted(known)
    containing = [known_name for known_name in names if name and name.lower() in known_name]
    close = containing or get_close_matches(name.lower(), names, n=4, cutoff=0.5)
    return ", ".join(close[:6] or names)
