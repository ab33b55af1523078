"""Names of matrices in checkpoints, and which of them a list of names means.

An entry of a list is a name, a glob or a regex, for one layer or for all. An entry that matches no
name known here is refused: engines pass over it, but it may mean a part of the model.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specmodel.base.errors import InputError

ANY = "4242"
"""Stands for the number of a layer or expert that only a pattern for all of them matches."""

MIXER, OUTPUT, EXPERTS, SHARED, DENSE = (
    "attention",
    "output of attention",
    "experts",
    "shared experts",
    "dense layers",
)
"""Groups of matrices of a layer that have one dtype: those before the core of a mixer, the one
after it, and those of the feed-forward block."""

HEAD = "LM head"
BESIDE = "experts beside a dense block"
"""Experts whose names are outside of the block `mlp`, which is then the shared expert."""

_PREFIXES = ("", "model.", "language_model.model.", "model.language_model.", "language_model.")
_BLOCKS = ("mlp", "block_sparse_moe", "feed_forward", "ffn")
_FFN = ("gate_proj", "up_proj", "down_proj")
_UNGATED = ("up_proj", "down_proj")
"""Matrices of Nemotron's blocks; any part of its layers is called a mixer."""
_LATENT = (
    ("q_proj", "kv_a_proj_with_mqa", "kv_b_proj"),
    ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"),
)
_INDEXER = ("indexer.wq_b", "indexer.wk")
_APART = tuple(f"self_attn.{name}" for name in ("kv_b_proj", *_INDEXER))
"""Matrices that lists may keep in 16 bits while the rest of their group is quantised, which decides
its dtype: what is absorbed has 16 bits anyway."""

_DELTA = ("q_proj", "k_proj", "v_proj")
_DELTA_GATES = (
    ("f_a_proj", "f_b_proj", "g_a_proj", "g_b_proj"),
    ("f_a_proj", "f_b_proj", "g_proj"),
    ("f_proj", "g_proj"),
)
"""Gates of Kimi delta attention: made by two matrices each, or by one."""

Namings = tuple[tuple[str, ...], ...]


def _of(block: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{block}.{name}" for name in names)


_MIXERS: dict[str, tuple[Namings, Namings]] = {
    "attention": (
        (
            _of("self_attn", "q_proj", "k_proj", "v_proj"),
            _of("self_attn", "qkv_proj"),
            _of("mixer", "q_proj", "k_proj", "v_proj"),
        ),
        (_of("self_attn", "o_proj"), _of("self_attn", "out_proj"), _of("mixer", "o_proj")),
    ),
    "latent_attention": (
        tuple(_of("self_attn", *names) for names in _LATENT),
        (_of("self_attn", "o_proj"),),
    ),
    "sparse_attention": (
        tuple(_of("self_attn", *names) for names in _LATENT),
        (_of("self_attn", "o_proj"),),
    ),
    "compressed_attention": (
        (
            _of("attn", "wq_a", "wkv", "wq_b", "wo_a"),
            _of("self_attn", "q_a_proj", "kv_proj", "q_b_proj", "o_a_proj"),
        ),
        (_of("attn", "wo_b"), _of("self_attn", "o_b_proj")),
    ),
    "block_sparse_attention": (
        (_of("self_attn", "q_proj", "k_proj", "v_proj", "index_q_proj", "index_k_proj"),),
        (_of("self_attn", "o_proj"),),
    ),
    "gated_delta_net": (
        (
            _of("linear_attn", "in_proj_qkv", "in_proj_z"),
            _of("linear_attn", "in_proj_qkvz"),
        ),
        (_of("linear_attn", "out_proj"),),
    ),
    "mamba2": (
        (_of("mixer", "in_proj"), _of("mamba", "in_proj")),
        (_of("mixer", "out_proj"), _of("mamba", "out_proj")),
    ),
    "beside_attention": ((_of("self_attn", "r_proj"),), ()),
    "short_convolution": ((_of("conv", "in_proj"),), (_of("conv", "out_proj"),)),
    "lightning_attention": (
        (_of("self_attn", "qkv_proj", "output_gate"),),
        (_of("self_attn", "out_proj"),),
    ),
    "kimi_delta_attention": (
        tuple(_of("self_attn", *_DELTA, *names) for names in _DELTA_GATES),
        (_of("self_attn", "o_proj"),),
    ),
}
"""Names of a mixer's matrices before and after its core, one tuple for each way of naming."""

_EXPERT_NAMES = (
    (f".{ANY}", _FFN),
    (f".{ANY}", ("w1", "w2", "w3")),
    ("", ("gate_up_proj", "down_proj")),
)
_BLOCK_NAMES: dict[str, Namings] = {
    EXPERTS: (
        *(
            _of(f"{block}.experts{number}", *names)
            for block in _BLOCKS
            for number, names in _EXPERT_NAMES
        ),
        *(_of(f"mixer.experts{number}", *_UNGATED) for number in (f".{ANY}", "")),
    ),
    BESIDE: tuple(
        _of(f"{block}experts{number}", *names)
        for block in ("", "moe.")
        for number, names in _EXPERT_NAMES
    ),
    SHARED: (
        *(
            _of(f"{block}.{shared}", *_FFN)
            for block in _BLOCKS
            for shared in ("shared_experts", "shared_expert")
        ),
        _of("mixer.shared_experts", *_UNGATED),
        _of("ffn.shared_experts", "w1", "w2", "w3"),
    ),
    DENSE: (
        *(_of(block, *_FFN) for block in _BLOCKS),
        ("fc1", "fc2"),
        _of("mixer", *_UNGATED),
        _of("feed_forward", "w1", "w2", "w3"),
    ),
}
_ALL_NAMES = sorted(
    {
        f"layers.{ANY}.{name}"
        for namings in (
            *(side for mixer in _MIXERS.values() for side in mixer),
            *_BLOCK_NAMES.values(),
            (_of("self_attn", *_INDEXER),),
        )
        for names in namings
        for name in names
    }
)
_HEADS = ("lm_head", "language_model.lm_head", "head")

_REGEX_SIGNS = re.compile(r"[\\()\[\]^$+|]")
_OUTSIDE = re.compile(
    r"\b(vision\w*|visual|embed_vision|audio\w*|multi_modal_projector|mm_projector|patch_merge_mlp)\b"
)
_MTP = re.compile(r"(?:^|[.:*])mtp")
_MTP_NAMES = ("mtp.layers.0.self_attn.o_proj", "mtp.layers.0.mlp.down_proj")
_WHOLE_MTP = re.compile(r"(?:.*\.)?mtp(?:\.layers(?:\.0)?)?(?:\.?\*)?")
_UNQUANTISED = re.compile(
    r"\b(embed_tokens|embeddings|router|(shared_expert_)?gate|\w*norm|e_score_correction_bias|eh_proj"
    r"|shared_head|conv1d|conv\.conv|[qkv]_conv1d|A_log|dt_bias|in_proj_(a|b|ba)|b_proj|fused_qkvbfg_a_proj"
    r"|hc_\w+|hyper_connection|mapping_proj|attn_m[hq]a|index_kpool_compress_\w+|indexers_proj"
    r"|weights_proj|fc[12]_latent_proj)\b"
)
_LAYER = re.compile(r"\blayers\\?\.(\d{1,7})(?=\\?\.|\*|$)")
_EXPERT = re.compile(r"\bexperts\.(\d{1,7})(?=\.|$)")


@dataclass
class _Hits:
    """Layers in which entries name a module, all or some, and which of its experts."""

    all_layers: bool = False
    layers: set[int] = field(default_factory=set)
    experts: dict[int, set[int]] = field(default_factory=dict)


class Modules:
    """The matrices of a model by layer and group."""

    def __init__(self, layers: Sequence[Mapping[str, Any]]) -> None:
        self.layers = layers
        self.groups = [_groups(layer) for layer in layers]

    def named(self, key: str, entries: Any) -> "Named":
        """Return what a list of names means; `key` names the list in errors."""
        if not isinstance(entries, list | tuple):
            raise InputError(key, entries, "a list of names")
        found = Named(self, key)
        for entry, numbers in self._by_layer(key, entries, found).items():
            found.add(entry, numbers)
        return found

    def _by_layer(
        self, key: str, entries: Iterable[Any], found: "Named"
    ) -> dict[str, list[tuple[int, int]]]:
        """Return entries without their numbers, each with the layers and experts that it names."""
        numbers: dict[str, list[tuple[int, int]]] = {}
        for entry in entries:
            if not isinstance(entry, str):
                raise InputError(key, entry, "names of modules")
            entry = entry if _is_regex(entry) else entry.rstrip(".")
            if not _is_regex(entry) and _OUTSIDE.search(entry):
                continue
            if _MTP.search(entry) and not _is_regex(entry):
                found.has_mtp |= bool(_WHOLE_MTP.fullmatch(entry))
                continue
            match = _LAYER.search(entry)
            if match is None:
                general, expert = _general_expert(entry)
                found.as_written.setdefault(general, entry)
                numbers.setdefault(general, []).append((-1, expert))
                continue
            is_glob = entry[match.end(1) :].startswith("*")
            rest = entry[match.end(1) :]
            general, expert = _general_expert(entry[: match.start(1)] + ANY + rest)
            found.as_written.setdefault(general, entry)
            for layer in self._layers_of(match[1], is_glob):
                if layer < len(self.layers):
                    numbers.setdefault(general, []).append((layer, expert))
                elif re.fullmatch(r"\.?\*?", rest):
                    found.has_mtp = True
        return numbers

    def _layers_of(self, number: str, is_glob: bool) -> list[int]:
        """Return the layer of a number, or all layers whose numbers begin with it before a star.

        The layer after the last is the MTP module.
        """
        if not is_glob:
            return [int(number)]
        return [i for i in range(len(self.layers) + 1) if str(i).startswith(number)]


class Named:
    """What a list of names means: groups of matrices by layer, the LM head, MTP modules."""

    def __init__(self, modules: Modules, key: str) -> None:
        self.modules, self.key = modules, key
        self.has_head = self.has_mtp = False
        self.as_written: dict[str, str] = {}
        """The first entry of those that differ in layer and expert alone."""
        self._hits: dict[str, _Hits] = {}

    def add(self, entry: str, numbers: list[tuple[int, int]]) -> None:
        """Add the modules that an entry without numbers names in some layers."""
        names, of_layers = self._matches(entry)
        self.has_mtp |= _is_regex(entry) and all(map(self._pattern(entry).fullmatch, _MTP_NAMES))
        is_known = any(known.search(entry) for known in (_UNQUANTISED, _OUTSIDE, _MTP))
        if not names and not of_layers and not is_known:
            kinds = f"{MIXER}, {EXPERTS}, {SHARED}, {DENSE}, {HEAD}"
            raise InputError(
                self.key, self.as_written[entry], f"{kinds}, embedding, router, norms or vision"
            )
        self.has_head |= not names.isdisjoint(_HEADS)
        for name in names - {*_HEADS}:
            hits = self._hits.setdefault(name, _Hits())
            for layer, expert in numbers:
                if expert >= 0:
                    hits.experts.setdefault(layer, set()).add(expert)
                elif layer < 0:
                    hits.all_layers = True
                else:
                    hits.layers.add(layer)
        for name, layers in of_layers.items():
            self._hits.setdefault(name, _Hits()).layers.update(layers)

    def holds(self, layer: int, group: str) -> bool:
        """Tell whether it names a whole group of matrices of a layer; a part of one is refused."""
        namings = self.modules.groups[layer].get(group, ())
        whole = any(all(self._has(layer, name) for name in names) for names in namings)
        decisive = {name for names in namings for name in names} - {*_APART}
        if not whole and any(self._touches(layer, name) for name in decisive):
            part = group if group != MIXER else f"{MIXER} before its output"
            raise InputError(
                self.key, f"some in layer {layer}", f"all modules of the {part}, or none"
            )
        return whole

    def _has(self, layer: int, name: str) -> bool:
        hits = self._hits.get(f"layers.{ANY}.{name}")
        if hits is None:
            return False
        if hits.all_layers or layer in hits.layers:
            return True
        block = self.modules.layers[layer].get("feed_forward") or {}
        count: int = block.get("num_experts", 0)
        experts = len(hits.experts.get(layer, set()) | hits.experts.get(-1, set()))
        return 0 < count <= experts

    def _touches(self, layer: int, name: str) -> bool:
        hits = self._hits.get(f"layers.{ANY}.{name}")
        if hits is None:
            return False
        is_of_expert = not hits.experts.keys().isdisjoint((layer, -1))
        return hits.all_layers or layer in hits.layers or is_of_expert

    def _matches(self, entry: str) -> tuple[set[str], dict[str, set[int]]]:
        """Return the modules that an entry names in all layers, and in single layers."""
        pattern = self._pattern(entry)
        names = {
            n for n in (*_ALL_NAMES, *_HEADS) if any(pattern.fullmatch(p + n) for p in _PREFIXES)
        }
        of_layers: dict[str, set[int]] = {}
        if not names and _is_regex(entry):
            for name in _ALL_NAMES:
                layers = {
                    i for i in range(len(self.modules.layers)) if self._is_of(pattern, name, i)
                }
                of_layers |= {name: layers} if layers else {}
        return names, of_layers

    def _is_of(self, pattern: re.Pattern[str], name: str, layer: int) -> bool:
        own = name.replace(f"layers.{ANY}.", f"layers.{layer}.")
        return any(pattern.fullmatch(prefix + own) for prefix in _PREFIXES)

    def _pattern(self, entry: str) -> re.Pattern[str]:
        """Return the pattern of an entry; a name also matches those below it."""
        if _is_regex(entry):
            text = f"(?:{entry.removeprefix('re:')}).*"
        else:
            name = re.sub(r"^.*?(?=\blayers\.)", "", entry)
            glob = re.escape(name).replace(r"\*", ".*").replace(r"\?", ".")
            text = rf"(?:.*\.)?{glob}(?:\..*)?"
        try:
            return re.compile(text)
        except (re.error, RecursionError, OverflowError):
            raise InputError(self.key, self.as_written[entry], "a well-formed regex") from None


def _groups(layer: Mapping[str, Any]) -> dict[str, Namings]:
    """Return the groups of matrices that a layer has, with the ways of naming each."""
    mixer, block = layer.get("mixer"), layer.get("feed_forward")
    found: dict[str, Namings] = {}
    if mixer:
        inputs, output = _MIXERS[mixer["kind"]]
        inputs = _existing(inputs, mixer)
        if mixer["kind"] == "sparse_attention" and mixer.get("has_indexer", True):
            inputs = tuple((*names, *_of("self_attn", *_INDEXER)) for names in inputs)
        found |= {MIXER: inputs, OUTPUT: output}
    if block and block["kind"] == "dense":
        found[DENSE] = _BLOCK_NAMES[DENSE]
    elif block and block.get("is_shared_apart"):
        found |= {EXPERTS: _BLOCK_NAMES[BESIDE], SHARED: _BLOCK_NAMES[DENSE]}
    elif block:
        found[EXPERTS] = _BLOCK_NAMES[EXPERTS]
        found |= {SHARED: _BLOCK_NAMES[SHARED]} if block.get("num_shared_experts") else {}
    return found


def _existing(inputs: Namings, mixer: Mapping[str, Any]) -> Namings:
    """Return the names before a core without matrices that the mixer lacks."""
    missing = set()
    if not mixer.get("has_value_projection", True):
        missing = {"self_attn.v_proj"}
    if not mixer.get("has_own_cache", True):
        missing = {"self_attn.k_proj", "self_attn.v_proj"}
    return tuple(tuple(name for name in names if name not in missing) for names in inputs)


def _general_expert(entry: str) -> tuple[str, int]:
    """Return an entry without the number of its expert, and that number, -1 for all."""
    match = _EXPERT.search(entry)
    if match is None:
        return entry, -1
    return entry[: match.start(1)] + ANY + entry[match.end(1) :], int(match[1])


def _is_regex(entry: str) -> bool:
    return entry.startswith("re:") or bool(_REGEX_SIGNS.search(entry))
