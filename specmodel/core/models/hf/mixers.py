"""Read the mixer of each layer: attention of some kind, or a recurrent state.

The key `layer_types` lists the kind of each layer, or a plan gives it. A plan reads other keys and
returns the kind of each layer, an empty list if these keys are missing. List and plan must agree.
"""

from specmodel.core.models.hf.family import CHUNKED, FULL, INDEXED, LINEAR, SLIDING
from specmodel.core.models.hf.keys import table
from specmodel.core.models.hf.kimi import gate_size
from specmodel.core.models.hf.reader import Fields, Layers, Reader, grouped_heads

_INDEXERS, _OWN = ("full", "shared", "F", "S"), ("full", "F")


def num_layers(reader: Reader) -> int:
    """Return the number of layers [-]."""
    return reader.whole("num_hidden_layers")


def mixers(reader: Reader, kinds: list[str], window: int | None) -> Layers:
    """Return the fields of the mixer of each layer, None for a layer without one."""
    family = reader.family
    made: dict[str, Fields] = {}
    if not {FULL, SLIDING, CHUNKED}.isdisjoint(kinds):
        made[FULL] = attention(reader)
        made[SLIDING] = made[CHUNKED] = made[FULL] | {"window": window}
    if LINEAR in kinds:
        # by default, engines keep a recurrent state in 32 bits
        dtype = reader.known_dtype("mamba_ssm_dtype") or "fp32"
        is_rule = "." in family.linear
        sizes = family.rule("linear", reader) if is_rule else reader.sizes(family.linear)
        made[LINEAR] = {"state_dtype": dtype} | sizes
    if INDEXED in kinds:
        made[INDEXED] = _sparse_attention(reader)
        owns = _own_indexers(reader, len(kinds))
        return [
            made[kind] if has_indexer or kind == LINEAR else made[kind] | {"has_indexer": False}
            for kind, has_indexer in zip(kinds, owns, strict=True)
        ]
    return [made.get(kind) for kind in kinds]


def attention(reader: Reader) -> Fields:
    """Return the fields of attention to the whole context, grouped or latent."""
    family = reader.family
    if family.attention == "latent":
        return _gated_latents(reader)
    kv_heads = family.kv_heads or reader.whole("num_attention_heads")
    width = family.head_dim or _share_of_a_head(reader)
    fields = grouped_heads(reader, "", {"num_key_value_heads": kv_heads, "head_dim": width})
    if family.has_output_gate:
        fields["has_output_gate"] = reader.flag("attn_output_gate", True)
    if family.norms_all_heads:
        fields["norms_all_heads"] = True
    return fields


def _share_of_a_head(reader: Reader) -> int | None:
    """Return the default width of a head: hidden_size / heads, rounded down; None for 0 [-]."""
    return reader.whole("hidden_size") // reader.whole("num_attention_heads") or None


def lightning(reader: Reader) -> Fields:
    """Return the fields of lightning attention, which has the same heads as other layers."""
    heads = reader.whole("num_attention_heads")
    size = reader.whole("head_dim", _share_of_a_head(reader))
    return {"kind": "lightning_attention", "num_heads": heads, "head_dim": size}


def latent_heads(reader: Reader) -> Fields:
    """Return the fields of attention over latents, without a gate."""
    reader.pass_over("head_dim", "num_key_value_heads", "qk_head_dim")
    missing = 0 if reader.family.has_query_latent else None
    has_rank = reader.get("q_lora_rank", missing) is not None
    rank = reader.whole("q_lora_rank", minimum=0) if has_rank else 0
    return reader.sizes("latent") | {"q_lora_rank": rank}


def _gated_latents(reader: Reader) -> Fields:
    heads = latent_heads(reader)
    size = gate_size(reader, heads["v_head_dim"])
    return heads | ({"gate_size": size} if size else {})


def _sparse_attention(reader: Reader) -> Fields:
    fields = _gated_latents(reader) | {"kind": "sparse_attention"} | reader.sizes("indexer")
    pool = reader.whole("index_kpool", 1)
    if pool > 1:
        reader.only("index_kpool_compress", (True,), "true, as other pools are not known here")
        fields["index_pool"] = pool
    has_latent = fields["q_lora_rank"] or not reader.family.has_query_latent
    expected = "at least 1, as the indexer needs the latent of queries"
    reader.need(has_latent, "q_lora_rank", expected)
    return fields


def _own_indexers(reader: Reader, num_layers: int) -> list[bool]:
    """Return which layers have an indexer. Other layers reuse the last earlier selection.

    Several keys may say which layers; all of them must agree. Without any, a default rule applies.
    The first layer must have an indexer.
    """
    said: dict[str, list[bool]] = {}
    for key, known in (("indexer_types", _INDEXERS[:2]), ("index_topk_pattern", _INDEXERS)):
        if reader.get(key) is not None:
            said[key] = [kind in _OWN for kind in reader.by_layer(key, num_layers, known)]
    frequency = reader.whole("index_topk_freq", reader.family.indexer_every)
    offset = reader.whole("index_skip_topk_offset", 2, minimum=0)
    if not said or reader.get("index_topk_freq") is not None:
        key = "index_topk_freq" if said else "index_skip_topk_offset"
        said[key] = [max(i - offset + 1, 0) % frequency == 0 for i in range(num_layers)]
    key, owns = next(iter(said.items()))
    agree = owns[0] and all(other == owns for other in said.values())
    expected = f"an indexer in layer 0, and the same layers by {', '.join(said)}"
    reader.need(agree, key, expected)
    return owns


def with_listed_heads(reader: Reader, kinds: list[str], window: int | None) -> Layers:
    """Return the attention of each layer, with its own number of query heads if a key lists it.

    A gate has one number for each head.
    """
    key, made = "num_attention_heads_per_layer", mixers(reader, kinds, window)
    listed = reader.get(key) or [reader.whole("num_attention_heads")] * len(kinds)
    num_kv_heads = reader.whole("num_key_value_heads", reader.family.kv_heads)
    are_heads = isinstance(listed, list) and all(
        type(n) is int and n > 0 and n % num_kv_heads == 0 for n in listed
    )
    expected = f"{len(kinds)} multiples of num_key_value_heads = {num_kv_heads}"
    reader.need(are_heads and len(listed) == len(kinds), key, expected)
    return [mixer and mixer | {"num_heads": n} for mixer, n in zip(made, listed, strict=True)]


def layer_kinds(reader: Reader, num_layers: int) -> tuple[list[str], int | None]:
    """Return the kind of each layer, and the window, None if no layer has one [token]."""
    family = reader.family
    listed, names = list[str](), table("key_names")["kinds"]
    if reader.get("layer_types") is not None:
        types = reader.by_layer("layer_types", num_layers, family.kinds)
        listed = [names.get(kind, kind) for kind in types]
    planned = family.rule("plan", reader, num_layers) if family.plan else []
    other = family.marks or family.interval_key or "other keys"
    if listed and planned not in ([], listed):
        place = next(i for i in range(num_layers) if listed[i] != planned[i])
        raise reader.fault("layer_types", f"{planned[place]} in layer {place}, as by {other}")
    kinds = listed or planned or _each(reader, family.interval, num_layers)
    expected = f"{num_layers} kinds of layers, listed or by {other}"
    reader.need(kinds or not family.plan, "layer_types", expected)
    is_planned, first = bool(kinds), 0
    if family.first_windowed is not None:
        first = reader.whole("max_window_layers", family.first_windowed, minimum=0)
    key, default = "sliding_window", family.sliding_window
    window = reader.get(key, default)
    if family.window_switch and not reader.flag(family.window_switch, False):
        return _without_windows(kinds or [family.kinds[0]] * num_layers), None
    if not is_planned:
        # with a window, all layers have it, except the first ones if a key says so
        kinds = [family.kinds[window is not None and i >= first] for i in range(num_layers)]
    if kinds == _without_windows(kinds) and (is_planned or window is None):
        return kinds, None
    reader.need(window is not None, key, f"the window of the {family.kinds[-1]} layers")
    reader.need(family.has_windows, key, "no window, as this family is not known to have one")
    return kinds, reader.whole(key, default)


def _without_windows(kinds: list[str]) -> list[str]:
    return [FULL if kind in (SLIDING, CHUNKED) else kind for kind in kinds]


def _each(reader: Reader, interval: int | None, num_layers: int) -> list[str]:
    """Return the family's first kind for each n-th layer, the second for all others."""
    if interval is None:
        return []
    return [reader.family.kinds[(i + 1) % interval > 0] for i in range(num_layers)]


def by_interval(reader: Reader, num_layers: int) -> list[str]:
    """Return kinds by a number of layers, or by letters such as LLLG, which end on G."""
    key = reader.family.interval_key
    value = reader.get(key) if key else None
    if key is None or value is None:
        return []
    is_text = isinstance(value, str) and value == "L" * (len(value) - 1) + "G"
    kinds = _each(reader, len(value) if is_text else reader.whole(key), num_layers)
    expected = f"one that makes a layer of {num_layers} {FULL}, at least"
    reader.need({*kinds} != {LINEAR}, key, expected)
    return kinds


def by_rotary_embedding(reader: Reader, num_layers: int) -> list[str]:
    """Return chunked attention for layers with 1 in `no_rope_layers`: a rotary embedding."""
    if not reader.get("no_rope_layers"):
        return by_interval(reader, num_layers)
    rotary = reader.by_layer("no_rope_layers", num_layers, (0, 1))
    reader.pass_over(str(reader.family.interval_key))
    return [reader.family.kinds[has_rope] for has_rope in rotary]


def by_flags(reader: Reader, num_layers: int) -> list[str]:
    """Return the kinds of layers, by a list with 1 for layers of the marked kind."""
    known = (0, 1) if len(reader.family.kinds) > 1 else (1,)
    return _marked(reader, reader.flagged_layers(str(reader.family.marks), num_layers, known))


def by_numbers(reader: Reader, num_layers: int) -> list[str]:
    """Return the kinds of layers, by a list with the numbers of layers of the marked kind."""
    return _marked(reader, reader.layer_numbers(str(reader.family.marks)))


def _marked(reader: Reader, numbers: set[int] | None) -> list[str]:
    """Return the kind of each layer, from the numbers of layers of the marked kind."""
    if numbers is None:
        return []
    family = reader.family
    other = next((kind for kind in family.kinds if kind != family.marked), family.marked)
    num_layers = reader.whole("num_hidden_layers")
    return [family.marked if i in numbers else other for i in range(num_layers)]
