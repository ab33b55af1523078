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
"""How tables of measurements call columns and engines."""


def shipped_model(name: str) -> str:
    """Return the name of the shipped architecture that a name, its start or a hub id means.

    Otherwise, an InputError names the nearest ones, or all that a beginning fits.
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
    """Return a path to a ``.json`` or ``.toml`` unchanged, else the shipped architecture."""
    plain = re.sub(r"\(.*?\)", "", str(name)).strip()
    return plain if plain.endswith((".json", ".toml")) else shipped_model(name)


def drafter_of(words: str) -> str:
    """Return the drafter that a table's words stand for, without a length, or remarks in brackets.

    What follows "draft model" is the name or path of one.
    """
    draft_model = re.match(r"(?:draft[ _-]model|standalone)\b[:\s]*(.*)", words.strip(), re.I)
    if draft_model:
        return model_of(draft_model[1])
    if found := drafter_called(re.split(r"[:(,]|\s\d+$", words.strip())[0]):
        return found
    raise InputError("drafter", words, f"{nearest(words, named_drafters())}, or draft model: NAME")


def shipped_gpu(name: str) -> str:
    """Return the hardware profile that the name of a GPU stands for, such as h100_sxm for H100."""
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

    The version is a number, a month or a year; of a month, the newest that was out when it began.
    "v1" and "v2" are SGLang's schedulers; "neither with overlap" says that plain decoding did not
    overlap either.
    """
    stack = stack_of(engine)
    is_synchronous = "neither with overlap" in notes
    changes: dict[str, Any] = {"engine.hides_host": "none"} if is_synchronous else {}
    if stack not in TABLES["profiles"]:
        return "tensorrt-llm", changes
    row = TABLES["profiles"][stack]
    number = re.search(r"(?<![\d.])(\d+)\.(\d+)(?:\.(\d+))?", version)
    is_old = "2025" in version
    if number:
        is_old = [int(part) for part in number.groups("0")] < row["since"]
    said = re.search(r"\bv([12])\b", f"{version} {notes}") if stack == "sglang" else None
    if said:
        is_old = said[1] == "1"
    month = re.search(r"\b20\d\d-\d\d\b", version)
    told = number[0] if number else month and newest_at(row["profile"], month[0])
    if told and not is_old:
        own = of_version(row["profile"], told)
        changes |= {f"engine.{name}": value for name, value in own.items()}
    return row["before" if is_old else "profile"], changes


def dtypes_of(label: str, model: Architecture, stack: str, kv_dtype: str = "") -> dict[str, Any]:
    """Return the dtypes that a checkpoint runs in, as `deploy` takes them.

    What published checkpoints run in: with fp8, some models scale blocks, others tensors. With
    nvfp4, the KV cache has 8 bits (``kv_cache_quant_algo``).
    With fp8, the cache has 8 bits in TensorRT-LLM and for NVIDIA's dense checkpoints, which scale
    tensors; it has 16 in vLLM and SGLang for other checkpoints, by the default of the model.
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
