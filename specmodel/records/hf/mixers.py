"""What mixes tokens in each layer of a ``config.json``: attention, with or without a window."""

from typing import Any

from specmodel.records.hf.families import Family
from specmodel.records.hf.reader import Reader


def attention(reader: Reader, family: Family, num_heads: int) -> dict[str, Any]:
    """Return the attention of a model's layers, without their windows."""
    if family.has_latent:
        has_query_latent = reader.get("q_lora_rank", 0) is not None
        return {
            "kind": "latent_attention",
            "num_heads": num_heads,
            "kv_lora_rank": reader.whole("kv_lora_rank"),
            "q_lora_rank": reader.whole("q_lora_rank", minimum=0) if has_query_latent else 0,
            "qk_nope_head_dim": reader.whole("qk_nope_head_dim"),
            "qk_rope_head_dim": reader.whole("qk_rope_head_dim"),
            "v_head_dim": reader.whole("v_head_dim"),
        }
    hidden_size = reader.whole("hidden_size")
    head_dim = family.head_dim or (hidden_size // num_heads if hidden_size % num_heads == 0 else 0)
    num_kv_heads = reader.whole("num_key_value_heads", family.kv_heads or num_heads)
    if num_heads % num_kv_heads:
        raise reader.fault("num_key_value_heads", f"a divisor of num_attention_heads = {num_heads}")
    return {
        "kind": "attention",
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_dim": reader.whole("head_dim", head_dim or None),
    }


def windows(reader: Reader, family: Family, num_layers: int) -> list[int | None]:
    """Return the window of each layer, None for the whole context.

    Windows are off by a switch (Qwen), listed by layer, on the upper layers, or on all.
    """
    key, whole = family.window_key, list[int | None]([None] * num_layers)
    window = reader.get(key, family.sliding_window)
    types = _layer_types(reader, family, num_layers)
    if family.window_switch and not reader.flag(family.window_switch, False):
        return whole
    is_windowed = [True] * num_layers
    if types:
        is_windowed = [kind == family.window_type for kind in types]
    elif family.window_switch:
        first = reader.whole("max_window_layers", 28, minimum=0)
        is_windowed = [i >= first for i in range(num_layers)]
    if types and any(is_windowed) and window is None:
        raise reader.fault(key, f"the window of the {family.window_type} layers")
    if not any(is_windowed) or window is None:
        return whole
    if not family.has_windows:
        raise reader.fault(key, "no window, as this family is not known to have one")
    window = reader.whole(key, family.sliding_window)
    return [window if has_window else None for has_window in is_windowed]


def _layer_types(reader: Reader, family: Family, num_layers: int) -> list[str]:
    """Return the kind of attention of each layer, as listed or by the family's rule, if any."""
    kinds = ("full_attention", family.window_type)
    listed: list[str] = []
    if reader.get("layer_types") is not None:
        hint = ": linear attention is not known here"
        listed = reader.by_layer("layer_types", num_layers, kinds, hint)
    if family.layer_types == "alternating":
        return listed or [kinds[1 - i % 2] for i in range(num_layers)]
    if family.layer_types == "by rotary embedding":
        return _types_by_rotary_embedding(reader, num_layers, listed)
    return listed


def _types_by_rotary_embedding(reader: Reader, num_layers: int, listed: list[str]) -> list[str]:
    interval = reader.whole("no_rope_layer_interval", 4)
    rotary = [int((i + 1) % interval > 0) for i in range(num_layers)]
    is_given = bool(reader.get("no_rope_layers"))
    if is_given:
        rotary = reader.by_layer("no_rope_layers", num_layers, (0, 1))
    types = ["chunked_attention" if has_rope else "full_attention" for has_rope in rotary]
    if is_given and listed not in ([], types):
        raise reader.fault("layer_types", "the layers that no_rope_layers gives a 1 in chunks")
    return listed or types
