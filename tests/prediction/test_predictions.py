"""Hundreds of predicted operating points, so that no number moves unseen.

They cover every architecture, drafter, layout, dtype, engine, form of acceptance, interval and
tree. Where one moves on purpose, ``python tests/prediction/test_predictions.py`` writes the table
anew, in the commit that says why; CHANGELOG.md tells users under "Numbers that moved".
"""

import csv
import itertools
import math
from pathlib import Path

import pytest
from random_points import NEWEST_GPUS
from rows import each_row

from specmodel import (
    Acceptance,
    InputError,
    list_architectures,
    list_engines,
    list_hardware,
    load_architecture,
)
from specmodel.cost.deploying import resolve
from specmodel.prediction.predicting import predict_deployed

TABLE = Path(__file__).parents[1] / "data" / "predictions.csv"
HEAD = "# Predictions of this package: a drift alarm, no truth, by test_predictions.py.\n"
DEPLOYED = ("target", "drafter", "hardware", "engine", "stack", "tensor_parallel")
DEPLOYED += ("expert_parallel", "draft_tensor_parallel", "weight_dtype", "expert_dtype")
DEPLOYED += ("embedding_dtype", "activation_dtype", "kv_dtype", "proposal_rate", "lookup_time")
DEPLOYED += ("popularity_exponent", "routing_correlation", "host_speed", "tree_width")
POINT = ("batch_size", "draft_length", "verify_tokens", "context_length", "max_draft_length")
ACCEPTANCE = ("form", "acceptance", "measured_draft_length")
GIVEN = (*DEPLOYED, *POINT, *ACCEPTANCE, "interval")
PREDICTED = ("tokens_per_step", "step_efficiency", "active_experts", "active_experts_verify")
PREDICTED += ("forward_time", "verify_time", "draft_time", "reject_time", "step_time")
PREDICTED += ("target_efficiency", "relative_step_time", "speedup", "tpot", "throughput")
PREDICTED += ("limited_by", "break_even_acceptance_rate", "best_draft_length")
PREDICTED += ("memory_bytes", "max_batch_size")
WITH_ENDS = ("forward_time", "verify_time", "target_efficiency", "speedup")
ENDS = tuple(f"{name}_{end}" for name in WITH_ENDS for end in ("low", "high"))


def predicted(row):
    """Predict what a row of the table names."""
    deployed = {name: _value(row[name]) for name in DEPLOYED if row[name]}
    point = {name: int(row[name]) for name in POINT if row[name]}
    given = [float(number) for number in row["acceptance"].split(" ")]
    measured = row["measured_draft_length"]
    acceptance = Acceptance(
        **{row["form"]: given if row["form"] == "acceptance_by_position" else given[0]},
        measured_draft_length=int(measured) if measured else None,
    )
    interval = bool(row["interval"])
    prediction = predict_deployed(
        *resolve(deployed), **point, acceptance=acceptance, interval=interval
    )
    values = {name: getattr(prediction, name).item() for name in PREDICTED}
    for name in WITH_ENDS if interval else ():
        ends = prediction.intervals[name]
        values |= {f"{name}_low": ends.low.item(), f"{name}_high": ends.high.item()}
    return values


def _value(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def read_rows():
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def test_the_table_covers_all_that_ships():
    rows = read_rows()
    assert len(rows) == sum(_COUNTS)
    for name, known in (
        ("target", {*list_architectures()} - {"opt-350m", "llama-3.2-1b"}),
        ("hardware", set(list_hardware())),
        ("engine", set(list_engines())),
        ("drafter", {*_DRAFTERS[:5], "opt-350m", "qwen2-0.5b"}),
        ("form", set(FORMS)),
    ):
        assert known <= {row[name] for row in rows}, name


@each_row("row", read_rows())
def test_no_number_has_moved(row):
    for name, value in predicted(row).items():
        if isinstance(value, str):
            assert value == row[name]
        else:
            assert value == pytest.approx(float(row[name]), rel=1e-12, nan_ok=True), name


FORMS = ("acceptance_rate", "tokens_per_step", "step_efficiency", "accepted_fraction")
FORMS += ("acceptance_by_position",)
_POINTS = [(1, 1, 512), (8, 3, 1024), (64, 5, 4096), (512, 2, 128), (3, 8, 16384), (37, 0, 0)]
_LAYOUTS = [(1, 1, 1), (2, 1, 1), (4, 1, 2), (1, 8, 1), (2, 16, 1), (8, 8, 4)]
_DTYPES = ["", "weight_dtype=fp8", "weight_dtype=fp8 activation_dtype=fp8 kv_dtype=fp8"]
_DTYPES += ["weight_dtype=int4", "expert_dtype=mxfp4", "weight_dtype=fp4 activation_dtype=fp4"]
_DTYPES += ["weight_dtype=int8 kv_dtype=int8", "weight_dtype=fp16 activation_dtype=fp16"]
_DTYPES += ["kv_dtype=fp8", "embedding_dtype=fp8", "weight_dtype=fp32"]
_MODELS = ("llama-3.2-1b", "opt-350m", "qwen2-0.5b")
_DRAFTERS = ["ngram", "eagle3", "mtp", "eagle", "parallel", "llama-3.2-1b", "opt-350m"]
_ROUTINGS = ["", "routing_correlation=0.4", "popularity_exponent=0.7", "routing_correlation=0"]
_LOOKUPS = ["", "proposal_rate=0.4", "lookup_time=0.0002 proposal_rate=0.9"]
_STACKS = ["", "typical", "datasheet", "trtllm", "vllm"]


_LATER = ("deepseek-v3.1", "deepseek-v3.2", "glm-5", "glm-5.1", "glm-5.2", "glm-5.3")
_LATER += ("kimi-k2.5", "kimi-k2.6", "kimi-k2.7-code", "minimax-m2.7", "qwen3-next-80b-a3b")
_LATER += ("qwen3.5-122b-a10b", "qwen3.5-27b", "qwen3.5-35b-a3b", "qwen3.5-397b-a17b")
_LATER += ("qwen3.6-27b", "qwen3.6-35b-a3b", "qwen3.8-2.4t-a95b")
"""Architectures that came to ship after the first rows were drawn."""
_GEOMETRIES = ("gemma-4-26b-a4b", "gemma-4-31b", "mimo-v2-flash", "step-3.7-flash")
"""Those with two geometries of attention, which came after them."""
_STATE_SPACES = ("nemotron-3-nano-30b-a3b", "nemotron-3-super-120b-a12b")
_STATE_SPACES += ("nemotron-3-ultra-550b-a55b",)
"""Likewise, after those."""
_DELTA = ("glm-5.3-flash", "kimi-k3", "kimi-linear-48b-a3b")
"""Likewise, after those, with Kimi delta attention."""
_CONVOLUTIONS = ("lfm2-8b-a1b",)
"""Likewise, with short convolutions."""
_COMPRESSED = ("deepseek-v4-flash", "deepseek-v4-pro")
"""Likewise, with compressed attention."""
_ZERO_EXPERTS = ("longcat-flash",)
"""Likewise, with experts without weights."""
_BLOCKS = ("minimax-m3",)
"""Likewise, with block-sparse attention."""
_LIGHTNING = ("minimax-text-01",)
"""Likewise, with linear attention that has no delta rule."""
_SERVED = ("deepseek-v4.1-flash", "glm-4.6", "glm-4.7", "glm-4.7-flash", "hy3", "inkling")
_SERVED += ("inkling-2-small", "laguna-xs.2", "ling-3.0-flash", "ling-flash-2.0", "mimo-v2.5")
_SERVED += ("mimo-v2.5-pro", "mistral-large-3", "mistral-small-4")
_SERVED += ("nemotron-3.5-lightning-30b-a3b", "qwen3-14b", "qwen3-4b", "qwen3-8b")
_SERVED += ("qwen3-coder-30b-a3b", "qwen3-vl-30b-a3b", "qwen3.8-27b", "qwen3.8-flash-next")
"""Likewise, those that were served most in the autumn of 2026."""
_PREVIEWS = ("hy4-preview",)
"""Likewise, without a file of its own."""
_SMALL = ("qwen3-0.6b", "qwen3-1.7b")
"""Likewise, which draft for others."""
_AGAIN = _SMALL[::-1]
"""The same, on GPUs that came after them."""
_LATER_GPUS = {_SMALL: ("h20_141gb", "rtx_3090"), _AGAIN: NEWEST_GPUS}
"""GPUs that came with these."""
_GROUPS = (_GEOMETRIES, _STATE_SPACES, _DELTA, _CONVOLUTIONS, _COMPRESSED, _ZERO_EXPERTS, _BLOCKS)
_GROUPS += (_LIGHTNING, _SERVED, _PREVIEWS, _SMALL, _AGAIN)
_FIRST_ENGINES = ("ideal", "sglang", "vllm-moesd-2025")
"""Engines of the first rows; the others came later, and with them speeds of hosts."""
_HOSTS = ["", "0.5", "", "2", "1"]
_COUNTS = (200, 100, 60, 24, 30, 30, 12, 20, 12, 12, 12, 66, 6, 6, 20)
"""Rows of the first architectures, of the later ones, of the engines that came later, of groups."""


def _cases(targets, engines):
    """Combine all that there is, cycling lists whose lengths have few factors in common."""
    cycles = map(itertools.cycle, (_POINTS, _LAYOUTS, _DTYPES, _DRAFTERS, _ROUTINGS))
    later = {name for names in _LATER_GPUS.values() for name in names}
    first = [name for name in list_hardware() if name not in later]
    hardware = itertools.cycle(_LATER_GPUS.get(tuple(targets), first))
    is_later, hosts = not {*engines} & {*_FIRST_ENGINES}, itertools.cycle(_HOSTS)
    engines, stacks = itertools.cycle(engines), itertools.cycle(_STACKS)
    lookups, forms = itertools.cycle(_LOOKUPS), itertools.cycle(FORMS)
    is_narrow = itertools.cycle([True, False] if is_later else [True, False, False])
    for target, points, layout, dtypes, drafter, routing in zip(
        itertools.cycle(targets), *cycles, strict=False
    ):
        row = dict.fromkeys(GIVEN, "") | {"target": target, "drafter": drafter}
        row |= {"hardware": next(hardware), "engine": next(engines), "stack": next(stacks)}
        row |= dict(zip(DEPLOYED[5:8], map(str, layout), strict=True))
        lookup = next(lookups) if drafter == "ngram" else ""
        row |= dict(pair.split("=") for pair in f"{dtypes} {routing} {lookup}".split())
        batch_size, draft_length, context_length = map(str, points)
        row |= {"batch_size": batch_size, "draft_length": draft_length}
        if drafter in _MODELS and not _speak_alike(drafter, target):
            row["drafter"] = next((m for m in _MODELS if _speak_alike(m, target)), "eagle")
        row |= {"context_length": context_length} | _accepted(next(forms), int(draft_length))
        is_tree = row["form"] == "tokens_per_step" and int(draft_length) > 1
        row["verify_tokens"] = "24" if is_tree else ""
        row["host_speed"] = next(hosts) if is_later else ""
        row["tree_width"] = "4" if is_tree and is_later else ""
        row["interval"] = "1" if next(is_narrow) else ""
        row["max_draft_length"] = "7" if draft_length == "1" else ""
        yield row


def _speak_alike(drafter, target):
    draft_model, model = load_architecture(drafter), load_architecture(target)
    return draft_model.vocabulary_size == model.vocabulary_size


def _accepted(form, draft_length):
    length = draft_length or 4
    given = {
        "acceptance_rate": "0.7",
        "tokens_per_step": f"{1 + 0.5 * length}",
        "step_efficiency": f"{(1 + 0.6 * length) / (length + 1)}",
        "accepted_fraction": "0.45",
        "acceptance_by_position": " ".join(f"{0.9 - 0.05 * i:.2f}" for i in range(length + 2)),
    }[form]
    needs_length = draft_length == 0 and form not in ("acceptance_rate", "acceptance_by_position")
    measured = str(length) if needs_length else ""
    return {"form": form, "acceptance": given, "measured_draft_length": measured}


def _rows(targets, engines, count):
    """Yield so many rows with what is predicted for them."""
    left = count
    for row in _cases(targets, engines):
        try:
            numbers = predicted(row)
        except InputError as error:  # without what is at fault, or not at all
            row |= dict.fromkeys(error.argument.split(".")[:1] if error.argument in row else [], "")
            try:
                numbers = predicted(row)
            except InputError:
                continue
        assert all(isinstance(v, str) or not math.isinf(v) for v in numbers.values())
        yield row | dict.fromkeys(ENDS, "") | {n: str(v) for n, v in numbers.items()}
        left -= 1
        if not left:
            return


def write_rows():
    later = [name for name in list_engines() if name not in _FIRST_ENGINES]
    grouped = {name for names in (_LATER, *_GROUPS) for name in names}
    first = [name for name in list_architectures() if name not in (*_DRAFTERS, *grouped)]
    parts = [(first, _FIRST_ENGINES), (_LATER, _FIRST_ENGINES), (first, later)]
    parts += [(group, _FIRST_ENGINES) for group in _GROUPS]
    rows = [row for part, n in zip(parts, _COUNTS, strict=True) for row in _rows(*part, n)]
    with TABLE.open("w", encoding="utf-8") as file:
        file.write(HEAD)
        writer = csv.DictWriter(file, [*GIVEN, *PREDICTED, *ENDS], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    write_rows()
