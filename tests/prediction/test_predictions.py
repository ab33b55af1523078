"""Hundreds of predicted operating points, so that no number moves unseen.

They cover every architecture, drafter, layout, dtype, engine, form of acceptance, interval and
tree. Where one moves on purpose, ``PYTHONPATH=tests python tests/prediction/test_predictions.py``
writes the table anew, in the commit that says why; CHANGELOG.md tells users under "Numbers that
moved". The columns up to `interval` are the arguments, the others are predicted.
"""

import csv

import pytest
from published_tables import DATA, read_table
from rows import slow

from specmodel import Acceptance, list_architectures, list_engines, list_hardware
from specmodel.core.cost import resolve
from specmodel.core.prediction import predict_deployed

TABLE = "predictions.csv"
HEAD = "# Predictions of this package: a drift alarm, no truth, by test_predictions.py.\n"


def predicted(row):
    """Predict what a row of the table names, in its columns behind `interval`."""
    names = [*row]
    first, end = names.index("batch_size"), names.index("interval") + 1
    deployed, point = (
        {name: _value(row[name]) for name in part if row[name]}
        for part in (names[:first], names[first:end])
    )
    form = {point.pop("form"): point.pop("acceptance")}
    measured = point.pop("measured_draft_length", None)
    acceptance = Acceptance(**form, measured_draft_length=measured)
    prediction = predict_deployed(*resolve(deployed), **point, acceptance=acceptance)
    values = {}
    for name in names[end:]:
        of_interval, _, side = name.rpartition("_")
        if side not in ("low", "high"):
            values[name] = getattr(prediction, name).item()
        elif prediction.intervals:
            values[name] = getattr(prediction.intervals[of_interval], side).item()
    return values


def _value(text):
    """Return a number or a list of numbers as such, other texts as they are."""
    try:
        values = [int(each) if each.isdigit() else float(each) for each in text.split(" ")]
    except ValueError:
        return text
    return values if " " in text else values[0]


def test_the_table_covers_all_that_ships():
    rows = read_table(TABLE)
    assert len(rows) >= 610
    for name, known in SHIPPED.items():
        assert known <= {row[name] for row in rows}, name


@pytest.mark.parametrize("step", [3, *slow(1)])
def test_no_number_has_moved(step):
    for row in read_table(TABLE)[::step]:
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
    rows = read_table(TABLE)
    for name in ("target", "hardware", "engine"):
        lacking = sorted(SHIPPED[name] - {row[name] for row in rows})
        rows += [rows[0] | {"drafter": "ngram", name: own} for own in lacking]
    with (DATA / TABLE).open("w", encoding="utf-8") as file:
        file.write(HEAD)
        writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | predicted(row) for row in rows)


if __name__ == "__main__":
    write_rows()
