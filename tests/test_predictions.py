"""Some 40 predicted operating points, so that no number moves unseen.

Where one moves on purpose, ``python tests/test_predictions.py`` writes the table anew, in the
commit that says why; CHANGELOG.md tells users under "Numbers that moved".
"""

import csv
import itertools
from pathlib import Path

import pytest

from specmodel import Acceptance, predict
from specmodel.assembly import assemble

TABLE = Path(__file__).parent / "data" / "predictions.csv"
HEAD = "# Predictions of this package: a drift alarm, no truth. See tests/test_predictions.py.\n"
GIVEN = ("target", "drafter", "hardware", "engine", "stack", "tensor_parallel", "expert_parallel")
GIVEN += ("weight_dtype", "proposal_rate", "popularity_exponent", "routing_correlation")
POINT = ("batch_size", "draft_length", "context_length", "acceptance_rate")
PREDICTED = ("active_experts_verify", "forward_time", "verify_time", "step_time", "speedup")
PREDICTED += ("target_efficiency", "tpot", "memory_bytes", "best_draft_length", "limited_by")
DEPLOYMENTS = [
    "qwen2-57b-a14b,qwen2-0.5b,a800_sxm_80gb,vllm,,2,,,,,",
    "qwen3-30b-a3b,eagle3,h200_sxm,sglang,,1,,,,,",
    "qwen3-30b-a3b,ngram,l40s,ideal,,2,,,0.4,,0",
    "mixtral-8x7b,ngram,rtx_6000_ada,vllm,,1,,fp8,1,,",
    "mixtral-8x7b,eagle,h100_sxm,ideal,datasheet,2,,,,,0.3",
    "deepseek-v3,mtp,b200,ideal,,1,16,,,,",
    "gpt-oss-120b,eagle3,h200_sxm,ideal,trtllm,1,,,,,",
    "olmoe-1b-7b,ngram,t4,ideal,,1,,fp16,1,0.7,",
    "llama-3.1-8b,llama-3.2-1b,l4,ideal,,1,,,,,",
    "opt-30b,opt-350m,a800_sxm_80gb,vllm,,2,,,,,",
]
POINTS = [(1, 1, 512, 0.8), (8, 3, 1024, 0.6), (64, 5, 4096, 0.7), (512, 2, 128, 0.4)]


def predicted(row):
    """Predict what a row of the table names."""
    given = {name: _number(row[name]) for name in GIVEN if row[name]}
    point = {name: int(row[name]) for name in POINT[:3]}
    rate = Acceptance(acceptance_rate=float(row["acceptance_rate"]))
    prediction = predict(**assemble(given), **point, acceptance=rate)
    return {name: getattr(prediction, name).item() for name in PREDICTED}


def _number(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def read_rows():
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def test_the_table_is_as_large_as_it_should_be():
    assert len(read_rows()) == len(DEPLOYMENTS) * len(POINTS) == 40


@pytest.mark.parametrize("row", read_rows(), ids=lambda row: f"{row['target']}-{row['batch_size']}")
def test_no_number_has_moved(row):
    for name, value in predicted(row).items():
        expected = row[name]
        if isinstance(value, str):
            assert value == expected
        else:
            assert value == pytest.approx(float(expected), rel=1e-6), name


def write_rows():
    rows = []
    for deployment, point in itertools.product(DEPLOYMENTS, POINTS):
        row = dict(zip(GIVEN, deployment.split(","), strict=True))
        row |= {name: str(value) for name, value in zip(POINT, point, strict=True)}
        numbers = predicted(row).items()
        row |= {n: v if isinstance(v, str) else f"{v:.9g}" for n, v in numbers}
        rows.append(row)
    with TABLE.open("w", encoding="utf-8") as file:
        file.write(HEAD)
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    write_rows()
