"""Names as people type them, looked up among what ships: for commands and the page alike."""

import os

from specmodel.base.naming import cached_snapshot, counted, is_id, is_local, known_name
from specmodel.drafters.by_name import list_drafters
from specmodel.machines.hardware import full_name, known_hardware
from specmodel.models.architecture import list_architectures
from specmodel.models.checkpoints import checkpoint


def looked_up(argument: str, word: str, notes: list[str]) -> str:
    """Return a shipped name, a path, or the word as it is; append notes on the name to `notes`.

    >>> looked_up("target", "llama-3.3-70b", []), looked_up("hardware", "8xh200", [])
    ('llama-3.1-70b', '8xh200_sxm')
    """
    is_gpu = argument == "hardware"
    known = known_hardware() if is_gpu else list_architectures()
    if is_gpu and (count := counted(word))[0]:  # one of several
        return f"{count[0]}x{looked_up(argument, count[1], notes)}"
    if argument == "drafter" and word.partition(":")[0] in list_drafters():
        return word
    full = full_name(word, known) if is_gpu else word
    if "/" not in word and (name := known_name(full, known, argument)):
        if name != word and os.path.isdir(word):  # noqa: PTH112 - a plain word
            notes.append(f"{word}: the shipped {name}; ./{word} is the folder")
        return name
    if "/" not in word and os.path.lexists(word):
        return f"./{word}"
    if is_id(word) and os.path.lexists(word) and cached_snapshot(word):
        notes.append(f"{word}: the folder here, not the model of that id in the local cache")
    shipped, dtype = (None if is_local(word) else checkpoint(word, known)) or (word, "")
    if shipped != word and shipped not in word.lower().replace("_", "-"):
        notes.append(f"{word}: taken as {shipped}, whose shape it has")
    return word if dtype else shipped
