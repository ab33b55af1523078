"""Find names as people type them: shipped names, their beginnings, ids of a hub.

The order of a look-up is: a shipped name or its unique beginning, a short name of a GPU
(`machines.hardware`), a path, the id of a model in the hub's local cache, the id of a checkpoint of
a shipped model (`models.checkpoints`). Nothing is downloaded.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from specmodel.core.base.errors import InputError, nearest

_MAKERS = re.compile("^(?:(?:nvidia|geforce|tesla|dgx|hgx|amd|instinct|radeon|intel)[-_ ]*)+")
"""Prefixes of names of GPUs: makers, product lines and systems."""

SWITCHES = ("enforce_eager", "eager_drafter", "sync_scheduling")
"""Settings of an engine that are true if they are named."""

SETTABLE = (
    *SWITCHES,
    "temperature",
    *("attention_dtype", "embedding_dtype", "mtp_dtype", "activation_dtype", "popularity"),
    *("popularity_exponent", "state_rollback", "draft_tensor_parallel", "lookup_time"),
    *("decode_context_parallel", "host_expert_layers", "split_mode"),
)
"""Arguments about how a model runs that may appear among changes of records' fields."""

LLAMA_CPP = "llama.cpp"
"""Name of the engine llama.cpp and of its kernels."""

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_FILES = (".toml", ".json", ".gguf")
_COUNTED = (
    re.compile(r"(?P<count>[0-9]{1,6})\s*[x*×]\s*(?P<name>(?!tx)[^0-9].*|[0-9]{4}.*)"),
    re.compile(
        r"(?P<name>.*?[^\s:])(\s*[*×:]\s*|\s+x\s*|(?<!\b[gr])(?<!\b[Mm]a)x)(?P<count>[0-9]{1,3})"
    ),
    re.compile(r"(?P<count>[1-9][0-9]?)(?P<name>(?:[abhlv][1-9]|gb|mi|rtx).*)", re.IGNORECASE),
)
"""Forms of a count of GPUs: 8xh200, h200x8, h200:8, 8h200; not "max 395", "gx10" or "rx 580"."""


def spellings(name: str) -> tuple[str, str, str]:
    """Return a name as typed, and in lower case with only hyphens or only underscores."""
    return name, name.lower().replace("_", "-"), name.lower().replace("-", "_")


def letters_of(name: str) -> str:
    """Return the letters, digits and dots of a name in lower case, without the maker's prefix."""
    return re.sub(r"[^a-z0-9.]", "", _MAKERS.sub("", name.lower()))


def known_name(typed: str, names: Iterable[str], argument: str) -> str | None:
    """Return the known name that fits, or None; an InputError lists several fitting names.

    >>> known_name("NVIDIA GeForce RTX 5090", ["rtx_5090"], "hardware")
    'rtx_5090'
    >>> known_name("mixtral-8x2", ["mixtral-8x22b", "mixtral-8x7b"], "target")
    'mixtral-8x22b'
    """
    known = tuple(names)
    for spelling in spellings(typed):
        if spelling in known:
            return spelling
    letters, plain = letters_of(typed), _MAKERS.sub("", typed.lower().replace("_", "-"))
    if alike := [name for name in known if letters_of(name) == letters]:
        return alike[-1]
    hyphened = {name.lower().replace("_", "-"): name for name in known if plain}
    starting = [name for spelling, name in hyphened.items() if spelling.startswith(plain)]
    if len(starting) > 1:
        raise InputError(argument, typed, f"a full name: {', '.join(starting)}")
    return starting[0] if starting else None


def is_local(text: str) -> bool:
    """Return whether a text names an existing file or folder, or a model in the local cache.

    The id of a repository of GGUF does not count, because it does not select one of its files.
    """
    is_model = is_id(text) and not text.lower().endswith("-gguf")
    return os.path.lexists(text) or (is_model and cached_snapshot(text) is not None)


def is_id(text: str) -> bool:
    """Return whether a text has the form of an id on a hub: owner/model."""
    return _ID.fullmatch(text) is not None and not text.endswith(_FILES)


def found_path(text: str, names: Iterable[str], argument: str) -> Path:
    """Return the path for a text with a slash or a suffix: a file, a folder or a snapshot.

    A missing path is returned if it cannot be an id, so that reading it gives the reason. An id of
    a model that is not in the local cache is refused.
    """
    if os.path.lexists(text) or not is_id(text):
        return Path(text)
    snapshot = cached_snapshot(text)
    if snapshot is not None:
        return snapshot
    close = nearest(Path(text).name, names)
    there = f"the path of its config.json, a model in the local cache ({hub_cache()})"
    raise InputError(argument, text, f"{there}, or a known name such as {close}")


def hub_cache() -> Path:
    """Return the folder in which clients of the hub store models on this machine."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{cache}/huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub").expanduser()


def own_folder() -> Path:
    """Return the folder with the profiles of this user's machines."""
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "specmodel"


def cached_snapshot(model: str) -> Path | None:
    """Return the folder of a model's main version in the local cache, None if it is missing."""
    folder = hub_cache() / f"models--{model.replace('/', '--')}"
    try:
        commit = (folder / "refs" / "main").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    snapshot = folder / "snapshots" / commit
    return snapshot if re.fullmatch(r"[0-9a-f]+", commit) and snapshot.is_dir() else None


def model_name(config: Path) -> str:
    """Return the model's name for a ``config.json``: that of its folder or of the cached model.

    >>> model_name(Path("hub/models--Qwen--Qwen3-30B-A3B/snapshots/0a1b/config.json"))
    'Qwen3-30B-A3B'
    """
    folder = config.absolute().parent
    kept = folder.parent.parent.name
    if folder.parent.name == "snapshots" and kept.startswith("models--"):
        return kept.rpartition("--")[2]
    return config.resolve().parent.name


def counted(hardware: str) -> tuple[int | None, str]:
    """Return the count in ``8xh200`` or ``h200x8``, None without a count, and the GPU's name.

    >>> counted("8xh200"), counted("h200x8"), counted("h200:8"), counted("8h200"), counted("h200")
    ((8, 'h200'), (8, 'h200'), (8, 'h200'), (8, 'h200'), (None, 'h200'))
    """
    found = next(filter(None, (way.fullmatch(hardware) for way in _COUNTED)), None)
    if found is None or os.path.lexists(hardware):
        return None, hardware
    if not int(found["count"]):
        raise InputError("hardware", hardware, "at least one GPU, such as 8xh200")
    return int(found["count"]), found["name"]
