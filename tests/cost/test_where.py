"""What runs where, as it was named: one record for the same names, and words that end there."""

from msgspec.structs import replace
from printed import refused

from specmodel.core.cost.usual import deployed
from specmodel.core.cost.where import Manner, Where, where_of
from specmodel.core.models.architecture import load_architecture
from specmodel.core.prediction.case import case_of

NAMES = {"target": "mixtral-8x7b", "hardware": "2xh100_sxm", "tensor_parallel": 2}


def test_the_same_names_are_the_same_record_and_keep_their_deployment():
    where = where_of(NAMES)
    assert where is where_of({**NAMES})
    assert deployed(where)[0] is deployed(where)[0]
    assert deployed(where)[0] is not deployed(where, (1, 1024))[0]
    others = [
        where_of({**NAMES, "tensor_parallel": 2.0}),  # which is not the int
        where_of(NAMES, Manner(is_drafting=False)),
        where_of({**NAMES, "target": load_architecture("mixtral-8x7b")}),
    ]
    assert all(other is not where for other in others)


def test_a_file_is_read_again_each_time(tmp_path):
    path = tmp_path / "config.json"
    named = {**NAMES, "target": str(path)}
    assert where_of(named) is not where_of(named)


def test_words_end_in_fields_of_the_record():
    changes = ["target.experts_per_token=4", "temperature=1", "lookup_time=2ms"]
    where = where_of({**NAMES, "drafter": "ngram", "changes": changes})
    assert (where.named["hardware"], where.num_gpus) == ("h100_sxm", 2)
    assert where.what_ifs["target"] == {"experts_per_token": 4}
    assert where.changed == "target.experts_per_token=4"
    assert (where.named["temperature"], where.named["lookup_time"]) == (1, 2e-3)
    other = where.naming(temperature=0.5)
    assert (other.named["temperature"], where.named["temperature"]) == (0.5, 1)


def test_how_a_question_is_asked_is_no_argument_of_it():
    for name in ("names", "may_not_fit", "is_drafting", "engine.state_slots"):
        refused(f"^{name}: ", case_of, {**NAMES, name: True})


def test_a_case_elsewhere_is_the_case_of_other_names():
    case = case_of({**NAMES, "acceptance": 0.7})
    other = case.elsewhere(num_gpus=4, named={**case.where.named, "tensor_parallel": 4})
    same = case_of({**NAMES, "hardware": "4xh100_sxm", "tensor_parallel": 4, "acceptance": 0.7})
    assert (other.deployment.layout, other.assumed) == (same.deployment.layout, same.assumed)
    assert isinstance(replace(other.where, force=True), Where)
