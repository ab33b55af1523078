"""Overheads of a serving stack: what a pass costs beyond its FLOPs and bytes."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from specmodel import records
from specmodel.records import Record

FOLDER = Path(__file__).parent / "engines"

Overhead = Annotated[float, Field(ge=0, le=10)]
"""Seconds; no engine spends ten of them on a pass."""


class EngineProfile(Record):
    """Overheads of one serving stack.

    Parameters
    ----------
    schema_version
        Version of this schema, 1.
    name
        Name for people.
    source
        Where the figures come from.
    kernel_time
        Launch overhead of each kernel of a pass [s].
    pass_time
        Host overhead of each pass of the target [s].
    draft_pass_time
        Host overhead of each pass of the drafter [s].
    reject_time
        Rejection sampling of a step, whatever the batch [s].
    reject_time_per_request
        Rejection sampling of a step, per request [s].
    """

    schema_version: Literal[1]
    name: str
    source: str
    kernel_time: Overhead = 0.0
    pass_time: Overhead = 0.0
    draft_pass_time: Overhead = 0.0
    reject_time: Overhead = 0.0
    reject_time_per_request: Overhead = 0.0

    @property
    def is_ideal(self) -> bool:
        """Whether every overhead is zero, so that throughput is a bound."""
        return not any(
            (
                self.kernel_time,
                self.pass_time,
                self.draft_pass_time,
                self.reject_time,
                self.reject_time_per_request,
            )
        )


def load_engine(name: str | Path) -> EngineProfile:
    """Return an engine profile by name or path.

    Parameters
    ----------
    name
        A name that `list_engines` gives, or a TOML file: with a slash or a suffix.

    Returns
    -------
    EngineProfile
        The profile.

    Raises
    ------
    InputError
        If there is no such profile, or the file does not fit.

    Examples
    --------
    >>> load_engine("ideal").is_ideal
    True
    """
    return records.load(EngineProfile, name, FOLDER, "engine")


def list_engines() -> list[str]:
    """Return the names of the engine profiles that ship with the package.

    Examples
    --------
    >>> "ideal" in list_engines()
    True
    """
    return list(records.list_names(FOLDER))
