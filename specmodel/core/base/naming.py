"""Names as people type them: shipped ones, their beginnings, ids of a hub.

A name is looked up in this order: a shipped name or its unique beginning, a short name of a GPU
(`machines.hardware`), a path, the id of a model in the local cache of the hub, or of a checkpoint
of a shipped model (`models.checkpoints`). Nothing is fetched.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from specmodel.core.base.errors import InputError, nearest

_MAKERS = re.compile("^(?:(?:nvidia|geforce|tesla|dgx|hgx|amd|instinct|radeon|intel)[-_ ]*)+")
"""What stands before the name of a GPU: who makes it, and in which box."""

SWITCHES = ("enforce_eager", "eager_drafter", "sync_scheduling")
"""Settings of an engine that are true where they are named."""

SETTABLE = (
    *SWITCHES,
    "temperature",
    *("attention_dtype", "embedding_dtype", "mtp_dtype", "activation_dtype", "popularity"),
    *("popularity_exponent", "state_rollback", "draft_tensor_parallel", "lookup_time"),
    *("decode_context_parallel", "host_expert_layers", "split_mode"),
)
"""Arguments that say how a model runs which may stand among changes of records' fields."""

LLAMA_CPP = "llama.cpp"
"""Name of that engine and of its kernels."""

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_FILES = (".toml", ".json", ".gguf")
_COUNTED = (
    re.compile(r"(?P<count>[0-9]{1,6})\s*[x*×]\s*(?P<name>(?!tx)[^0-9].*|[0-9]{4}.*)"),
    re.compile(
        r"(?P<name>.*?[^\s:])(\s*[*×:]\s*|\s+x\s*|(?<!\b[gr])(?<!\b[Mm]a)x)(?P<count>[0-9]{1,3})"
    ),
    re.compile(r"(?P<count>[1-9][0-9]?)(?P<name>(?:[abhlv][1-9]|gb|mi|rtx).*)", re.IGNORECASE),
)
"""How GPUs are counted: 8xh200, h200x8 or h200:8, 8h200; not "max 395", "gx10" or "rx 580"."""


def spellings(name: str) -> tuple[str, str, str]:
    """Return a name as typed, and in lower case with hyphens or underscores only."""
    return name, name.lower().replace("_", "-"), name.lower().replace("-", "_")


def letters_of(name: str) -> str:
    """Return the letters, digits and dots of a name in lower case, without the maker's prefix."""
    return re.sub(r"[^a-z0-9.]", "", _MAKERS.sub("", name.lower()))


def known_name(typed: str, names: Iterable[str], argument: str) -> str | None:
    """Return the known name that is meant, or None; an InputError lists several that fit.

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
        raise InputError(argument, typed, f"a full name, one of {', '.join(starting)}")
    return starting[0] if starting else None


def is_local(text: str) -> bool:
    """Return whether a text names an existing file or folder, or a model in the local cache.

    A repository of GGUF has several files, and which one is meant its id does not tell.
    """
    is_model = is_id(text) and not text.lower().endswith("-gguf")
    return os.path.lexists(text) or (is_model and cached_snapshot(text) is not None)


def is_id(text: str) -> bool:
    """Return whether a text may be the id of a model on a hub: owner/model."""
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
    there = f"the path of its config.json, a model in the local cache ({hub_cache()})"
    raise InputError(argument, text, f"{there}, or a known name such as {close}")


def hub_cache() -> Path:
    """Return the folder in which hub clients keep models on this machine."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{cache}/huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub").expanduser()


def own_folder() -> Path:
    """Return the folder in which profiles of this user's machines are kept."""
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "specmodel"


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

    >>> counted("8xh200"), counted("h200x8"), counted("h200:8"), counted("8h200"), counted("h200")
    ((8, 'h200'), (8, 'h200'), (8, 'h200'), (8, 'h200'), (None, 'h200'))
    """
    found = next(filter(None, (way.fullmatch(hardware) for way in _COUNTED)), None)
    if found is None or os.path.lexists(hardware):
        return None, hardware
    if not int(found["count"]):
        raise InputError("hardware", hardware, "at least one GPU, such as 8xh200")
    return int(found["count"]), found["name"]
