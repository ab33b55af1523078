"""Read MiMo-V2, in which layers with a window have other head sizes.

If the target has layers with and without a window, MTP modules may have a window, as in Step-3.
"""

from collections.abc import Sequence
from typing import Any

from specmodel.core.models.hf.family import FULL, SLIDING
from specmodel.core.models.hf.reader import Fields, Reader, grouped_heads


def mimo_mixers(reader: Reader, kinds: list[str], window: int | None) -> list[Fields]:
    """Return the attention of each layer. Layers with a window have their own keys (swa_).

    Without these keys, they have twice the key-value heads, as in transformers 5.23. Its
    `sliding_window` includes the token itself; engines read `sliding_window_size`, which does not.
    Sinks, one number for each head, are left out.
    """
    key = "sliding_window_size"
    same = reader.get(key)
    if window is not None:
        reader.only(key, (window, window - 1), f"the same as sliding_window = {window}")
        window = same or window
    full = _with_values(reader, "", {})
    usual = {
        "num_attention_heads": full["num_heads"],
        "num_key_value_heads": 2 * full["num_kv_heads"],
        "head_dim": full["head_dim"],
        "v_head_dim": full.get("value_head_dim", full["head_dim"]),
    }
    made = {FULL: full, SLIDING: _with_values(reader, "swa_", usual) | {"window": window}}
    return [made[kind] for kind in kinds]


def _with_values(reader: Reader, prefix: str, usual: Fields) -> Fields:
    """Return the fields of attention whose values may have another width than its keys."""
    heads = grouped_heads(reader, prefix, usual)
    size = reader.whole(f"{prefix}v_head_dim", usual.get("v_head_dim", heads["head_dim"]))
    return heads if size == heads["head_dim"] else heads | {"value_head_dim": size}


def windowed_mtp_layer(reader: Reader, mixers: Sequence[Fields]) -> Fields:
    """Return the layer of an MTP module: dense, and with a window unless a list says otherwise.

    Lists of layers may continue with the modules. Modules may also have their own lists
    (`mtp_layer_types`, `mtp_mlp_layer_types`). The sources are vLLM 0.33 (``mimo_v2_mtp.py``,
    ``step3p5_mtp.py``) and SGLang 0.5.23 (``mimo_v2_nextn.py``).
    """
    num_layers = len(mixers)
    key, kinds = _of_modules(reader, "layer_types", num_layers)
    are_alike = not kinds or (kinds[0] in (FULL, SLIDING) and kinds == kinds[:1] * len(kinds))
    reader.need(are_alike, key, f"modules that are all {FULL}, or all {SLIDING}")
    key, blocks = _of_modules(reader, "mlp_layer_types", num_layers)
    are_dense = all(kind == "dense" for kind in blocks)
    reader.need(are_dense, key, "modules without experts, as specmodel knows no others")
    is_windowed = not kinds or kinds[0] == SLIDING
    fitting = (mixer for mixer in mixers if bool(mixer.get("window")) == is_windowed)
    block = {"kind": "dense", "ffn_size": reader.whole("intermediate_size")}
    return {"count": 1, "mixer": next(fitting, mixers[0]), "feed_forward": block}


def _of_modules(reader: Reader, key: str, num_layers: int) -> tuple[str, list[Any]]:
    """Return a key and its entries for MTP modules: all of `mtp_` + key, or those after layers."""
    own, listed = reader.get(f"mtp_{key}"), reader.get(key)
    reader.need(isinstance(own, list | None), f"mtp_{key}", "a list with the kind of each module")
    return (f"mtp_{key}", own) if own else (key, (listed or [])[num_layers:])
