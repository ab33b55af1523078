"""Translate the flags of an engine's launch command into arguments of this package.

What they mean, and what is told of those that mean nothing here, stands in
``data/launch_flags.toml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from specmodel.core.base.dtypes import check_dtype
from specmodel.core.base.errors import InputError, nearest
from specmodel.core.base.naming import SETTABLE, is_id, is_local
from specmodel.core.base.ranges import whole_of
from specmodel.core.cost.deploying import BACKENDS
from specmodel.core.cost.launch_lines import MEANS, TABLE, Flag, Flags, engines, object_of, whole
from specmodel.core.drafters.names import block_drafters, drafter_called, is_lookup, named_drafters

_OFF = ("false", "False", "null", "None")
_KERNELS = re.compile(TABLE["kernels"]["named"])
_TOLD = {flag: row for row in TABLE["told"] for flag in row["flags"].split()}
_NONE = Flag("", "")


class Launched(NamedTuple):
    """What flags say: the engine, arguments by name, and notes; a draft model, or what lacks one.

    Its `model` is the path or id that was given, and `lacking` the flag that would give one.
    """

    engine: str
    arguments: dict[str, Any]
    notes: tuple[str, ...] = ()
    model: str = ""
    lacking: str = ""


def launched(engine: str, flags: Flags, *, is_line: bool = True) -> Launched:
    """Return what flags say; those typed one by one, not in a whole line, must each mean something.

    What changes the work of a step and is not modelled is refused, or noted.
    """
    notes: list[str] = []
    told = dict(_meant(engine, flags, notes, is_line=is_line))
    method, head = told.pop("method", _NONE), told.pop("head", _NONE)
    drafter = _drafting(engine, method, head, told, notes)
    if is_line and not drafter:
        notes.append("no drafter in the command")
    said = {"drafter": drafter or None, **_lengths(engine, told, drafter, notes)}
    said |= _layout(engine, told, notes)
    said |= {name: _own(name, flag, notes) for name, flag in told.items()}
    said = {name: value for name, value in said.items() if value is not None}
    changes = {name: said.pop(name) for name in [*said] if "." in name or name in SETTABLE}
    if changes:
        texts = (f"{name}={value}".replace("=True", "=true") for name, value in changes.items())
        said["changes"] = tuple(texts)
    path, places = str(head.value), TABLE["models"]
    lacking = re.sub("|".join(places), lambda word: places[word[0]], method.typed)
    return Launched(engine, said, tuple(notes), path, "" if path or not drafter else lacking)


def speculative_arguments(config: Mapping[str, Any] | str) -> Launched:
    """Return what vLLM's speculative_config says: the dict of its Python, its JSON, or a file."""
    name = "speculative_config"
    return launched("vllm", whole("vllm", {name: Flag(name, config)}))


def _meant(
    engine: str, flags: Flags, notes: list[str], *, is_line: bool
) -> Iterator[tuple[str, Flag]]:
    """Yield what flags mean; note the others, and refuse where the answer would be another's."""
    kinds, passed = engines()[engine].kinds, dict[str, list[str]]()
    for name, flag in flags.items():
        text = str(flag.value)
        row = {} if text in _OFF else _TOLD.get(name, {})
        is_idle = re.fullmatch(row.get("unless", "(?!)"), text)
        if is_idle or not re.fullmatch(row.get("only", ".*"), text):
            row = {}
        if "refuse" in row or ("instead" in row and not is_line):
            raise InputError(flag.typed, flag.value, row.get("refuse") or row["instead"])
        if "say" in row:
            notes.append(f"{flag.typed}: {row['say']}")
        elif name in MEANS:
            if text not in _OFF:
                yield MEANS[name], flag
        else:
            what = _passed_over(name, flag, kinds)
            passed.setdefault(what, []).append(flag.typed)
    notes += [f"{', '.join(typed)}: {what}" for what, typed in passed.items()]


def _passed_over(name: str, flag: Flag, kinds: Mapping[str, str]) -> str:
    """Return what is told of a flag that means nothing here; refuse one that is spelt like others.

    Of keys of a configuration, not all are known.
    """
    from difflib import get_close_matches  # slow to import

    if name not in kinds:
        inside = name.rpartition(".")[0]
        like = {each for each in MEANS if each.rpartition(".")[0] == inside}
        like &= like if inside else kinds.keys()
        if close := get_close_matches(name, like, n=1, cutoff=0.92 if inside else 0.85):
            spelt = close[0].rpartition(".")[2] if inside else f"--{close[0].replace('_', '-')}"
            raise InputError(flag.typed, flag.value, f"{spelt}, if you mean that; else remove it")
    is_known = name.partition(".")[0] in kinds
    kernels = TABLE["kernels"]["told"] if _KERNELS.fullmatch(name) else TABLE["kernels"]["else"]
    return str(kernels if is_known else TABLE["kernels"]["unknown"])


def _drafting(
    engine: str, method: Flag, head: Flag, told: dict[str, Flag], notes: list[str]
) -> str:
    """Return the drafter of a method and a draft model, "" where neither is given."""
    word, path = str(method.value), str(head.value)
    word = TABLE["methods"].get(engine, {}).get(word.lower(), word)
    if not word and engine == "llama.cpp":
        word = path and "draft-model"
    if word.lower() == "eagle" and engine == "sglang" and not path:
        word = "mtp"  # the checkpoint's own module, which SGLang runs so
    if not word and (engine == "sglang" or not path):
        used = [told[name] for name in TABLE["drafts"]["by"].split() if name in told]
        first = next((flag for flag in (method, head, *used) if flag.typed), None)
        if first and engine != "llama.cpp" and method.value != "none":
            raise InputError(first.typed, first.value, TABLE["without"][engine])
        return ""
    drafter = drafter_of(method.typed or head.typed, word, path)
    if told.pop("is_parallel", None) and not (drafter == path and is_local(path)):
        drafter = {"eagle": "p-eagle", "eagle3": "p-eagle", path: "pard"}.get(drafter, drafter)
    if drafter == path:
        return _by_name(path, notes)
    if path:
        notes.append(f"{path}: no file of it is read, but the usual {drafter} taken")
    return drafter


def _lengths(engine: str, told: dict[str, Flag], drafter: str, notes: list[str]) -> dict[str, Any]:
    """Return the draft length or that of each batch size, trees, and acceptance that is made up."""
    steps, verified, width = (told.pop(n, None) for n in TABLE["degrees"]["lengths"].split())
    if verified and (drafter in block_drafters() or is_lookup(drafter)):
        steps = None  # which SGLang has at 1 for a block, and passes over for a look-up
    length = _count(steps) if steps else _count(verified, 1) - 1 if verified else None
    said: dict[str, Any] = {"draft_length": length}
    if width and _count(width) > 1:
        said |= {"tree_width": _count(width), "verify_tokens": verified and _count(verified)}
    elif steps and verified and _count(verified) != _count(steps) + 1:
        taken = f"{engine} takes steps + 1, {_count(steps) + 1}"
        notes.append(f"{verified.typed} {verified.value}: {taken}")
    tokens, rates = told.pop("synthetic_tokens", None), told.pop("synthetic_rates", None)
    if rates:
        listed = rates.value if isinstance(rates.value, list) else [rates.value]
        said["acceptance_by_position"] = f"cumulative:{','.join(map(str, listed))}"
    elif tokens:
        if not re.fullmatch(r"[1-9]\d*(\.\d*)?", str(tokens.value)):
            raise InputError(tokens.typed, tokens.value, "tokens per step, at least 1")
        said |= {"tokens_per_step": float(tokens.value), "measured_draft_length": length or 1}
    below, table = told.pop("drafts_below", None), told.pop("lengths_by_batch", None)
    adaptive = told.pop("is_adaptive", None)
    if below and length:
        said["draft_length"] = f"below:{_count(below, 2) - 1}:{length}"
    if table:
        said["draft_length"] = _by_batch(table)
    elif adaptive:
        raise InputError(adaptive.typed, adaptive.value, TABLE["without"]["slots"])
    return said


def _by_batch(flag: Flag) -> str:
    """Return the draft length of each batch size as text, from the form of each engine.

    vLLM has ranges, TensorRT-LLM the last size of each length, SGLang the first.
    """
    told = object_of(flag, such := "[[1, 16, 3], [17, 64, 2]]")
    if isinstance(told, Mapping):
        rows = sorted((whole_of(str(size)) or 0, row) for size, row in told.items())
        sizes, slots = [size for size, _ in rows], [row for _, row in rows]
        if all(isinstance(length, int) for length in slots):
            firsts, slots = [1, *(size + 1 for size in sizes)], [*slots, 0]
        else:
            steps = [row.get("candidate_steps") for row in slots if isinstance(row, Mapping)]
            if len(steps) < len(slots) or any(not each or len(each) != 1 for each in steps):
                raise InputError(flag.typed, flag.value, TABLE["without"]["slots"])
            firsts, slots = [1, *sizes[1:]], [each[0] for each in steps if each]
        ends = [*(first - 1 for first in firsts[1:]), firsts[-1]]
        told = [[*row] for row in zip(firsts, ends, slots, strict=True)]
    is_list = isinstance(told, list) and all(isinstance(row, list) for row in told)
    if not is_list or {*map(len, told)} != {3}:
        raise InputError(flag.typed, flag.value, f"ranges such as {such}")
    return "table:" + ":".join("{}-{}={}".format(*row) for row in told)


def _layout(engine: str, told: dict[str, Flag], notes: list[str]) -> dict[str, Any]:
    """Return the degrees: what copies attention and spreads experts lies within tensor parallel."""
    names = TABLE["degrees"]["by"].split()
    tensor, data, copies, experts, sends = (told.pop(name, None) for name in names)
    width, each = (_count(flag, 1) if flag else 1 for flag in (tensor, data))
    if copies:
        each = whole_of(str(copies.value)) or (width if engine == "tensorrt-llm" else each)
        if width % each:
            raise InputError(copies.typed, copies.value, f"a divisor of the {width} GPUs")
        width //= each
    elif engine == "sglang" and data and each > 1:
        notes.append(f"{data.typed} {data.value}: the answer is for one of these servers")
        each = 1
    said = {"tensor_parallel": width} if tensor or copies else {}
    said |= {"data_parallel": each} if data or copies else {}
    if experts:
        return said | {"expert_parallel": whole_of(str(experts.value)) or width * each}
    is_sent = sends and str(sends.value).lower() != "none"
    return said | ({"expert_parallel": width * each} if is_sent else {})


def _own(name: str, flag: Flag, notes: list[str]) -> Any:
    """Return the value of an argument as a flag has it, None where it leaves it open."""
    word = str(flag.value).lower()
    if name.endswith("_dtype"):
        is_untold = word in TABLE["dtypes"]["untold"].split()
        word = TABLE["dtypes"]["words"].get(word, word)
        return None if is_untold else check_dtype(flag.typed, word)
    if name == "attention_backend" and word not in BACKENDS:
        notes.append(f"{flag.typed} {flag.value}: {TABLE['kernels']['told']}")
        return None
    if name == "host_expert_layers":
        return "all" if whole_of(word) is None else flag.value
    if name == "target":
        return _by_name(str(flag.value), notes)
    return word if name == "attention_backend" else flag.value


def _by_name(model: str, notes: list[str]) -> str:
    """Return a model as it was given, but the name alone of a path that is not there."""
    path = model.replace("\\", "/").rstrip("/")
    if "/" not in path or is_id(path) or is_local(path):
        return model
    notes.append(f"{model}: not here, and taken by its name")
    return path.rpartition("/")[2]


def drafter_of(argument: str, method: str, model: str) -> str:
    """Return the drafter of a method and a model; refuse words and heads that are not modelled.

    A model, an assistant and a head whose file is here are drafters by their own names.
    """
    name, kind, named = model.lower(), drafter_called(method), _named_in(model)
    for part in TABLE["drafts"]["unmodelled"].split():
        if part in re.sub("[^a-z0-9 ]", "", f"{method.lower()} {name.rpartition('/')[2]}"):
            raise InputError("model", model or method, f"another head: {part} is not modelled")
    if method.lower().replace("_", "-") in ("draft-model", "standalone") and model:
        return model
    if method and not kind:
        expected = f"{nearest(method, named_drafters())}, or draft-model with a model"
        raise InputError(argument, method, expected)
    if _named_in(name.rstrip("/").rpartition("/")[2]) == "mtp" and kind in ("eagle", "eagle3"):
        kind = "mtp"  # a module exported from its checkpoint, which SGLang runs as EAGLE
    kind = kind or named
    if "assistant" in name and kind not in block_drafters():
        return model
    is_head = kind != "mtp" and not is_lookup(kind)
    if is_head and named in block_drafters() and kind != named:
        raise InputError("model", model, f"a head for {method}, or the method {named}")
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


def _count(flag: Flag, least: int = 0) -> int:
    value = whole_of(str(flag.value))
    if value is None or value < least:
        raise InputError(flag.typed, flag.value, f"a whole number, at least {least}")
    return value
