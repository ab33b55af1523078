"""Flags of a start command, as they stand there: vLLM's --speculative-config, SGLang's flags.

They are taken for the drafter and its length, unless the command chooses the length, and for the
engine where none is typed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource

from specmodel.base.errors import InputError
from specmodel.cli import settings

_VLLM = "vLLM's, as JSON or a file with it: for drafter, engine, and draft length if one is taken."
_SGLANG = {
    "speculative_algorithm": ("NAME", "SGLang's, such as EAGLE3, NEXTN, NGRAM: likewise."),
    "speculative_draft_model_path": ("PATH", "SGLang's: a draft model, or whose head it is."),
    "speculative_num_steps": (int, "SGLang's: the draft length."),
    "speculative_eagle_topk": (int, "SGLang's: the width of a tree, 1 for chains."),
    "speculative_num_draft_tokens": (int, "SGLang's: tokens verified, the last one included."),
}
FLAGS = ("speculative_config", *_SGLANG)
_CUT_OVER = "draft_tensor_parallel_size"
_PASSED_OVER = (
    *("prompt_lookup_min", "prompt_lookup_max", "max_model_len", "quantization", "revision"),
    *("disable_padded_drafter_batch", "disable_by_batch_size", "enforce_eager"),
)
"""Keys of vLLM's configuration that change nothing here."""


def start_flags(command: Any) -> Any:
    """Add the flags to a command with a drafter."""

    @wraps(command)
    def run(**options: Any) -> Any:
        flags = {name: options.pop(name) for name in FLAGS}
        typed = {name: value for name, value in flags.items() if value is not None}
        return command(**(_filled(options, typed) if typed else options))

    sglang = (settings.own(name, kind, words) for name, (kind, words) in _SGLANG.items())
    vllm = settings.own("speculative_config", "JSON|FILE", _VLLM)
    add: Callable[[Any], Any] = settings.options(vllm, *sglang)
    return add(run)


def _filled(options: dict[str, Any], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with what the flags say; an option typed beside them is refused."""
    first = next(iter(typed))
    is_vllm = first == "speculative_config"
    if is_vllm and len(typed) > 1:
        expected = "flags of one engine: vLLM's --speculative-config or SGLang's"
        raise InputError(first, ", ".join(typed), expected)
    said = _of_vllm(typed[first]) if is_vllm else _of_sglang(typed)
    model, set_too = said.pop("draft_model"), said.pop("changes", ())
    if "draft_length" not in options:  # the command chooses it
        said.pop("draft_length", None)
    context = click.get_current_context()
    for name, value in said.items():
        if name not in options:
            expected = f"no {value} there: this command takes no {settings.flag(name)}"
            raise InputError(first, value, expected)
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            expected = f"none, as {settings.flag(first)} says {value}"
            raise InputError(name, options[name], expected)
    if set_too:
        said |= {"changes": (*options["changes"], *set_too)}
    if "config_format" in options:  # whose engine is that of --for
        said |= {"draft_model": model}
    elif options["engine"] is None:
        said |= {"engine": "vllm" if is_vllm else "sglang"}
    return options | said


def _of_vllm(text: str) -> dict[str, Any]:
    """Return what vLLM's configuration says, as options, and the path of its draft model."""
    told = _json(text)
    method = str(told.pop("method", "")).lower().replace("_", "-")
    model = str(told.pop("model", "") or "")
    if told.pop("parallel_drafting", False):
        method = "p-eagle" if "eagle" in f"{method} {model}".lower() else "pard"
    said: dict[str, Any] = {"drafter": _drafter(method, model), "draft_model": model}
    if "num_speculative_tokens" in told:
        length = _length(told.pop("num_speculative_tokens"), "speculative_config")
        said["draft_length"] = str(length)
    if _CUT_OVER in told:
        degree = _length(told.pop(_CUT_OVER), "speculative_config")
        said["changes"] = (f"draft_tensor_parallel={degree}",)
    unknown = [key for key in told if key not in _PASSED_OVER]
    if unknown:
        known = ("method", "model", "num_speculative_tokens", _CUT_OVER, "parallel_drafting")
        expected = f"keys that are known: {', '.join((*known, *_PASSED_OVER))}"
        raise InputError(f"speculative_config {unknown[0]}", told[unknown[0]], expected)
    return said


def _of_sglang(typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what SGLang's flags say, as options, and the path of the draft model."""
    method = str(typed.get("speculative_algorithm", "")).lower()
    model = typed.get("speculative_draft_model_path") or ""
    if not method:
        name, value = next(iter(typed.items()))
        raise InputError(name, value, "--speculative-algorithm with it, such as EAGLE3")
    if method == "eagle" and not model:  # the checkpoint's own module, which SGLang runs so
        method = "mtp"
    said: dict[str, Any] = {"drafter": _drafter(method, model), "draft_model": model}
    steps, width = (typed.get(f"speculative_{n}") for n in ("num_steps", "eagle_topk"))
    verified = typed.get("speculative_num_draft_tokens")
    if steps is None and verified is not None:
        steps = verified - 1
    if steps is not None:
        said["draft_length"] = str(_length(steps, "speculative_num_steps"))
    if width is not None and width > 1:
        said |= {"tree_width": width}
        said |= {"verify_tokens": verified} if verified is not None else {}
    return said


def _json(text: str) -> dict[str, Any]:
    """Return the object of a JSON text, or of a file with one."""
    from pathlib import Path

    from specmodel.base.files import parsed_json
    from specmodel.base.records import read_text

    if not text.lstrip().startswith(("{", "[", '"')):
        text = read_text(Path(text), "speculative_config", "JSON")
    try:
        told = parsed_json(text)
    except ValueError as error:
        raise InputError("speculative_config", text, f"well-formed JSON ({error})") from None
    if not isinstance(told, dict):
        raise InputError("speculative_config", text, 'an object, such as {"method": "mtp"}')
    return told


def _drafter(method: str, model: str) -> str:
    """Return the drafter that a method and a model stand for."""
    from specmodel.drafters.names import DRAFTERS
    from specmodel.fit.measured.aliases import drafter_of

    if method.endswith("-mtp") or method in ("nextn", "mtp"):
        return "mtp"
    if method in ("draft-model", "standalone") and model:
        return model
    if not method and model:
        kinds = sorted(DRAFTERS, key=len, reverse=True)
        named = (kind for kind in kinds if kind.replace("-", "") in model.lower().replace("-", ""))
        method = next(named, "")
        if not method:
            return model
    return drafter_of(method if method in DRAFTERS else method.replace("-", " "))


def _length(value: Any, argument: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(argument, value, "a whole number of tokens")
    return value
