"""Checkpoints of random weights and tokenizers, as files that engines load."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specmodel.base.files import write_text


def drawn(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return normal matrices that keep the size of what they multiply, and vectors of ones."""
    import torch

    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.empty(shape).normal_(0.0, shape[-1] ** -0.5, generator=generator)
        if len(shape) > 1
        else torch.ones(shape)
        for name, shape in shapes.items()
    }


def describe(folder: Path, config: dict[str, Any]) -> None:
    """Write a configuration and a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "config.json", json.dumps(config, indent=2))
    for name, text in tokenizer(config["vocab_size"]).items():
        write_text(folder / name, json.dumps(text))


def save(weights: dict[str, Any], folder: Path) -> None:
    """Write weights in bf16 as a file of safetensors: a header in JSON, then the bytes."""
    import torch

    header, end = {}, 0
    for name, weight in weights.items():
        start, end = end, end + 2 * weight.numel()
        shape = list(weight.shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for weight in weights.values():
            file.write(weight.to(torch.bfloat16).view(torch.uint8).numpy().tobytes())


def tokenizer(size: int) -> dict[str, Any]:
    """Return files of a tokenizer of so many words, t0 and t1 at the beginning and the end."""
    words = {f"t{i}": i for i in range(size)}
    whole: dict[str, Any] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None,
        "decoder": None, "model": {"type": "WordLevel", "vocab": words, "unk_token": "t2"},
    }  # fmt: skip
    ends = {"bos_token": "t0", "eos_token": "t1", "unk_token": "t2"}
    return {
        "tokenizer.json": whole,
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", **ends},
    }
