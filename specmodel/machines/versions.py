"""What engines do by version: which drafters they wait for, and how passes are launched.

Each row was read in the wheel of the version it names, and holds from that version on; what is
newest stands in the profile itself.
"""

import re
from typing import Any

_LOOKUPS = ["ngram", "suffix"]
_MODELS = ["model", "parallel model"]
_HEADS = ["head", "block head", "parallel head"]

ROWS: dict[str, dict[tuple[int, ...], dict[str, Any]]] = {
    # asynchronous scheduling: VllmConfig.__post_init__; graphs of drafters in pieces:
    # llm_base_proposer.py (until #47460 captured and not used for draft models), whole ones and
    # none: v1/worker/gpu/spec_decode; all-reduces fused with norms: OPTIMIZATION_LEVEL_02 in
    # config/vllm.py; read in 0.14, 0.17, 0.20, 0.22, 0.24, 0.26, 0.27, 0.28, 0.30,
    # 0.31 and 0.33
    "vllm": {
        (0, 14): {
            "waits_for": [*_LOOKUPS, *_MODELS],
            "in_pieces": _HEADS,
            "one_by_one": _MODELS,
            "graphs": "vllm-512",
            "split_tokens": 1,
            "fuses_norms": False,
        },
        (0, 17): {
            "waits_for": [*_LOOKUPS, *_MODELS],
            "in_pieces": _HEADS,
            "one_by_one": _MODELS,
            "graphs": "vllm-512",
            "split_tokens": 1,
        },
        (0, 26): {
            "waits_for": [*_LOOKUPS, *_MODELS],
            "in_pieces": [*_HEADS, *_MODELS],
            "one_by_one": [],
            "graphs": "vllm-512",
            "split_tokens": 1,
        },
        (0, 28): {
            "waits_for": _LOOKUPS,
            "in_pieces": [*_HEADS, *_MODELS],
            "one_by_one": [],
            "split_tokens": 1,
        },
        (0, 30): {
            "waits_for": _LOOKUPS,
            "in_pieces": [*_MODELS, "parallel head"],
            "one_by_one": [],
            "split_tokens": 1,
        },
        (0, 31): {"waits_for": _LOOKUPS, "split_tokens": 1},
        (0, 33): {},
    },
    # disable_overlap_schedule in arg_groups/speculative_hook.py; read in 0.5.13 and 0.5.23;
    # all-reduces fused with norms on Hopper too from 0.5.9 on, not in 0.5.6; its own all-reduces
    # (custom_all_reduce_v2.py) by default from 0.5.12 on, not in 0.5.11: before, those of vLLM
    "sglang": {
        (0, 5, 6): {
            "waits_for": [*_LOOKUPS, "block head"],
            "fuses_norms": False,
            "all_reduces": "vllm",
        },
        (0, 5, 9): {"waits_for": [*_LOOKUPS, "block head"], "all_reduces": "vllm"},
        (0, 5, 12): {"waits_for": [*_LOOKUPS, "block head"]},
        (0, 5, 23): {},
    },
}
"""By engine and first version: fields of its profile that were different."""

_NAME = re.compile(r"(?P<engine>[a-z]+)\s*(?:==|[-@ :])\s*v?(?P<version>\d+\.\d+[\w.+-]*)")


def named_version(name: object) -> tuple[str, str] | None:
    """Return the engine and the version of a name such as vllm-0.24 or vllm==0.24.0, or None."""
    found = _NAME.fullmatch(str(name).strip().lower())
    return (found["engine"], found["version"]) if found and found["engine"] in ROWS else None


def of_version(engine: str, version: str) -> dict[str, Any]:
    """Return the profile changes of the last known version up to `version`, else of the first.

    Examples
    --------
    >>> of_version("vllm", "0.29.1")["waits_for"]
    ['ngram', 'suffix']
    """
    rows = ROWS[engine]
    first = max((first for first in rows if first <= _numbers(version)), default=next(iter(rows)))
    return rows[first]


def nearest_read(engine: str, version: str) -> str:
    """Return the version that stands in for one older or newer than all that were read, else "".

    Examples
    --------
    >>> nearest_read("vllm", "0.99"), nearest_read("vllm", "0.24")
    ('0.33', '')
    """
    oldest, *_, newest = ROWS[engine]
    asked = _numbers(version)
    taken = oldest if asked < oldest else newest if asked[: len(newest)] > newest else ()
    return ".".join(map(str, taken))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
