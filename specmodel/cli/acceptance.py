"""``specmodel acceptance``: read acceptance from a running engine, or from its benchmarks."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from itertools import chain
from pathlib import Path

import click

from specmodel.calibrate import measure
from specmodel.cli.output import answering
from specmodel.cli.settings import command, own
from specmodel.core.base.errors import InputError, refuse_given
from specmodel.core.base.files import check_readable, refusing
from specmodel.show import calibrated
from specmodel.show.forms import Answer

_KNOWN = (
    "a log with SpecDecoding metrics (vLLM), MTP Stats (ATOM), accept len (SGLang) or draft"
    " acceptance (llama.cpp), a printed acceptance length, lengths by number drafted, metrics with"
    " vllm:spec_decode_* or sglang:spec_accept_length, JSON"
)

_MOST, _BLOCK = 210_000_000, 4_000_000
"""Largest size of a log, and of a line or a scrape [B]."""


@command()
@click.argument("file", required=False)
@click.argument("later", required=False)
@own("model", "NAME", "The model_name to read, if the metrics contain several models.")
@answering(rows=None)
def acceptance(file: str | None, later: str | None, model: str | None, **_forms: bool) -> Answer:
    """Read acceptance from a log, a benchmark result or metrics, for use in predict.

    Acceptance is how many drafted tokens the target keeps. Acceptance can come from five sources.
    FILE may be - for standard input.

    \b
    1. A running vLLM server with speculation. While the server has traffic, save
       its metrics twice, a few minutes apart. The command compares the two files:
         curl -s http://localhost:8000/metrics > before.prom
         curl -s http://localhost:8000/metrics > after.prom
         specmodel acceptance ./before.prom ./after.prom
       vLLM counts only steps with a draft. With ngram and suffix, other steps
       have none: each of them emits one of the tokens that the drafts do not
       explain.
    2. Benchmark results: vllm bench serve --save-result (vLLM 0.14 or newer),
       SGLang's bench_serving --output-file, trtllm-bench, evalscope, GuideLLM or
       AIPerf (both need a vLLM server started with
       --per-request-spec-decode-metrics summary), or InferenceX rows that
       include tokens per step:
         specmodel acceptance ./eagle3.json
       To compare benchmark runs with predictions, use specmodel fit engine.
    3. Logs: "SpecDecoding metrics" of vLLM, "accept len" of SGLang, lines of
       llama.cpp, "MTP Stats" of ATOM, iterations of TensorRT-LLM. Several log
       lines are averaged. FILE may also be the printed table of a benchmark, a
       server's responses with counts of drafted tokens, or SGLang's /metrics:
         grep -E "throughput|SpecDecoding" server.log | specmodel acceptance -
    4. InferenceX's YAML of tokens per step by draft length. Each table becomes
       acceptance rates for all draft lengths of the table.
    5. Published values, which specmodel list acceptance shows. Without an
       acceptance option, predict uses the published value for your target and
       drafter, if there is one.
    """
    if file is None:
        told = click.get_current_context().get_help()
        return Answer(page=lambda: told, fields={"how": told})
    for path in (file, later):
        if path and "://" in path:
            url = path.rstrip("/").removesuffix("/v1").removesuffix("/metrics")
            raise InputError("file", path, f"a saved scrape: curl -s {url}/metrics > run.prom")
    if file != "-" and _is_result(file):
        try:
            return _of_benchmarks([file] if later is None else [file, later])
        except InputError:  # an answer of a server, unless it is none either
            if later or not (found := measure.logged_acceptance(_blocks(file), file)):
                raise
            return calibrated.of_counts(found)
    return _of_text(file, later, model)


def _of_text(file: str, later: str | None, model: str | None) -> Answer:
    """Return the acceptance in a log, a printed result, or scrapes of a server."""
    where, blocks = "standard input" if file == "-" else file, _blocks(file)
    text, more = next(blocks), next(blocks, "")
    is_log = not later and Path(where).suffix not in (".yaml", ".yml")
    found = measure.logged_acceptance(chain([text, more], blocks), where) if is_log else None
    if found is not None:
        refuse_given({"model": model}, ["model"], "Only scrapes of vLLM name models. Remove it.")
        return calibrated.of_counts(found)
    if later == "-":
        raise InputError("later", later, "a path: only the first scrape can be standard input (-)")
    if later is None and "\nvllm:" not in f"\n{text}":
        if tables := measure.lengths_by_table(text, where):
            refuse_given({"model": model}, ["model"], "All tables are shown. Remove `model`.")
            return calibrated.of_lengths(tables)
        if file != "-" and _has_times(file):
            return _of_benchmarks([file])
        raise InputError("file", file, _KNOWN)
    if more:
        raise InputError("file", file, "a scrape of at most 4 MB")
    return calibrated.of_counts(measure.scraped_acceptance(file, later, model, text=text))


def _blocks(path: str) -> Iterator[str]:
    """Yield a file, or standard input, in blocks of whole lines that fit in memory."""
    rest, size = "", 0
    with (
        refusing(path, "file", "a text in UTF-8"),
        nullcontext(sys.stdin) if path == "-" else Path(path).open(encoding="utf-8") as file,
    ):
        while len(block := rest + file.read(_BLOCK - len(rest))) == _BLOCK:
            size += _BLOCK
            whole, line_end, rest = block.rpartition("\n")
            if not line_end or size > _MOST:
                raise InputError("file", path, "a text of at most 210 MB, in lines of at most 4 MB")
            yield whole + line_end
        yield block


def _is_result(path: str) -> bool:
    """Return whether a file is the result of a benchmark: JSON, or a table by its suffix."""
    check_readable(Path(path), "file", "text")
    with refusing(path, "file", "a readable text file"), Path(path).open("rb") as file:
        start = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    is_json = start.startswith(b"{") or (start[:1] == b"[" and start[1:].lstrip()[:1] in b"{")
    if is_json and b'"specDecodingStats"' in start:  # of iterations, whose sums tell more
        return False
    return is_json or Path(path).suffix in (".csv", ".parquet")  # logs begin with [2026-...


def _has_times(path: str) -> bool:
    """Return whether a text is a benchmark's table."""
    from specmodel.calibrate.fit.measured import read_benchmarks

    with suppress(InputError):
        return bool(read_benchmarks([path]))
    return False


def _of_benchmarks(paths: Sequence[str]) -> Answer:
    """Return the acceptance of the runs in result files that drafted."""
    from specmodel.calibrate.fit.measured import read_benchmarks

    runs = read_benchmarks(paths)
    drafted = [run for run in runs if run.is_speculative]
    if not drafted:
        untold = [run.draft_note for run in runs if run.may_draft]
        expected = "a run with counts of drafts: vLLM 0.14 or newer, SGLang, trtllm-bench, or"
        expected += " GuideLLM or AIPerf with vLLM's --per-request-spec-decode-metrics"
        raise InputError("file", ", ".join(paths), "; ".join([expected, *untold[:1]]))
    return calibrated.of_benchmarks(drafted)
