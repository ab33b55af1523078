"""Names as people type them: shipped ones, their beginnings, short ones of GPUs, ids of a hub.

A name is looked up in this order: one that ships, a short name, the beginning of one shipped name
alone, a path, the id of a model in the local cache of the hub, and an id that ends in the name of
one that ships. Nothing is fetched.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from specmodel.base.errors import InputError, nearest

SHORT = {
    "a100": "a100_sxm_80gb",
    "a800": "a800_sxm_80gb",
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "h800": "h800_sxm",
}
"""Short names of GPUs: the SXM card, of 80 GB where there are several."""

SETTABLE = (
    *("attention_dtype", "embedding_dtype", "mtp_dtype", "activation_dtype", "popularity"),
    *("popularity_exponent", "state_rollback", "draft_tensor_parallel", "lookup_time"),
)
"""Arguments that say how a model runs which the command line takes by --set alone."""

SETTABLE_OF = {
    "simulate": (
        *("runaway_share", "drafter_upkeep", "timing_noise"),
        *("request_expert_spread", "step_expert_spread"),
    ),
    "load": ("block_size", "reserved_tokens", "prefill_interval"),
}
"""Further ones by command."""

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_FILES = (".toml", ".json")
_COUNTED = re.compile(r"(?P<count>\d{1,6})\s*[x*×]\s*(?P<name>\D.*)")
_COUNTED_AFTER = re.compile(r"(?P<name>\D.*?)\s*[x*×]\s*(?P<count>\d{1,3})")


def spellings(name: str) -> tuple[str, str, str]:
    """Return a name as typed, and in lower case with hyphens or underscores only."""
    return name, name.lower().replace("_", "-"), name.lower().replace("-", "_")


def known_name(typed: str, names: Iterable[str], argument: str) -> str | None:
    """Return the known name that is meant, None for none; an InputError lists several.

    >>> known_name("H100", ["h100_pcie", "h100_sxm"], "hardware")
    'h100_sxm'
    >>> known_name("mixtral-8x2", ["mixtral-8x22b", "mixtral-8x7b"], "target")
    'mixtral-8x22b'
    """
    known = tuple(names)
    written = spellings(typed)
    for spelling in (*written, SHORT.get(written[1], "")):
        if spelling in known:
            return spelling
    plain = written[1]
    starting = [name for name in known if plain and spellings(name)[1].startswith(plain)]
    if len(starting) > 1:
        raise InputError(argument, typed, f"one of those that start so: {', '.join(starting)}")
    return starting[0] if starting else None


def shipped_id(typed: str, names: Iterable[str]) -> str:
    """Return the shipped name that ends a hub's id which is not here; else what was typed.

    >>> shipped_id("Qwen/Qwen3-30B-A3B", ["qwen3-30b-a3b"])
    'qwen3-30b-a3b'
    """
    if not is_id(typed) or os.path.lexists(typed) or cached_snapshot(typed):
        return typed
    known = {*names}
    return next((name for name in spellings(typed.rpartition("/")[2]) if name in known), typed)


def is_id(text: str) -> bool:
    """Tell whether a text may be the id of a model on a hub: owner/model."""
    return _ID.fullmatch(text) is not None and not text.endswith(_FILES)


def found_path(text: str, names: Iterable[str], argument: str) -> Path:
    """Return the path that a text with a slash or a suffix means: a file or folder, or a snapshot.

    What is not there comes back as it is where it can be nothing but a path, so that reading it
    tells why; what may be an id of a model that is not in the local cache is refused.
    """
    if os.path.lexists(text) or not is_id(text):
        return Path(text)
    snapshot = cached_snapshot(text)
    if snapshot is not None:
        return snapshot
    close = nearest(Path(text).name, names)
    there = f"a file that is there, a model in the local cache ({hub_cache()})"
    raise InputError(argument, text, f"{there}, or a known name such as {close}")


def hub_cache() -> Path:
    """Return the folder in which hub clients keep models on this machine."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{cache}/huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub").expanduser()


def cached_snapshot(model: str) -> Path | None:
    """Return the folder of a model's main version in the local cache, None if it is not there."""
    folder = hub_cache() / f"models--{model.replace('/', '--')}"
    try:
        commit = (folder / "refs" / "main").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    snapshot = folder / "snapshots" / commit
    return snapshot if re.fullmatch(r"[0-9a-f]+", commit) and snapshot.is_dir() else None


def model_name(config: Path) -> str:
    """Return the name of the model that a ``config.json`` is of: its folder's, or the cached one's.

    >>> model_name(Path("hub/models--Qwen--Qwen3-30B-A3B/snapshots/0a1b/config.json"))
    'Qwen3-30B-A3B'
    """
    folder = config.absolute().parent
    kept = folder.parent.parent.name
    if folder.parent.name == "snapshots" and kept.startswith("models--"):
        return kept.rpartition("--")[2]
    return config.resolve().parent.name


def counted(hardware: str) -> tuple[int | None, str]:
    """Return the count of ``8xh200`` or ``h200x8``, None without one, and the name of the GPU.

    >>> counted("8xh200"), counted("h200x8"), counted("h200")
    ((8, 'h200'), (8, 'h200'), (None, 'h200'))
    """
    found = _COUNTED.fullmatch(hardware) or _COUNTED_AFTER.fullmatch(hardware)
    if found is None or os.path.lexists(hardware):
        return None, hardware
    if not int(found["count"]):
        raise InputError("hardware", hardware, "at least one GPU, such as 8xh200")
    return int(found["count"]), found["name"]
