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

from specmodel.base.errors import InputError, given
from specmodel.cli import settings
from specmodel.drafters.names import BLOCKS, DRAFTERS

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
_CHANGES_WORK = {
    "draft_lm_head_quantization": "--set drafter.head_dtype=fp8, or fp4 for nvfp4",
    "dspark_draft_topk": "a key of the head's own config.json",
    "speculative_token_tree": "--tree-width and --verify-tokens",
    "num_speculative_tokens_per_batch_size": "a --draft-length for each --batch-size, or schedule",
    "num_speculative_tokens_per_seq_len": "a --draft-length for each --context-length",
}
"""Keys of vLLM's configuration that change what a step takes, and what says so here."""
_NOT_MODELLED = {
    "dflash2": "DFlash2",
    "medusa": "Medusa",
    "hydra": "Hydra",
    "arctic": "Arctic's LSTM speculator",
    **dict.fromkeys(("mlpspeculator", "accelerator"), "the MLP speculator"),
}
"""Parts of methods and of models' names, in letters, and the drafters that they are."""
_KEYS = ("method", "model", "num_speculative_tokens", "parallel_drafting", _CUT_OVER)
"""Its keys that are read; others that are spelt like one are refused."""
_TOKENS, _FORM = "synthetic_acceptance_length", "tokens_per_step"
"""Its key for tokens a step, and the option."""


def start_flags(command: Any) -> Any:
    """Add the flags to a command with a drafter."""

    @wraps(command)
    def run(**options: Any) -> Any:
        flags = {name: options.pop(name) for name in FLAGS}
        typed = {name: value for name, value in flags.items() if value is not None}
        return command(**(_filled(options, typed) if typed else options))

    short = {
        "speculative_algorithm": "--speculative-algo",
        "speculative_draft_model_path": "--speculative-draft-model",
    }
    sglang = (
        settings.own(name, kind, words, to=short.get(name, ""))
        for name, (kind, words) in _SGLANG.items()
    )
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
    passed_over = said.pop("taken", "")
    said = _without_untaken(said, options)
    context = click.get_current_context()
    for name, value in said.items():
        if name not in options:
            expected = f"no {value} there: this command takes no {settings.flag(name)}"
            raise InputError(first, value, expected)
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            expected = f"none, as {settings.flag(first)} says {value}"
            raise InputError(name, options[name], expected)
    if passed_over and "taken" in options:
        said |= {"taken": (*options["taken"], passed_over)}
    if set_too:
        said |= {"changes": (*options["changes"], *set_too)}
    if "config_format" in options:  # whose engine is that of --for
        said |= {"draft_model": model}
    elif options["engine"] is None:
        said |= {"engine": "vllm" if is_vllm else "sglang"}
    return options | said


def _without_untaken(said: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what flags say without a length that the command chooses, and acceptance beside one.

    An acceptance that is typed goes before that of a synthetic one.
    """
    from specmodel.prediction.case import ACCEPTANCE

    has_own = _FORM not in options or bool(given(options, ACCEPTANCE))
    dropped = {_FORM, "measured_draft_length"} if has_own else set()
    dropped |= set() if "draft_length" in options else {"draft_length"}
    return {name: value for name, value in said.items() if name not in dropped}


def _of_vllm(text: str) -> dict[str, Any]:
    """Return what vLLM's configuration says, as options, and the path of its draft model."""
    told = {key.replace("-", "_"): value for key, value in _json(text).items()}
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
    if _TOKENS in told:
        tokens, expected = told.pop(_TOKENS), "tokens a step, at least 1"
        if not isinstance(tokens, int | float) or isinstance(tokens, bool) or not tokens >= 1:
            raise InputError(f"speculative_config {_TOKENS}", tokens, expected)
        said["tokens_per_step"] = float(tokens)
        said["measured_draft_length"] = int(said.get("draft_length", 1))
    for key in told.keys() & _CHANGES_WORK:
        expected = f"it left out, and here {_CHANGES_WORK[key]}"
        raise InputError(f"speculative_config {key}", told[key], expected)
    from difflib import get_close_matches  # slow to import

    for key in told:
        if close := get_close_matches(key, _KEYS, n=1, cutoff=0.85):
            raise InputError(f"speculative_config {key}", told[key], f"{close[0]}, or no such key")
    if told:
        said["taken"] = f"{', '.join(told)} of --speculative-config passed over"
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
    drafter = _drafter(method, model)
    said: dict[str, Any] = {"drafter": drafter, "draft_model": model}
    steps, width = (typed.get(f"speculative_{n}") for n in ("num_steps", "eagle_topk"))
    verified = typed.get("speculative_num_draft_tokens")
    steps = None if drafter in BLOCKS else steps  # which SGLang has at 1 for a block
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
        such = '{"method": "mtp", "num_speculative_tokens": 3}'
        expected = f"well-formed JSON such as {such} ({error})"
        raise InputError("speculative_config", text, expected) from None
    if not isinstance(told, dict):
        raise InputError("speculative_config", text, 'an object, such as {"method": "mtp"}')
    return told


def _drafter(method: str, model: str) -> str:
    """Return the drafter that a method and a model stand for."""
    from specmodel.fit.measured.aliases import drafter_of

    named_after = model.lower().replace("-", "").rstrip("/")
    for part, drafter in _NOT_MODELLED.items():
        if part in f"{method.replace('-', '')} {named_after.rpartition('/')[2]}":
            raise InputError("model", model or method, f"another: {drafter} is not modelled")
    if method.endswith("-mtp") or method in ("nextn", "mtp"):
        return "mtp"
    if not method and named_after.endswith(("assistant", "nextn", "mtp")):
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
