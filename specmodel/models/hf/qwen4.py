"""Qwen3.8 (`qwen4_exp`) in a ``config.json``: selected blocks, gated streams, tables of n-grams."""

from typing import Any

from specmodel.models.hf.family import FULL, LINEAR, Family
from specmodel.models.hf.mixers import mixers
from specmodel.models.hf.reader import Reader

_TABLES = "ple_layer_ids"


def qwen4_mixers(
    reader: Reader, family: Family, kinds: list[str], window: int | None
) -> list[dict[str, Any] | None]:
    """Return the mixer of each layer: a state, or attention to blocks that an indexer selects."""
    if reader.whole("indexer_kv_heads") != 1:
        raise reader.fault("indexer_kv_heads", "1, as all index heads share one key")
    block, budget = reader.whole("indexer_compress_ratio"), reader.whole("indexer_budget")
    reader.check_divides("indexer_compress_ratio", block, "indexer_budget", budget)
    own = {
        "kind": "block_sparse_attention",
        "index_num_heads": reader.whole("indexer_n_heads"),
        "index_head_dim": reader.whole("indexer_head_dim"),
        "block_size": block,
        "topk_blocks": budget // block,
        "is_pooled": True,
    }
    kinds = [kind if kind == LINEAR else FULL for kind in kinds]
    made = mixers(reader, family, kinds, window)
    return [
        mixer if kind == LINEAR or mixer is None else mixer | own
        for kind, mixer in zip(kinds, made, strict=True)
    ]


def qwen4_fields(reader: Reader, layers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the residual streams, and the tables of n-grams beside some layers.

    Tables have as many rows for each hash as the next primes, a
    few more than the key says, which are left out, as is the convolution after them.
    """
    streams = reader.whole("hc_count", 4, minimum=2)
    own = {"kind": "hyper_connections", "num_streams": streams, "is_mixed": False}
    own |= {"gate_rank": reader.whole("hc_lowrank", 320), "has_head": True, "in_modules": True}
    return {"residuals": own} | _tables(reader, len(layers), streams)


def _tables(reader: Reader, num_layers: int, streams: int) -> dict[str, Any]:
    listed = reader.get(_TABLES) or []
    numbers = range(1, num_layers + 1)
    if not isinstance(listed, list) or not all(type(i) is int and i in numbers for i in listed):
        raise reader.fault(_TABLES, f"a list of layers, from 1 to {num_layers}")
    if not listed:
        return {}
    lookups = (reader.whole("ngram_size", 3, minimum=2) - 1) * reader.whole("heads_per_ngram", 8)
    width = reader.whole("ple_embed_dim", reader.whole("hidden_size"))
    reader.check_divides("heads_per_ngram", lookups, "ple_embed_dim", width)
    rows = lookups * reader.whole("ngram_vocab_size_base", 20_000_000, most=10**9)
    dtypes = {None: reader.dtype(), "float8_e4m3fn": "fp8"}
    dtype = reader.get("ple_embedding_dtype")
    if dtype not in dtypes:
        raise reader.fault("ple_embedding_dtype", "float8_e4m3fn or null")
    memory = {
        "num_rows": [rows] * len(set(listed)),
        "row_size": width // lookups,
        "num_lookups": lookups,
        "num_outputs": streams + 1,
        "row_dtype": dtypes[dtype],
    }
    return {"ngram_memory": memory}
