"""Read LongCat: double layers of two mixers, two dense blocks and one MoE block.

The MoE block reads the output of the first mixer. Its output is added after the second dense block,
so communication could overlap with the work in between. No engine uses this overlap, and neither
does this library. A double layer counts as three layers: two have latent attention and a dense
block, and one has only experts.
"""

from specmodel.core.models.hf.feed_forward import chosen_experts
from specmodel.core.models.hf.reader import Fields, Reader

_SPLIT = "emb_split_num"
_UNQUANTISED = "disable_quant_module"


def num_single_layers(reader: Reader) -> int:
    """Return the number of layers with a mixer: two for each double layer [-]."""
    double = reader.whole("num_layers")
    expected = f"num_layers = {double}, or twice as many"
    reader.only("num_hidden_layers", (double, 2 * double), expected)
    return 2 * double


def longcat_fields(reader: Reader, layers: list[Fields]) -> Fields:
    """Add the layers that have only experts; return the MTP layer and the embeddings of n-grams.

    The source is vLLM 0.33 (``longcat_flash.py``, ``longcat_flash_mtp.py``). An MTP module has no
    experts.
    """
    chosen = chosen_experts(reader, "n_routed_experts")
    num_zero = reader.whole("zero_expert_num", 0, minimum=0)
    experts = chosen | {"expert_size": reader.whole("moe_intermediate_size")}
    experts["num_zero_experts"] = num_zero
    lists_names = reader.get("quantization_config") and reader.get(_UNQUANTISED)
    reader.need(not lists_names, _UNQUANTISED, "none, as names in double layers are not read")
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
    divides = not reader.whole("hidden_size") % tables
    reader.need(divides, _SPLIT, f"a number of tables, here {tables}, that divides hidden_size")
    least = ratio * reader.whole("vocab_size")
    rows = sum(int(least + 2 * place + 1) for place in range(tables))
    return {"ngram_inputs": {"num_tables": tables, "num_rows": rows}}
