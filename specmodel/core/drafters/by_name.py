"""Drafters by name or ``config.json``: models, heads on the target, and look-ups on the host."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specmodel.core.algebra.speculation import MAX_DRAFT_LENGTH
from specmodel.core.base.errors import InputError, nearest
from specmodel.core.base.naming import found_path, is_local, known_name
from specmodel.core.base.ranges import whole_of
from specmodel.core.base.records import build, is_path
from specmodel.core.drafters.kinds.blocks import dspark_drafter
from specmodel.core.drafters.kinds.models import model_drafter, pard_drafter
from specmodel.core.drafters.kinds.mtp import ASSISTANT, assistant_drafter, mtp_drafter
from specmodel.core.drafters.names import block_drafters, drafter_called, named_drafters
from specmodel.core.drafters.passes import Drafter
from specmodel.core.drafters.published import assistant_called, list_assistants
from specmodel.core.models.architecture import Architecture, list_architectures, load_architecture
from specmodel.core.models.checkpoints import checkpoint

_WRAPPED = "EagleLlamaForCausalLM"
"""Class of the head inside vLLM's wrapper."""


def list_drafters() -> list[str]:
    """Return the names that `load_drafter` accepts, in addition to names of architectures.

    Examples
    --------
    >>> {"dspark", "eagle3", "mtp", "ngram"}.issubset(list_drafters())
    True
    """
    return [*named_drafters()]


def load_drafter(name: str | Path, target: Architecture) -> Drafter:
    """Return a drafter by name or path.

    Parameters
    ----------
    name
        A name from `list_drafters` or `list_architectures`, or the path of an architecture; others
        raise an InputError. Heads that draft a block accept its size after a colon.
    target
        The model on which a head runs.

    Examples
    --------
    >>> load_drafter("ngram", load_architecture("mixtral-8x7b")).name
    'n-gram look-up'
    >>> load_drafter("dspark:8", load_architecture("mixtral-8x7b")).block_size
    8
    """
    models = list_architectures()
    known = [*list_drafters(), *models, *list_assistants()]
    if isinstance(name, str) and not is_local(name) and (assistant := assistant_called(name)):
        return assistant_drafter(assistant, target)
    is_published = isinstance(name, str) and not is_local(name) and checkpoint(name, models)
    if not is_published and is_path(name, "drafter"):
        name = found_path(str(name), known, "drafter")
        is_config = Path(name).suffix not in (".toml", ".gguf") and Path(name).exists()
        if is_config and (own := read_drafter(name, target)):
            return own
    elif not is_published:
        found, given = _named(name)
        if found:
            row = named_drafters()[found]
            return row.made_by(target, **given) if row.made_by else Drafter(name=row.kind)
        if known_name(str(name), models, "drafter") is None:
            expected = f"a path, or a known name such as {nearest(str(name), known)}"
            raise InputError("drafter", name, expected)
    kept = "fp32" if target.activation_dtype == "fp32" else None  # it runs in the target's dtype
    return model_drafter(load_architecture(name, "drafter", weight_dtype=kept))


def _named(name: str | Path) -> tuple[str | None, dict[str, int]]:
    """Return the canonical drafter name, None if unknown, and the block size of ``name:size``."""
    plain, colon, size = str(name).partition(":")
    found = drafter_called(plain)
    if not colon or found is None:
        return found, {}
    if found not in (blocks := block_drafters()):
        raise InputError("drafter", name, f"{found}, as only {', '.join(blocks)} have a block size")
    block = whole_of(size)
    if not block or block > MAX_DRAFT_LENGTH:
        expected = f"a block of 1 to {MAX_DRAFT_LENGTH} tokens, such as {found}:8"
        raise InputError("drafter", name, expected)
    return found, {"block_size": block}


def drafter_kind(drafter: Drafter | str | Path, target: Architecture | str | Path) -> str:
    """Return the kind of a drafter: its name, "assistant", or "model" for any other.

    Parameters
    ----------
    drafter, target
        Records, names or paths. The target is read only if the drafter is a model's name or a path.

    Examples
    --------
    >>> drafter_kind("EAGLE3", "mixtral-8x7b"), drafter_kind("qwen2-0.5b", "qwen2-57b-a14b")
    ('eagle3', 'model')
    """
    if isinstance(drafter, Drafter):
        names = {row.kind: name for name, row in named_drafters().items()}
        return (names | {ASSISTANT: "assistant"}).get(
            drafter.kind, "model"
        )  # identified by its file
    found, _ = _named(drafter)
    if found:
        return found
    model = target if isinstance(target, Architecture) else load_architecture(target)
    return drafter_kind(load_drafter(drafter, model), model)


def _unwrapped(content: Mapping[str, Any], argument: str) -> Mapping[str, Any]:
    """Return the head inside vLLM's wrapper of 2024, others unchanged; refuse Medusa and others."""
    from specmodel.core.models.hf.keys import table

    eagle = content.get("eagle_config")
    keys = {**(eagle if isinstance(eagle, dict) else {}), **content}
    for key, told in table("draft_heads")["unread_keys"].items():
        if keys.get(key) not in (None, False, 0, 1):
            expected = f"Not modelled: {told}. Use a head of another kind."
            raise InputError(argument, key, expected)
    inner = content.get("model")
    if content.get("model_type") != "eagle" or not isinstance(inner, dict):
        return content
    # a bias is too small to count
    return {k: v for k, v in inner.items() if k != "eagle_fc_bias"} | {"architectures": [_WRAPPED]}


def read_drafter(path: str | Path, target: Architecture) -> Drafter | None:
    """Return the drafter of a ``config.json``, None if it is a model that drafts token by token.

    `path` is the file or its folder. Raise an InputError if a head is for another target or has an
    unknown part.
    """
    from specmodel.core.drafters import head_configs as heads
    from specmodel.core.models.hf import gemma
    from specmodel.core.models.hf.config import architecture_fields
    from specmodel.core.models.hf.drafting import head_kind, is_draft_head
    from specmodel.core.models.hf.files import read_config
    from specmodel.core.models.hf.keys import table

    file = read_config(path, "drafter")
    argument = file.argument
    content = _unwrapped(heads.with_native_keys(file.content, argument), argument)

    def built(fields: Mapping[str, Any]) -> Architecture:
        return build(Architecture, file.with_origin(fields), argument)

    def model(keys: Mapping[str, Any]) -> Architecture:
        return built(architecture_fields(keys, argument, file.quantisation()))

    if sizes_of_v4 := heads.dspark_of_v4(content, argument):
        not_own = table("draft_heads")["keys_of_v4"]
        own = {key: value for key, value in content.items() if key not in not_own}
        return dspark_drafter(
            model(own | {"architectures": ["DeepseekV4ForCausalLM"]}), **sizes_of_v4
        )
    names = str(content.get("architectures")).lower()
    if content.get("hidden_size") == target.hidden_size and ("nextn" in names or "mtp" in names):
        return mtp_drafter(target)  # a module that was exported from its checkpoint
    is_block = head_kind(content) in heads.BLOCKS
    if not is_block and not is_draft_head(content):
        if content.get("pard_token") is None:
            return None
        return pard_drafter(model({k: v for k, v in content.items() if k != "pard_token"}))
    if content.get("model_type") in gemma.ASSISTANTS:
        sizes = {"hidden_size": target.hidden_size, "vocabulary_size": target.vocabulary_size}
        fields = gemma.assistant_fields(content, argument, **sizes)
        return assistant_drafter(built(fields), target, f"{argument} text_config")
    read = heads.block_head if is_block else heads.eagle_head
    return read(content, argument, target, built)
