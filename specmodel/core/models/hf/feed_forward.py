"""Read the feed-forward block of each layer: dense, or routed and shared experts."""

from specmodel.core.base.ranges import whole_of
from specmodel.core.models.hf.reader import Fields, Layers, Reader

_ROUTED = ("moe", "hash_moe")
"""Names that transformers 5 writes for blocks with routed experts in DeepSeek-V4."""


def feed_forwards(reader: Reader, num_layers: int) -> Layers:
    """Return the fields of each layer's feed-forward block."""
    family = reader.family
    reader.pass_over("intermediate_size", str(family.dense_size))  # if no layer has such a block
    has_experts = bool(family.experts)
    if family.may_lack_experts:
        has_experts = bool(reader.get(str(family.experts)))
    if not has_experts:
        pass_over_experts(reader)
    dense = _dense_layers(reader, num_layers) if has_experts else [True] * num_layers
    experts = experts_block(reader) if has_experts else None
    block = dense_block(reader) if any(dense) else None
    return [block if is_dense else experts for is_dense in dense]


def dense_block(reader: Reader) -> Fields:
    """Return the fields of a dense block."""
    family = reader.family
    reader.need(family.dense_size, "model_type", "a family whose layers all route")
    width = reader.whole(str(family.dense_size))
    return {"kind": "dense", "is_gated": family.is_gated, "ffn_size": width}


def pass_over_experts(reader: Reader) -> None:
    """Mark keys of experts as known in a dense model, whose file may contain defaults of them."""
    family = reader.family
    if family.experts:
        own = family.experts, family.expert_size, family.latent_size, family.num_shared
        reader.pass_over("num_experts_per_tok", *map(str, (*own, family.shared_size)))


def experts_block(reader: Reader) -> Fields:
    """Return the fields of a block of experts, read from the keys of the family."""
    family = reader.family
    count_key, size_key = str(family.experts), str(family.expert_size)
    fields = chosen_experts(reader, count_key) | {
        "expert_size": reader.whole_in_all(size_key),
        "is_gated": family.is_gated or family.gates_experts,
    }
    if family.popularity_spread:
        fields["popularity_spread"] = family.popularity_spread
    groups = reader.whole("n_group", 1, minimum=0)
    if groups > 1 and reader.get("topk_method") != "greedy":
        most = min(groups, fields["experts_per_token"])
        chosen = reader.whole("topk_group", most, most=most)
        fields |= {"expert_groups": groups, "groups_per_token": chosen}
    if family.latent_size and reader.get(family.latent_size) is not None:
        fields["latent_size"] = reader.whole(family.latent_size)
    if family.shared_size is None:
        return fields
    if family.num_shared:
        # null means no shared experts; a missing key is an error
        is_null = reader.get(family.num_shared, "missing") is None
        num_shared = 0 if is_null else reader.whole_in_all(family.num_shared, minimum=0)
        is_told = reader.get(family.shared_size) is not None or not family.shares_as_routed
        key = family.shared_size if is_told else size_key
        size = reader.whole_in_all(key) if num_shared else 0
    else:
        size = reader.whole_in_all(family.shared_size, minimum=0)
        num_shared = int(size > 0)
        expected = f"{num_shared}, as {family.shared_size} = {size} is that of all"
        reader.only("n_shared_experts", (num_shared,), expected)
    return fields | {"num_shared_experts": num_shared, "shared_expert_size": size}


def chosen_experts(
    reader: Reader, count_key: str, chosen_key: str = "num_experts_per_tok"
) -> Fields:
    """Return the number of experts and how many of them a token uses, as fields of a block."""
    count = reader.whole_in_all(count_key, minimum=2)
    chosen = reader.whole_in_all(chosen_key)
    return {"kind": "experts", "num_experts": count, "experts_per_token": chosen}


def _dense_layers(reader: Reader, num_layers: int) -> list[bool]:
    """Return which layers are dense, by the family's rule or a list, which must agree."""
    key, by_rule = None, [False] * num_layers
    if reader.family.dense_layers:
        key, by_rule = reader.family.rule("dense_layers", reader, num_layers)
    if reader.get("mlp_layer_types") is None:
        return by_rule
    types = reader.by_layer("mlp_layer_types", num_layers, ("sparse", "dense", *_ROUTED))
    listed = [kind == "dense" for kind in types]
    expected = f"the layers that {key} = {reader.get(str(key))} makes dense"
    reader.need(not key or listed == by_rule, "mlp_layer_types", expected)
    return listed


_Rule = tuple[str | None, list[bool]]
"""The key that decides which layers are dense, None if it is missing; and which are dense."""


def by_step(reader: Reader, num_layers: int) -> _Rule:
    """Make layers dense that `mlp_only_layers` lists or that `decoder_sparse_step` leaves out."""
    step = reader.whole("decoder_sparse_step", 1)
    listed = reader.layer_numbers("mlp_only_layers") or set[int]()
    key = "decoder_sparse_step" if step > 1 else "mlp_only_layers" if listed else None
    return key, [i in listed or (i + 1) % step > 0 for i in range(num_layers)]


def leading(reader: Reader, num_layers: int) -> _Rule:
    """Make the first layers dense, and other layers that `moe_layer_freq` leaves out."""
    key = "first_k_dense_replace"
    is_listed = reader.get("mlp_layer_types") is not None
    num_leading = reader.whole(key, 0 if is_listed else reader.family.num_leading, minimum=0)
    is_given = reader.get(key) is not None
    if not isinstance(reader.get("moe_layer_freq"), list):
        step = reader.whole("moe_layer_freq", 1)
        is_dense = [i < num_leading or i % step > 0 for i in range(num_layers)]
        return (key if is_given else "moe_layer_freq" if step > 1 else None), is_dense
    pattern = reader.by_layer("moe_layer_freq", num_layers, (0, 1))
    agrees = not (is_given and any(pattern[:num_leading]))
    expected = f"0 for the layers of first_k_dense_replace = {num_leading}"
    reader.need(agrees, "moe_layer_freq", expected)
    return "moe_layer_freq", [is_sparse == 0 for is_sparse in pattern]


def from_start_to_end(reader: Reader, num_layers: int) -> _Rule:
    """Make layers dense before the first and after the last MoE layer, and between steps."""
    key = "moe_layer_start_index"
    if reader.get(key) is None and reader.get("mlp_layer_types") is not None:
        return None, []
    first = reader.whole(key, minimum=0)
    last = num_layers - 1
    if reader.get("moe_layer_end_index") != -1:
        last = reader.whole("moe_layer_end_index", last, minimum=0)
    step = reader.whole("moe_layer_interval", 1)
    expected = f"a layer from moe_layer_start_index = {first} to {num_layers - 1}, or -1"
    reader.need(first <= last < num_layers, "moe_layer_end_index", expected)
    sparse = [first <= i <= last and (i + 1) % step == 0 for i in range(num_layers)]
    return key, [not is_sparse for is_sparse in sparse]


def enumerated(reader: Reader, num_layers: int) -> _Rule:
    """Make layers dense whose numbers are missing in a list, or in a text with commas."""
    key = "moe_layers_enum"
    value = reader.get(key)
    if value is None:
        return leading(reader, num_layers)
    words = value.split(",") if isinstance(value, str) else value
    sparse = {whole_of(str(word).strip()) for word in words} if isinstance(words, list) else {None}
    expected = "the numbers of the layers that route, in a text or list"
    reader.need(None not in sparse, key, expected)
    return key, [i not in sparse for i in range(num_layers)]


def interleaved(reader: Reader, num_layers: int) -> _Rule:
    """Make layers dense except `moe_layers`, by default each `interleave_moe_layer_step`-th."""
    step = reader.whole("interleave_moe_layer_step", 1)
    listed = reader.layer_numbers("moe_layers")
    sparse = range(step - 1, num_layers, step) if listed is None else listed
    return "interleave_moe_layer_step", [i not in sparse for i in range(num_layers)]
