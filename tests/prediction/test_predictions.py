"""Hundreds of predicted operating points, so that no number moves unseen.

They cover every architecture, drafter, layout, dtype, engine, form of acceptance, interval and
tree. Where one moves on purpose, ``python tests/prediction/test_predictions.py`` writes the table
anew, in the commit that says why; CHANGELOG.md tells users under "Numbers that moved".
"""

import csv
from pathlib import Path

import pytest
from rows import slow

from specmodel import Acceptance, list_architectures, list_engines, list_hardware
from specmodel.core.cost import resolve
from specmodel.core.prediction import predict_deployed

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
    form = {row["form"]: given if row["form"] == "acceptance_by_position" else given[0]}
    measured = row["measured_draft_length"]
    acceptance = Acceptance(**form, measured_draft_length=int(measured) if measured else None)
    interval = bool(row["interval"])
    point |= {"acceptance": acceptance, "interval": interval}
    prediction = predict_deployed(*resolve(deployed), **point)
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
    assert len(rows) >= 610
    for name, known in SHIPPED.items():
        assert known <= {row[name] for row in rows}, name


@pytest.mark.parametrize("step", [3, *slow(1)])
def test_no_number_has_moved(step):
    for row in read_rows()[::step]:
        for name, value in predicted(row).items():
            if isinstance(value, str):
                assert value == row[name]
            else:
                known = pytest.approx(float(row[name]), rel=1e-12, nan_ok=True)
                assert value == known, (row, name)


SHIPPED = {"target": {*list_architectures()} - {"opt-350m", "llama-3.2-1b"}}
SHIPPED |= {"hardware": {*list_hardware()}, "engine": {*list_engines()}}
SHIPPED["drafter"] = {"ngram", "eagle3", "mtp", "eagle", "parallel", "opt-350m", "qwen2-0.5b"}
FORMS = "acceptance_rate tokens_per_step step_efficiency accepted_fraction acceptance_by_position"
SHIPPED |= {"form": set(FORMS.split())}


def write_rows():
    """Predict all rows anew, and one more of each name that the table lacks."""
    rows = read_rows()
    usual = {name: rows[0][name] for name in GIVEN}
    for name in ("target", "hardware", "engine"):
        lacking = sorted(SHIPPED[name] - {row[name] for row in rows})
        rows += [usual | {"drafter": "ngram", name: own} for own in lacking]
    with TABLE.open("w", encoding="utf-8") as file:
        file.write(HEAD)
        writer = csv.DictWriter(file, [*GIVEN, *PREDICTED, *ENDS], "", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            numbers = {name: str(value) for name, value in predicted(row).items()}
            writer.writerow({name: row[name] for name in GIVEN} | numbers)


if __name__ == "__main__":
    write_rows()
