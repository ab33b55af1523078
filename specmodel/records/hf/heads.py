"""Reader of the ``config.json`` of a draft head, which looks like a model of one layer."""

from collections.abc import Mapping
from typing import Any

from specmodel.records.hf.families import FAMILIES
from specmodel.records.hf.mixers import attention
from specmodel.records.hf.reader import Reader


def is_draft_head(config: Mapping[str, Any]) -> bool:
    """Tell whether a configuration is that of a head, which looks like a model of one layer."""
    names = str(config.get("architectures")).lower()
    kinds = ("draft_vocab_size", "speculators_model_type", "eagle_config")
    return "eagle" in names or "medusa" in names or any(config.get(key) for key in kinds)


def eagle3_fields(
    config: Mapping[str, Any], argument: str, *, hidden_size: int, vocabulary_size: int
) -> dict[str, Any]:
    """Return the fields of an `Architecture` that the configuration of an EAGLE-3 head describes.

    Parameters
    ----------
    config
        Content of its ``config.json``, as SGLang and SpecForge write it or as speculators does.
    argument
        Name that an error should carry.
    hidden_size, vocabulary_size
        Those of the target that it was trained for [-] [token].

    Returns
    -------
    dict
        Fields by name, without `schema_version`, `name` and `source`.

    Raises
    ------
    InputError
        If it is a head of another kind or target, or has more than one layer or other attention.
    """
    layer = config.get("transformer_layer_config")
    reader = Reader({**config, **layer} if isinstance(layer, dict) else config, argument)
    kinds = f"{config.get('architectures')} {config.get('speculators_model_type')}".lower()
    if "eagle3" not in kinds and not config.get("draft_vocab_size"):
        expected = "an EAGLE-3 head, as others are not read; eagle and mtp are made for a target"
        raise reader.fault("architectures", expected)
    for key in ("kv_lora_rank", "quantization_config", "num_experts", "num_local_experts"):
        if reader.config.get(key):
            raise reader.fault(key, "none, as in a head it is not known here")
    if reader.whole("num_hidden_layers") != 1:
        raise reader.fault("num_hidden_layers", "1 in a head")
    width, num_heads = reader.whole("hidden_size"), reader.whole("num_attention_heads")
    for key, value, needed in (
        ("target_hidden_size", reader.whole("target_hidden_size", width), hidden_size),
        ("vocab_size", reader.whole("vocab_size"), vocabulary_size),
    ):
        if value != needed:
            raise reader.fault(key, f"that of the target, {needed}, not {value}")
    taps = (reader.config.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    taps = taps or reader.config.get("eagle_aux_hidden_state_layer_ids") or [0, 0, 0]
    dtype = reader.dtype()
    mixer = attention(reader, FAMILIES["llama"], num_heads) | {"input_size": 2 * width}
    block = {"kind": "dense", "ffn_size": reader.whole("intermediate_size")}
    return {
        "hidden_size": width,
        "vocabulary_size": reader.whole("draft_vocab_size", vocabulary_size),
        "input_projection_size": len(taps) * hidden_size,
        "layers": [{"count": 1, "mixer": mixer, "feed_forward": block}],
    } | dict.fromkeys(("weight_dtype", "activation_dtype", "kv_dtype"), dtype)
