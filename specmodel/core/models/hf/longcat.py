"""LongCat in a ``config.json``: double layers of two mixers, two dense blocks and one MoE block.

The MoE block reads the output of the first mixer, and its own is added after the second dense
block, so that communication may overlap with what is in between; no engine counts on it, and
nothing here does. A double layer counts as two layers with latent attention and a dense block, and
one layer with experts alone.
"""

from specmodel.core.models.hf.feed_forward import chosen_experts
from specmodel.core.models.hf.reader import Fields, Reader

_SPLIT = "emb_split_num"
_UNQUANTISED = "disable_quant_module"


def num_single_layers(reader: Reader) -> int:
    """Return the number of layers with a mixer: two for each double layer [-]."""
    double = reader.whole("num_layers")
    told = reader.whole("num_hidden_layers", double)
    if told not in (double, 2 * double):
        raise reader.fault("num_hidden_layers", f"num_layers = {double}, or twice as many")
    return 2 * double


def longcat_fields(reader: Reader, layers: list[Fields]) -> Fields:
    """Add the layers with experts alone; return the MTP layer and embeddings of n-grams.

    As vLLM 0.33 (``longcat_flash.py``, ``longcat_flash_mtp.py``) builds them; an MTP module has no
    experts.
    """
    chosen = chosen_experts(reader, "n_routed_experts")
    num_zero = reader.whole("zero_expert_num", 0, minimum=0)
    experts = chosen | {"expert_size": reader.whole("moe_intermediate_size")}
    experts["num_zero_experts"] = num_zero
    if reader.get("quantization_config") and reader.get(_UNQUANTISED):
        raise reader.fault(_UNQUANTISED, "none, as names in double layers are not read")
    of_module = {"count": 1, **layers[-1]}
    alone = {"mixer": None, "feed_forward": experts, "num_norms": 0}
    layers += [alone] * (len(layers) // 2)
    return {"mtp_layer": of_module} | _ngrams(reader)


def _ngrams(reader: Reader) -> Fields:
    """Return the embeddings of n-grams, {} if no key gives their number of rows."""
    ratio = reader.number("ngram_vocab_size_ratio", most=10**6)
    if ratio is None:
        return {}
    split, neighbours = reader.whole(_SPLIT), reader.whole("emb_neighbor_num", minimum=2)
    tables = split * (neighbours - 1)
    if reader.whole("hidden_size") % tables:
        raise reader.fault(_SPLIT, f"a number of tables, here {tables}, that divides hidden_size")
    least = ratio * reader.whole("vocab_size")
    rows = sum(int(least + 2 * place + 1) for place in range(tables))
    return {"ngram_inputs": {"num_tables": tables, "num_rows": rows}}
