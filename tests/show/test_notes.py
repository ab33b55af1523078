"""Each kind of note that the core returns has words, and each kind that has words is returned."""

import re
from pathlib import Path

import specmodel
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
