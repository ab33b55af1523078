"""Look up published answers exactly, and write traces of the results without the texts.

Usage: python calibration/answer_traces.py FOLDER [--write]. FOLDER contains clones of the
repositories in tables/answers.toml, by name (ZeroEval, human-eval, ...). The script needs
`pip install mistral-common sentencepiece`, which ship Mixtral's tokenizer. --write writes
results/answers/*.parquet.

With greedy decoding, an answer does not depend on the drafts. Its text therefore determines what a
look-up proposes at each position, and how much of the proposal is accepted. The look-up is that of
vLLM 0.6.6 with ``ngram_prompt_lookup_max=3``: the last 3, 2 and 1 tokens, the first match, and
proposals filled up with the last token (`ngram_trace`). It searches only the request: its prompt,
earlier turns and the answer so far.
"""

import gzip
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from msgspec.structs import replace

from program import carry_out
from recordings import write_table
from specmodel.cli.settings import SETTINGS
from specmodel.core.base.errors import InputError
from specmodel.simulate.traces import Trace, join_traces, ngram_trace, read_trace

SOURCES = Path(__file__).parent / "tables/answers.toml"
FOLDER = Path(__file__).parent / "results/answers"
TOKENIZER = "tokenizer.model.v1"
"""File of mistral-common, of Mixtral-8x7B-Instruct and of Mistral-7B-Instruct-v0.2."""
BEGINNING, END = 1, 2
"""Ids of the tokens before a conversation and behind an answer [-]."""
MOST_PROPOSAL = 20

Encode = Callable[[str], list[int]]
Turns = Sequence[tuple[str, str]]
"""A conversation: the prompt, and the answer."""
Requests = tuple[list[list[int]], list[list[int]]]
"""Token ids of prompts and of answers [-]."""


def sources() -> dict[str, dict[str, Any]]:
    """Return where each trace comes from, by its name."""
    return tomllib.loads(SOURCES.read_text(encoding="utf-8"))


def conversations(form: str, files: Sequence[bytes]) -> list[Turns]:
    """Return the conversations of a repository's files, in its own form."""
    if form in ("zero_eval", "alpaca_eval"):
        rows = json.loads(files[0])
        if form == "alpaca_eval":
            return [[(row["instruction"], row["output"])] for row in rows]
        return [[(row["chat_history"][0], row["output"][0])] for row in rows]
    if form == "can_ai_code":
        return [[(row["prompt"].removeprefix("<s>"), row["answer"])] for row in _lines(files[0])]
    if form == "mt_bench":
        answers = {row["question_id"]: row["choices"][0]["turns"] for row in _lines(files[1])}
        asked = [row for row in _lines(files[0]) if row["category"] == "extraction"]
        return [list(zip(q["turns"], answers[q["question_id"]], strict=True)) for q in asked]
    rows = _lines(gzip.decompress(files[0]))
    if form == "human_eval_bare":
        return [[(row["prompt"], row["canonical_solution"])] for row in rows]
    return [
        [
            (
                f"Complete the following Python function:\n```python\n{row['prompt']}```",
                f"```python\n{row['prompt']}{row['canonical_solution']}```",
            )
        ]
        for row in rows
    ]


def tokenised(conversations: Sequence[Turns], encode: Encode, *, is_chat: bool) -> Requests:
    """Return a request for each turn, whose prompt is all that comes before."""
    prompts, answers = list[list[int]](), list[list[int]]()
    for turns in conversations:
        context = [BEGINNING]
        for asked, answer in turns:
            context = context + encode(f"[INST] {asked} [/INST]" if is_chat else asked)
            ids = [*encode(answer), END]
            prompts.append(context)
            answers.append(ids)
            context = context + ids
    return prompts, answers


def looked_up(requests: Requests, metadata: Mapping[str, str] | None = None) -> Trace:
    """Return the trace of a look-up as vLLM 0.6.6 did it, of 1 to 3 tokens."""
    return ngram_trace(
        *requests, min_ngram=1, max_ngram=3, match="first", max_proposal=MOST_PROPOSAL,
        is_filled=True, metadata=metadata,
    )  # fmt: skip


def answers_trace(name: str, num_requests: int, output_tokens: int) -> Trace:
    """Return requests of a trace that is kept, over and over in their order.

    Answers end after so many tokens.
    """
    kept = read_trace(FOLDER / f"{name}.parquet")
    each = [_cut(kept.part(i, i + 1), output_tokens) for i in range(kept.num_requests)]
    return join_traces([each[i % len(each)] for i in range(num_requests)])


def _cut(request: Trace, output_tokens: int) -> Trace:
    length = min(int(request.output_tokens[0]), output_tokens)
    left = np.arange(length, 0, -1)
    return replace(
        request,
        proposed_tokens=request.proposed_tokens[:length],
        accepted_tokens=np.minimum(request.accepted_tokens[:length], left).astype(np.uint8),
        output_tokens=np.array([length]),
    )


def _lines(content: bytes) -> list[Any]:
    return [json.loads(line) for line in content.splitlines() if line.strip()]


def _file(repository: Path, commit: str, path: str) -> bytes:
    """Return a file of a clone at a commit."""
    words = ["git", "-C", str(repository), "show", f"{commit}:{path}"]
    done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode:
        expected = f"a clone of the repository, with commit {commit[:7]}"
        raise InputError("folder", str(repository), expected)
    return done.stdout


def _encoder() -> Encode:
    """Return the tokenizer of Mixtral-8x7B-Instruct, which a package ships."""
    from importlib import resources

    import sentencepiece  # type: ignore[import-not-found] # no extra has it

    model = resources.files("mistral_common") / "data" / TOKENIZER
    encode: Encode = sentencepiece.SentencePieceProcessor(model_file=str(model)).encode
    return encode


@click.command("answer_traces", context_settings=SETTINGS)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--write", "is_written", is_flag=True, help="Write results/answers.")
def main(folder: Path, is_written: bool) -> None:
    """Look up published answers, and print or keep what the look-ups find."""
    encode = _encoder()
    for name, source in sources().items():
        clone = folder / source["repository"].rsplit("/", 1)[-1]
        files = [_file(clone, source["commit"], path) for path in source["paths"]]
        found = conversations(source["format"], files)[: source["most"]]
        is_chat = source["format"] not in ("human_eval_bare", "can_ai_code")
        said = {key: str(source[key]) for key in ("task", "model", "repository", "commit")}
        said |= {"licence": source["licence"], "tokenizer": f"mistral-common, {TOKENIZER}"}
        trace = looked_up(tokenised(found, encode, is_chat=is_chat), said)
        if is_written:
            write_table(trace, FOLDER / f"{name}.parquet")
        share = float((trace.proposed_tokens > 0).mean())
        click.echo(
            f"{name}: {trace.num_requests} requests, {len(trace.proposed_tokens)} tokens,"
            f" {share:.0%} of positions with a proposal"
        )


if __name__ == "__main__":
    sys.exit(carry_out(main))
