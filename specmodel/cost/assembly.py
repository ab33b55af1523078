"""Records of a deployment from what people name: names, dtypes, what-ifs of single fields."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from specmodel.algebra.routing import zipf_popularity
from specmodel.base.errors import InputError
from specmodel.base.records import read_numbers
from specmodel.base.units import FloatArray, check, check_dtype
from specmodel.records.architecture import Architecture, load_architecture
from specmodel.records.drafters import Drafter, load_drafter, model_drafter
from specmodel.records.engine import EngineProfile, load_engine
from specmodel.records.hardware import HardwareProfile, load_hardware

RECORDS = ("hardware", "engine", "target", "drafter")
DEGREES = ("tensor_parallel", "expert_parallel", "draft_tensor_parallel")
DTYPES = ("weight_dtype", "expert_dtype", "embedding_dtype", "activation_dtype", "kv_dtype")
LOOKUP = ("lookup_time", "proposal_rate")
POPULARITY = ("popularity", "popularity_exponent")
NAMES = (*RECORDS, "stack", *DEGREES, "routing_correlation", *DTYPES, *LOOKUP, *POPULARITY)
"""What `assemble` takes beside fields of records."""


def assemble(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the arguments of `deploy` and `predict` that say what runs where.

    Parameters
    ----------
    values
        By name: target, drafter and hardware, and whatever else of `NAMES` is given, None for
        what is not; with a dot, fields of the four records, such as
        hardware.memory.peak_bytes_per_s, to be replaced.
    prefix
        What an error should carry before the name of a field.

    Returns
    -------
    dict
        Records loaded and changed, and what was given beside them.

    Raises
    ------
    InputError
        Names the argument at fault.

    Examples
    --------
    >>> given = assemble({"target": "mixtral-8x7b", "drafter": "ngram", "hardware": "h100_sxm",
    ...                   "hardware.memory.peak_bytes_per_s": 6e12, "proposal_rate": 0.5})
    >>> given["hardware"].memory.peak_bytes_per_s, given["drafter"].proposal_rate
    (6000000000000.0, 0.5)
    """
    changes = _changes(values)
    dtypes = {name: check_dtype(name, values[name]) for name in _given(values, DTYPES)}
    target = values["target"]
    if not isinstance(target, Architecture):
        target = load_architecture(target)
    target = target.with_changes(f"{prefix}target", changes["target"] | dtypes)
    engine = values.get("engine")
    if not isinstance(engine, EngineProfile) and (engine is not None or changes["engine"]):
        engine = load_engine(engine or "ideal")
    if engine is not None:
        engine = engine.with_changes(f"{prefix}engine", changes["engine"])
    hardware = values["hardware"]
    if not isinstance(hardware, HardwareProfile):
        hardware = load_hardware(hardware)
    given = _given(values, ("stack", *DEGREES, "routing_correlation"))
    return dtypes | {
        "target": target,
        "drafter": _drafter(values, target, changes["drafter"], prefix),
        "engine": engine,
        "hardware": hardware.with_changes(f"{prefix}hardware", changes["hardware"]),
        "popularity": _popularity(values, target),
        **{name: values[name] for name in given},
    }


def _given(values: Mapping[str, Any], names: tuple[str, ...]) -> list[str]:
    return [name for name in names if values.get(name) is not None]


def _changes(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the fields to be replaced, by record."""
    changes: dict[str, dict[str, Any]] = {record: {} for record in RECORDS}
    for name, value in values.items():
        record, dot, field = name.partition(".")
        if dot and record in changes:
            changes[record][field] = value
    return changes


def _drafter(
    values: Mapping[str, Any], target: Architecture, changes: dict[str, Any], prefix: str
) -> Drafter:
    drafter = values["drafter"]
    if isinstance(drafter, Architecture):
        drafter = model_drafter(drafter)
    elif not isinstance(drafter, Drafter):
        drafter = load_drafter(drafter, target)
    lookup: dict[str, Any] = {n: float(check(n, values[n])) for n in _given(values, LOOKUP)}
    if lookup and not drafter.is_lookup:
        name, value = next(iter(lookup.items()))
        raise InputError(name, value, "the drafter ngram with it")
    return replace(drafter, **lookup).with_changes(f"{prefix}drafter", changes)


def _popularity(values: Mapping[str, Any], target: Architecture) -> FloatArray | None:
    given = _given(values, POPULARITY)
    if not given:
        return None
    popularity, exponent = (values.get(name) for name in POPULARITY)
    if len(given) > 1:
        raise InputError("popularity", popularity, "one of popularity and popularity_exponent")
    if not target.is_moe:
        expected = f"none, as {target.name} has no routed experts"
        raise InputError(given[0], values[given[0]], expected)
    if exponent is not None:
        return zipf_popularity(target.num_experts, target.experts_per_token, float(exponent))
    if isinstance(popularity, str | Path):
        return read_numbers(Path(popularity), "popularity")
    return check("popularity", popularity, minimum=0)
