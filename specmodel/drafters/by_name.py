"""Drafters by name: models of their own, heads, look-ups, and what drafts a block in one pass.

Heads sit on the target (EAGLE, MTP); look-ups run on the host; DFlash, DSpark, P-EAGLE and PARD
draft a block.
"""

from importlib import import_module
from pathlib import Path

from specmodel.algebra.speculation import MAX_DRAFT_LENGTH
from specmodel.base.errors import InputError, nearest
from specmodel.base.naming import found_path, known_name, shipped_id, spellings
from specmodel.base.records import is_path
from specmodel.drafters.blocks import read_block_drafter
from specmodel.drafters.heads import ASSISTANT, read_head
from specmodel.drafters.names import BLOCKS, DRAFTERS, NGRAM, SUFFIX
from specmodel.drafters.passes import Drafter as Drafter, one_at_a_time
from specmodel.models.architecture import Architecture, list_architectures, load_architecture


def model_drafter(architecture: Architecture) -> Drafter:
    """Return a drafter that is a model of its own.

    Parameters
    ----------
    architecture
        The draft model.
    """
    return Drafter(name=architecture.name, parts=((architecture, one_at_a_time),))


def ngram_drafter(*, lookup_time: float = 0.0, proposal_rate: float = 1.0) -> Drafter:
    """Return an n-gram (prompt look-up) drafter: host time only.

    Parameters
    ----------
    lookup_time
        Host time of looking up the draft of one sequence [s].
    proposal_rate
        Share of the steps of a sequence that have a proposal; the others are plain passes [-].
    """
    return Drafter(name=DRAFTERS[NGRAM].kind, lookup_time=lookup_time, proposal_rate=proposal_rate)


def suffix_drafter(*, lookup_time: float = 0.0, proposal_rate: float = 1.0) -> Drafter:
    """Return a look-up in suffix trees of prompts and earlier answers: host time only.

    As vLLM 0.33 runs it (``v1/spec_decode/suffix_decoding.py``), it proposes as many tokens as it
    is sure of: the draft length is then the mean of those.

    Parameters
    ----------
    lookup_time, proposal_rate
        As for `ngram_drafter` [s] [-].
    """
    return Drafter(name=DRAFTERS[SUFFIX].kind, lookup_time=lookup_time, proposal_rate=proposal_rate)


_NAMES = {row.kind: name for name, row in DRAFTERS.items()} | {ASSISTANT: "assistant"}
"""Names by what `Drafter.kind` says; an assistant is known by its file alone."""


def list_drafters() -> list[str]:
    """Return the names that `load_drafter` knows beside those of architectures.

    Examples
    --------
    >>> {"dspark", "eagle3", "mtp", "ngram"}.issubset(list_drafters())
    True
    """
    return sorted(DRAFTERS)


def load_drafter(name: str | Path, target: Architecture) -> Drafter:
    """Return a drafter by name or path.

    Parameters
    ----------
    name
        A name that `list_drafters` or `list_architectures` gives, or the path of an architecture;
        an InputError for any other. Heads that draft a block take its size after a colon.
    target
        The model that a head sits on.

    Examples
    --------
    >>> load_drafter("ngram", load_architecture("mixtral-8x7b")).name
    'n-gram look-up'
    >>> load_drafter("dspark:8", load_architecture("mixtral-8x7b")).block_size
    8
    """
    known = [*list_drafters(), *list_architectures()]
    name = shipped_id(name, list_architectures()) if isinstance(name, str) else name
    if is_path(name, "drafter"):
        name = found_path(str(name), known, "drafter")
        is_config = Path(name).suffix != ".toml" and Path(name).exists()
        head = read_block_drafter(name, target) or read_head(name, target) if is_config else None
        return head or model_drafter(load_architecture(name, "drafter"))
    found, given = _named(name)
    if found:
        row = DRAFTERS[found]
        if row.is_lookup:
            return Drafter(name=row.kind)
        module, function = row.made_by.split(".")
        made: Drafter = getattr(import_module(f"specmodel.drafters.{module}"), function)(
            target, **given
        )
        return made
    if known_name(str(name), list_architectures(), "drafter") is None:
        expected = f"a path, or a known name such as {nearest(str(name), known)}"
        raise InputError("drafter", name, expected)
    return model_drafter(load_architecture(name, "drafter"))


def _named(name: str | Path) -> tuple[str | None, dict[str, int]]:
    """Return the row of `DRAFTERS` that a name stands for, and the size of a block after it."""
    plain, colon, size = str(name).partition(":")
    found = next((word for word in spellings(plain) if word in DRAFTERS), None)
    if not colon or found is None:
        return found, {}
    if found not in BLOCKS:
        raise InputError("drafter", name, f"{found}: a block size is for {', '.join(BLOCKS)}")
    if not size.isdecimal() or not 0 < int(size) <= MAX_DRAFT_LENGTH:
        expected = f"a block of 1 to {MAX_DRAFT_LENGTH} tokens, such as {found}:8"
        raise InputError("drafter", name, expected)
    return found, {"block_size": int(size)}


def longest_block(drafter: str | Path | None, target: str | Path | None) -> int | None:
    """Return the most tokens that a drafter drafts, None if it goes on as long as asked [token].

    Both are names or paths, or None; they are read only where the drafter may have a block.

    >>> longest_block("dspark", "glm-5.2"), longest_block("eagle3", "glm-5.2")
    (7, None)
    """
    if drafter is None or target is None:
        return None
    if _named(drafter)[0] not in BLOCKS and not is_path(drafter, "drafter"):
        return None
    return load_drafter(drafter, load_architecture(target)).block_size


def drafter_kind(drafter: Drafter | str | Path, target: Architecture | str | Path) -> str:
    """Return the kind of a drafter: a name in `DRAFTERS`, "assistant", or "model" for any other.

    The target is read only if the drafter is the name of a model or a path.

    >>> drafter_kind("EAGLE3", "mixtral-8x7b"), drafter_kind("qwen2-0.5b", "qwen2-57b-a14b")
    ('eagle3', 'model')
    """
    if isinstance(drafter, Drafter):
        return _NAMES.get(drafter.kind, "model")
    found, _ = _named(drafter)
    if found:
        return found
    model = target if isinstance(target, Architecture) else load_architecture(target)
    return drafter_kind(load_drafter(drafter, model), model)
