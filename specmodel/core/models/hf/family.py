"""The columns of ``data/families.toml``: what a row says of a family's ``config.json``."""

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
"""Kind whose attention reads what an indexer selects."""
COMPRESSED = ("compressed_sparse_attention", "heavily_compressed_attention")
"""Kinds with compressed entries in the cache, of which only the first has an indexer."""
BLOCKS = "minimax_m3_sparse"
"""Block-sparse attention, as transformers 5.23 calls it."""

FAMILIES_FILE = DATA / "families.toml"

_Names = tuple[str, ...]


class Family(Record, frozen=True, kw_only=True):
    """A row of ``families.toml``: how one family names the parts of its shape.

    A column that ends on "key" in its description holds a key of ``config.json``. None says that
    the family has no such part, or that the reader's usual key or number holds.
    """

    name: str
    """Its `model_type` without the ending _text: the heading of the table, and no column."""
    extends: str | None = None
    """Row above it whose columns it takes over."""
    without: _Names = ()
    """Columns that are None here, though a dense Llama or the row that it extends has them."""

    # feed-forward blocks
    dense_size: str | None = "intermediate_size"
    """Width of dense blocks: key."""
    is_gated: bool = True
    """Whether blocks have three matrices (SwiGLU), not two."""
    gates_experts: bool = False
    """Whether experts have three matrices where dense blocks have two."""
    experts: str | None = None
    """Number of routed experts: key."""
    expert_size: str | None = None
    """Width of a routed expert: key."""
    popularity_spread: float | None = None
    """How unequally its experts are used: `RoutedExperts.popularity_spread`, 0 if None [-]."""
    latent_size: str | None = None
    """Width that experts read and write where it is not the model's: key."""
    num_shared: str | None = None
    """Number of shared experts: key; one if None and `shared_size` is given."""
    shared_size: str | None = None
    """Width of a shared expert: key."""
    shares_as_routed: bool = False
    """Whether a shared expert is as wide as a routed one where `shared_size` is missing."""
    may_lack_experts: bool = False
    """Whether models of this family with 0 experts are dense."""
    dense_layers: str | None = None
    """Which layers are dense in an MoE model: rule."""
    num_leading: int | None = None
    """Of `feed_forward.leading`: how many leading layers are dense where no key says it."""

    # attention
    attention: Literal["grouped", "latent", "sparse"] = "grouped"
    """Form of attention: grouped, latent or sparse (latent with an indexer)."""
    has_query_latent: bool = True
    """Of latent attention: whether queries have a latent where `q_lora_rank` is missing."""
    latent_gate: Literal["head_wise", "element_wise"] | None = None
    """Of latent attention: its output gate where no key says it."""
    indexer_every: int = 1
    """Of sparse attention: of how many layers one has an indexer where no key says it."""
    kv_heads: int | None = None
    """Key-value heads where no key says it; as many as query heads if None."""
    head_dim: int | None = None
    """Width of a head where no key says it; hidden_size / heads if None."""
    has_output_gate: bool = False
    """Whether attention may have a gate as wide as its queries."""
    norms_all_heads: bool = False
    """Whether queries, and keys, are normed over all heads."""
    linear: str = "gated delta net"
    """Which linear attention or state space its linear layers have: row of sizes, or rule."""

    # kinds of layers
    kinds: _Names = (FULL, SLIDING)
    """Kinds that `layer_types` may list, the usual one first."""
    plan: str | None = None
    """Which layer is of which kind by other keys than `layer_types`: rule."""
    interval: int | None = None
    """Of the plan `mixers.interval`: each so many layers, the last is of the first kind."""
    interval_key: str | None = None
    """The same number: key."""
    marks: str | None = None
    """Of the plans `mixers.by_flags` and `mixers.by_numbers`: list of layers of one kind: key."""
    marked: str = FULL
    """This kind, of the first two of `kinds`."""
    first_layer: int = 0
    """Of the plan `kimi.by_lists`: the number of the first layer in these lists."""
    has_windows: bool = False
    """Whether layers may have a sliding window."""
    sliding_window: int | None = None
    """Length of the window where no key says it [token]."""
    window_switch: str | None = None
    """Whether windows are used at all: key, false where it is missing."""
    first_windowed: int | None = None
    """First layer with a window where `max_window_layers` is missing."""

    # modules for multi-token prediction
    lists_mtp: bool = False
    """Whether lists of layers may go on with those of MTP modules."""
    untold_mtp: int = 0
    """MTP modules of its checkpoints where no key says it."""

    # the rest
    ties_embeddings: bool = False
    """Whether the LM head is the embedding where `tie_word_embeddings` is missing."""
    positions_offset: int | None = None
    """Of learned positions: entries beyond `max_position_embeddings`."""
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Values that keys may have, as others are not known here; a missing key is accepted."""
    firsts: _Names = ()
    """Keys that may list a number for text and one for images: that of text holds."""
    other_names: Mapping[str, str] = field(default_factory=dict)
    """Its names of keys, by the usual name, such as {"num_experts_per_tok": "zeta_topk"}."""
    harmless: _Names = ()
    """Its keys that change no shape, after those of the row that it extends."""
    harmless_groups: _Names = ()
    """Groups of such keys, by their names in ``harmless_keys.toml``."""

    splits_layers: bool = False
    """Whether layers here are parts of those in checkpoints, whose names are then not read."""

    # rules: functions that read a configuration, by module and name
    num_layers: str = "mixers.num_layers"
    """Number of layers [-]."""
    blocks: str = "feed_forward.feed_forwards"
    """Feed-forward block of each layer, from the number of layers; None for no block."""
    mixers: str = "mixers.mixers"
    """Mixer of each layer, from their kinds and the length of windows; None for no mixer."""
    mtp_layer: str | None = None
    """Layer of MTP modules where it is not like the target's, from the mixers of the layers."""
    fields: str | None = None
    """Other fields of the `Architecture`; it may change the layers."""

    def rule(self, column: str, *told: Any) -> Any:
        """Call the function of ``models/hf`` that a column names, and return its result."""
        module, _, function = str(getattr(self, column)).partition(".")
        return getattr(import_module(f"specmodel.core.models.hf.{module}"), function)(*told)


def families() -> dict[str, Family]:
    """Return the families that are read, by `model_type` without the ending _text."""
    return _read(FAMILIES_FILE)


@cache
def _read(path: Path) -> dict[str, Family]:
    rows: dict[str, Family] = {}
    given: dict[str, dict[str, Any]] = {}
    for name, columns in read_mapping(path, "families").items():
        argument = f"{path.name} {name}"
        if not isinstance(columns, dict) or "name" in columns:
            raise InputError(argument, columns, "a table [FAMILY] of columns, none called name")
        row = build(Family, columns | {"name": name}, argument)
        if row.extends not in (None, *rows):
            expected = f"a row above it: {nearest(str(row.extends), rows)}"
            raise InputError(f"{argument}.extends", row.extends, expected)
        own = {column: getattr(row, column) for column in ("name", *columns)}
        taken = given.get(row.extends or "", {}) | dict.fromkeys(row.without)
        added = {  # harmless keys add up
            column: (taken.get(column) or ()) + own.get(column, ())
            for column in ("harmless", "harmless_groups")
        }
        given[name] = taken | {"without": ()} | own | added
        rows[name] = build(Family, given[name], argument)
    return rows
