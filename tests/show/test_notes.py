"""Each kind of note that the core returns has words, and each kind that has words is returned."""

import re
from pathlib import Path

import specmodel
from specmodel import predict
from specmodel.base.notes import Note
from specmodel.show import notes

SOURCES = [
    path.read_text(encoding="utf-8")
    for path in Path(specmodel.__file__).parent.rglob("*.py")
    if path != Path(notes.__file__)
]


def test_kinds_are_those_that_have_words():
    made = {kind for text in SOURCES for kind in re.findall(r'\bNote\(\s*"(\w+)"', text)}
    assert len(made) > 15
    assert made <= notes._WORDS.keys()
    assert all(any(f'"{kind}"' in text for text in SOURCES) for kind in notes._WORDS)


def test_a_prediction_has_its_warnings_as_data():
    p = predict("mixtral-8x7b", "h100_sxm", drafter="ngram", acceptance=0.4, batch_size=[1, 10**6])
    (note,) = (note for note in p.notes if note.kind == "beyond_memory")
    assert note.values["batch_size"] == 10**6
    assert note == Note("beyond_memory", dict(note.values))
    assert str(note).startswith("batch size 1000000 needs ")
    assert p.warnings == tuple(map(str, p.notes))
    assert p.assumptions["gpus"].values["count"] == p.deployment.layout.num_gpus
    assert str(p.assumptions["gpus"]).startswith(f"{p.deployment.layout.num_gpus} (the fewest that")
