"""Configurations that nest that of their language model, as those of models that see do."""

from collections.abc import Mapping
from typing import Any

from specmodel.base.errors import InputError


def text_config(config: Mapping[str, Any], argument: str) -> Mapping[str, Any]:
    """Return the configuration of the language model, which Llama 4 nests."""
    if config.get("model_type") == "llama4_text":
        return {**config, "model_type": "llama4"}
    if config.get("model_type") != "llama4":
        return config
    text = config.get("text_config")
    if not isinstance(text, dict) or text.get("model_type", "llama4_text") != "llama4_text":
        raise InputError(f"{argument} text_config", text, "an object of model_type llama4_text")
    outer = {key: config[key] for key in config.keys() - {"text_config", "vision_config"}}
    for key in ("torch_dtype", "dtype", "tie_word_embeddings", "quantization_config"):
        inner = text.get(key)
        if None not in (inner, outer.get(key)) and inner != outer[key]:
            expected = f"the same as text_config.{key} = {inner!r}"
            raise InputError(f"{argument} {key}", outer[key], expected)
    given = {key: value for key, value in text.items() if value is not None or key not in outer}
    return outer | given | {"model_type": "llama4"}
