"""Read sizes and dtypes from the headers of GGUF files of llama.cpp, without tensor data.

Keys of GGUF are translated to keys of a ``config.json`` (``data/gguf.toml``), which its reader
reads.
"""

import math
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specmodel.core.base.dtypes import known_dtype
from specmodel.core.base.errors import InputError, import_extra
from specmodel.core.base.files import check_readable, toml_tables
from specmodel.core.models.hf.family import FULL, LINEAR, SLIDING

_TABLES: dict[str, Any] = toml_tables(Path(__file__).parent / "data/gguf.toml")
UNTAGGED: dict[str, str] = _TABLES["untagged"]
"""Dtype of an id without a tag, by model; "usual" for other models."""
_WAYS = [re.compile(way.format_map(_TABLES["names"])) for way in _TABLES["names"]["ways"]]
_EMBEDDING, _HEAD = "token_embd.weight", "output.weight"
_TEXT, _ARRAY = 8, 9
"""Numbers of types of values."""


class Header(NamedTuple):
    """Values of a GGUF by key, types and sizes of tensors by name, and the file type."""

    values: dict[str, Any]
    tensors: dict[str, tuple[str, tuple[int, ...]]]
    file_type: str

    def told(self, key: str) -> Any:
        """Return the value of a key of the architecture, or of the key that older files have."""
        value = self.values.get(f"{self.values.get('general.architecture')}.{key}")
        older = _TABLES["older"].get(key)
        return self.told(older) if value is None and older else value


def gguf_name(typed: str) -> tuple[str, str] | None:
    """Return model and tag from the id or file name of a GGUF, None for other names.

    The tag is "" if the name has none.

    >>> gguf_name("unsloth/Qwen3-30B-A3B-GGUF:Q8_0"), gguf_name("Qwen3-8B-UD-Q4_K_XL.gguf")
    (('unsloth/Qwen3-30B-A3B', 'Q8_0'), ('Qwen3-8B', 'UD-Q4_K_XL'))
    """
    found = next(filter(None, (way.fullmatch(typed) for way in _WAYS)), None)
    return found and (found["name"], found["dtype"] or "")


def gguf_fields(path: Path, argument: str) -> dict[str, Any]:
    """Return the fields of an `Architecture` that the header of a GGUF describes."""
    from specmodel.core.models.hf.config import architecture_fields  # tables for this path only

    header = _whole(path, argument)
    fields = architecture_fields(_config(header, argument), argument) | _dtypes(header, argument)
    name, _ = gguf_name(path.name) or (path.stem, "")
    return fields | {"schema_version": 2, "name": name, "source": str(path)}


def _whole(path: Path, argument: str) -> Header:
    """Return the header of a file, including the tensors of its other parts."""
    own = _read(path, argument)
    count = own.values.get("split.count", 1)
    first = f"-00001-of-{count:05}.gguf"
    if count > 1 and not path.name.endswith(first):
        like = f"such as model{first}, with the others in the same folder"
        raise InputError(argument, str(path), f"the first of its {count} parts, {like}")
    for number in range(2, count + 1):
        part = f"{path.name.removesuffix(first)}-{number:05}{first[6:]}"
        own.tensors.update(_read(path.with_name(part), argument).tensors)
    if not any(name.startswith("blk.0.") for name in own.tensors):
        raise InputError(argument, str(path), "a model; this is only a vocabulary or a head")
    return own


def _read(path: Path, argument: str) -> Header:
    check_readable(path, argument, "GGUF")
    package = import_extra("gguf", "gguf", argument)
    try:
        read = _reader(package)(path)
    except (OSError, ValueError, IndexError, KeyError, OverflowError) as error:
        expected = f"a complete GGUF file of a known version ({error})"
        raise InputError(argument, str(path), expected) from None
    values = {key: field.contents() for key, field in read.fields.items()}
    sizes = {t.name: (t.tensor_type.name, tuple(map(int, t.shape))) for t in read.tensors}
    types = {each.value: each.name for each in package.LlamaFileType}
    return Header(values, sizes, types.get(values.get("general.file_type"), "").partition("_")[2])


def _reader(package: Any) -> Any:
    """Return a reader of the package gguf that skips lists of tokens.

    The original makes an array of each of their 150,000 texts, which takes half a minute.
    """

    class Reader(package.GGUFReader):  # type: ignore[misc]  # of an extra
        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            if raw_type != _ARRAY or self.byte_order != "I":
                return super()._get_field_parts(orig_offs, raw_type)
            kind, count = self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)
            end, types = orig_offs + 12, [raw_type, package.GGUFValueType(kind[0])]
            if types[1] != _TEXT:
                values = self._get(end, self.gguf_scalar_to_np[types[1]], count[0])
                return 12 + values.nbytes, [kind, count, values], [2], types
            data = memoryview(self.data)
            for _ in range(int(count[0])):
                if end >= len(data):
                    raise IndexError("a text past its end")
                end += 8 + int.from_bytes(data[end : end + 8], sys.byteorder)
            return end - orig_offs, [kind, count], [], types

    return Reader


def _config(header: Header, argument: str) -> dict[str, Any]:
    """Return the ``config.json`` of a header, with None for keys that the header lacks."""
    families, architecture = _TABLES["families"], header.values.get("general.architecture")
    is_moe = header.told("expert_count") and f"{architecture} with experts" in families
    row = families.get(f"{architecture} with experts" if is_moe else architecture)
    if row is None:
        known = ", ".join(name for name in families if " " not in name)
        raise InputError(f"{argument} general.architecture", architecture, f"one of {known}")
    config = {"num_nextn_predict_layers": 0, **row}
    config["tie_word_embeddings"] = _HEAD not in header.tensors
    for group in ("every", *config.pop("groups", ())):
        found = {key: _worked_out(words, header) for key, words in _TABLES["keys"][group].items()}
        config |= {key: config.get(key) if n is None else n for key, n in found.items()}
    config["vocab_size"] = header.tensors.get(_EMBEDDING, ("", (0,)))[1][-1]
    return config | _of_layers(header, config["num_hidden_layers"])


def _worked_out(words: str, header: Header) -> Any:
    """Return the value under a key, or the difference or quotient of two values.

    From a list with a number for each layer, return the number that all layers above 0 share.
    """
    first, *others = words.split()
    value = header.told(first)
    if isinstance(value, list) and len(several := {*value} - {0}) == 1:
        value = several.pop()
    if not others or not isinstance(value, int):
        return value
    second = header.told(others[1]) or 0
    return value - second if others[0] == "-" else value // max(second, 1)


def _of_layers(header: Header, num_layers: int | None) -> dict[str, Any]:
    """Return the keys of a ``config.json`` that GGUF has as lists with a value for each layer."""
    heads = header.told("attention.head_count_kv")
    windowed = header.told("attention.sliding_window_pattern")
    if isinstance(heads, list) and 0 in heads:
        return {"layer_types": [FULL if n else LINEAR for n in heads[:num_layers]]}
    if not isinstance(windowed, list):
        return {}
    found: dict[str, Any] = {"layer_types": [SLIDING if n else FULL for n in windowed[:num_layers]]}
    if header.told("attention.key_length_swa") and FULL in found["layer_types"]:  # Gemma 4
        full = found["layer_types"].index(FULL)
        found["attention_k_eq_v"] = f"blk.{full}.attn_v.weight" not in header.tensors
        if isinstance(heads, list):
            found["num_key_value_heads"] = heads[windowed.index(True)]
            found["num_global_key_value_heads"] = heads[full]
        if isinstance(widths := header.told("feed_forward_length"), list):
            found |= {"intermediate_size": min(widths), "use_double_wide_mlp": len({*widths}) > 1}
    return found


def _dtypes(header: Header, argument: str) -> dict[str, str | None]:
    """Return the dtypes of weights; embedding and LM head have the types of their tensors.

    The file type gives the dtype of other weights, or, without it, the most frequent type does. If
    the file type gives only the dtype of experts, the rest have their most frequent type.
    """
    _, tensors, file_type = header
    named, is_of_experts = known_dtype(file_type), file_type.endswith("_MOE")
    counts = Counter({"": 0})
    for name, (kind, sizes) in tensors.items():
        if name not in (_EMBEDDING, _HEAD) and not (is_of_experts and "_exps." in name):
            counts[kind] += math.prod(sizes)
    usual = counts.most_common(1)[0][0]
    weights = known_dtype(usual) if is_of_experts or named is None else named
    if weights is None:
        raise InputError(f"{argument} tensors", usual, "a type of weights that specmodel knows")
    own = {name: known_dtype(tensors[name][0]) for name in (_EMBEDDING, _HEAD) if name in tensors}
    outer = {"embedding_dtype": own.get(_EMBEDDING) or weights, "head_dtype": own.get(_HEAD)}
    return outer | {"weight_dtype": weights, "expert_dtype": named if is_of_experts else None}
