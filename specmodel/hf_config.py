"""Reader of the ``config.json`` that comes with a model: an explicit table of families and keys.

Nothing is guessed: a family that is not in the table, or a key that hints at experts, another kind
of attention or quantisation and is not listed for its family, is refused by name.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specmodel.errors import InputError, nearest

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}

_MAX_SIZE = 10**7
_SUSPECT_KEY = re.compile(
    r"expert|moe|router|topk|top_k_|mlp_only|sparse|first_k|lora_rank|mla|linear_|mamba|ssm"
    r"|nextn|mtp|quantiz|compress|attention_chunk|hybrid|per_layer|text_config|ffn_config"
)
_HARMLESS_KEYS = {
    "norm_topk_prob",
    "output_router_logits",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "input_jitter_noise",
    "expert_capacity",
}


@dataclass(frozen=True)
class _Family:
    """How a family names the parts of its shape; None where it has no such part."""

    experts: str | None = None
    expert_size: str | None = None
    shared_size: str | None = None
    dense_size: str | None = "intermediate_size"
    kv_heads: int | None = None
    head_dim: int | None = None
    has_windows: bool = False
    sliding_window: int | None = None
    ties_embeddings: bool = False
    is_gated: bool = True
    positions_offset: int | None = None
    has_sparse_steps: bool = False
    window_switch: str | None = None


_FAMILIES = {
    "llama": _Family(),
    "mistral": _Family(kv_heads=8, has_windows=True, sliding_window=4096),
    "qwen2": _Family(
        kv_heads=32, has_windows=True, sliding_window=4096, window_switch="use_sliding_window"
    ),
    "qwen3": _Family(
        kv_heads=32,
        head_dim=128,
        has_windows=True,
        sliding_window=4096,
        window_switch="use_sliding_window",
    ),
    "opt": _Family(dense_size="ffn_dim", ties_embeddings=True, is_gated=False, positions_offset=2),
    "mixtral": _Family(
        experts="num_local_experts",
        expert_size="intermediate_size",
        dense_size=None,
        kv_heads=8,
        has_windows=True,
    ),
    "phimoe": _Family(
        experts="num_local_experts",
        expert_size="intermediate_size",
        dense_size=None,
        kv_heads=8,
        has_windows=True,
    ),
    "olmoe": _Family(experts="num_experts", expert_size="intermediate_size", dense_size=None),
    "qwen2_moe": _Family(
        experts="num_experts",
        expert_size="moe_intermediate_size",
        shared_size="shared_expert_intermediate_size",
        kv_heads=16,
        has_windows=True,
        sliding_window=4096,
        has_sparse_steps=True,
        window_switch="use_sliding_window",
    ),
    "qwen3_moe": _Family(
        experts="num_experts",
        expert_size="moe_intermediate_size",
        kv_heads=4,
        has_windows=True,
        sliding_window=4096,
        has_sparse_steps=True,
        window_switch="use_sliding_window",
    ),
}


def architecture_fields(config: Mapping[str, Any], argument: str) -> dict[str, Any]:
    """Return the fields of an `Architecture` that a configuration describes.

    Parameters
    ----------
    config
        Content of a ``config.json``.
    argument
        Name that an error should carry.

    Returns
    -------
    dict
        Fields by name, without `schema_version`, `name` and `source`.

    Raises
    ------
    InputError
        If the family is unknown, a key is missing or of the wrong kind, or a key that could
        change the shape is not understood.

    Examples
    --------
    >>> architecture_fields({"model_type": "mamba"}, "config")
    Traceback (most recent call last):
    ...
    specmodel.errors.InputError: config model_type: got 'mamba'; expected one of: llama, ...
    """
    reader = _Reader(config, argument)
    family = reader.family()
    reader.refuse_unknown_keys(family)
    hidden_size, num_heads = reader.whole("hidden_size"), reader.whole("num_attention_heads")
    head_dim = reader.whole("head_dim", family.head_dim or hidden_size // num_heads)
    fields: dict[str, Any] = {
        "hidden_size": hidden_size,
        "num_layers": reader.whole("num_hidden_layers"),
        "num_heads": num_heads,
        "num_kv_heads": reader.part_of(
            "num_key_value_heads", num_heads, family.kv_heads or num_heads
        ),
        "head_dim": head_dim,
        "vocabulary_size": reader.whole("vocab_size"),
        "has_tied_embeddings": reader.flag("tie_word_embeddings", family.ties_embeddings),
        "has_gated_ffn": family.is_gated,
        **dict.fromkeys(("weight_dtype", "activation_dtype", "kv_dtype"), reader.dtype()),
    }
    if family.positions_offset is not None:
        fields["max_positions"] = reader.whole("max_position_embeddings") + family.positions_offset
        embedding_size = reader.whole("word_embed_proj_dim", hidden_size)
        fields["embedding_size"] = embedding_size if embedding_size != hidden_size else None
    fields |= _feed_forward(reader, family, fields["num_layers"])
    fields |= _windows(reader, family, fields["num_layers"])
    return fields


def _feed_forward(reader: "_Reader", family: _Family, num_layers: int) -> dict[str, Any]:
    num_dense_layers = num_layers
    fields: dict[str, Any] = {}
    if family.experts and family.expert_size:
        num_dense_layers = _dense_layers(reader, num_layers) if family.has_sparse_steps else 0
        fields["num_experts"] = reader.whole(family.experts)
        fields["experts_per_token"] = reader.whole("num_experts_per_tok")
        if fields["experts_per_token"] > fields["num_experts"]:
            raise reader.fault("num_experts_per_tok", f"at most {family.experts}")
        fields["expert_size"] = reader.whole(family.expert_size)
        if family.shared_size:
            fields["num_shared_experts"] = 1
            fields["shared_expert_size"] = reader.whole(family.shared_size)
    fields["num_dense_layers"] = num_dense_layers
    if num_dense_layers and family.dense_size:
        fields["dense_ffn_size"] = reader.whole(family.dense_size)
    return fields


def _dense_layers(reader: "_Reader", num_layers: int) -> int:
    step = reader.whole("decoder_sparse_step", 1)
    listed = reader.config.get("mlp_only_layers") or []
    if not isinstance(listed, list) or not all(type(i) is int for i in listed):
        raise reader.fault("mlp_only_layers", "a list of layer numbers")
    return sum(i in listed or (i + 1) % step > 0 for i in range(num_layers))


def _windows(reader: "_Reader", family: _Family, num_layers: int) -> dict[str, Any]:
    """Sliding windows: off by a switch (Qwen), listed by layer, on the upper layers, or on all."""
    layer_types = reader.layer_types(num_layers)
    if family.window_switch and not reader.flag(family.window_switch, False):
        return {}
    window = reader.config.get("sliding_window", family.sliding_window)
    if layer_types is not None:
        num_sliding = layer_types.count("sliding_attention")
        if num_sliding and window is None:
            raise reader.fault("sliding_window", "the window of the layers in layer_types")
    elif family.window_switch:
        num_sliding = max(num_layers - reader.whole("max_window_layers", 28, minimum=0), 0)
    else:
        num_sliding = num_layers
    if not num_sliding or window is None:
        return {}
    if not family.has_windows:
        raise reader.fault("sliding_window", "no window, as this family is not known to have one")
    window = reader.whole("sliding_window", family.sliding_window)
    return {"sliding_window": window, "num_sliding_layers": num_sliding}


@dataclass(frozen=True)
class _Reader:
    config: Mapping[str, Any]
    argument: str

    def fault(self, key: str, expected: str) -> InputError:
        return InputError(f"{self.argument} {key}", self.config.get(key), expected)

    def family(self) -> _Family:
        model_type = self.config.get("model_type")
        if not isinstance(model_type, str) or model_type not in _FAMILIES:
            expected = f"one of: {nearest('', _FAMILIES)}, or a TOML architecture"
            raise self.fault("model_type", expected)
        return _FAMILIES[model_type]

    def refuse_unknown_keys(self, family: _Family) -> None:
        known = {family.experts, family.expert_size, family.shared_size, *_HARMLESS_KEYS}
        if family.experts:
            known |= {"num_experts_per_tok"}
        if family.has_sparse_steps:
            known |= {"decoder_sparse_step", "mlp_only_layers"}
        for key, value in self.config.items():
            if _SUSPECT_KEY.search(key) and value and key not in known:
                model_type = self.config["model_type"]
                expected = f"no such key, as its meaning in a {model_type} model is not known here"
                raise self.fault(key, expected)

    def whole(self, key: str, default: int | None = None, *, minimum: int = 1) -> int:
        value = self.config.get(key)
        if value is None and default is not None:
            return default
        if type(value) is not int or not minimum <= value <= _MAX_SIZE:
            raise self.fault(key, f"a whole number from {minimum} to {_MAX_SIZE}")
        return value

    def part_of(self, key: str, whole: int, default: int) -> int:
        value = self.whole(key, default)
        if whole % value:
            raise self.fault(key, f"a divisor of num_attention_heads = {whole}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.config.get(key, default)
        if not isinstance(value, bool):
            raise self.fault(key, "true or false")
        return value

    def layer_types(self, num_layers: int) -> list[str] | None:
        types = self.config.get("layer_types")
        known = ("full_attention", "sliding_attention")
        if types is None:
            return None
        if (
            not isinstance(types, list)
            or len(types) != num_layers
            or any(kind not in known for kind in types)
        ):
            expected = f"{num_layers} entries, each {' or '.join(known)}"
            raise self.fault("layer_types", expected)
        return types

    def dtype(self) -> str:
        key = "dtype" if self.config.get("torch_dtype") is None else "torch_dtype"
        value = self.config.get(key)
        if value is None:
            return "bf16"
        if not isinstance(value, str) or value not in _DTYPES:
            raise self.fault(key, f"one of: {', '.join(_DTYPES)}")
        return _DTYPES[value]
