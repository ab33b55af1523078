"""MiMo-V2 in a ``config.json``: layers with a window have heads of their own.

MTP modules may have such a layer where the target has both kinds, here and in Step-3.
"""

from collections.abc import Sequence
from typing import Any

from specmodel.core.models.hf.family import FULL, SLIDING
from specmodel.core.models.hf.reader import Fields, Reader, grouped_heads


def mimo_mixers(reader: Reader, kinds: list[str], window: int | None) -> list[Fields]:
    """Return the attention of each layer; layers with a window have keys of their own (swa_).

    Without these keys, they have twice the key-value heads, as in transformers 5.23, which counts
    the token itself into `sliding_window` and leaves `sliding_window_size`, which engines read, as
    it is. Sinks, one number for each head, are left out.
    """
    same = reader.get("sliding_window_size")
    if same is not None and window is not None:
        if same not in (window, window - 1):
            raise reader.fault("sliding_window_size", f"the same as sliding_window = {window}")
        window = same
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
    """Return attention whose values may be wider or narrower than its keys."""
    heads = grouped_heads(reader, prefix, usual)
    size = reader.whole(f"{prefix}v_head_dim", usual.get("v_head_dim", heads["head_dim"]))
    return heads if size == heads["head_dim"] else heads | {"value_head_dim": size}


def windowed_mtp_layer(reader: Reader, mixers: Sequence[Fields]) -> Fields:
    """Return the layer of an MTP module: with a window, unless a list says otherwise, and dense.

    Lists of layers may go on with those of modules, which may also have lists of their own
    (`mtp_layer_types`, `mtp_mlp_layer_types`). As vLLM 0.33 (``mimo_v2_mtp.py``,
    ``step3p5_mtp.py``) and SGLang 0.5.23 (``mimo_v2_nextn.py``) build it.
    """
    num_layers = len(mixers)
    kinds = _of_modules(reader, "layer_types", num_layers)
    if kinds and (kinds[0] not in (FULL, SLIDING) or kinds != kinds[:1] * len(kinds)):
        key = "mtp_layer_types" if reader.get("mtp_layer_types") else "layer_types"
        raise reader.fault(key, f"modules that are all {FULL}, or all {SLIDING}")
    _check_dense(reader, num_layers)
    is_windowed = not kinds or kinds[0] == SLIDING
    fitting = (mixer for mixer in mixers if bool(mixer.get("window")) == is_windowed)
    block = {"kind": "dense", "ffn_size": reader.whole("intermediate_size")}
    return {"count": 1, "mixer": next(fitting, mixers[0]), "feed_forward": block}


def _check_dense(reader: Reader, num_layers: int) -> None:
    """Refuse MTP modules with experts, whichever key gives them."""
    expected = "modules without experts, as specmodel knows no others"
    if any(kind != "dense" for kind in _of_modules(reader, "mlp_layer_types", num_layers)):
        is_own = bool(reader.get("mtp_mlp_layer_types"))
        raise reader.fault("mtp_mlp_layer_types" if is_own else "mlp_layer_types", expected)


def _of_modules(reader: Reader, key: str, num_layers: int) -> list[Any]:
    """Return the entries for MTP modules: those of the key's `mtp_` form, or after the layers."""
    own, listed = reader.get(f"mtp_{key}"), reader.get(key)
    if not isinstance(own, list | None):
        raise reader.fault(f"mtp_{key}", "a list with the kind of each module")
    return own or (listed or [])[num_layers:]
