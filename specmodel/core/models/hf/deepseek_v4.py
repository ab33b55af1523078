"""DeepSeek-V4 and V4.1 in a ``config.json``: compressed entries in the cache, residual streams."""

from specmodel.core.models.hf.family import COMPRESSED, SLIDING
from specmodel.core.models.hf.reader import Fields, Reader

_RATIOS = {0: SLIDING, 4: COMPRESSED[0], 128: COMPRESSED[1]}
"""Kind of a layer by how many tokens one compressed entry stands for; 0 if it has none."""

_KEY = "compress_ratios"
_SHARED = "deepseek_v41"
_SHARED_RATIOS = (0, 1, 2)
_SOURCES = ("kv_source_layer_ids", "index_source_layer_ids")
"""V4.1: lists of the layers that make entries, and of those that select some, for others too."""


def by_ratios(reader: Reader, num_layers: int) -> list[str]:
    """Return the kind of each layer by its compression ratio."""
    if reader.get(_KEY) is None and reader.get("layer_types") is not None:
        key = "compress_rates"
        known = {kind: ratio for ratio, kind in _RATIOS.items()}
        rates = reader.get(key) or {}  # as transformers 5 writes them
        if not isinstance(rates, dict) or any(known.get(kind) != rates[kind] for kind in rates):
            raise reader.fault(key, f"{COMPRESSED[0]} 4 and {COMPRESSED[1]} 128")
        return []
    return [_RATIOS[ratio] for ratio in _ratios(reader, num_layers, tuple(_RATIOS))]


def by_shared_entries(reader: Reader, num_layers: int) -> list[str]:
    """Return the kind of each layer of V4.1, by its compression ratio alone."""
    ratios = _ratios(reader, num_layers, _SHARED_RATIOS)
    return [COMPRESSED[0] if ratio else SLIDING for ratio in ratios]


def _ratios(reader: Reader, num_layers: int, known: tuple[int, ...]) -> list[int]:
    """Return the ratio of each layer; those of MTP modules, which follow, must be 0."""
    ratios = reader.get(_KEY)
    if not isinstance(ratios, list):
        raise reader.fault(_KEY, f"{num_layers} ratios, one for each layer")
    if any(ratios[num_layers:]):
        raise reader.fault(_KEY, "0 for modules, which have a window alone")
    return reader.by_layer(_KEY, num_layers, known)


def compressed_mixers(reader: Reader, kinds: list[str], window: int | None) -> list[Fields]:
    """Return the attention of each layer."""
    if reader.is_family(_SHARED):
        return _sharing_mixers(reader, len(kinds))
    made = {SLIDING: reader.sizes("compressed")}
    if COMPRESSED[0] in kinds:
        own = {"ratio": 4, "has_overlap": True} | reader.sizes("indexer of entries")
        made[COMPRESSED[0]] = made[SLIDING] | own
    made[COMPRESSED[1]] = made[SLIDING] | {"ratio": 128}
    return [made[kind] for kind in kinds]


def _sharing_mixers(reader: Reader, num_layers: int) -> list[Fields]:
    """Return the attention of each layer of V4.1, where layers share entries and selections.

    A layer reads the entries that the last layer made which makes any, and of these what the last
    layer with an indexer selected.
    """
    ratios = _ratios(reader, num_layers, _SHARED_RATIOS)
    makers, choosers = _sources(reader, [i for i, ratio in enumerate(ratios) if ratio])
    base, mixers = reader.sizes("compressed"), list[Fields]()
    index = reader.sizes("indexer of entries") | {"is_index_compressed": False} if makers else {}
    for i, ratio in enumerate(ratios):
        last = max((maker for maker in makers if maker <= i), default=i)
        if ratio and ratio != ratios[last]:
            raise reader.fault(_KEY, f"the ratio of layer {last} for layer {i}: they share entries")
        own = {"has_own_cache": i in makers, "has_indexer": i in choosers}
        mixers.append(base | ({"ratio": ratio} | index | own if ratio else {}))
    return mixers


def _sources(reader: Reader, compressed: list[int]) -> tuple[set[int], set[int]]:
    """Return the layers that make entries and those that select, among those with a ratio."""
    makers, choosers = (reader.layer_numbers(key) or set[int]() for key in _SOURCES)
    if not {*compressed[:1]} <= makers <= {*compressed}:
        expected = f"layers with a ratio in {_KEY}, among them layer {compressed[0]}, the first"
        raise reader.fault(_SOURCES[0], expected)
    if not makers <= choosers <= {*compressed}:
        expected = f"layers with a ratio in {_KEY}, those of {_SOURCES[0]} among them"
        raise reader.fault(_SOURCES[1], expected)
    return makers, choosers


def compressed_fields(reader: Reader, layers: list[Fields]) -> Fields:
    """Return what is around the layers: residual streams, an MTP module, the dtype of the cache.

    Engines keep the cache in 8 bits unless told otherwise, as vLLM 0.33 has it
    (``models/deepseek_v4/attention.py``). The entries of V4.1 have 8 bits throughout, as on
    data-center Blackwell; other GPUs keep them as those of V4, 11 % larger.

    The first layers (`num_hash_layers`, three) choose experts by a hash of the token instead of
    scores. They have a router all the same, and are counted as the others: a hash of tokens that
    differ chooses as evenly, and the share of experts that tokens of a sequence have in common is
    not known apart. Its table, six numbers for each token of the vocabulary, is left out.
    """
    record = reader.get("quantization_config")
    if record and not reader.is_family("deepseek_ref"):
        inner = record.get("expert_dtype") if isinstance(record, dict) else None
        if reader.get("expert_dtype") is None and inner is None:  # vLLM: 4 bits, SGLang: by weights
            raise reader.fault("expert_dtype", "fp4 or fp8, as engines differ where it is not said")
    residuals, block = reader.sizes("streams of DeepSeek"), layers[-1]["feed_forward"]
    fields: Fields = {"residuals": residuals, **_memory(reader, residuals["num_streams"])}
    fields["kv_dtype"] = "mxfp8" if reader.is_family(_SHARED) else "fp8"
    if reader.get("dspark_block_size") is not None:  # the modules are layers of a DSpark head
        fields |= {"num_mtp_modules": 0}
        keys = {"num_experts": "dspark_n_routed_experts"}
        keys |= {"experts_per_token": "dspark_num_experts_per_tok"}
        given = {name: key for name, key in keys.items() if reader.get(key) is not None}
        block = block and block | {name: reader.whole(key) for name, key in given.items()}
    return fields | {
        "mtp_layer": {"count": 1, "mixer": reader.sizes("compressed"), "feed_forward": block}
    }


def _memory(reader: Reader, streams: int) -> Fields:
    """Return the tables of n-grams beside some layers, if there are any."""
    layers = reader.layer_numbers("engram_layer_ids")
    if not layers:
        return {}
    key = "engram_num_embeddings"
    rows = reader.get(key)
    are_numbers = isinstance(rows, list) and all(type(n) is int and n > 0 for n in rows)
    if not are_numbers or len(rows) != len(layers):
        raise reader.fault(key, f"{len(layers)} numbers of rows, one for each of engram_layer_ids")
    lengths = reader.whole("engram_max_ngram_size", minimum=2) - 1
    memory = {
        "num_rows": rows,
        "row_size": reader.whole("engram_head_dim"),
        "num_lookups": lengths * reader.whole("engram_n_heads"),
        "num_outputs": streams + 1,
    }
    return {"ngram_memory": memory}
