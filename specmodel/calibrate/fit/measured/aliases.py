"""Resolve the names of models, GPUs, engines and dtypes in tables of measurements."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from specmodel.core.base.dtypes import check_dtype
from specmodel.core.base.errors import InputError, nearest
from specmodel.core.base.files import toml_tables
from specmodel.core.base.naming import known_name
from specmodel.core.drafters.names import drafter_called, named_drafters
from specmodel.core.machines.hardware import full_name, list_hardware
from specmodel.core.machines.versions import newest_at, of_version
from specmodel.core.models.architecture import Architecture, list_architectures
from specmodel.core.models.checkpoints import checkpoint

TABLES = toml_tables(Path(__file__).parent / "data/tables.toml")
"""Columns and engines of tables of measurements."""


def shipped_model(name: str) -> str:
    """Return the shipped architecture of a name, the start of a name or a hub id.

    An InputError for any other name shows the nearest names, or all names with this start.
    """
    known = list_architectures()
    plain = re.sub(r"\(.*?\)", "", str(name)).strip().rpartition("/")[2]
    if shipped := checkpoint(plain, known):
        return shipped[0]
    plain = re.sub(r"[\s_]+", "-", plain.lower())
    if found := known_name(plain, known, "model"):
        return found
    raise InputError("model", name, f"a shipped architecture such as {nearest(plain, known)}")


def model_of(name: str) -> str:
    """Return the shipped architecture of a name, or a path to ``.json`` or ``.toml`` unchanged."""
    plain = re.sub(r"\(.*?\)", "", str(name)).strip()
    return plain if plain.endswith((".json", ".toml")) else shipped_model(name)


def drafter_of(words: str) -> str:
    """Return the drafter that a table's words describe. Ignore a length and remarks in brackets.

    The words after "draft model" are the name or path of a model.
    """
    draft_model = re.match(r"(?:draft[ _-]model|standalone)\b[:\s]*(.*)", words.strip(), re.I)
    if draft_model:
        return model_of(draft_model[1])
    if found := drafter_called(re.split(r"[:(,]|\s\d+$", words.strip())[0]):
        return found
    expected = f"a drafter such as {nearest(words, named_drafters())}, or draft model: NAME"
    raise InputError("drafter", words, expected)


def shipped_gpu(name: str) -> str:
    """Return the hardware profile of a GPU's name, such as h100_sxm for H100."""
    known, plain = list_hardware(), str(name).strip()
    for tried in (plain, re.sub("[_-]sxm$", "", plain, flags=re.I)):
        if found := known_name(full_name(tried, known), known, "system"):
            return found
    raise InputError("system", name, f"a shipped profile such as {nearest(plain, known)}")


def stack_of(engine: str) -> str:
    """Return the kernel stack of an engine."""
    plain, stacks = str(engine).lower().strip(), TABLES["stacks"]
    if plain not in stacks:
        raise InputError("backend", engine, f"one of {', '.join(stacks)}")
    return str(stacks[plain])


def profile_of(engine: str, version: str = "", notes: str = "") -> tuple[str, dict[str, Any]]:
    """Return the host profile of a speculating engine, and the fields that differ from it.

    The version is a number, a month or a year. A month means the newest version that was released
    before the month began. "v1" and "v2" are SGLang's schedulers. "neither with overlap" means that
    plain decoding did not overlap the host's work either.
    """
    row, changes = TABLES["profiles"][stack := stack_of(engine)], dict[str, Any]()
    if "neither with overlap" in notes:
        changes["engine.hides_host"] = "none"
    if "since" not in row:
        return row["profile"], changes
    number = re.search(r"(?<![\d.])(\d+)\.(\d+)(?:\.(\d+))?", version)
    is_old = "2025" in version
    if number:
        is_old = [int(part) for part in number.groups("0")] < row["since"]
    scheduler = re.search(r"\bv([12])\b", f"{version} {notes}") if stack == "sglang" else None
    if scheduler:
        is_old = scheduler[1] == "1"
    month = re.search(r"\b20\d\d-\d\d\b", version)
    known = number[0] if number else month and newest_at(row["profile"], month[0])
    if known and not is_old:
        own = of_version(row["profile"], known)
        changes |= {f"engine.{name}": value for name, value in own.items()}
    return row["before" if is_old else "profile"], changes


def dtypes_of(label: str, model: Architecture, stack: str, kv_dtype: str = "") -> dict[str, Any]:
    """Return the dtypes of a checkpoint as arguments of `deploy`.

    Published checkpoints show the rules. In fp8, some models scale blocks and others tensors. The
    KV cache has 8 bits with nvfp4 (``kv_cache_quant_algo``). With fp8, the cache has 8 bits in
    TensorRT-LLM and for NVIDIA's dense checkpoints, which scale tensors. Other checkpoints in fp8
    have a cache of 16 bits in vLLM and SGLang by default.
    """
    plain = re.split(r"[(,]", str(label).lower())[0].replace("experts", "").strip()
    dtype = check_dtype("dtype", plain) if plain else ""
    is_in_blocks = dtype == "fp8" and model.name.lower().startswith((*TABLES["fp8"]["in_blocks"],))
    dtype = "fp8_block" if is_in_blocks else dtype
    changes: dict[str, Any] = {}
    if dtype == "mxfp4" or dtype.startswith("int4"):
        changes = {"expert_dtype" if model.is_moe else "weight_dtype": dtype}
    elif dtype in ("bf16", "fp16", "fp32"):
        changes = dict.fromkeys(("weight_dtype", "activation_dtype", "kv_dtype"), dtype)
    elif dtype == "fp4":
        changes = {"weight_dtype": dtype, "activation_dtype": dtype, "kv_dtype": "fp8"}
    elif dtype:
        is_dense = dtype == "fp8" and not model.is_moe
        is_narrow = dtype.startswith("fp8") and (is_dense or stack == "trtllm")
        changes = {"weight_dtype": dtype, "kv_dtype": "fp8" if is_narrow else "bf16"}
    return changes | ({"kv_dtype": kv_dtype} if kv_dtype else {})
