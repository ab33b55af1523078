"""Schedules of draft lengths in the words of serving engines."""

import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from specmodel.answers.schedule import Schedule
from specmodel.base.errors import InputError


def vllm_fragment(schedule: Schedule) -> str:
    """Return a schedule as keys of vLLM's ``--speculative-config``.

    Parameters
    ----------
    schedule
        Draft length by batch size.

    Returns
    -------
    str
        JSON; ranges of batch sizes include both ends. The largest length is at least 1, as the
        engine asks, even if no range has it.
    """
    ranges = [f"[{first}, {last}, {length}]" for first, last, length in schedule.ranges]
    longest = max(schedule.max_draft_length, 1)
    table = _fill(' "num_speculative_tokens_per_batch_size": [', ranges, "]}")
    return f'{{"num_speculative_tokens": {longest},\n{table}'


def tensorrt_llm_fragment(schedule: Schedule) -> str:
    """Return a schedule as keys of TensorRT-LLM's ``speculative_config``.

    Parameters
    ----------
    schedule
        Draft length by batch size, the longest at batch size 1.

    Returns
    -------
    str
        YAML; each length holds from its batch size on.

    Raises
    ------
    InputError
        If some draft is longer than that at batch size 1.
    """
    if schedule.max_draft_length > schedule.draft_length[0]:
        expected = "one whose longest draft is at batch size 1, by longest_first=True"
        raise InputError("schedule", schedule.ranges, expected)
    thresholds = [f"{first}: {length}" for first, _, length in schedule.ranges]
    table = _fill("draft_len_schedule: {", thresholds, "}")
    return f"max_draft_len: {schedule.draft_length[0]}\n{table}"


def sglang_fragment(schedule: Schedule) -> str:
    """Return a schedule as the file of SGLang's ``--speculative-adaptive-config``.

    Parameters
    ----------
    schedule
        Draft length by batch size.

    Returns
    -------
    str
        JSON; from each batch size on one candidate number of steps.
    """
    return _fill("{", [f'"{first}": [{length}]' for first, _, length in schedule.ranges], "}")


@dataclass(frozen=True, kw_only=True)
class Format:
    """How an engine takes a schedule.

    Parameters
    ----------
    name
        The engine, for people.
    place
        Where the fragment goes.
    fragment
        Writes it.
    longest_first
        Whether no draft may be longer than that at batch size 1.
    """

    name: str
    place: str
    fragment: Callable[[Schedule], str]
    longest_first: bool = False


FORMATS = {
    "vllm": Format(
        name="vLLM",
        place="in --speculative-config, beside the method and its model",
        fragment=vllm_fragment,
    ),
    "tensorrt-llm": Format(
        name="TensorRT-LLM",
        place="under speculative_config, beside the decoding type",
        fragment=tensorrt_llm_fragment,
        longest_first=True,
    ),
    "sglang": Format(
        name="SGLang",
        place="the file of --speculative-adaptive-config, with --speculative-adaptive",
        fragment=sglang_fragment,
    ),
}
"""Engines that take a schedule, by the name that a user types."""


def _fill(opening: str, entries: list[str], closing: str) -> str:
    """Wrap a list to 80 columns, breaking lines between its entries only."""
    unbroken = [entry.replace(" ", "\xa0") for entry in entries]
    text = opening.replace(" ", "\xa0") + ", ".join(unbroken) + closing
    lines = textwrap.fill(text, 80, subsequent_indent="  ", break_on_hyphens=False)
    return lines.replace("\xa0", " ")
