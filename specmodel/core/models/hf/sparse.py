"""Read models whose sparse attention needs more than the usual keys.

Hy4, Mistral Large 4 and dots3 have latents. Qwen3.8 and Step-5 select blocks of grouped attention.
"""

from specmodel.core.base.ranges import whole_of
from specmodel.core.models.hf.family import FULL, INDEXED, LINEAR, SLIDING
from specmodel.core.models.hf.mixers import attention, mixers
from specmodel.core.models.hf.reader import Fields, Layers, Reader, grouped_heads

# Hy4, dots3 and Mistral Large 4


def hy_fields(reader: Reader, layers: list[Fields]) -> Fields:
    """Return the residual streams of Hy4, which do not mix with each other."""
    return {"residuals": reader.sizes("streams of Hy4")}


_SIZES = (
    *("num_attention_heads", "num_key_value_heads", "q_lora_rank", "kv_lora_rank"),
    *("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
)
"""Keys of sizes that layers with a window may have for themselves in dots3."""


def dots_mixers(reader: Reader, kinds: list[str], window: int | None) -> Layers:
    """Return the attention of each layer: with an indexer, or with a window and other sizes.

    Checkpoints have keys for the layers with a window (swa_); transformers 5 lists the sizes that
    differ in each layer.
    """
    full = mixers(reader, [INDEXED] * len(kinds), None)
    layers = [i for i, kind in enumerate(kinds) if kind == SLIDING]
    if told := reader.overrides(layers, _SIZES, "windowed"):
        usual = {f"swa_{key}": told.get(key, reader.get(key)) for key in _SIZES}
        reader.config = {**reader.config, **usual}
    reader.pass_over("swa_head_dim", "swa_num_key_value_heads")
    own = reader.sizes("windows of dots") | {"gate_size": 1, "window": window}
    return [own if kind == SLIDING else mixer for kind, mixer in zip(kinds, full, strict=True)]


def mistral_mixers(reader: Reader, kinds: list[str], window: int | None) -> Layers:
    """Return the attention of each layer; every `no_rope_layer_interval`-th has no rotary part.

    Keys of such a layer are as wide as others: their part without position is wider.
    """
    num_layers = len(kinds)
    key, every = "no_rope_layers", reader.whole("no_rope_layer_interval", 4)
    rotary = [(i + 1) % every > 0 for i in range(num_layers)]
    if reader.get(key) is not None:
        rotary = reader.by_layer(key, num_layers, (1, 0))
    expected = f"the numbers from 0 to {num_layers - 1}: shared latents are not modelled"
    reader.only("kv_source_layers", (list(range(num_layers)),), expected)
    made = [{**mixer} if mixer else mixer for mixer in mixers(reader, kinds, window)]
    for mixer, has_rotary in zip(made, rotary, strict=True):
        if mixer and not has_rotary:
            mixer["qk_nope_head_dim"] += mixer["qk_rope_head_dim"]
            mixer["qk_rope_head_dim"] = 0
    return made


# Qwen3.8 (`qwen4_exp`)


def qwen4_mixers(reader: Reader, kinds: list[str], window: int | None) -> Layers:
    """Return the mixer of each layer: a state, or attention to blocks that an indexer selects.

    Without an indexer (`indexer_n_heads`), attention reads all entries.
    """
    kinds = [kind if kind == LINEAR else FULL for kind in kinds]
    made = mixers(reader, kinds, window)
    if reader.get("indexer_n_heads") is None:
        return made
    own, budget = reader.sizes("blocks of Qwen"), reader.whole("indexer_budget")
    block = own["block_size"]
    reader.check_divides("indexer_compress_ratio", block, "indexer_budget", budget)
    own["topk_blocks"] = budget // block
    pairs = zip(kinds, made, strict=True)
    return [mixer if kind == LINEAR or mixer is None else mixer | own for kind, mixer in pairs]


def qwen4_fields(reader: Reader, layers: list[Fields]) -> Fields:
    """Return the residual streams, and the tables of n-grams that some layers look up.

    The number of rows for each hash is the next prime, slightly more than the key gives. These rows
    and the convolution after the tables are left out.
    """
    own = reader.sizes("streams of Qwen")
    return {"residuals": own} | _tables(reader, len(layers), own["num_streams"])


def _tables(reader: Reader, num_layers: int, streams: int) -> Fields:
    listed = reader.layer_numbers("ple_layer_ids", first=1, num_layers=num_layers)
    reader.pass_over("heads_per_ngram", "ngram_size", "ngram_vocab_size_base", "ple_embed_dim")
    if not listed:
        return {}
    lookups = (reader.whole("ngram_size", 3, minimum=2) - 1) * reader.whole("heads_per_ngram", 8)
    width = reader.whole("ple_embed_dim", reader.whole("hidden_size"))
    reader.check_divides("heads_per_ngram", lookups, "ple_embed_dim", width)
    rows = lookups * reader.whole("ngram_vocab_size_base", 20_000_000, most=10**9)
    is_fp8 = reader.get("ple_embedding_dtype") is not None
    reader.only("ple_embedding_dtype", ("float8_e4m3fn",), "float8_e4m3fn or null")
    memory = {
        "num_rows": [rows] * len(listed),
        "row_size": width // lookups,
        "num_lookups": lookups,
        "num_outputs": streams + 1,
        "row_dtype": "fp8" if is_fp8 else reader.dtype(),
    }
    return {"ngram_memory": memory}


# Step-3 and Step-5, as vLLM 0.33 (``models/step5/nvidia``) builds them; transformers has no Step-5


_OTHER = "attention_other_setting"


def step_mixers(reader: Reader, kinds: list[str], window: int | None) -> list[Fields]:
    """Return the attention of each layer; layers of one kind may have other heads.

    In Step-5, layers without a window attend to selected blocks.
    """
    made = {FULL: attention(reader), SLIDING: attention(reader)}
    other = reader.nested(_OTHER)
    if other:
        kind = other.by_name("attention_type", (SLIDING, FULL))
        made[kind] = grouped_heads(other)
        other.refuse_other_keys()
    # by default as many heads as other layers, as in transformers 5.23 and vLLM 0.33
    key, own = "swa_num_attention_heads", made[SLIDING]
    heads = reader.whole(key, own["num_heads"])
    reader.check_divides("num_key_value_heads", own["num_kv_heads"], key, heads)
    made[SLIDING] = own | {"num_heads": heads, "window": window}
    made[FULL] |= _selected_blocks(reader.nested("sparse_config"))
    each = reader.nested("per_layer_config")
    for place, sizes in each.config.items() if each else ():
        number = whole_of(place)
        kind = kinds[number] if number is not None and number < len(kinds) else ""
        is_same = sizes == {"num_attention_heads": made.get(kind, {}).get("num_heads")}
        reader.need(is_same, "per_layer_config", f"the heads that {key} gives")
    return [made[kind] for kind in kinds]


def _selected_blocks(own: Reader | None) -> Fields:
    """Return the fields of selected blocks, {} without them. Index keys are means in 8 bits."""
    if own is None or not own.flag("enabled", True):
        return {}
    found = own.sizes("blocks of Step")
    own.only("sparse_indexer_num_k_heads", (1,), "1, as all index heads share one key")
    own.refuse_other_keys(groups=["indexers of Step"])
    return found
