"""DeepSeek-V4 in a ``config.json``: which layers compress, what they select, and what is around."""

from typing import Any

from specmodel.records.hf.families import COMPRESSED, SLIDING, Family
from specmodel.records.hf.reader import Reader

_RATIOS = {0: SLIDING, 4: COMPRESSED[0], 128: COMPRESSED[1]}
"""Kind of a layer by the tokens that one of its entries stands for; 0 for none."""

_KEY = "compress_ratios"


def by_ratios(reader: Reader, family: Family, listed: list[str], num_layers: int) -> list[str]:
    """Return kinds of layers by their ratios, or as `layer_types` lists them.

    Parameters
    ----------
    reader
        The configuration.
    family
        Not needed.
    listed
        What `layer_types` says, with which the ratios must agree; empty if it says nothing.
    num_layers
        Layers [-].

    Returns
    -------
    list of str
        A kind for each layer.

    Raises
    ------
    InputError
        If a ratio is not known, there are not as many as layers, or the list says otherwise.
    """
    del family
    ratios = reader.get(_KEY)
    if ratios is None and listed:
        _check_rates(reader)
        return listed
    modules = reader.whole("num_nextn_predict_layers", 0, minimum=0)
    lengths = (num_layers, num_layers + modules)
    if not isinstance(ratios, list) or len(ratios) not in lengths:
        expected = f"{num_layers} ratios, one for each layer, and then one for each module"
        raise reader.fault(_KEY, expected)
    if any(type(ratio) is not int or ratio not in _RATIOS for ratio in ratios):
        known = ", ".join(map(str, _RATIOS))
        raise reader.fault(_KEY, f"ratios of {known}, as others are not known here")
    if any(ratios[num_layers:]):
        raise reader.fault(_KEY, "0 for modules, which have a window alone")
    kinds = [_RATIOS[ratio] for ratio in ratios[:num_layers]]
    if listed not in ([], kinds):
        raise reader.fault("layer_types", f"the kinds that {_KEY} gives")
    return kinds


def compressed_mixers(
    reader: Reader, family: Family, kinds: list[str], window: int | None
) -> list[dict[str, Any]]:
    """Return the attention of each layer.

    Parameters
    ----------
    reader
        The configuration.
    family
        Not needed.
    kinds
        Kind of each layer.
    window
        Not needed: every layer has it, whatever its kind [token].

    Returns
    -------
    list of dict
        Fields of the record of each layer's mixer.

    Raises
    ------
    InputError
        If a size is missing or does not fit.
    """
    del family, window
    made = {SLIDING: _heads(reader)}
    if COMPRESSED[0] in kinds:
        index = {
            "ratio": 4,
            "has_overlap": True,
            "index_topk": reader.whole("index_topk"),
            "index_num_heads": reader.whole("index_n_heads"),
            "index_head_dim": reader.whole("index_head_dim"),
        }
        made[COMPRESSED[0]] = made[SLIDING] | index
    made[COMPRESSED[1]] = made[SLIDING] | {"ratio": 128}
    return [made[kind] for kind in kinds]


def compressed_fields(reader: Reader, layers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what is around the layers: residual streams, a module, and the cache.

    Parameters
    ----------
    reader
        The configuration.
    layers
        Fields of each layer; a module has the feed-forward block of the last.

    Returns
    -------
    dict
        Fields of an `Architecture`. Engines keep the cache in 8 bits unless told otherwise, as vLLM
        0.33 has it (``models/deepseek_v4/attention.py``).

    Raises
    ------
    InputError
        If a size does not fit, or the checkpoint is quantised and nothing says what dtype experts
        have.
    """
    if reader.get("quantization_config") and not reader.is_family("deepseek_ref"):
        _check_expert_dtype(reader)
    streams = reader.whole("hc_mult", minimum=2)
    block = layers[-1]["feed_forward"]
    return {
        "residuals": {
            "kind": "hyper_connections",
            "num_streams": streams,
            "has_head": True,
            "in_modules": True,
        },
        "mtp_layer": {"count": 1, "mixer": _heads(reader), "feed_forward": block},
        "kv_dtype": "fp8",
    }


def _check_expert_dtype(reader: Reader) -> None:
    """Refuse a checkpoint whose experts vLLM takes to have 4 bits and SGLang looks up."""
    record = reader.get("quantization_config")
    inner = record.get("expert_dtype") if isinstance(record, dict) else None
    if reader.get("expert_dtype") is None and inner is None:
        raise reader.fault("expert_dtype", "fp4 or fp8, as engines differ where it is not said")


def _heads(reader: Reader) -> dict[str, Any]:
    """Return attention to a window alone; all layers have these matrices."""
    if reader.whole("num_key_value_heads", 1) != 1:
        raise reader.fault("num_key_value_heads", "1, as all heads share one key")
    heads, groups = reader.whole("num_attention_heads"), reader.whole("o_groups")
    if heads % groups:
        raise reader.fault("o_groups", f"a divisor of num_attention_heads = {heads}")
    return {
        "kind": "compressed_attention",
        "num_heads": heads,
        "head_dim": reader.whole("head_dim"),
        "rotary_dim": reader.whole("qk_rope_head_dim", minimum=0),
        "q_lora_rank": reader.whole("q_lora_rank"),
        "output_groups": groups,
        "output_lora_rank": reader.whole("o_lora_rank"),
        "window": reader.whole("sliding_window"),
    }


def _check_rates(reader: Reader) -> None:
    """Refuse other ratios than those of the kinds that transformers 5 lists."""
    key = "compress_rates"
    known = {kind: ratio for ratio, kind in _RATIOS.items()}
    rates = reader.get(key) or {}
    if not isinstance(rates, dict) or any(known.get(kind) != rates[kind] for kind in rates):
        raise reader.fault(key, f"{COMPRESSED[0]} 4 and {COMPRESSED[1]} 128")
