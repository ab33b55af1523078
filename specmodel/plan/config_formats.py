"""Write schedules of draft lengths in the format of each engine's configuration."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from specmodel.core.base.errors import InputError
from specmodel.core.base.files import toml_tables
from specmodel.core.cost.deploying import DEFAULT_ENGINE
from specmodel.core.drafters.names import is_lookup
from specmodel.core.machines.engine import EngineProfile, load_engine
from specmodel.core.prediction.accepted import kind_of
from specmodel.core.prediction.case import Case

if TYPE_CHECKING:
    from specmodel.plan.schedule import Schedule


class ConfigFormat(Struct, frozen=True, kw_only=True):
    """How the configuration of an engine states a schedule.

    Parameters
    ----------
    name, caveats
        The engine's name, for people, and a sentence for each case in which it deviates from a
        schedule.
    write, place
        Function that writes a schedule for a kind of drafter, the number of its modules [-] and its
        path. Function that says where that text goes, and what else you must set.
    drafters, longest_first
        Kinds of drafters whose draft length it can change, any if empty. Whether the draft at batch
        size 1 must be the longest.
    most_requests, is_of_replica, drafting_requests
        Its option for the most requests to decode together. Whether each data-parallel replica
        counts its own. Its default with a drafter, 0 if a drafter does not change it [request].
    keeps_last
        Whether the last length also applies above the last batch size; else nothing is drafted
        there.
    since, start
        First version that accepts a schedule, "" if unknown. The start command that contains the
        fragment, "" if a file does.
    """

    name: str
    write: Callable[[Schedule, str, int, str | None], str]
    place: Callable[[Schedule, str, str | None], str]
    caveats: Sequence[str] = ()
    drafters: Sequence[str] = ()
    longest_first: bool = False
    most_requests: str
    is_of_replica: bool = True
    drafting_requests: int = 0
    keeps_last: bool = True
    since: str = ""
    start: str = ""

    def check_drafter(self, case: Case) -> None:
        """Check that the engine can change the draft length of this kind of drafter."""
        kind = kind_of(case.deployment)
        if self.drafters and kind not in self.drafters:
            engine = self.name.lower()
            expected = f"{', '.join(self.drafters)} with `config_format='{engine}'`"
            expected += ", which can vary the draft length of no other drafter"
            raise InputError("drafter", case.where.named.get("drafter", kind), expected)

    def requests_option(self, requests: int, replicas: int) -> str:
        """Return the option that lets all replicas decode so many requests together."""
        each = max(requests // replicas, 1) if self.is_of_replica else requests
        return f"{self.most_requests} {each}"

    def fragment(
        self, schedule: Schedule, drafter: str = "", num_modules: int = 1, path: str | None = ""
    ) -> str:
        """Return the schedule as configuration text; "" if no batch size has a draft.

        With kind "", the text omits what depends on the drafter. `num_modules` counts modules that
        draft several tokens, each with its own weights [-]. An empty `path` prints as DRAFTER; None
        means that the target is the drafter.
        """
        drafts = schedule.max_draft_length > 0
        return self.write(schedule, drafter, num_modules, path) if drafts else ""


def config_format(name: str) -> ConfigFormat:
    """Return the format in which an engine accepts a schedule.

    Parameters
    ----------
    name
        One of `CONFIG_FORMATS`.
    """
    if name not in CONFIG_FORMATS:
        raise InputError("config_format", name, f"one of: {', '.join(CONFIG_FORMATS)}")
    return CONFIG_FORMATS[name]


def format_of_engine(engine: EngineProfile | str | Path | None) -> str:
    """Return the name of the format that an engine's stack takes, that of the default if None."""
    engine = DEFAULT_ENGINE if engine is None else engine
    profile = engine if isinstance(engine, EngineProfile) else load_engine(engine)
    name = _OF_STACKS.get(profile.stack or "", profile.stack or "")
    if name not in CONFIG_FORMATS:
        known = ", ".join(CONFIG_FORMATS)
        expected = f"an engine that reads schedules ({known}), or `config_format` too"
        raise InputError("engine", profile.name if engine is profile else engine, expected)
    return name


def _vllm(schedule: Schedule, drafter: str, num_modules: int, path: str | None) -> str:
    """Return JSON with ranges of batch sizes, both ends included; without them for one length.

    A longest length above the number of modules must be a multiple of it for vLLM; the next
    multiple is stated, which the ranges need not reach.
    """
    ranges = [f"[{first}, {last}, {length}]" for first, last, length in schedule.ranges]
    method = _vllm_method(drafter, path)
    table = _fill(' "num_speculative_tokens_per_batch_size": [', ranges, "]}")
    longest = _in_modules(schedule.max_draft_length, num_modules)
    if len(schedule.ranges) == 1 and longest == schedule.max_draft_length:
        return f'{{{method}"num_speculative_tokens": {longest}}}'
    return f'{{{method}"num_speculative_tokens": {longest},\n{table}'


def _in_modules(length: int, num_modules: int) -> int:
    """Return the least length that vLLM takes of several modules, which is not below this one."""
    return length if length <= num_modules else -(-length // num_modules) * num_modules


def takes_length(engine: str, length: int, num_modules: int) -> bool:
    """Return whether an engine takes a draft length [token] of so many modules."""
    return engine != "vllm" or _in_modules(length, num_modules) == length


def _vllm_method(drafter: str, path: str | None) -> str:
    """Return the keys of vLLM's JSON that name a drafter; "" for one that vLLM does not know."""
    if drafter not in _VLLM_METHODS:
        return ""
    method = f'"method": "{_VLLM_METHODS[drafter]}", '
    if path or not (path is None or _has_no_file(drafter)):
        method += f'"model": {json.dumps(path or "DRAFTER")}, '
    return method + ('"parallel_drafting": true, ' if drafter in ("p-eagle", "pard") else "")


def one_length(
    engine: str, drafter: str, length: int, num_modules: int = 1, path: str | None = ""
) -> tuple[str, str]:
    """Return an engine's options for one draft length [token], and the command that takes them.

    Both are "" without such options. `drafter` is the kind; without a `path` DRAFTER stands for it,
    which None says is the target.
    """
    if engine == "vllm" and (method := _vllm_method(drafter, path)):
        fields = f'{method}"num_speculative_tokens": {_in_modules(length, num_modules)}'
        return f"--speculative-config '{{{fields}}}'", "vllm serve"
    if engine == "sglang" and drafter in CONFIG_FORMATS["sglang"].drafters:
        return _sglang_options(length, drafter, path), "sglang.launch_server"
    if engine == "llama.cpp" and drafter in _LLAMA_TYPES:
        file = path or ("" if drafter == "mtp" or is_lookup(drafter) else "DRAFTER")
        model = f" --spec-draft-model {file}" if file else ""
        return f"--spec-type {_LLAMA_TYPES[drafter]}{model} --spec-draft-n-max {length}", _SERVER
    if engine == "trtllm" and drafter in _TENSORRT_LLM:
        fields = _TENSORRT_LLM[drafter].format(length).replace("DRAFTER", path or "DRAFTER")
        return f"speculative_config: {{decoding_type: {fields}}}", "the YAML of trtllm-serve"
    return "", ""


def _vllm_place(_schedule: Schedule, drafter: str, path: str | None) -> str:
    """Return as text the option for the fragment, and the keys that are still to be filled in."""
    is_told = path or path is None or _has_no_file(drafter)
    needs = "" if is_told else ", where DRAFTER is the drafter's path"
    needs = needs if drafter in _VLLM_METHODS else ', with the "method" and the path of its "model"'
    return f"in --speculative-config, between single quotes{needs}"


def _has_no_file(drafter: str) -> bool:
    """Return whether vLLM needs no path: of look-ups and MTP."""
    return drafter == "mtp" or is_lookup(drafter)


def _tensorrt_llm(schedule: Schedule, *_: Any) -> str:
    """Return YAML in which each length holds up to its batch size, and none beyond the last."""
    if schedule.max_draft_length > schedule.draft_length[0]:
        expected = "a schedule with the longest draft at batch size 1 (longest_first=True)"
        raise InputError("schedule", schedule.ranges, expected)
    entries = [f"{last}: {length}" for _, last, length in schedule.ranges]
    drafting = entries if schedule.ranges[-1][2] else entries[:-1]
    table = _fill("draft_len_schedule: {", drafting, "}")
    return f"max_draft_len: {schedule.draft_length[0]}\n{table}"


def _sglang(schedule: Schedule, *_: Any) -> str:
    """Return JSON in which one candidate length holds from each batch size on."""
    slots = {str(first): {"candidate_steps": [length]} for first, _, length in schedule.ranges}
    return _fill("{", [json.dumps({size: slot})[1:-1] for size, slot in slots.items()], "}")


def _sglang_place(schedule: Schedule, drafter: str, path: str | None) -> str:
    """Return as text all options of adaptive drafting; the number of steps sizes its buffers."""
    options = _sglang_options(schedule.max_draft_length, drafter, path)
    return f"a FILE, with {options} --speculative-adaptive --speculative-adaptive-config FILE"


def _sglang_options(length: int, drafter: str, path: str | None) -> str:
    """Return SGLang's start options for drafts that are chains."""
    algorithm = {"eagle3": "EAGLE3", "mtp": "NEXTN", "assistant": "NEXTN"}.get(drafter, "EAGLE")
    path = path or ("" if drafter == "mtp" else "DRAFTER")
    path = path and f" --speculative-draft-model-path {path}"
    return (
        f"--speculative-algorithm {algorithm}{path} --speculative-eagle-topk 1"
        f" --speculative-num-steps {length} --speculative-num-draft-tokens {length + 1}"
    )


def _llama(schedule: Schedule, drafter: str, num_modules: int, path: str | None) -> str:
    """Return llama-server's options for the longest draft, which it keeps at any batch size."""
    return one_length("llama.cpp", drafter, schedule.max_draft_length, num_modules, path)[0]


def _fill(opening: str, entries: list[str], closing: str) -> str:
    """Wrap a list to 79 columns, with room for a quote, breaking lines between its entries only."""
    unbroken = [entry.replace(" ", "\xa0") for entry in entries]
    text = opening.replace(" ", "\xa0") + ", ".join(unbroken) + closing
    lines = textwrap.fill(text, 79, subsequent_indent="  ", break_on_hyphens=False)
    return lines.replace("\xa0", " ")


_ROWS = toml_tables(Path(__file__).parent / "data/config_formats.toml")
_VLLM_METHODS, _TENSORRT_LLM = _ROWS["methods"], _ROWS["decoding_types"]
_LLAMA_TYPES, _SERVER = _ROWS["spec_types"], "llama-server"
_OF_STACKS = {"trtllm": "tensorrt-llm"}
"""Formats of stacks that go by another name."""

_OPTIONS = "beside the options of llama-server"
_UNDER = "under speculative_config, beside the decoding type and its model"
CONFIG_FORMATS = {
    "vllm": ConfigFormat(write=_vllm, place=_vllm_place, **_ROWS["vllm"]),
    "tensorrt-llm": ConfigFormat(
        write=_tensorrt_llm, place=lambda *_: _UNDER, **_ROWS["tensorrt-llm"]
    ),
    "sglang": ConfigFormat(write=_sglang, place=_sglang_place, **_ROWS["sglang"]),
    "llama.cpp": ConfigFormat(write=_llama, place=lambda *_: _OPTIONS, **_ROWS["llama"]),
}
"""How each engine that takes a schedule is configured, by the name that a user types."""
