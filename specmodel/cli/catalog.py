"""What ships with the package, by kind: tables for people, and any record by its name."""

from pathlib import Path

from specmodel.base import records
from specmodel.base.errors import InputError, nearest
from specmodel.base.records import Record
from specmodel.base.units import format_si
from specmodel.records import architecture
from specmodel.records.architecture import Architecture, list_architectures, load_architecture
from specmodel.records.drafters import list_drafters
from specmodel.records.engine import FOLDER as ENGINES
from specmodel.records.engine import list_engines, load_engine
from specmodel.records.hardware import FOLDER as HARDWARE
from specmodel.records.hardware import HardwareProfile, list_hardware, load_hardware
from specmodel.replay.traces import list_presets, load_preset
from specmodel.replay.traces.synthetic import FOLDER as PRESETS

_DRAFTERS = {
    "eagle": "head: 2h-to-h projection, one dense layer, the target's vocabulary",
    "eagle3": "head: 3h-to-h projection, one dense layer, 32000 draft tokens",
    "mtp": "head: 2h-to-h projection and a layer of the target's kind",
    "ngram": "prompt look-up on the host",
    "parallel": "head shaped as eagle, one pass for all tokens",
}


def catalog(kind: str) -> list[dict[str, str]]:
    """Return a row for each record of a kind: its name and what tells it from the others.

    Parameters
    ----------
    kind
        "hardware", "architectures", "engines", "drafters", "presets" or "tables".

    Returns
    -------
    list of dict
        Text by column; the first column is the name.

    Examples
    --------
    >>> catalog("engines")[0]["name"]
    'ideal'
    """
    if kind == "hardware":
        return [_hardware_row(name) for name in list_hardware()]
    if kind == "architectures":
        return [_architecture_row(name) for name in list_architectures()]
    if kind == "tables":
        return _tables()
    if kind == "presets":
        return [_preset_row(name) for name in list_presets()]
    if kind == "engines":
        return [{"name": name, "source": load_engine(name).source} for name in list_engines()]
    models = {"NAME|PATH": "any architecture, as a model of its own"}
    drafters = {name: _DRAFTERS[name] for name in list_drafters()} | models
    return [{"name": name, "what": what} for name, what in drafters.items()]


def _tables() -> list[dict[str, str]]:
    """Return stacks with published expert timings, and whether the profile has them fitted."""
    from specmodel.calibrate.datasets import list_tables

    table = list_tables()
    rows = table[table["operation"] == "moe"][["hardware", "framework", "version"]]
    found = []
    for name, stack, version in rows.itertuples(index=False, name=None):
        fitted = load_hardware(name).fitted.get(stack)
        is_shipped = "fitted" if fitted and fitted.version == version else ""
        found.append({"hardware": name, "stack": stack, "version": version, "shipped": is_shipped})
    return found


def _preset_row(name: str) -> dict[str, str]:
    process = load_preset(name)
    row = {"name": name, "of": process.name, "proposals": f"{process.proposal_share:.0%}"}
    if process.measured is not None:
        shown = process.measured
        tokens = dict(zip(shown.draft_lengths, shown.tokens_per_step, strict=True))
        row["tokens a step at 1, 3, 7 drafted"] = ", ".join(f"{tokens[n]:.2f}" for n in (1, 3, 7))
    return row


def find(name: str) -> tuple[Record, dict[str, str]]:
    """Return the record of a name or path, and notes on what follows from it.

    Parameters
    ----------
    name
        A shipped name of any kind, or the path of a TOML or ``config.json`` file.

    Returns
    -------
    tuple
        The record, and notes by title.

    Raises
    ------
    InputError
        If nothing has that name.
    """
    if records.is_path(name):
        if name.endswith(".toml"):
            keys = records.read_mapping(Path(name), "name")
            if "memory" in keys:
                return _with_notes(load_hardware(name))
            if "survival" in keys:
                return load_preset(name), {}
            if "hidden_size" not in keys:
                return load_engine(name), {}
        return _with_notes(load_architecture(name, "name"))
    spellings = set(records.spellings(name))
    for folder, load in (
        (HARDWARE, load_hardware),
        (architecture.FOLDER, load_architecture),
        (ENGINES, load_engine),
        (PRESETS, load_preset),
    ):
        if spellings & set(records.list_names(folder)):
            return _with_notes(load(name))
    known = [*list_hardware(), *list_architectures(), *list_engines(), *list_presets()]
    raise InputError("name", name, f"a path, or a known name such as {nearest(name, known)}")


def _with_notes(record: Record) -> tuple[Record, dict[str, str]]:
    if isinstance(record, Architecture):
        notes = {
            "total parameters": f"{record.total_parameters:.4g}",
            "active parameters": f"{record.active_parameters:.4g}"
            " (LM head in, input embedding out)",
        }
        return record, notes
    if isinstance(record, HardwareProfile):
        ridges = [f"{dtype} {record.ridge_point(dtype):.0f}" for dtype in record.dtype]
        return record, {"ridge point [FLOP/B]": ", ".join(ridges)}
    return record, {}


def _hardware_row(name: str) -> dict[str, str]:
    profile = load_hardware(name)
    peaks = [f"{dtype} {peak.peak_flops_per_s / 1e12:.0f}" for dtype, peak in profile.dtype.items()]
    return {
        "name": name,
        "memory": f"{profile.memory.capacity_bytes / 2**30:.0f} GiB",
        "bandwidth": format_si(profile.memory.peak_bytes_per_s, "B/s"),
        "peak TFLOP/s": ", ".join(peaks),
    }


def _architecture_row(name: str) -> dict[str, str]:
    model = load_architecture(name)
    is_moe = model.is_moe
    return {
        "name": name,
        "parameters": f"{model.total_parameters / 1e9:.4g}e9",
        "active": f"{model.active_parameters / 1e9:.3g}e9",
        "experts": f"{model.experts_per_token} of {model.num_experts}" if is_moe else "dense",
    }
