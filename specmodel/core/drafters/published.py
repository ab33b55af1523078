"""Tables of published drafters: their sizes, and who recommends which."""

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from specmodel.core.base.records import list_names, load
from specmodel.core.models.architecture import Architecture
from specmodel.core.models.checkpoints import checkpoint

PRESET = "preset"
"""Value of `acceptance` that means the published acceptance of a target with its drafter."""

_FOLDER = Path(__file__).parent / "data"
_ASSISTANTS = _FOLDER / "assistants"
_RECIPES = "vLLM recipes and InferenceX"


class HeadShape(NamedTuple):
    """Sizes of a head; a rule derives sizes of None from the target.

    `taps` is the number of projected features, each of the target's hidden size. A head with
    latents has attention like the target's. A shape with a `source` is published.
    """

    num_layers: int | None = None
    block_size: int | None = None
    taps: int | None = None
    ffn_size: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    vocabulary_size: int | None = None
    has_latents: bool = False
    source: str = ""

    def given(self, **sizes: int | None) -> "HeadShape":
        """Return the shape with fields replaced by `sizes`, except for sizes of None."""
        told: dict[str, Any] = {name: size for name, size in sizes.items() if size is not None}
        return self._replace(**told)

    def usually(self, **sizes: int | None) -> "HeadShape":
        """Return the shape with `sizes` in place of fields that are None."""
        return self.given(**{n: size for n, size in sizes.items() if getattr(self, n) is None})

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """Label and text of the published head's source, () if none is published."""
        return (("draft_head", f"published sizes ({self.source})"),) if self.source else ()


def published_head(target: Architecture, drafter: str) -> HeadShape:
    """Return the published sizes of a target's head, None for sizes not known.

    Targets are identified by name. For EAGLE-3 heads of SpecForge, the shape of a target is enough,
    as targets of the same shape have heads of the same shape.

    >>> from specmodel.core.models.architecture import load_architecture
    >>> published_head(load_architecture("kimi-k3"), "dspark").block_size
    8
    >>> published_head(load_architecture("deepseek-v3"), "eagle3").ffn_size
    40960
    """
    for row in rows_of("published_heads.csv"):
        if row["drafter"] == drafter and is_named(target.name, row["target"]):
            sizes = {name: int(row[name]) for name in HeadShape._fields[:8] if row[name]}
            return HeadShape(**sizes, has_latents=row["has_latents"] == "1", source=row["source"])
    keys = ("hidden_size", "num_layers", "num_experts", "vocabulary_size")
    shape = {key: str(getattr(target, key)) for key in keys}
    for row in rows_of("eagle3_heads.csv") if drafter == "eagle3" else ():
        if row | shape == row:
            source = f"SpecForge's width for {row['model']}"
            return HeadShape(ffn_size=int(row["ffn_size"]), source=source)
    return HeadShape()


def published_assistant(target: Architecture) -> Architecture | None:
    """Return the assistant that is published for a target's name, None if there is none.

    An assistant replaces MTP modules, and engines run it like these.

    >>> from specmodel.core.models.architecture import load_architecture
    >>> published_assistant(load_architecture("gemma-4-26b-a4b")).hidden_size
    1024
    """
    names = (name for name in list_names(_ASSISTANTS) if is_named(target.name, name))
    name = next(names, None)
    return load(Architecture, name, _ASSISTANTS, "drafter") if name else None


def list_assistants() -> list[str]:
    """Return the names of the published assistants, without the owner on a hub."""
    return [f"{name}-it-assistant" for name in list_names(_ASSISTANTS)]


def assistant_called(name: str) -> Architecture | None:
    """Return the published assistant of this name, or id on a hub; None if none is known.

    >>> assistant_called("google/gemma-4-31B-it-assistant").hidden_size
    1024
    """
    target, found, more = name.lower().partition("-assistant")
    shipped = checkpoint(target + more, list_names(_ASSISTANTS)) if found else None
    if not shipped:
        return None
    dtype = {"weight_dtype": shipped[1]} if shipped[1] else {}
    return load(Architecture, shipped[0], _ASSISTANTS, "drafter").with_changes("drafter", dtype)


def usual_drafter(target: Architecture) -> str:
    """Return the drafter and draft length in use for a target, with the source; "" if unknown.

    >>> from specmodel.core.models.architecture import load_architecture
    >>> usual_drafter(load_architecture("gpt-oss-120b"))
    'eagle3, draft length 7 (vLLM recipes and InferenceX, November 2026)'
    """
    row = _recipe(target)
    if row is None:
        return ""
    whose = f"{row['source'] or _RECIPES}, November 2026"
    length = f", draft length {row['draft_lengths']}" if row["draft_lengths"] else ""
    return f"{row['drafter']}{length} ({whose})"


def recipe_lengths(target: Architecture, drafter: str) -> tuple[int, int] | None:
    """Return the first and last draft length in use for a target with a drafter, None if unknown.

    >>> from specmodel.core.models.architecture import load_architecture
    >>> recipe_lengths(load_architecture("glm-5"), "mtp")
    (3, 5)
    """
    row = _recipe(target)
    if row is None or row["drafter"] != drafter or not row["draft_lengths"]:
        return None
    first, _, last = row["draft_lengths"].partition(" to ")
    return int(first), int(last or first)


def is_in_checkpoint(target: Architecture, drafter: str) -> bool:
    """Return whether a drafter is part of a checkpoint: MTP modules, and DeepSeek-V4's DSpark.

    vLLM's `model` is then the target itself.
    """
    return drafter == "mtp" or (drafter == "dspark" and target.name.startswith("DeepSeek-V4"))


def taken_drafter(target: Architecture) -> tuple[str, str]:
    """Return the default drafter of a target, and the reason in words.

    >>> from specmodel.core.models.architecture import load_architecture
    >>> taken_drafter(load_architecture("qwen3.5-397b-a17b"))
    ('mtp', 'as in vLLM recipes and InferenceX, November 2026')
    >>> taken_drafter(load_architecture("deepseek-v3"))
    ('mtp', "as in SGLang's benchmarks, November 2026")
    """
    row = _recipe(target)
    if row:
        return row["drafter"], f"as in {row['source'] or _RECIPES}, November 2026"
    if target.num_mtp_modules or published_assistant(target):
        return "mtp", "published with the model"
    return "eagle3", "the most common published head"


def _recipe(target: Architecture) -> dict[str, str] | None:
    """Return the row of recipes for a target's name, None where no drafter is known."""
    rows = rows_of("usual_drafters.csv")
    row = next((row for row in rows if is_named(target.name, row["target"])), None)
    return row if row and row["drafter"] else None


def is_named(name: str, words: str) -> bool:
    """Return whether `words` occur as whole words in the name of a model."""
    plain = name.lower().replace("_", "-").replace(" ", "-")
    other = r"[a-z0-9.]|-\d{4}\b"  # of a longer name, or of another date
    return words in plain and bool(
        re.search(rf"(?<![a-z0-9.]){re.escape(words)}(?!{other})", plain)
    )


@cache
def rows_of(name: str, folder: Path = _FOLDER) -> tuple[dict[str, str], ...]:
    """Return the rows of a table that ships, by its columns."""
    lines = (folder / name).read_text(encoding="utf-8").splitlines()
    names, *rows = (line.split(",") for line in lines if not line.startswith("#"))
    return tuple(dict(zip(names, row, strict=True)) for row in rows)
