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
    "h20-3e": "h20_141gb",
    "h20-141g": "h20_141gb",
    "3090": "rtx_3090",
    "4090": "rtx_4090",
    "5090": "rtx_5090",
    "a6000": "rtx_a6000",
    "6000-ada": "rtx_6000_ada",
    **dict.fromkeys(("rtx6kpro", "rtx-6000-pro", "pro-6000", "6000-pro"), "rtx_pro_6000"),
    **dict.fromkeys(("dgx-spark", "spark"), "gb10"),
}
"""Short names of GPUs: the SXM card, of 80 GB where there are several; and what people type."""

_TUNED = (
    *("instruct", "chat", "it", "base", "hf", "thinking", "reasoning", "dense", "original"),
    *("preview", "0324", "0528", "0905", "2501", "2503", "2505", "2506", "2507", "2508", "2512"),
    *("v0.1", "v0.2", "v0.3", "v1", "v2", "dynamic"),
)
"""What hub ids append to the name of a shape, and what changes no work: tuning and date."""

_DTYPES = {
    **{tag: tag for tag in ("fp8", "fp4", "mxfp4", "mxfp8", "bf16", "fp16", "int8")},
    **dict.fromkeys(("int4", "awq", "gptq", "w4a16"), "int4_g128"),
    "nvfp4": "fp4",
    "w8a8": "int8",
}
"""What they append for the dtype of weights."""

_IN_BLOCKS = ("deepseek", "glm", "kimi", "minimax", "qwen3")
_BY_TENSOR = ("nvidia/", "redhatai/", "neuralmagic/", "amd/")
"""Models whose own fp8 checkpoints scale blocks of 128 x 128, and owners whose do not."""

SAME_SHAPE = {
    "llama-3.3-70b": "llama-3.1-70b",
    "llama-3-70b": "llama-3.1-70b",
    "llama-3-8b": "llama-3.1-8b",
    "qwen3-30b-a3b-2507": "qwen3-30b-a3b",
}
"""Models with the layers and vocabulary of one that ships."""

SWITCHES = ("enforce_eager", "eager_drafter", "sync_scheduling")
"""Settings of an engine that are true where they are named."""

SETTABLE = (
    *SWITCHES,
    "temperature",
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
_COUNTED = (
    re.compile(r"(?P<count>[0-9]{1,6})\s*[x*×]\s*(?P<name>(?!tx$)[^0-9].*|[345]090.*)"),
    re.compile(r"(?P<name>.*?[^\s:])\s*[x*×:]\s*(?P<count>[0-9]{1,3})"),
    re.compile(r"(?P<count>[1-9][0-9]?)(?P<name>(?:[abhlv][1-9]|gb|mi|rtx).*)", re.IGNORECASE),
)
"""How GPUs are counted: 8xh200, h200x8 or h200:8, 8h200."""


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


def checkpoint(typed: str, names: Iterable[str]) -> tuple[str, str] | None:
    """Return the shipped model that a checkpoint is of, and the dtype of weights in its name.

    The dtype is "" where the name has none; None stands for a name of no shipped model.

    >>> checkpoint("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", ["qwen3-30b-a3b"])
    ('qwen3-30b-a3b', 'fp8_block')
    >>> checkpoint("nvidia/MiniMax-M3-NVFP4", ["minimax-m3"])
    ('minimax-m3', 'fp4')
    """
    if "/" in typed and not is_id(typed):  # a path
        return None
    known = {spellings(name)[1]: name for name in names}
    plain = re.sub(r"[ _]", "-", typed.rpartition("/")[2].lower())
    plain = plain.removeprefix("meta-").removeprefix("nvidia-")
    dtype, tried = "", plain
    while tried:
        shape = SAME_SHAPE.get(tried, tried)
        if shape in known:
            is_in_blocks = shape.startswith(_IN_BLOCKS)
            if dtype == "fp8" and is_in_blocks and not typed.lower().startswith(_BY_TENSOR):
                dtype = "fp8_block"
            return known[shape], dtype
        tried, dash, tag = tried.rpartition("-")
        if not dash or tag not in (*_TUNED, *_DTYPES):
            return None
        dtype = _DTYPES.get(tag, dtype)
    return None


def is_local(text: str) -> bool:
    """Tell whether a text names a file or folder that is there, or a model in the local cache."""
    return os.path.lexists(text) or (is_id(text) and cached_snapshot(text) is not None)


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

    >>> counted("8xh200"), counted("h200x8"), counted("h200:8"), counted("8h200"), counted("h200")
    ((8, 'h200'), (8, 'h200'), (8, 'h200'), (8, 'h200'), (None, 'h200'))
    """
    found = next(filter(None, (way.fullmatch(hardware) for way in _COUNTED)), None)
    if found is None or os.path.lexists(hardware):
        return None, hardware
    if not int(found["count"]):
        raise InputError("hardware", hardware, "at least one GPU, such as 8xh200")
    return int(found["count"]), found["name"]
