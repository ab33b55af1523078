"""Record exact look-ups in texts that are on most machines.

Usage: python calibration/recordings.py FOLDER ... [--collect | --write]. The texts are files of
Python's standard library, each written out again with one of its names changed, and texts of
licences, each continued after its first fifth. tables/recorded_files.csv lists them by the SHA-256
of their content. Files in the folders that are not in the list are skipped, and missing files of
the list are named. --collect writes the list. --write writes the traces that a notebook reads;
`recorded_judge.py` ranks policies on them. No model is needed, since the result of greedy decoding
is given.
"""

import csv
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from msgspec import Struct

from specmodel.core.base.errors import InputError
from specmodel.simulate.traces import Trace, ngram_trace

LIST = Path(__file__).parent / "tables/recorded_files.csv"
WRITTEN = Path(__file__).parents[1] / "notebooks/data"
KINDS = ("rename", "licence")
LOOK_UPS = {"1..3": (1, 3), "3..7": (3, 7)}
"""Fewest and most last tokens that are looked up [token]."""
MOST_PROMPT, MOST_OUTPUT, LEAST_OUTPUT = 6000, 1500, 100
"""Tokens that are kept of a prompt and of an output, and below which a file is left out [token]."""
MOST_PROPOSAL = 20
SIZES = {"rename": (3000, 60_000), "licence": (1500, 60_000)}
"""Sizes of files that are read [B]."""
PIECES = re.compile(r"[A-Za-z]{1,6}|[0-9]{1,3}|\n|[ \t]+|[^\sA-Za-z0-9]")
"""Pattern of a token: up to six letters or three digits, a mark, or blanks."""
NAMES = re.compile(r"^\s*(?:def|class) ([A-Za-z_]\w{3,})", re.M)
LICENCE = re.compile(r"^(licen[cs]e|copying)", re.I)


class Recorded(Struct, frozen=True):
    """A text of the list: its kind, name, digest and content."""

    kind: str
    name: str
    sha256: str
    text: str

    def request(self) -> tuple[str, str]:
        """Return prompt and output."""
        if self.kind == "licence":
            cut = len(self.text) // 5
            return self.text[:cut], self.text[cut:]
        counts = Counter(NAMES.findall(self.text))
        uses = {name: len(re.findall(rf"\b{name}\b", self.text)) for name in counts}
        name = max(sorted(uses), key=lambda each: uses[each])
        return self.text, re.sub(rf"\b{name}\b", f"renamed_{name}", self.text)


def found_in(folder: Path) -> Iterator[Recorded]:
    """Yield texts of a folder that could be recorded, whether they are in the list or not."""
    for path in sorted(folder.rglob("*")):
        is_module = path.suffix == ".py" and path.parent.name.startswith("python3")
        kind = "rename" if is_module else "licence"
        if not (is_module or LICENCE.match(path.name)) or not path.is_file():
            continue
        content = path.read_bytes()
        if not SIZES[kind][0] <= len(content) <= SIZES[kind][1]:
            continue
        try:
            text = content.decode()
        except UnicodeDecodeError:
            continue
        if kind == "rename" and not NAMES.search(text):
            continue
        name = path.name if is_module else f"{_package(path)}/{path.name}"
        yield Recorded(kind, name, hashlib.sha256(content).hexdigest(), text)


def _package(path: Path) -> str:
    """Return the package that a licence came with."""
    parts = [part for part in path.parts if part.endswith(".dist-info")]
    return parts[-1].removesuffix(".dist-info") if parts else path.parent.name


def collect(folders: list[Path]) -> None:
    """Write the list of all texts in some folders, each once."""
    unique = {each.sha256: each for folder in folders for each in found_in(folder)}
    rows = sorted((each.kind, each.sha256, each.name) for each in unique.values())
    with LIST.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["kind", "sha256", "name"])
        writer.writerows(rows)


def read_list() -> list[dict[str, str]]:
    with LIST.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def recorded(folders: list[Path]) -> dict[str, list[Recorded]]:
    """Return the texts of the list by kind, in its order."""
    known = {each.sha256: each for folder in folders for each in found_in(folder)}
    rows = read_list()
    missing = [row["name"] for row in rows if row["sha256"] not in known]
    if missing:
        expected = f"folders with all files of {LIST.name}; {missing[0]} is not there"
        raise InputError("folders", f"{len(missing)} files short", expected)
    texts = [known[row["sha256"]] for row in rows]
    return {kind: [each for each in texts if each.kind == kind] for kind in KINDS}


def half(texts: list[Recorded], number: int) -> list[Recorded]:
    """Return every second text in the order of digests, which have nothing to do with texts."""
    return texts[number::2]


def trace_of(texts: list[Recorded], look_up: str) -> Trace:
    """Return the exact trace of a look-up in some texts, whose names are in its metadata."""
    ids: dict[str, int] = {}
    prompts, outputs, names = [], [], []
    for each in texts:
        prompt, output = (
            np.array([ids.setdefault(piece, len(ids)) for piece in PIECES.findall(part)])
            for part in each.request()
        )
        if len(output) >= LEAST_OUTPUT:
            prompts.append(prompt[:MOST_PROMPT])
            outputs.append(output[:MOST_OUTPUT])
            names.append(each.name)
    least, most = LOOK_UPS[look_up]
    return ngram_trace(
        prompts, outputs, min_ngram=least, max_ngram=most, max_proposal=MOST_PROPOSAL,
        metadata={"texts": "\n".join(names)},
    )  # fmt: skip


def write_table(trace: Trace, path: Path) -> None:
    """Write a trace as a table with a row for each position, its metadata in the file's head."""
    lengths, prompts = trace.output_tokens, np.asarray(trace.prompt_tokens, np.int32)
    columns = {
        "request": np.repeat(np.arange(trace.num_requests, dtype=np.int16), lengths),
        "prompt_tokens": np.repeat(prompts, lengths),
        "proposed_tokens": trace.proposed_tokens,
        "accepted_tokens": trace.accepted_tokens,
    }
    table = pd.DataFrame(columns)
    table.attrs.update(trace.metadata)
    table.to_parquet(path, compression="zstd")


def main(words: list[str]) -> None:
    folders = [Path(word) for word in words if not word.startswith("--")]
    if "--collect" in words:
        collect(folders)
        return
    texts = recorded(folders)
    for kind in KINDS:
        for look_up in LOOK_UPS:
            trace = trace_of(texts[kind], look_up)
            if "--write" in words:
                write_table(trace, WRITTEN / f"{kind}_{look_up.replace('..', '_')}.parquet")
            print(f"{kind}, {look_up}: {trace.num_requests} requests,"
                  f" {len(trace.accepted_tokens)} tokens")  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
