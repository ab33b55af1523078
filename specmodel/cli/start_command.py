"""Flags of a start command, as they stand there: vLLM's --speculative-config, those of others.

They are taken for the drafter and its length, unless the command chooses the length, and for the
engine where none is typed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import click
from click.core import ParameterSource

from specmodel.cli import settings
from specmodel.cli.helping import NAMES
from specmodel.core.base.dtypes import check_dtype
from specmodel.core.base.errors import InputError, given
from specmodel.core.base.naming import is_local
from specmodel.core.drafters.names import block_drafters, drafter_called, is_lookup, named_drafters

_SGLANG, _LLAMA = tuple(settings.TABLES["sglang"]), tuple(settings.TABLES["llama"])
FLAGS = ("speculative_config", *_SGLANG, *_LLAMA)
_ENGINES = {"speculative_config": "vllm"} | dict.fromkeys(_SGLANG, "sglang")
_ENGINES |= dict.fromkeys(_LLAMA, "llama.cpp")
"""Engines by their flags."""
_CUT_OVER = "draft_tensor_parallel_size"
_OF_DRAFTER = {"quantization": "weight_dtype", "kv_cache_dtype": "kv_dtype"}
"""Keys of vLLM's configuration that are dtypes of the drafter."""
_KEYS = ("method", "model", "num_speculative_tokens", "parallel_drafting", _CUT_OVER)
"""Its keys that are read; others that are spelt like one are refused."""
_TOKENS, _RATES = "synthetic_acceptance_length", "synthetic_acceptance_rates"
_SYNTHETIC = {"tokens_per_step", "measured_draft_length", "acceptance_by_position"}
"""Its keys for an acceptance, and the options that they fill."""
_NOT_MODELLED = (
    *("accelerator", "arctic", "dflash2", "hydra", "lilicorr", "medusa", "mlpspeculator"),
    "xpress",
)
"""Heads that are known by their letters alone."""
_LLAMA_OPTIONS = {"parallel": "batch_size", "cache_type_k": "kv_dtype"}
"""Options of ours by llama.cpp's that mean the same."""
_MODELS = ("draft-model", "draft-simple", "standalone")
"""Methods whose model drafts by itself."""


def start_flags() -> settings.Add:
    """Add the flags to a command with a drafter."""
    return settings.options(
        settings.options_of("vllm", "sglang", "llama"), settings.changed(_filled)
    )


def _filled(options: dict[str, Any]) -> dict[str, Any]:
    """Return options with what the flags say; an option typed beside them is refused."""
    flags = {name: options.pop(name) for name in FLAGS}
    del flags["max_running_requests"]  # points are those of --batch-size
    typed = given(flags, flags)
    if not typed:
        return options
    first = next(iter(typed))
    engine = _ENGINES[first]
    if any(_ENGINES[name] != engine for name in typed):
        expected = "flags of one engine: vLLM's --speculative-config, SGLang's or llama.cpp's"
        raise InputError(first, ", ".join(typed), expected)
    said = _READERS[engine](typed)
    model, taken, set_too = (said.pop(name, ()) for name in ("draft_model", "taken", "changes"))
    said = _without_untaken(said, options)
    context = click.get_current_context()
    for name, value in said.items():
        if name not in options:
            raise InputError(name, value, "none, as this command does not take it")
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            expected = f"none, as {settings.flag(first)} says {value}"
            raise InputError(name, options[name], expected)
    said |= {"taken": (*options["taken"], *taken)}
    said |= {"changes": (*options["changes"], *set_too)} if set_too else {}
    if "config_format" not in options and options["engine"] is None:  # else that of --for
        said |= {"engine": engine}
    place = _PLACES[engine]
    return options | said | {"draft_model": model, "unnamed": "" if model else place}


def _without_untaken(said: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what flags say without a length that the command chooses, and acceptance beside one.

    An acceptance that is typed goes before that of a synthetic one.
    """
    from specmodel.core.prediction.accepted import ACCEPTANCE

    dropped = set() if "draft_length" in options else {"draft_length"}
    if "tokens_per_step" not in options or given(options, ACCEPTANCE):
        dropped |= _SYNTHETIC
    return {name: value for name, value in said.items() if name not in dropped}


def _of_vllm(typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what vLLM's configuration says, as options, and the path of its draft model."""
    text = typed["speculative_config"]
    told = {key.replace("-", "_"): value for key, value in _json(text).items()}
    method, model = (str(told.pop(key, "") or "") for key in ("method", "model"))
    if not method and not model:
        raise InputError("speculative_config", text, 'a method, such as {"method": "eagle3"}')
    drafter = _drafter("speculative_config method", method, model)
    if told.pop("parallel_drafting", False) and not (drafter == model and is_local(model)):
        drafter = {"eagle": "p-eagle", "eagle3": "p-eagle", model: "pard"}.get(drafter, drafter)
    said = _drafting(drafter, model)
    if "num_speculative_tokens" in told:
        length = _length(told.pop("num_speculative_tokens"), "speculative_config")
        said["draft_length"] = str(length)
    changes = []
    if _CUT_OVER in told:
        degree = _length(told.pop(_CUT_OVER), "speculative_config")
        changes.append(f"draft_tensor_parallel={degree}")
    for key, field in _OF_DRAFTER.items():
        if told.get(key) not in (None, "auto"):
            dtype = check_dtype(f"speculative_config {key}", told.pop(key))
            changes.append(f"drafter.{field}={dtype}")
    said |= {"changes": tuple(changes)} | _synthetic(told, said.get("draft_length", "1"))
    return said | {"taken": (*said["taken"], *_passed_over(told))}


def _synthetic(told: dict[str, Any], length: str) -> dict[str, Any]:
    """Return an acceptance that vLLM was told to have, as options, and take its keys away."""
    tokens, rates = told.pop(_TOKENS, None), told.pop(_RATES, None)
    if isinstance(rates, list):
        return {"acceptance_by_position": f"cumulative:{','.join(map(str, rates))}"}
    if tokens is None:
        return {}
    if not isinstance(tokens, int | float) or isinstance(tokens, bool) or not tokens >= 1:
        raise InputError(f"speculative_config {_TOKENS}", tokens, "tokens a step, at least 1")
    return {"tokens_per_step": float(tokens), "measured_draft_length": int(length)}


def _drafting(drafter: str, model: str) -> dict[str, Any]:
    """Return options for a drafter and its model, and what is to be said of a model not read."""
    told = f"{model}: no file of it is read, but the usual {drafter} taken"
    taken = (told,) if model not in ("", drafter) else ()
    return {"drafter": drafter, "draft_model": model, "taken": taken}


def _passed_over(told: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what is to be said of the other keys; refuse those that change what a step takes."""
    from difflib import get_close_matches  # slow to import

    for key, value in told.items():
        if value and key in NAMES["changes_work"]:
            expected = f"this key left out, and instead {NAMES['changes_work'][key]}"
            raise InputError(f"speculative_config {key}", value, expected)
        if close := get_close_matches(key, _KEYS, n=1, cutoff=0.85):
            raise InputError(f"speculative_config {key}", value, f"{close[0]}, or no such key")
    return (f"{', '.join(told)} of --speculative-config passed over",) if told else ()


def _of_sglang(typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what SGLang's flags say, as options, and the path of the draft model."""
    method, model, steps, width, verified, *_ = (typed.get(name) for name in _SGLANG)
    if not method:
        name, value = next(iter(typed.items()))
        expected = "a method in --speculative-algorithm with it, such as EAGLE3, or neither"
        raise InputError(name, value, expected)
    if method.lower() == "eagle" and not model:  # the checkpoint's own module, which SGLang runs so
        method = "mtp"
    drafter = _drafter("speculative_algorithm", method, model or "")
    said = _drafting(drafter, model or "")
    if drafter in block_drafters() or (is_lookup(drafter) and verified is not None):
        steps = None  # which SGLang has at 1 for a block, and passes over for a look-up
    if steps is None and verified is not None:
        steps = _length(verified, "speculative_num_draft_tokens", least=1) - 1
    if steps is not None:
        said["draft_length"] = str(_length(steps, "speculative_num_steps"))
    if width is not None and width > 1:
        said |= {"tree_width": width}
        said |= {"verify_tokens": verified} if verified is not None else {}
    elif steps is not None and verified not in (None, steps + 1):
        said["taken"] += (f"num-draft-tokens {verified}: SGLang takes steps + 1, {steps + 1}",)
    return said


def _of_llama(typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what llama.cpp's flags say, as options, and the path of the draft model."""
    method, model = typed.get("spec_type", ""), typed.get("spec_draft_model", "")
    said: dict[str, Any] = {"taken": ()}
    if method or model:
        said = _drafting(_drafter("spec_type", method or "draft-simple", model), model)
    if "spec_draft_n_max" in typed:
        said["draft_length"] = str(_length(typed["spec_draft_n_max"], "spec_draft_n_max"))
    if p_min := typed.get("spec_draft_p_min"):
        expected = "0: drafts that end where the drafter is unsure are not modelled"
        raise InputError("spec_draft_p_min", p_min, expected)
    said |= {ours: typed[name] for name, ours in _LLAMA_OPTIONS.items() if name in typed}
    layers: Any = typed.get("n_cpu_moe")
    if pattern := typed.get("override_tensor"):
        if not re.fullmatch(r".*exps.*=CPU", pattern):
            raise InputError("override_tensor", pattern, "exps=CPU: others are not modelled")
        layers = "all"
    layers = "all" if typed.get("cpu_moe") else layers
    changes = () if layers is None else (f"host_expert_layers={layers}",)
    return said | {"changes": changes}


def _json(text: str) -> dict[str, Any]:
    """Return the object of a JSON text, or of a file with one."""
    from pathlib import Path

    from specmodel.core.base.files import parsed_json
    from specmodel.core.base.records import read_text

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


def _drafter(argument: str, method: str, model: str) -> str:
    """Return the drafter of a method and a model; refuse words and heads that are not modelled.

    A model, an assistant and a head whose file is here are drafters by their own names.
    """
    name, kind, named = model.lower(), drafter_called(method), _named_in(model)
    for part in _NOT_MODELLED:
        if part in re.sub("[^a-z0-9 ]", "", f"{method.lower()} {name.rpartition('/')[2]}"):
            raise InputError("model", model or method, f"another head: {part} is not modelled")
    if method.lower().replace("_", "-") in _MODELS and model:
        return model
    if method and not kind:
        expected = f"{', '.join(named_drafters())}, or draft-model with its model"
        raise InputError(argument, method, expected)
    if _named_in(name.rstrip("/").rpartition("/")[2]) == "mtp" and kind in ("eagle", "eagle3"):
        kind = "mtp"  # a module exported from its checkpoint, which SGLang runs as EAGLE
    kind = kind or named
    if "assistant" in name and kind not in block_drafters():
        return model
    is_head = kind != "mtp" and not is_lookup(kind)
    if is_head and named in block_drafters() and kind != named:
        raise InputError("model", model, f"a head of {method}, or the method {named}")
    if is_head and "/" in model and is_local(model):
        return model
    return "eagle3" if (kind, named) == ("eagle", "eagle3") else kind or model


def _named_in(model: str) -> str:
    """Return the drafter that the name of a model has as a word, the last one; "" for none."""
    # "parallel" says too little in a name
    words = sorted({*named_drafters(), "nextn"} - {"parallel"}, key=len, reverse=True)
    letters = [re.sub(r"-|(?<=[a-z])(?=\d)", "[-_]?", word) for word in words]
    found = re.findall(rf"(?<![a-z])(?:{'|'.join(letters)})(?![a-z0-9])", model.lower())
    return (found and drafter_called(found[-1])) or ""


_READERS = {"vllm": _of_vllm, "sglang": _of_sglang, "llama.cpp": _of_llama}
_PLACES = {
    "vllm": "speculative_config model",
    "sglang": "speculative_draft_model_path",
    "llama.cpp": "spec_draft_model",
}
"""Where each engine's start command names a draft model."""


def _length(value: Any, argument: str, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(argument, value, f"a whole number of tokens, at least {least}")
    return value
