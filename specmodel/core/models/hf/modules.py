"""Find the matrices of a checkpoint that a list of names covers.

An entry of a list is a name, a glob or a regex, for one layer or for all. An entry that matches no
known name is refused. Engines ignore such an entry, but it may name a part of the model.
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any

from msgspec import Struct

from specmodel.core.base.errors import InputError
from specmodel.core.models.hf.keys import table

ANY = "4242"
"""Number of a layer or expert that stands for all: only a pattern for all of them matches it."""


class Part(StrEnum):
    """Groups of matrices that have one dtype.

    A mixer has two groups: the matrices before its core, and the matrix after it. If the names of
    experts are outside the block `mlp`, their group is `BESIDE`, and `mlp` is the shared expert.
    """

    MIXER = "attention"
    OUTPUT = "output of attention"
    EXPERTS = "experts"
    SHARED = "shared experts"
    DENSE = "dense layers"
    HEAD = "LM head"
    BESIDE = "experts beside a dense block"


_PREFIXES = ("", "model.", "language_model.model.", "model.language_model.", "language_model.")
_INDEXER = ("self_attn.indexer.wq_b", "self_attn.indexer.wk")
_APART = ("self_attn.kv_b_proj", *_INDEXER)
"""Matrices that lists may leave in 16 bits although the rest of their group is quantised. The rest
decides the dtype of the group; absorbed matrices have 16 bits in either case."""

Namings = tuple[tuple[str, ...], ...]


def _namings(listed: list[list[str]]) -> Namings:
    """Return sets of names in which `ANY` stands for the number of an expert."""
    return tuple(tuple(name.replace("*", ANY) for name in names) for names in listed)


_NAMES = table("matrix_names")
_MIXERS = {
    kind: (_namings(own["before"]), _namings(own["after"]))
    for kind, own in _NAMES["mixers"].items()
}
"""Names before and after the core, by kind of mixer."""

_BLOCKS = {group: _namings(listed) for group, listed in _NAMES["blocks"].items()}
"""Names in each group of a feed-forward block."""

_WAYS = itertools.chain(*_BLOCKS.values(), *itertools.chain(*_MIXERS.values()))
_PATTERNS = sorted(f"layers.{ANY}.{name}" for name in {*_INDEXER, *itertools.chain(*_WAYS)})
"""All names, each after the name of a layer."""

_OUTSIDE, _UNQUANTISED = (
    re.compile(rf"\b({'|'.join(own)})\b") for own in _NAMES["elsewhere"].values()
)
"""Encoders of images and sound, and parts that are never quantised."""

_OF_HEADS = re.compile(_NAMES["of_draft_heads"])
"""Modules that only draft heads have and that are not quantised."""

_HEADS = ("lm_head", "language_model.lm_head", "head")

_REGEX_SIGNS = re.compile(r"[\\()\[\]^$+|]")
_MTP = re.compile(r"(?:^|[.:*])mtp")
_MTP_NAMES = ("mtp.layers.0.self_attn.o_proj", "mtp.layers.0.mlp.down_proj")
_WHOLE_MTP = re.compile(r"(?:.*\.)?mtp(?:\.layers(?:\.0)?)?(?:\.?\*)?")
_LAYER = re.compile(r"\blayers\\?\.(\d{1,7})(?=\\?\.|\*|$)")
_EXPERT = re.compile(r"\bexperts\.(\d{1,7})(?=\.|$)")


class Modules(Struct, frozen=True, dict=True):
    """The matrices of a model by layer and group; whether it has an LM head and MTP modules.

    With `splits_layers`, layers here are parts of the checkpoint's layers, whose names differ.
    """

    layers: Sequence[Mapping[str, Any]]
    has_head: bool
    has_mtp: bool
    splits_layers: bool = False

    @cached_property
    def groups(self) -> list[dict[str, Namings]]:
        """Groups of matrices of each layer, each group with alternative sets of names."""
        return [_groups(layer) for layer in self.layers]


class Named:
    """The modules that a list of names covers: groups of matrices, LM head, MTP modules."""

    def __init__(self, modules: Modules, key: str, entries: Any) -> None:
        expected = "" if isinstance(entries, list | tuple) else "a list of names"
        if modules.splits_layers:
            expected = "Module names are not read for this model. Give `weight_dtype` instead."
        if expected:
            raise InputError(key, entries, expected)
        self.modules, self.key = modules, key
        self.has_head = self.has_mtp = False
        self._as_written: dict[str, str] = {}
        """The first of several entries that differ only in their layer or expert."""
        self._hits = defaultdict[tuple[str, int], set[int]](set)
        """Experts that entries name, by module and layer. -1: all layers; the whole module."""
        for entry, numbers in self._by_layer(entries).items():
            self._add(entry, numbers)

    def _by_layer(self, entries: Iterable[Any]) -> dict[str, list[tuple[int, int]]]:
        """Return entries with `ANY` for numbers, each with its pairs of layer and expert.

        -1 means all layers, or the whole module.
        """
        numbers, count = dict[str, list[tuple[int, int]]](), len(self.modules.layers)
        for entry in entries:
            if not isinstance(entry, str):
                raise InputError(self.key, entry, "only names of modules in this list")
            entry = entry if _is_regex(entry) else entry.rstrip(".")
            is_outside = not _is_regex(entry) and _OUTSIDE.search(entry)
            if is_outside or _OF_HEADS.fullmatch(entry):
                continue
            if _MTP.search(entry) and not _is_regex(entry):
                self.has_mtp |= bool(_WHOLE_MTP.fullmatch(entry))
                continue
            text, number, rest = _general(_LAYER, entry)
            layers = [-1 if number is None else int(number)]
            if number is not None and rest.startswith("*"):  # after the last: an MTP module
                layers = [i for i in range(count + 1) if str(i).startswith(number)]
            if any(i >= count for i in layers) and re.fullmatch(r"\.?\*?", rest):
                self.has_mtp = True
            general, expert, _ = _general(_EXPERT, text)
            self._as_written.setdefault(general, entry)
            for layer in layers:
                if layer < count:
                    numbers.setdefault(general, []).append((layer, int(expert or -1)))
        return numbers

    def _add(self, entry: str, numbers: list[tuple[int, int]]) -> None:
        """Record the modules that an entry covers, for the layers and experts in `numbers`."""
        names, of_layers = self._matches(entry)
        self.has_mtp |= _is_regex(entry) and all(map(self._pattern(entry).fullmatch, _MTP_NAMES))
        elsewhere = (_UNQUANTISED, _OUTSIDE, _MTP)
        is_known = any(known.search(entry) for known in elsewhere)
        if not names and not of_layers and not is_known:
            kinds = f"{Part.MIXER}, {Part.EXPERTS}, {Part.SHARED}, {Part.DENSE}, {Part.HEAD}"
            expected = f"{kinds}, embedding, router, norms or vision"
            raise InputError(self.key, self._as_written[entry], expected)
        self.has_head |= not names.isdisjoint(_HEADS)
        for name in names - {*_HEADS}:
            for layer, expert in numbers:
                self._hits[name, layer].add(expert)
        for name, layer in of_layers:
            self._hits[name, layer].add(-1)

    def covers(self, layer: int, group: str) -> bool:
        """Return whether the list covers a group of a layer; refuse a list that covers a part."""
        namings = self.modules.groups[layer].get(group, ())
        whole = any(all(self._has(layer, name) for name in names) for names in namings)
        decisive = {name for names in namings for name in names} - {*_APART}
        if not whole and any(self._experts(layer, name) for name in decisive):
            part = group if group != Part.MIXER else f"{Part.MIXER} before its output"
            expected = f"all modules of the {part}, or none of them"
            raise InputError(self.key, f"some in layer {layer}", expected)
        return whole

    def _has(self, layer: int, name: str) -> bool:
        """Return whether entries name a module in a layer, whole or by all of its experts."""
        block = self.modules.layers[layer].get("feed_forward") or {}
        experts = self._experts(layer, name)
        return -1 in experts or 0 < block.get("num_experts", 0) <= len(experts)

    def _experts(self, layer: int, name: str) -> set[int]:
        """Return the experts of a module that entries name in a layer, -1 for the whole module."""
        own = f"layers.{ANY}.{name}"
        return self._hits.get((own, layer), set()) | self._hits.get((own, -1), set())

    def _matches(self, entry: str) -> tuple[set[str], set[tuple[str, int]]]:
        """Return the modules that an entry matches in all layers, or pairs of module and layer."""
        pattern = self._pattern(entry)

        def is_named(name: str) -> bool:
            return any(pattern.fullmatch(prefix + name) for prefix in _PREFIXES)

        names = {name for name in (*_PATTERNS, *_HEADS) if is_named(name)}
        if names or not _is_regex(entry):
            return names, set()
        places = itertools.product(_PATTERNS, range(len(self.modules.layers)))
        return names, {(n, i) for n, i in places if is_named(n.replace(ANY, str(i), 1))}

    def _pattern(self, entry: str) -> re.Pattern[str]:
        """Return the regex of an entry; a plain name also matches the modules below it."""
        if _is_regex(entry):
            text = f"(?:{entry.removeprefix('re:')}).*"
        else:
            name = re.sub(r"^.*?(?=\blayers\.)", "", entry)
            glob = re.escape(name).replace(r"\*", ".*").replace(r"\?", ".")
            text = rf"(?:.*\.)?{glob}(?:\..*)?"
        try:
            return re.compile(text)
        except (re.error, RecursionError, OverflowError):
            raise InputError(self.key, self._as_written[entry], "a well-formed regex") from None


def _groups(layer: Mapping[str, Any]) -> dict[str, Namings]:
    """Return the groups of matrices of a layer, each with alternative sets of names."""
    mixer, block = layer.get("mixer"), layer.get("feed_forward")
    found, blocks = dict[str, Namings](), _BLOCKS
    if mixer:
        inputs, output = _MIXERS[mixer["kind"]]
        missing = set() if mixer.get("has_value_projection", True) else {"self_attn.v_proj"}
        if not mixer.get("has_own_cache", True):
            missing = {"self_attn.k_proj", "self_attn.v_proj"}
        inputs = tuple(tuple(n for n in names if n not in missing) for names in inputs)
        if mixer["kind"] == "sparse_attention" and mixer.get("has_indexer", True):
            inputs = tuple((*way, *_INDEXER) for way in inputs)
        found |= {Part.MIXER: inputs, Part.OUTPUT: output}
    if block and block["kind"] == "dense":
        found[Part.DENSE] = blocks[Part.DENSE]
    elif block and block.get("is_shared_apart"):
        found |= {Part.EXPERTS: blocks[Part.BESIDE], Part.SHARED: blocks[Part.DENSE]}
    elif block:
        found[Part.EXPERTS] = blocks[Part.EXPERTS]
        found |= {Part.SHARED: blocks[Part.SHARED]} if block.get("num_shared_experts") else {}
    return found


def _general(number: re.Pattern[str], entry: str) -> tuple[str, str | None, str]:
    """Return an entry with `ANY` as its number, the number or None, and the text after it."""
    match = number.search(entry)
    if match is None:
        return entry, None, ""
    rest = entry[match.end(1) :]
    return entry[: match.start(1)] + ANY + rest, match[1], rest


def _is_regex(entry: str) -> bool:
    return entry.startswith("re:") or bool(_REGEX_SIGNS.search(entry))
