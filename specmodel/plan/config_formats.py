"""Write schedules and single draft lengths as each engine's options and configuration."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from specmodel.core.base.errors import InputError
from specmodel.core.base.files import toml_tables
from specmodel.core.cost.deploying import DEFAULT_ENGINE
from specmodel.core.cost.deployment import Deployment
from specmodel.core.drafters.names import is_lookup
from specmodel.core.drafters.published import is_in_checkpoint
from specmodel.core.machines.engine import EngineProfile, load_engine
from specmodel.core.prediction.accepted import kind_of
from specmodel.core.prediction.case import Case
from specmodel.core.prediction.outcome import Prediction

if TYPE_CHECKING:
    from specmodel.plan.schedule import Schedule


class ConfigFormat(Struct, frozen=True, kw_only=True):
    """The form of a schedule in the configuration of an engine.

    Parameters
    ----------
    name, caveats
        The engine's name, for people, and a sentence for each case in which it deviates from a
        schedule.
    write, where
        Function that writes a schedule for a kind of drafter, the number of its modules [-] and its
        path. Where to put the schedule: a template with the `options` and keys (`needs`) to set.
    drafters, longest_first
        Kinds of drafters whose draft length the engine can change, any if empty. Whether the draft
        at batch size 1 must be the longest.
    most_requests, is_of_replica, drafting_requests
        The engine's option for the most requests to decode together. Whether each data-parallel
        replica counts its own requests. The default of the option with a drafter, 0 if a drafter
        does not change the default [request].
    changes_length, keeps_last
        Whether the engine changes the draft length while it runs. If not, it drafts the longest
        length of a schedule. Whether the last length also applies above the last batch size. If
        not, the engine drafts nothing there.
    option, program
        Template of the options that start a drafter with a draft length, filled with `words`, and
        the program or file that reads them.
    words, file
        Words for each kind of drafter, which may contain the path of a head: template `file`.
    since, start
        First version that accepts a schedule, "" if unknown. The start command that contains the
        schedule, "" if a file contains it.
    """

    name: str
    write: Callable[[Schedule, str, int, str | None], str]
    where: str
    caveats: Sequence[str] = ()
    drafters: Sequence[str] = ()
    longest_first: bool = False
    most_requests: str
    is_of_replica: bool = True
    drafting_requests: int = 0
    changes_length: bool = True
    keeps_last: bool = True
    since: str = ""
    start: str = ""
    option: str
    program: str
    words: Mapping[str, str]
    file: str

    def check_drafter(self, case: Case) -> None:
        """Check that the engine can change the draft length of this kind of drafter."""
        kind = kind_of(case.deployment)
        if self.drafters and kind not in self.drafters:
            engine = self.name.lower()
            expected = f"{', '.join(self.drafters)}. With `config_format='{engine}'`, the engine"
            expected += " cannot vary the draft length of other drafters"
            raise InputError("drafter", case.where.named.get("drafter", kind), expected)

    def requests_option(self, requests: int, replicas: int) -> str:
        """Return the option that lets all replicas decode this number of requests together."""
        each = max(requests // replicas, 1) if self.is_of_replica else requests
        return f"{self.most_requests} {each}"

    def place(self, schedule: Schedule, drafter: str, path: str | None) -> str:
        """Return as text where to put a schedule, and which options and keys it needs."""
        options = self.options(drafter, schedule.max_draft_length, path)
        needs = " (DRAFTER: the drafter's path)" if _file(drafter, path) == "DRAFTER" else ""
        if drafter not in self.words:
            needs = ' (add the "method" and the path of its "model")'
        return self.where.format(options=options, needs=needs)

    def drafter_words(self, drafter: str, path: str | None, length: int = 0) -> str:
        """Return the engine's words for a drafter and its path; "" if it does not know them."""
        path = _file(drafter, path)
        file = self.file.format(path, quoted=json.dumps(path)) if path else ""
        return self.words.get(drafter, "").format(file=file, length=length)

    def options(self, drafter: str, length: int, path: str | None) -> str:
        """Return the options for one draft length [token]; "" if there are none for the drafter."""
        words = self.drafter_words(drafter, path, length)
        return self.option.format(words, length=length, tokens=length + 1) if words else ""

    def fragment(
        self, schedule: Schedule, drafter: str = "", num_modules: int = 1, path: str | None = ""
    ) -> str:
        """Return the schedule as configuration text; "" if no batch size has a draft.

        `drafter` is the kind of drafter; with "", the text omits what depends on the drafter.
        `num_modules` counts modules that draft several tokens, each with its own weights [-]. An
        empty `path` prints as DRAFTER. None means that the target's checkpoint contains the
        drafter.
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
    """Return the name of the format for an engine's stack; the default engine's if None."""
    engine = DEFAULT_ENGINE if engine is None else engine
    profile = engine if isinstance(engine, EngineProfile) else load_engine(engine)
    name = _OF_STACKS.get(profile.stack or "", profile.stack or "")
    if name not in CONFIG_FORMATS:
        known = ", ".join(CONFIG_FORMATS)
        expected = f"an engine that reads schedules ({known}). Or name one with `config_format`"
        raise InputError("engine", profile.name if engine is profile else engine, expected)
    return name


def num_modules(deployment: Deployment) -> int:
    """Return how many modules the drafter has, each with its own weights [-]."""
    return max(len(deployment.drafter.parts), 1)


def default_path(deployment: Deployment) -> str | None:
    """Return the path of a drafter without a given one: None if the target's checkpoint has it."""
    return None if is_in_checkpoint(deployment.target, kind_of(deployment)) else ""


def graph_option(deployment: Deployment) -> str:
    """Return the engine's option for the size of CUDA graphs; "" if the size is its default."""
    limit = deployment.graph_limit
    return f" {limit.typed}" if limit and not limit.default_of else ""


def start_options(prediction: Prediction, length: int, most: int | None = None) -> tuple[str, str]:
    """Return an engine's start options for a draft length, and the program to pass them to.

    `most` is the number of requests to run; if None, the engine's default applies. DRAFTER in the
    options replaces an unknown path. Both texts are empty for trees, as engines' options describe
    chains, and for engines without such options.
    """
    d = prediction.deployment
    points = prediction.evaluation.points
    is_tree = d.tree_width > 1 or (points["verify_tokens"] > points["draft_length"] + 1).any()
    if not length or is_tree:
        return "", ""
    path: str | None = prediction.case.where.head if prediction.case else ""
    if not path:  # a made-up drafter is a module that the checkpoint lacks
        path = "DRAFTER" if d.drafter.is_made_up else default_path(d)
    options, program = one_length(d.engine.stack or "", kind_of(d), length, num_modules(d), path)
    if not program:
        return "", ""
    return f"{options}{graph_option(d)}{requests_option(prediction, most)}", program


def requests_option(prediction: Prediction, most: int | None = None) -> str:
    """Return the engine's option for the number of requests: `most`, or all that fit.

    If `most` is None, the option is only needed where the engine's default is smaller. With any
    drafter, SGLang runs 48 requests without `--max-running-requests`, llama.cpp 4 without `-np`.
    """
    config = config_format(format_of_engine(prediction.deployment.engine))
    asked = int(np.where(prediction.fits, prediction.batch_size, 0).max())
    requests = most or (asked if 0 < config.drafting_requests < asked else 0)
    replicas = prediction.deployment.layout.replicas
    return f" {config.requests_option(requests, replicas)}" if requests else ""


def accepted_lengths(deployment: Deployment, longest: int) -> list[int]:
    """Return the draft lengths that the engine accepts, from 1 up to `longest` [token]."""
    every, modules = range(1, longest + 1), num_modules(deployment)
    has_steps = deployment.engine.stack == "vllm"
    return [length for length in every if not has_steps or _in_modules(length, modules) == length]


def _vllm(schedule: Schedule, drafter: str, num_modules: int, path: str | None) -> str:
    """Return JSON with ranges of batch sizes, both ends included; without ranges for one length.

    vLLM accepts a longest length above the number of modules only if it is a multiple of that
    number. The text contains the next multiple, which no range needs to reach.
    """
    ranges = [f"[{first}, {last}, {length}]" for first, last, length in schedule.ranges]
    method = CONFIG_FORMATS["vllm"].drafter_words(drafter, path)
    table = _fill(' "num_speculative_tokens_per_batch_size": [', ranges, "]}")
    longest = _in_modules(schedule.max_draft_length, num_modules)
    if len(schedule.ranges) == 1 and longest == schedule.max_draft_length:
        return f'{{{method}"num_speculative_tokens": {longest}}}'
    return f'{{{method}"num_speculative_tokens": {longest},\n{table}'


def _in_modules(length: int, num_modules: int) -> int:
    """Return the shortest length, from `length` on, that vLLM accepts of several modules."""
    return length if length <= num_modules else -(-length // num_modules) * num_modules


def _file(drafter: str, path: str | None) -> str:
    """Return the path of a drafter's file: DRAFTER if it is unknown, "" if there is no file."""
    has_none = path is None or drafter == "mtp" or is_lookup(drafter)
    return path or ("" if has_none else "DRAFTER")


def one_length(
    engine: str, drafter: str, length: int, num_modules: int = 1, path: str | None = ""
) -> tuple[str, str]:
    """Return an engine's options for one draft length [token], and the command to pass them to.

    Both are "" if the engine has no options for this drafter. `drafter` is the kind of drafter. An
    empty `path` prints as DRAFTER. None means that the target's checkpoint contains the drafter.
    """
    config = CONFIG_FORMATS.get(_OF_STACKS.get(engine, engine))
    length = _in_modules(length, num_modules) if engine == "vllm" else length
    options = config.options(drafter, length, path) if config else ""
    return (options, config.program) if config and options else ("", "")


def _tensorrt_llm(schedule: Schedule, *_: Any) -> str:
    """Return YAML with the last batch size of each length; beyond all sizes, nothing is drafted."""
    if schedule.max_draft_length > schedule.draft_length[0]:
        expected = "a schedule with the longest draft at batch size 1 (longest_first=True)"
        raise InputError("schedule", schedule.ranges, expected)
    entries = [f"{last}: {length}" for _, last, length in schedule.ranges]
    drafting = entries if schedule.ranges[-1][2] else entries[:-1]
    table = _fill("draft_len_schedule: {", drafting, "}")
    return f"max_draft_len: {schedule.draft_length[0]}\n{table}"


def _sglang(schedule: Schedule, *_: Any) -> str:
    """Return JSON with the one candidate length that applies from each batch size on."""
    slots = ({str(first): {"candidate_steps": [each]}} for first, _, each in schedule.ranges)
    return _fill("{", [json.dumps(slot)[1:-1] for slot in slots], "}")


def _llama(schedule: Schedule, drafter: str, num_modules: int, path: str | None) -> str:
    """Return llama-server's options for the longest draft, as it keeps one at all batch sizes."""
    return one_length("llama.cpp", drafter, schedule.max_draft_length, num_modules, path)[0]


def _fill(opening: str, entries: list[str], closing: str) -> str:
    """Wrap a list to 79 columns, with room for a quote; lines break only between entries."""
    unbroken = [entry.replace(" ", "\xa0") for entry in entries]
    text = opening.replace(" ", "\xa0") + ", ".join(unbroken) + closing
    lines = textwrap.fill(text, 79, subsequent_indent="  ", break_on_hyphens=False)
    return lines.replace("\xa0", " ")


_ROWS = toml_tables(Path(__file__).parent / "data/config_formats.toml")
_OF_STACKS = {"trtllm": "tensorrt-llm"}
"""Formats whose name differs from that of the stack, by stack."""

_WRITERS = {"vllm": _vllm, "tensorrt-llm": _tensorrt_llm, "sglang": _sglang, "llama.cpp": _llama}
CONFIG_FORMATS = {
    name: ConfigFormat(write=write, **_ROWS[name]) for name, write in _WRITERS.items()
}
"""Formats of the engines that accept a schedule, by the name that a user types."""
