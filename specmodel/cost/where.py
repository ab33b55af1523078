"""What runs where, as it was named: the door at which words, texts and mappings end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from specmodel.base.classes import dataclass
from specmodel.base.errors import InputError
from specmodel.base.naming import SETTABLE, counted
from specmodel.base.records import is_path
from specmodel.base.units import Numeric, parse_seconds
from specmodel.cost.deployment import Deployment
from specmodel.drafters.passes import Drafter
from specmodel.machines.engine import EngineProfile
from specmodel.machines.hardware import HardwareProfile
from specmodel.models.architecture import Architecture

RECORDS = ("hardware", "engine", "target", "drafter")
"""What has fields of its own, which a what-if may replace."""
NO_DRAFTER = "none"
"""The name of a drafter that stands for none."""


class Typed(NamedTuple):
    """What a command line says beside arguments.

    Notes on names that were looked up; and of the draft model in an engine's start command its
    path or id, or the key or flag that lacks one.
    """

    names: tuple[str, ...] = ()
    head: str = ""
    lacking: str = ""


NOTHING_TYPED = Typed()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Where:
    """What runs where, as it was named; None where nothing was.

    Parameters
    ----------
    target, hardware, ..., changes, force
        Arguments as in `cost.arguments`; GPUs are counted by `num_gpus`.
    what_ifs
        Values of fields that replace those of the records, by record and by field.
    is_drafting, may_not_fit
        Whether the usual drafter is taken where none is named, and one GPU where no number of GPUs
        holds the model.
    typed
        What the command line says beside.
    """

    target: Architecture | str | Path | None = None
    hardware: HardwareProfile | str | Path | None = None
    drafter: Drafter | Architecture | str | Path | None = None
    engine: EngineProfile | str | Path | None = None
    stack: str | None = None
    host_speed: float | None = None
    graph_limit: int | Sequence[int] | None = None
    attention_backend: str | None = None
    enforce_eager: bool | None = None
    eager_drafter: bool | None = None
    sync_scheduling: bool | None = None
    tree_width: int | None = None
    state_rollback: str | None = None
    temperature: float | None = None
    tensor_parallel: int | None = None
    data_parallel: int | None = None
    expert_parallel: int | None = None
    draft_tensor_parallel: int | None = None
    decode_context_parallel: int | None = None
    routing_correlation: float | None = None
    memory_utilization: float | None = None
    weight_dtype: str | None = None
    activation_dtype: str | None = None
    kv_dtype: str | None = None
    expert_dtype: str | None = None
    embedding_dtype: str | None = None
    attention_dtype: str | None = None
    mtp_dtype: str | None = None
    lookup_time: float | None = None
    proposal_rate: float | None = None
    popularity: Numeric | str | Path | None = None
    popularity_exponent: float | None = None
    num_gpus: int | None = None
    changes: Mapping[str, object] | Sequence[str] | None = None
    force: bool | None = None
    what_ifs: Mapping[str, Mapping[str, object]]
    is_drafting: bool = False
    may_not_fit: bool = False
    typed: Typed = NOTHING_TYPED

    @cached_property
    def named(self) -> dict[str, Any]:
        """What was named of `NAMES`, by name."""
        return {name: value for name in NAMES if (value := getattr(self, name)) is not None}

    @property
    def changed(self) -> str:
        """The changes of fields, as text."""
        given = self.changes or ()
        texts = [f"{k}={v}" for k, v in given.items()] if isinstance(given, Mapping) else given
        return ", ".join(text for text in texts if "." in text.partition("=")[0])

    @property
    def head(self) -> str:
        """The path or id by which a drafter was named, "" if by a plain name or as a record."""
        named = self.typed.head or self.drafter
        path = str(named).removesuffix("/config.json") if isinstance(named, str | Path) else ""
        return path if "/" in path else ""

    @cached_property
    def deployments(self) -> dict[tuple[int, int], tuple[Deployment, dict[str, Any]]]:
        """Cache of what was deployed, and what was assumed, by what it must hold."""
        return {}


_FIELDS = tuple(Where.__annotations__)
NAMES = _FIELDS[: _FIELDS.index("num_gpus")]
"""What `deploying.resolve` takes beside fields of records."""
ARGUMENTS = _FIELDS[: _FIELDS.index("what_ifs")]
"""Arguments that say what runs where."""


def where_of(
    arguments: Mapping[str, Any],
    *,
    is_drafting: bool = False,
    may_not_fit: bool = False,
    typed: Typed = NOTHING_TYPED,
) -> Where:
    """Return what runs where, from `ARGUMENTS` by name; the same record for the same names.

    The GPU may be counted, as in ``8xh200``; changes may set arguments too.
    """
    how, types = (is_drafting, may_not_fit, typed), tuple(map(type, arguments.values()))
    if {str, int, float, bool, type(None)}.issuperset(types):
        kept = _kept(tuple(arguments.items()), types, *how)
        if kept:
            return kept
    return _where(arguments, *how)


@lru_cache(maxsize=1024)
def _kept(
    arguments: tuple[tuple[str, Any], ...], _types: tuple[type, ...], *how: Any
) -> Where | None:
    """Return what runs where, None if a file says what; types tell 1 from 1.0 and True."""
    if any(isinstance(value, str) and is_path(value) for _, value in arguments):
        return None
    return _where(dict(arguments), *how)


def _where(
    arguments: Mapping[str, Any], is_drafting: bool, may_not_fit: bool, typed: Typed
) -> Where:
    plain, what_ifs = by_record({**arguments, **_changed(arguments.get("changes") or ())})
    if isinstance(plain.get("hardware"), str):
        count, plain["hardware"] = counted(plain["hardware"])
        plain |= {"num_gpus": count} if count else {}
    how: dict[str, Any] = {"is_drafting": is_drafting, "may_not_fit": may_not_fit, "typed": typed}
    return Where(**plain, **how, what_ifs=what_ifs)


def by_record(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, object]]]:
    """Return the values of plain names, and those of dotted names by record and field."""
    what_ifs: dict[str, dict[str, object]] = {record: {} for record in RECORDS}
    plain = dict[str, Any]()
    for name, value in values.items():
        record, is_dotted, field = name.partition(".")
        (what_ifs.setdefault(record, {}) if is_dotted else plain)[field or name] = value
    return plain, what_ifs


def _changed(changes: Mapping[str, object] | Sequence[str]) -> dict[str, object]:
    """Return the values that changes say, by argument or dotted field."""
    values = what_ifs(changes)
    time = values.get("lookup_time")
    if time is not None and not (isinstance(time, int | float) and not time >= 1):
        values["lookup_time"] = parse_seconds("lookup_time", str(time))
    return values


def what_ifs(changes: Mapping[str, object] | Sequence[str]) -> dict[str, object]:
    """Return changes by dotted field of the records, from a mapping or ``KEY=VALUE`` texts."""
    if isinstance(changes, Mapping):
        values, texts = dict(changes), dict(zip(changes, changes, strict=True))
    else:
        parts = {text: [part.strip() for part in text.partition("=")] for text in changes}
        values = {key: literal(value) for key, _, value in parts.values()}
        texts = {key if has_value else "": text for text, (key, has_value, _) in parts.items()}
    for key, text in texts.items():
        record, has_field, _ = key.partition(".")
        if key not in SETTABLE and (not has_field or record not in RECORDS):
            expected = f"KEY=VALUE with a key that starts with {'., '.join(RECORDS)}., or is one of"
            raise InputError("changes", text, f"{expected} {', '.join(SETTABLE)}")
    return values


def literal(text: str) -> object:
    """Return a typed value as bool, int or float if it reads as one, else as text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
