"""Define the columns of ``data/families.toml``, which describe families of ``config.json``."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from msgspec import field

from specmodel.core.base.errors import InputError, nearest
from specmodel.core.base.records import Record, build, read_mapping
from specmodel.core.models.hf.keys import DATA

FULL, LINEAR = "full_attention", "linear_attention"
SLIDING, CHUNKED = "sliding_attention", "chunked_attention"
INDEXED = "indexed_attention"
"""Kind whose attention reads entries that an indexer selects."""
COMPRESSED = ("compressed_sparse_attention", "heavily_compressed_attention")
"""Kinds with compressed entries in the cache; only the first has an indexer."""
BLOCKS = "minimax_m3_sparse"
"""Name of block-sparse attention in transformers 5.23."""

FAMILIES_FILE = DATA / "families.toml"

_Names = tuple[str, ...]


class Family(Record, frozen=True, kw_only=True):
    """A row of ``families.toml``: how one family names the parts of its shape.

    A description that ends on "key" marks a column with a key of ``config.json``; "rule" marks the
    name of a function. None means that the family has no such part, or that the reader's usual key
    or number applies.
    """

    name: str
    """The `model_type` without the ending _text; it is the heading of the table, not a column."""
    extends: str | None = None
    """Earlier row whose columns this row inherits."""
    without: _Names = ()
    """Columns that are None here, although the default or the inherited row has a value."""

    # feed-forward blocks
    dense_size: str | None = "intermediate_size"
    """Width of dense blocks: key."""
    is_gated: bool = True
    """Whether blocks have three matrices (SwiGLU) instead of two."""
    gates_experts: bool = False
    """Whether experts have three matrices although dense blocks have two."""
    experts: str | None = None
    """Number of routed experts: key."""
    expert_size: str | None = None
    """Width of a routed expert: key."""
    popularity_spread: float | None = None
    """`RoutedExperts.popularity_spread` of its experts, 0 if None [-]."""
    latent_size: str | None = None
    """Width that experts read and write, if it differs from the model's: key."""
    num_shared: str | None = None
    """Number of shared experts: key; one if None and `shared_size` is given."""
    shared_size: str | None = None
    """Width of a shared expert: key."""
    shares_as_routed: bool = False
    """Whether a shared expert is as wide as a routed one if `shared_size` is missing."""
    may_lack_experts: bool = False
    """Whether models of this family with 0 experts are dense."""
    dense_layers: str | None = None
    """Which layers are dense in an MoE model: rule."""
    num_leading: int | None = None
    """For `feed_forward.leading`: default number of leading dense layers."""

    # attention
    attention: Literal["grouped", "latent", "sparse"] = "grouped"
    """Form of attention: grouped, latent or sparse (latent with an indexer)."""
    has_query_latent: bool = True
    """For latent attention: whether queries have a latent if `q_lora_rank` is missing."""
    latent_gate: Literal["head_wise", "element_wise"] | None = None
    """For latent attention: default output gate."""
    indexer_every: int = 1
    """For sparse attention: default number of layers per indexer."""
    kv_heads: int | None = None
    """Default number of key-value heads; None for the number of query heads."""
    head_dim: int | None = None
    """Default width of a head; None for hidden_size / heads."""
    has_output_gate: bool = False
    """Whether attention may have a gate as wide as its queries."""
    norms_all_heads: bool = False
    """Whether one norm covers all query heads, and another all key heads."""
    linear: str = "gated delta net"
    """Linear attention or state space of its linear layers: row of sizes, or rule."""

    # kinds of layers
    kinds: _Names = (FULL, SLIDING)
    """Kinds that `layer_types` may list, the default first."""
    plan: str | None = None
    """Kinds of layers from other keys than `layer_types`: rule."""
    interval: int | None = None
    """For the plan `mixers.by_interval`: default interval, whose last layer has the first kind."""
    interval_key: str | None = None
    """The same interval: key."""
    marks: str | None = None
    """For the plans `mixers.by_flags` and `mixers.by_numbers`: list of marked layers: key."""
    marked: str = FULL
    """Kind of marked layers, one of the first two of `kinds`."""
    first_layer: int = 0
    """For the plan `kimi.by_lists`: the number of the first layer in these lists."""
    has_windows: bool = False
    """Whether layers may have a sliding window."""
    sliding_window: int | None = None
    """Default length of the window [token]."""
    window_switch: str | None = None
    """Whether windows are used, by default false: key."""
    first_windowed: int | None = None
    """First layer with a window if `max_window_layers` is missing."""

    # modules for multi-token prediction
    lists_mtp: bool = False
    """Whether lists of layers may continue with MTP modules."""
    untold_mtp: int = 0
    """Default number of MTP modules in its checkpoints."""

    # the rest
    ties_embeddings: bool = False
    """Whether the LM head is the embedding if `tie_word_embeddings` is missing."""
    positions_offset: int | None = None
    """For learned positions: entries beyond `max_position_embeddings`."""
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Known values of keys; other values are refused. A key may be missing."""
    firsts: _Names = ()
    """Keys that may list a number for text and one for images; the number for text is used."""
    other_names: Mapping[str, str] = field(default_factory=dict)
    """Names of keys, by the usual name, such as {"num_experts_per_tok": "zeta_topk"}."""
    harmless: _Names = ()
    """Keys that change no shape, in addition to those of the inherited row."""
    harmless_groups: _Names = ()
    """Groups of keys that change no shape, by their names in ``harmless_keys.toml``."""

    splits_layers: bool = False
    """Whether layers here are parts of the checkpoint's layers; lists of names are then refused."""

    # rules: functions that read a configuration, by module and name
    num_layers: str = "mixers.num_layers"
    """Number of layers [-]."""
    blocks: str = "feed_forward.feed_forwards"
    """Feed-forward block of each layer, from the number of layers; None for no block."""
    mixers: str = "mixers.mixers"
    """Mixer of each layer, from their kinds and the length of windows; None for no mixer."""
    mtp_layer: str | None = None
    """Layer of MTP modules, if it differs from the target's, from the mixers of the layers."""
    fields: str | None = None
    """Other fields of the `Architecture`; the rule may change the layers."""

    def rule(self, column: str, *told: Any) -> Any:
        """Call the function of ``models/hf`` that a column names; return its result."""
        module, _, function = str(getattr(self, column)).partition(".")
        return getattr(import_module(f"specmodel.core.models.hf.{module}"), function)(*told)


def families() -> dict[str, Family]:
    """Return the known families, by `model_type` without the ending _text."""
    return _read(FAMILIES_FILE)


@cache
def _read(path: Path) -> dict[str, Family]:
    rows: dict[str, Family] = {}
    given: dict[str, dict[str, Any]] = {}
    for name, columns in read_mapping(path, "families").items():
        argument = f"{path.name} {name}"
        if not isinstance(columns, dict) or "name" in columns:
            raise InputError(argument, columns, "a TOML table [FAMILY] without the key name")
        row = build(Family, columns | {"name": name}, argument)
        if row.extends not in (None, *rows):
            expected = f"a row above this one, such as {nearest(str(row.extends), rows)}"
            raise InputError(f"{argument}.extends", row.extends, expected)
        own = {column: getattr(row, column) for column in ("name", *columns)}
        inherited = given.get(row.extends or "", {}) | dict.fromkeys(row.without)
        added = {  # harmless keys of both rows
            column: (inherited.get(column) or ()) + own.get(column, ())
            for column in ("harmless", "harmless_groups")
        }
        given[name] = inherited | {"without": ()} | own | added
        rows[name] = build(Family, given[name], argument)
    return rows
