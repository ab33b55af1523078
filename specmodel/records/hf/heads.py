"""Reader of what a ``config.json`` says of drafting: of a head, or of modules of a target.

A head looks like a model of few layers. Heads are known by the names of their classes, as in the
registries of vLLM 0.33.0 and SGLang 0.5.23 and in speculators 0.9.0. What another class would make
of the same keys is refused by name.
"""

from collections.abc import Mapping
from typing import Any

from specmodel.base.errors import InputError
from specmodel.records.hf.families import FULL, INDEXED, MTP_COUNTS, Family
from specmodel.records.hf.mamba2 import check_module
from specmodel.records.hf.reader import Reader

_GROUPED = (
    "LlamaForCausalLMEagle3",
    "Eagle3LlamaForCausalLM",
    "Eagle3Qwen3ForCausalLM",
    "Eagle3MiniMaxM2ForCausalLM",
    "Eagle3Qwen2_5vlForCausalLM",
    "Eagle3Qwen3vlForCausalLM",
    "Eagle3Speculator",
    "Eagle3DraftModel",
)
"""Classes of EAGLE-3 heads whose attention has groups of heads."""

_LATENT = ("Eagle3DeepseekV2ForCausalLM", "Eagle3DeepseekV3ForCausalLM")
"""Classes of EAGLE-3 heads with attention over latents, as EAGLE-3.1 for Kimi-K2.5."""

_NAME_PARTS = ("eagle", "medusa", "dflash", "dspark", "xpress", "speculator", "draft", "assistant")
_HEAD_KEYS = (
    "draft_vocab_size",
    "speculators_model_type",
    "eagle_config",
    "dflash_config",
    "markov_rank",
)
_PARALLEL_KEYS = ("pard_token", "ptd_token_id", "mask_token_id", "dflash_config", "markov_rank")
"""Keys of heads that draft in parallel."""

_UNKNOWN = ("quantization_config", "num_experts", "num_local_experts")
_LEFT_OVER = (
    "n_routed_experts",
    "n_shared_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "moe_layer_freq",
    "first_k_dense_replace",
    "topk_group",
    "topk_method",
    "num_nextn_predict_layers",
)
"""Keys of the target's family that a head over latents carries: its block is dense all the same."""

_WINDOWED = "sliding_attention"
_DEFAULT_TAPS = 3
_MOST_LAYERS = 64


def is_draft_head(config: Mapping[str, Any]) -> bool:
    """Tell whether a configuration is that of a head, which looks like a model of few layers."""
    names = str(config.get("architectures")).lower()
    has_key = any(config.get(key) for key in _HEAD_KEYS)
    return has_key or any(part in names for part in _NAME_PARTS)


def eagle3_fields(
    config: Mapping[str, Any], argument: str, *, hidden_size: int, vocabulary_size: int
) -> dict[str, Any]:
    """Return the fields of an `Architecture` that the configuration of an EAGLE-3 head describes.

    Parameters
    ----------
    config
        Content of its ``config.json``, as SGLang and SpecForge write it or as speculators does.
    argument
        Name that an error should carry.
    hidden_size, vocabulary_size
        Those of the target that it was trained for [-] [token].

    Returns
    -------
    dict
        Fields by name, without `schema_version`, `name` and `source`.

    Raises
    ------
    InputError
        If it is a head of another kind or target, or has a part that is not known here.

    Notes
    -----
    Queries, keys and values of the first layer, or their latents, read the embedding beside what
    the target computed; those of further layers the width of the head alone.
    """
    layer = config.get("transformer_layer_config")
    nested = layer if isinstance(layer, dict) else {}
    reader = Reader({"model_type": "llama", **config, **nested}, argument)
    is_latent = _is_latent(config, reader)
    _refuse_unknown(reader, is_latent)
    width = reader.whole("hidden_size")
    _check_target(reader, width, hidden_size, vocabulary_size)
    num_layers = reader.whole("num_hidden_layers")
    if num_layers > _MOST_LAYERS:
        raise reader.fault("num_hidden_layers", f"at most {_MOST_LAYERS} in a head")
    windows = _windows(reader, num_layers)
    mixer = _latent(reader) if is_latent else _grouped(reader, width)
    block = {"kind": "dense", "ffn_size": _ffn_size(reader)}
    dtype = reader.dtype()
    layers = []
    for place, window in enumerate(windows):
        own = mixer if window is None else mixer | {"window": window}
        read = {"input_size": 2 * width} if place == 0 else {}
        layers.append({"count": 1, "mixer": own | read, "feed_forward": block})
    fields = {
        "hidden_size": width,
        "vocabulary_size": _draft_vocabulary(reader, vocabulary_size),
        "input_projection_size": _num_taps(reader, width, hidden_size) * hidden_size,
        "layers": layers,
    }
    reader.refuse_other_keys(Family(harmless=_LEFT_OVER if is_latent else ()))
    return fields | dict.fromkeys(("weight_dtype", "activation_dtype", "kv_dtype"), dtype)


def mtp_fields(
    config: Mapping[str, Any], argument: str, *, untold: int = 0, has_own_layer: bool = False
) -> dict[str, Any]:
    """Return the fields of an `Architecture` about its modules for multi-token prediction.

    Parameters
    ----------
    config
        Content of a ``config.json``, of the language model.
    argument
        Name that an error should carry.
    untold
        Modules of a checkpoint where no key says how many [-].
    has_own_layer
        Whether modules of the family are not like the target, which is read elsewhere.

    Returns
    -------
    dict
        Fields by name; no number of modules for a checkpoint with one.

    Raises
    ------
    InputError
        If a number is none, a switch is not true or false, or the block is not like the target:
        with embeddings of its own, or layers that do not attend to all that came before.

    Examples
    --------
    >>> mtp_fields({"num_nextn_predict_layers": 3}, "config")
    {'num_mtp_modules': 3}
    """
    key = next((name for name in MTP_COUNTS if config.get(name) is not None), None)
    count = config[key] if key else untold
    if type(count) is not int or not 0 <= count <= _MOST_LAYERS:
        raise InputError(f"{argument} {key}", count, f"a whole number from 0 to {_MOST_LAYERS}")
    fields: dict[str, Any] = {} if count == 1 else {"num_mtp_modules": count}
    _check_mtp_layers(config, argument, has_own_layer=has_own_layer)
    check_module(config, argument)
    shares = config.get("index_share_for_mtp_iteration", False)
    if not isinstance(shares, bool | None):
        raise InputError(f"{argument} index_share_for_mtp_iteration", shares, "true or false")
    return fields | ({"shares_mtp_index": True} if shares else {})


def _check_mtp_layers(config: Mapping[str, Any], argument: str, *, has_own_layer: bool) -> None:
    """Refuse modules that are not made of the target's attention, experts, embedding and head."""
    key = "mtp_use_dedicated_embeddings"
    if config.get(key) not in (None, False):
        expected = "false, as modules with an embedding of their own are not known here"
        raise InputError(f"{argument} {key}", config[key], expected)
    for key, known in (
        ("mtp_layer_types", (FULL, *INDEXED)),
        ("mtp_mlp_layer_types", ("sparse",)),
    ):
        kinds = [] if has_own_layer else config.get(key) or []
        if not isinstance(kinds, list) or any(kind not in known for kind in kinds):
            expected = f"a list of {' or '.join(known)}, as other modules are not known here"
            raise InputError(f"{argument} {key}", kinds, expected)


def _is_latent(config: Mapping[str, Any], reader: Reader) -> bool:
    """Tell whether a head attends over latents; refuse what is no sequential EAGLE-3 head."""
    parallel = next((key for key in _PARALLEL_KEYS if config.get(key) is not None), None)
    if parallel:
        raise reader.fault(parallel, "none, as heads that draft in parallel are not read")
    names = config.get("architectures")
    if isinstance(names, list) and len(names) == 1 and names[0] in (*_GROUPED, *_LATENT):
        if config.get("speculators_model_type") in (None, "eagle3"):
            return names[0] in _LATENT
        raise reader.fault("speculators_model_type", "eagle3, as other heads are not read")
    known = ", ".join((*_GROUPED, *_LATENT))
    expected = f"an EAGLE-3 head, as others are not read (eagle and mtp are names): one of {known}"
    raise reader.fault("architectures", expected)


def _refuse_unknown(reader: Reader, is_latent: bool) -> None:
    for key in _UNKNOWN if is_latent else (*_UNKNOWN, "kv_lora_rank"):
        if reader.config.get(key):
            raise reader.fault(key, "none, as in a head it is not known here")


def _check_target(reader: Reader, width: int, hidden_size: int, vocabulary_size: int) -> None:
    """Refuse a head for another target, naming the key that says so."""
    is_told = reader.config.get("target_hidden_size") is not None
    for key, needed in (
        ("target_hidden_size" if is_told else "hidden_size", hidden_size),
        ("vocab_size", vocabulary_size),
    ):
        if reader.whole(key) != needed:
            raise reader.fault(key, f"that of the target, {needed}, for a head of this target")


def _grouped(reader: Reader, width: int) -> dict[str, Any]:
    num_heads = reader.whole("num_attention_heads")
    num_kv_heads = reader.whole("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise reader.fault("num_key_value_heads", f"a divisor of num_attention_heads = {num_heads}")
    head_dim = width // num_heads if width % num_heads == 0 else None
    return {
        "kind": "attention",
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_dim": reader.whole("head_dim", head_dim),
    }


def _latent(reader: Reader) -> dict[str, Any]:
    sizes = ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return {
        "kind": "latent_attention",
        "num_heads": reader.whole("num_attention_heads"),
        **{name: reader.whole(name) for name in sizes},
    }


def _windows(reader: Reader, num_layers: int) -> list[int | None]:
    """Return the window of each layer, which its type says, None for the whole context."""
    types = reader.by_layer("layer_types", num_layers, ("full_attention", _WINDOWED))
    is_windowed = reader.get("sliding_window") and reader.get("use_sliding_window", True)
    if is_windowed and reader.get("layer_types") is None:
        raise reader.fault("layer_types", "the layers that sliding_window is for")
    window = reader.whole("sliding_window") if _WINDOWED in types else None
    return [window if kind == _WINDOWED else None for kind in types]


def _ffn_size(reader: Reader) -> int:
    """Return the width of the block, which SGLang takes from another key for Llama 4."""
    is_llama4 = reader.config["model_type"] == "llama4_text"
    return reader.whole("intermediate_size_mlp" if is_llama4 else "intermediate_size")


def _draft_vocabulary(reader: Reader, vocabulary_size: int) -> int:
    size = reader.whole("draft_vocab_size", vocabulary_size)
    if size > vocabulary_size:
        raise reader.fault("draft_vocab_size", f"at most the {vocabulary_size} of the target")
    if reader.flag("tie_word_embeddings", False) and size != vocabulary_size:
        raise reader.fault("tie_word_embeddings", f"false with draft_vocab_size = {size}")
    return size


def _num_taps(reader: Reader, width: int, hidden_size: int) -> int:
    """Return how many features of the target a head projects, 0 if it takes the last as it is."""
    own = reader.config.get("eagle_config")
    if not isinstance(own, dict | None):
        raise reader.fault("eagle_config", "an object")
    own = own or {}
    if own.get("use_aux_hidden_state", True) is False:
        if width != hidden_size:
            raise reader.fault("hidden_size", f"{hidden_size} without auxiliary features")
        return 0
    key = "eagle_aux_hidden_state_layer_ids"
    given = {f"eagle_config.{key}": own.get(key), key: reader.config.get(key)}
    listed = {name: ids for name, ids in given.items() if ids}
    for name, ids in listed.items():
        if not isinstance(ids, list):
            raise InputError(f"{reader.argument} {name}", ids, "a list of layer numbers")
    count = next((len(ids) for ids in listed.values()), _DEFAULT_TAPS)
    told = reader.whole("num_aux_hidden_states", count)
    for name, ids in listed.items():
        if len(ids) != told:
            expected = f"as many layers as are told elsewhere, {told}"
            raise InputError(f"{reader.argument} {name}", ids, expected)
    return told
