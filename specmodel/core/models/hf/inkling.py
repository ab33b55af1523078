"""Read Inkling 1 and 2: windows with other head sizes, and mixers in parallel to attention.

Inkling's own files and those of transformers 5 name widths differently (vLLM 0.33:
``models/inkling``). If there is a `dense_intermediate_size`, `intermediate_size` is the width of
experts.
"""

from specmodel.core.models.hf.family import FULL, SLIDING
from specmodel.core.models.hf.feed_forward import feed_forwards
from specmodel.core.models.hf.reader import HEADS, Fields, Layers, Reader, grouped_heads


def inkling_mixers(reader: Reader, kinds: list[str], window: int | None) -> list[Fields]:
    """Return the attention of each layer. Layers with a window have their own keys (swa_)."""
    made = {FULL: _heads(reader, "")}
    reader.pass_over(*(f"swa_{name}" for name in (*HEADS, "v_head_dim")))
    if SLIDING in kinds:
        made[SLIDING] = _heads(reader, "swa_") | {"window": window}
    return [made[kind] for kind in kinds]


def inkling_blocks(reader: Reader, num_layers: int) -> Layers:
    """Return the feed-forward block of each layer; the first layers, or listed ones, are dense."""
    widths = [reader.get(key) for key in ("dense_intermediate_size", "intermediate_size")]
    if widths[0] is not None:
        names = "intermediate_size", "moe_intermediate_size"
        reader.config = {**reader.config, **dict(zip(names, widths, strict=True))}
    return feed_forwards(reader, num_layers)


def inkling2_fields(reader: Reader, layers: list[Fields]) -> Fields:
    """Add the mixers in parallel to attention to `layers`; return the attention residuals.

    Layers with full attention have convolutions whose weights depend on the token; they cost as
    much as others. These layers read three residuals, for queries, keys and values; they count as
    one.
    """
    _add_beside(reader, layers)
    return {"residuals": reader.sizes("residuals of Inkling")}


def inkling_fields(reader: Reader, layers: list[Fields]) -> Fields:
    """Add the mixers in parallel to attention to `layers`; return the layer of MTP modules.

    Modules have dense blocks. The mixers in parallel to their attention are left out: 1 % of their
    weights.
    """
    _add_beside(reader, layers)
    return {"mtp_layer": _module(reader)}


def _add_beside(reader: Reader, layers: list[Fields]) -> None:
    sizes, hidden_size = reader.sizes("beside attention"), reader.whole("hidden_size")
    beside = []
    for layer in layers:
        mixer = layer["mixer"]
        of_kv = mixer["num_kv_heads"] * (mixer["head_dim"] + mixer["value_head_dim"])
        own = {"num_channels": of_kv + 2 * hidden_size, "num_heads": mixer["num_heads"]}
        own |= {"relative_extent": mixer["window"]} if mixer.get("window") else {}
        beside.append({"mixer": sizes | own, "feed_forward": None, "num_norms": 0})
    layers += beside


def _module(reader: Reader) -> Fields:
    """Return the layer of an MTP module; all modules must have the same attention."""
    key, modules = "mtp_local_layer_ids", reader.whole("num_mtp_layers", 0, minimum=0)
    local = reader.get(key) or []
    is_known = isinstance(local, list) and sorted(local) in ([], list(range(modules)))
    reader.need(is_known, key, "all modules or none, as others are not known here")
    mixer = _heads(reader, "")
    if local:
        extent = reader.whole("mtp_local_extent", reader.whole("sliding_window_size", 512))
        mixer = _heads(reader, "swa_") | {"window": extent}
    block = {"kind": "dense", "ffn_size": reader.whole("intermediate_size")}
    return {"count": 1, "mixer": mixer, "feed_forward": block}


def _heads(reader: Reader, prefix: str) -> Fields:
    heads = grouped_heads(reader, prefix)
    gate = {"has_output_gate": True} if reader.family.has_output_gate else {}
    return heads | gate | {"value_head_dim": reader.whole(f"{prefix}v_head_dim", heads["head_dim"])}
