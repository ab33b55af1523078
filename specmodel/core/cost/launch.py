"""Translate the flags of an engine's launch command into arguments of this package.

``data/launch_flags.toml`` lists what each flag means, and the notes and errors for flags without a
meaning here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from specmodel.core.base.dtypes import check_dtype
from specmodel.core.base.errors import InputError, nearest
from specmodel.core.base.naming import SETTABLE, is_id, is_local
from specmodel.core.base.ranges import whole_of
from specmodel.core.cost.deploying import BACKENDS
from specmodel.core.cost.launch_lines import MEANS, TABLE, Flag, Flags, engines, object_of, whole
from specmodel.core.drafters.names import block_drafters, drafter_called, is_lookup, named_drafters

_OF_LOADS = ("max_running", "token_budget", "block_size")
_OFF = ("false", "False", "null", "None")
_KERNELS = re.compile(TABLE["kernels"]["named"])
_TOLD = {flag: row for row in TABLE["told"] for flag in row["flags"].split()}
_NONE = Flag("", "")


class Launched(NamedTuple):
    """What flags mean: an engine, arguments of this package by name, and notes.

    `model` is the path or id of the draft model. If the drafter needs a model and none is given,
    `lacking` is the flag that would name one.
    """

    engine: str
    arguments: dict[str, Any]
    notes: tuple[str, ...] = ()
    model: str = ""
    lacking: str = ""


def launched(engine: str, flags: Flags, *, is_line: bool = True, is_load: bool = False) -> Launched:
    """Return what flags mean.

    Flags that change the work of a step and are not modelled raise an InputError or add a note. If
    flags are typed one by one, not in a whole line, some more raise an InputError: those for which
    this package has an argument with another meaning, such as ``--max-model-len``. Limits of the
    scheduler have a meaning only if `is_load`.
    """
    notes: list[str] = []
    means = MEANS if is_load else {k: v for k, v in MEANS.items() if v not in _OF_LOADS}
    told = dict(_meant(engine, flags, notes, means, is_line=is_line))
    method, head = told.pop("method", _NONE), told.pop("head", _NONE)
    drafter = _drafting(engine, method, head, told, notes)
    if is_line and not drafter:
        notes.append("the command has no drafter")
    said = {"drafter": drafter or None, **_lengths(engine, told, drafter, notes)}
    said |= _layout(engine, told, notes)
    said |= {name: _own(name, flag, notes) for name, flag in told.items()}
    said = {name: value for name, value in said.items() if value is not None}
    settings = (*SETTABLE, "block_size")
    changes = {name: said.pop(name) for name in [*said] if "." in name or name in settings}
    if changes:
        texts = (f"{name}={value}".replace("=True", "=true") for name, value in changes.items())
        said["changes"] = tuple(texts)
    path, places = str(head.value), TABLE["models"]
    lacking = re.sub("|".join(places), lambda word: places[word[0]], method.typed)
    return Launched(engine, said, tuple(notes), path, "" if path or not drafter else lacking)


def speculative_arguments(config: Mapping[str, Any] | str) -> Launched:
    """Return what vLLM's speculative_config means: a dict, JSON, or the path of a JSON file."""
    name = "speculative_config"
    return launched("vllm", whole("vllm", {name: Flag(name, config)}))


def _meant(
    engine: str, flags: Flags, notes: list[str], means: Mapping[str, str], *, is_line: bool
) -> Iterator[tuple[str, Flag]]:
    """Yield the meaning and flag of each flag that has one; add notes or raise for the others."""
    kinds, passed = engines()[engine].kinds, dict[str, list[str]]()
    for name, flag in flags.items():
        text = str(flag.value)
        row = {} if text in _OFF else _TOLD.get(name, {})
        is_idle = re.fullmatch(row.get("unless", "(?!)"), text)
        if is_idle or not re.fullmatch(row.get("only", ".*"), text):
            row = {}
        is_asked = "instead" in row and not is_line and means.get(name) not in _OF_LOADS
        if "refuse" in row or is_asked:
            raise InputError(flag.typed, flag.value, row.get("refuse") or row["instead"])
        if "say" in row:
            notes.append(f"{flag.typed}: {row['say']}")
        elif (meant := means.get(name)) and "$" in text and meant not in ("head", "target"):
            raise InputError(flag.typed, flag.value, TABLE["without"]["value"])
        elif meant == "target" and "$" in text:
            notes.append(f"{flag.typed} {text}: the command does not set this variable")
        elif meant:
            if text not in _OFF:
                yield meant, flag
        else:
            what = _passed_over(name, flag, kinds)
            passed.setdefault(what, []).append(flag.typed)
    notes += [f"{what}: {', '.join(typed)}" for what, typed in passed.items()]


def _passed_over(name: str, flag: Flag, kinds: Mapping[str, str]) -> str:
    """Return the note for a flag without a meaning here.

    An unknown flag that is spelt almost like a known one raises an InputError. The list of keys
    within a configuration is incomplete, so that an unknown key must be closer to a known one.
    """
    from difflib import get_close_matches  # slow to import

    if name not in kinds:
        inside = name.rpartition(".")[0]
        like = {each for each in MEANS if each.rpartition(".")[0] == inside}
        like &= like if inside else kinds.keys()
        if close := get_close_matches(name, like, n=1, cutoff=0.92 if inside else 0.85):
            spelt = close[0].rpartition(".")[2] if inside else f"--{close[0].replace('_', '-')}"
            expected = f"This flag is unknown. Write {spelt} if you mean that, or remove it."
            raise InputError(flag.typed, flag.value, expected)
    is_known = name.partition(".")[0] in kinds
    kernels = TABLE["kernels"]["told"] if _KERNELS.fullmatch(name) else TABLE["kernels"]["else"]
    return str(kernels if is_known else TABLE["kernels"]["unknown"])


def _drafting(
    engine: str, method: Flag, head: Flag, told: dict[str, Flag], notes: list[str]
) -> str:
    """Return the drafter that a method and a draft model name, "" if neither is given."""
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
        notes.append(f"{path}: this path is not read; the usual {drafter} is assumed")
    return drafter


def _lengths(engine: str, told: dict[str, Flag], drafter: str, notes: list[str]) -> dict[str, Any]:
    """Return the draft length or the schedule of lengths, the tree, and synthetic acceptance."""
    steps, verified, width = (told.pop(n, None) for n in TABLE["degrees"]["lengths"].split())
    if verified and (drafter in block_drafters() or is_lookup(drafter)):
        steps = None  # SGLang has 1 for a block, and ignores it for a look-up
    length = _count(steps) if steps else _count(verified, 1) - 1 if verified else None
    said: dict[str, Any] = {"draft_length": length}
    if width and _count(width) > 1:
        said |= {"tree_width": _count(width), "verify_tokens": verified and _count(verified)}
    elif steps and verified and _count(verified) != _count(steps) + 1:
        used = f"{engine} verifies the number of steps + 1, {_count(steps) + 1}"
        notes.append(f"{verified.typed} {verified.value}: {used}")
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
    """Return a schedule of draft lengths by batch size as text, from the form of any engine.

    vLLM lists ranges of batch sizes. TensorRT-LLM lists the largest batch size of each length,
    SGLang the smallest.
    """
    told = object_of(flag, such := "[[1, 16, 3], [17, 64, 2]]")
    if isinstance(told, Mapping):
        sized = [(whole_of(str(size)) or 0, row) for size, row in told.items()]
        rows = sorted(sized, key=itemgetter(0))
        sizes, slots = [size for size, _ in rows], [row for _, row in rows]
        if all(isinstance(length, int) for length in slots):
            firsts, slots = [1, *(size + 1 for size in sizes)], [*slots, 0]
        else:
            steps = [row.get("candidate_steps") for row in slots if isinstance(row, Mapping)]
            are_lists = len(steps) == len(slots) and all(isinstance(each, list) for each in steps)
            if not are_lists or {len(each or ()) for each in steps} != {1} or 0 in sizes:
                raise InputError(flag.typed, flag.value, TABLE["without"]["slots"])
            firsts, slots = [1, *sizes[1:]], [each[0] for each in steps if each]
        ends = [*(first - 1 for first in firsts[1:]), firsts[-1]]
        told = [[*row] for row in zip(firsts, ends, slots, strict=True)]
    is_list = isinstance(told, list) and all(isinstance(row, list) for row in told)
    if not is_list or {*map(len, told)} != {3}:
        raise InputError(flag.typed, flag.value, f"ranges such as {such}")
    return "table:" + ":".join("{}-{}={}".format(*row) for row in told)


def _layout(engine: str, told: dict[str, Flag], notes: list[str]) -> dict[str, Any]:
    """Return degrees of parallelism.

    The GPUs that hold copies of attention or share experts are among those of tensor parallelism.
    """
    names = TABLE["degrees"]["by"].split()
    tensor, data, copies, experts, sends = (told.pop(name, None) for name in names)
    width, each = (_count(flag, 1) if flag else 1 for flag in (tensor, data))
    if copies:
        each = whole_of(str(copies.value)) or (width if engine == "tensorrt-llm" else each)
        if width % each:
            raise InputError(copies.typed, copies.value, f"a divisor of the {width} GPUs")
        width //= each
    elif engine == "sglang" and data and each > 1:
        notes.append(f"{data.typed} {data.value}: the prediction is for one of these replicas")
        each = 1
    said = {"tensor_parallel": width} if tensor or copies else {}
    said |= {"data_parallel": each} if data or copies else {}
    if experts:
        return said | {"expert_parallel": whole_of(str(experts.value)) or width * each}
    is_sent = sends and str(sends.value).lower() != "none"
    return said | ({"expert_parallel": width * each} if is_sent else {})


def _own(name: str, flag: Flag, notes: list[str]) -> Any:
    """Return the value of an argument that a flag sets, None if the flag leaves it open."""
    word = str(flag.value).lower()
    if name.endswith("_dtype"):
        is_open = word in TABLE["dtypes"]["untold"].split()
        word = TABLE["dtypes"]["words"].get(word, word)
        return None if is_open else check_dtype(flag.typed, word)
    if name == "attention_backend" and word not in BACKENDS:
        notes.append(f"{TABLE['kernels']['told']}: {flag.typed} {flag.value}")
        return None
    if name == "host_expert_layers":
        return "all" if whole_of(word) is None else flag.value
    if name == "target":
        return _by_name(str(flag.value), notes)
    return word if name == "attention_backend" else flag.value


def _by_name(model: str, notes: list[str]) -> str:
    """Return a model as it was given; of a path that does not exist, only the last part."""
    path = model.replace("\\", "/").rstrip("/")
    if "/" not in path or is_id(path) or is_local(path):
        return model
    name = path.rpartition("/")[2]
    notes.append(f"{model} is not on this machine; {name} is used as the model's name")
    return name


def drafter_of(argument: str, method: str, model: str) -> str:
    """Return the drafter that a method and a model name, an InputError if it is not modelled.

    Draft models, Gemma's assistants, and heads whose files are on this machine are returned as they
    were given; other heads by their kind.
    """
    name, kind, named = model.lower(), drafter_called(method), _named_in(model)
    for part in TABLE["drafts"]["unmodelled"].split():
        if part in re.sub("[^a-z0-9 ]", "", f"{method.lower()} {name.rpartition('/')[2]}"):
            expected = f"Not modelled: {part}. Use a head of another kind."
            raise InputError("model", model or method, expected)
    if method.lower().replace("_", "-") in ("draft-model", "standalone") and model:
        return model
    if method and not kind:
        known = nearest(method, named_drafters())
        expected = f"one of {known}, or draft-model with the path of a draft model"
        raise InputError(argument, method, expected)
    if _named_in(name.rstrip("/").rpartition("/")[2]) == "mtp" and kind in ("eagle", "eagle3"):
        kind = "mtp"  # a module exported from its checkpoint: SGLang runs it as EAGLE
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
    """Return the last drafter that the name of a model contains as a word; "" for none."""
    # "parallel" alone does not name a drafter
    words = sorted({*named_drafters(), "nextn"} - {"parallel"}, key=len, reverse=True)
    letters = [re.sub(r"-|(?<=[a-z])(?=\d)", "[-_]?", word) for word in words]
    found = re.findall(rf"(?<![a-z])(?:{'|'.join(letters)})(?![a-z0-9])", model.lower())
    return (found and drafter_called(found[-1])) or ""


def _count(flag: Flag, least: int = 0) -> int:
    value = whole_of(str(flag.value))
    if value is None or value < least:
        raise InputError(flag.typed, flag.value, f"a whole number, at least {least}")
    return value
