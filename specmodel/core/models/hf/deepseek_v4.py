"""Read DeepSeek-V4 and V4.1: compressed cache entries and several residual streams."""

from specmodel.core.models.hf.family import COMPRESSED, SLIDING
from specmodel.core.models.hf.reader import Fields, Reader

_RATIOS = {0: SLIDING, 4: COMPRESSED[0], 128: COMPRESSED[1]}
"""Kind of a layer, by the tokens in one compressed entry; 0 for layers without such entries."""

_KEY = "compress_ratios"
_SHARED = "deepseek_v41"
_SHARED_RATIOS = (0, 1, 2)
_SOURCES = ("kv_source_layer_ids", "index_source_layer_ids")
"""Keys of V4.1: the layers that make entries, and the layers that select entries."""


def by_ratios(reader: Reader, num_layers: int) -> list[str]:
    """Return the kind of each layer by its compression ratio."""
    if reader.get(_KEY) is None and reader.get("layer_types") is not None:
        key = "compress_rates"
        known = {kind: ratio for ratio, kind in _RATIOS.items()}
        rates = reader.get(key) or {}  # as transformers 5 writes them
        are_known = isinstance(rates, dict) and rates.items() <= known.items()
        reader.need(are_known, key, f"{COMPRESSED[0]} 4 and {COMPRESSED[1]} 128")
        return []
    return [_RATIOS[ratio] for ratio in _ratios(reader, num_layers, tuple(_RATIOS))]


def by_shared_entries(reader: Reader, num_layers: int) -> list[str]:
    """Return the kind of each layer of V4.1: compressed if its ratio is above 0."""
    ratios = _ratios(reader, num_layers, _SHARED_RATIOS)
    return [COMPRESSED[0] if ratio else SLIDING for ratio in ratios]


def _ratios(reader: Reader, num_layers: int, known: tuple[int, ...]) -> list[int]:
    """Return the ratio of each layer. Ratios of MTP modules follow in the list and must be 0."""
    ratios = reader.get(_KEY)
    reader.need(isinstance(ratios, list), _KEY, f"{num_layers} ratios, one for each layer")
    reader.need(not any(ratios[num_layers:]), _KEY, "0 for modules, which have only a window")
    return reader.by_layer(_KEY, num_layers, known)


def compressed_mixers(reader: Reader, kinds: list[str], window: int | None) -> list[Fields]:
    """Return the attention of each layer."""
    if reader.family.name == _SHARED:
        return _sharing_mixers(reader, len(kinds))
    made = {SLIDING: reader.sizes("compressed")}
    if COMPRESSED[0] in kinds:
        own = {"ratio": 4, "has_overlap": True} | reader.sizes("indexer of entries")
        made[COMPRESSED[0]] = made[SLIDING] | own
    made[COMPRESSED[1]] = made[SLIDING] | {"ratio": 128}
    return [made[kind] for kind in kinds]


def _sharing_mixers(reader: Reader, num_layers: int) -> list[Fields]:
    """Return the attention of each layer of V4.1, in which layers share entries and selections.

    A layer reads the entries of the last earlier layer that makes entries. Among these, it reads
    the ones that the last earlier layer with an indexer selected.
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
    """Return the layers that make entries and the layers that select; each has a ratio."""
    makers, choosers = (reader.layer_numbers(key) or set[int]() for key in _SOURCES)
    if not {*compressed[:1]} <= makers <= {*compressed}:
        expected = f"layers with a ratio in {_KEY}, among them layer {compressed[0]}, the first"
        raise reader.fault(_SOURCES[0], expected)
    if not makers <= choosers <= {*compressed}:
        expected = f"layers with a ratio in {_KEY}, those of {_SOURCES[0]} among them"
        raise reader.fault(_SOURCES[1], expected)
    return makers, choosers


def compressed_fields(reader: Reader, layers: list[Fields]) -> Fields:
    """Return the fields of residual streams, n-gram tables, the MTP module and the cache's dtype.

    By default, engines keep the cache in 8 bits (vLLM 0.33: ``models/deepseek_v4/attention.py``).
    All parts of an entry of V4.1 have 8 bits here, as on data-center Blackwell. Other GPUs use the
    format of V4, which is 11 % larger.

    The first three layers (`num_hash_layers`) choose experts by a hash of the token, not by scores.
    They still have a router, and count like other layers: the hash spreads different tokens as
    evenly, and no measurement shows how many experts the tokens of a sequence share there. The
    hash table, six numbers for each token of the vocabulary, is left out.
    """
    record = reader.get("quantization_config")
    if record and reader.family.name != "deepseek_ref":
        inner = record.get("expert_dtype") if isinstance(record, dict) else None
        is_given = reader.get("expert_dtype") is not None or inner is not None
        # without the key, vLLM assumes 4 bits, SGLang the dtype of other weights
        reader.need(is_given, "expert_dtype", "fp4 or fp8, as engines have different defaults")
    residuals, block = reader.sizes("streams of DeepSeek"), layers[-1]["feed_forward"]
    fields: Fields = {"residuals": residuals, **_memory(reader, residuals["num_streams"])}
    fields["kv_dtype"] = "mxfp8" if reader.family.name == _SHARED else "fp8"
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
    """Return the tables of n-grams that some layers look up, {} if none does."""
    layers = reader.layer_numbers("engram_layer_ids")
    if not layers:
        return {}
    key = "engram_num_embeddings"
    rows = reader.get(key)
    are_numbers = isinstance(rows, list) and all(type(n) is int and n > 0 for n in rows)
    is_valid = are_numbers and len(rows) == len(layers)
    reader.need(is_valid, key, f"{len(layers)} numbers of rows, one for each of engram_layer_ids")
    lengths = reader.whole("engram_max_ngram_size", minimum=2) - 1
    memory = {
        "num_rows": rows,
        "row_size": reader.whole("engram_head_dim"),
        "num_lookups": lengths * reader.whole("engram_n_heads"),
        "num_outputs": streams + 1,
    }
    return {"ngram_memory": memory}
