"""``specmodel acceptance``: acceptance read off a running engine, or its benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from specmodel import measure
from specmodel.base.errors import InputError
from specmodel.cli.answering import answering
from specmodel.cli.settings import command, own
from specmodel.show import accepted
from specmodel.show.forms import Answer


@command()
@click.argument("file", required=False)
@click.argument("later", required=False)
@own("model", "NAME", "Which model_name, where there are several.")
@answering(rows=None)
def acceptance(file: str | None, later: str | None, model: str | None, **_forms: bool) -> Answer:
    """Read acceptance off a running vLLM or a benchmark's result, ready for predict.

    FILE is what `vllm bench serve --save-result`, SGLang's `bench_serving --output-file`, GuideLLM
    or AIPerf wrote, or a saved scrape of vLLM's metrics; with LATER, what was counted between two
    scrapes. The counters hold steps that had a draft only: an n-gram look-up that proposes nothing
    is not in them, so give predict its --proposal-rate as well.

    \b
    Examples:
      specmodel acceptance ./eagle3.json
      curl -s http://localhost:8000/metrics > before.prom
      curl -s http://localhost:8000/metrics > after.prom
      specmodel acceptance ./before.prom ./after.prom
    """
    if file is None:
        return Answer(page=lambda: accepted.HOW, fields=lambda: {"how": accepted.HOW})
    for path in (file, later):
        if path == "-" or (path and "://" in path):
            url = "http://localhost:8000" if path == "-" else path.rstrip("/").removesuffix("/v1")
            url = f"{url.removesuffix('/metrics')}/metrics"
            raise InputError("file", path, f"a saved scrape: curl -s {url} > run.prom")
    if _is_result(file):
        return _of_benchmarks([file] if later is None else [file, later])
    return accepted.of_scrape(measure.scraped_acceptance(file, later, model))


def _is_result(path: str) -> bool:
    """Return whether a file is a benchmark's result: JSON, or a table by its name."""
    from specmodel.base.files import check_readable, refusing

    check_readable(Path(path), "scrape", "text")
    with refusing(path, "scrape", "a readable text file"), Path(path).open("rb") as file:
        start = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    return start in (b"{", b"[") or Path(path).suffix in (".csv", ".parquet")


def _of_benchmarks(paths: Sequence[str]) -> Answer:
    """Return the acceptance of the runs in result files that drafted."""
    from specmodel.fit.measured import read_benchmarks

    runs = read_benchmarks(paths)
    drafted = [run for run in runs if run.is_speculative]
    if not drafted:
        untold = [run.draft_note for run in runs if run.may_draft]
        expected = "a run that counts drafts: of vLLM 0.14 or newer, of SGLang, or of GuideLLM or"
        expected += " AIPerf with vLLM's --per-request-spec-decode-metrics"
        raise InputError("file", ", ".join(paths), "; ".join([expected, *untold[:1]]))
    return accepted.of_benchmarks(drafted, paths)
