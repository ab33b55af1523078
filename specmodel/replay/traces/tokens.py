"""Token ids of requests from JSON lines, or from their texts with a local tokenizer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specmodel.base.errors import InputError
from specmodel.replay.traces.files import json_lines
from specmodel.replay.traces.ngram import TokenIds

ID_KEYS = ("prompt_token_ids", "output_token_ids")
TEXT_KEYS = ("prompt", "output")
BATCH = 256
"""Requests encoded at once: what the tokenizer returns takes far more memory than the ids."""


def read_tokens(
    path: str | Path, tokenizer: str | Path | None = None
) -> tuple[list[TokenIds], list[TokenIds]]:
    """Return prompts and outputs of a file of JSON lines, one request a line.

    Parameters
    ----------
    path
        The file. Each line has prompt_token_ids and output_token_ids, or with a tokenizer the
        texts prompt and output; other keys are left alone.
    tokenizer
        A tokenizer.json that encodes the texts, without adding special tokens. Ids that a text
        encodes to need not be those that were generated.

    Returns
    -------
    tuple of lists of ndarray
        Ids of the prompts and of the outputs.

    Raises
    ------
    InputError
        Names the line and the key at fault; nothing is skipped.
    """
    encoder = None if tokenizer is None else _load(tokenizer)
    keys = ID_KEYS if encoder is None else TEXT_KEYS
    check = _ids if encoder is None else _text
    places: list[str] = []
    prompts: list[Any] = []
    outputs: list[Any] = []
    for where, row in json_lines(path, "input"):
        _check_keys(row, keys, where)
        places.append(where)
        prompts.append(check(row[keys[0]], f"{where} {keys[0]}"))
        outputs.append(check(row[keys[1]], f"{where} {keys[1]}"))
    if not places:
        raise InputError("input", str(path), "at least one request")
    if encoder is not None:
        prompts, outputs = _encoded(encoder, prompts), _encoded(encoder, outputs)
    for where, output in zip(places, outputs, strict=True):
        if not len(output):
            expected = "at least one token, as there is nothing to replay"
            raise InputError(f"{where} {keys[1]}", "no tokens", expected)
    return prompts, outputs


def _check_keys(row: Any, keys: Sequence[str], where: str) -> None:
    if not isinstance(row, dict):
        raise InputError(where, row, f"an object with {' and '.join(keys)}")
    others = TEXT_KEYS if keys == ID_KEYS else ID_KEYS
    hints = {TEXT_KEYS: "--tokenizer FILE for texts", ID_KEYS: "no --tokenizer for token ids"}
    hint = f", or {hints[others]}" if any(key in row for key in others) else ""
    for key in keys:
        if key not in row:
            raise InputError(f"{where} {key}", None, f"this key to be given{hint}")


def _ids(values: Any, name: str) -> TokenIds:
    # the types are looked at, as an array would take true for 1
    if not isinstance(values, list) or not set(map(type, values)) <= {int}:
        wrong = [v for v in values if type(v) is not int] if isinstance(values, list) else [values]
        raise InputError(name, wrong[0], "a list of token ids, which are whole numbers")
    try:
        ids = np.array(values, dtype=np.int64)
    except OverflowError:
        ids = np.array([-1])
    if (ids < 0).any():
        raise InputError(
            name, next(v for v in values if not 0 <= v < 2**63), "token ids of at least 0"
        )
    return ids


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise InputError(name, value, "a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(name, value, f"a text in Unicode ({error.reason})") from None
    return value


def _load(path: str | Path) -> Any:
    """Return a tokenizer that neither pads nor cuts, whatever its file says."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        expected = "it to be installed: pip install 'specmodel[traces]'"
        raise InputError("tokenizer", "no package tokenizers", expected) from None
    try:
        encoder = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises nothing more special
        raise InputError("tokenizer", str(path), f"a tokenizer.json ({error})") from None
    encoder.no_padding()
    encoder.no_truncation()
    return encoder


def _encoded(encoder: Any, texts: Sequence[str]) -> list[TokenIds]:
    return [
        np.array(encoding.ids, dtype=np.int64)
        for start in range(0, len(texts), BATCH)
        for encoding in encoder.encode_batch(texts[start : start + BATCH], add_special_tokens=False)
    ]
