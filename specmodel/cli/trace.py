"""``specmodel trace``: make and describe acceptance traces, which ``--trace`` names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from specmodel.cli.helping import WholeList
from specmodel.cli.settings import check_free, options_of
from specmodel.core.base.errors import InputError
from specmodel.core.base.text import wrap
from specmodel.core.prediction.table import Column
from specmodel.show.columns import of_table
from specmodel.show.forms import text_table
from specmodel.show.glossary import PAGES
from specmodel.simulate import traces


@click.group(cls=WholeList)
def trace() -> None:
    """Make and describe acceptance traces, which list the accepted tokens at each output position.

    A trace is a JSONL file with a request in each line. The key accepted_tokens lists how many
    tokens the target accepts from a draft that starts at each output position. All other keys of a
    request are optional. proposed_tokens lists how many tokens the drafter proposes at each
    position; the default is the largest number that is ever accepted. prompt_tokens is the prompt's
    length. Give accepted_tokens_at_3 if a draft of 3 tokens is not the start of a longer draft, as
    with block drafters.

    A line of a trace may be only the list of accepted tokens. The header line, which `trace sample`
    writes, is optional. A trace may also be a CSV or Parquet file with a row for each output
    position and the columns request and accepted_tokens.

    \b
    Examples:
      specmodel trace ngram ./requests.jsonl --output ./ngram.jsonl
      specmodel trace describe code-ngram
    """


@trace.command()
@click.argument("input_", metavar="INPUT.jsonl")
@options_of("ngram")
def ngram(input_: str, output: str, ngram: str, overwrite: bool, **options: Any) -> None:
    """Compute the exact acceptance trace of a prompt-lookup drafter.

    The command needs no model and no GPU. Each line of INPUT.jsonl is a request with
    prompt_token_ids and output_token_ids of greedy decoding. The benchmark from which the n-gram
    presets come looks up the last 7 to 3 tokens. In predict, give the share of steps in which the
    drafter proposes tokens as --proposal-rate.

    \b
    Example:
      specmodel trace ngram ./requests.jsonl --ngram 2:5 --match last \\
          --output ./ngram.jsonl
    """
    from specmodel.simulate.traces.files import check_written

    check_written(output)
    check_free(output, input_, overwrite=overwrite)
    found = re.fullmatch(r"([1-9]\d{0,3}):([1-9]\d{0,3})", ngram)
    if found is None or int(found[1]) > int(found[2]):
        raise InputError("ngram", ngram, "two whole numbers from 1, the larger last, such as 3:5")
    options |= {"min_ngram": int(found[1]), "max_ngram": int(found[2])}
    prompts, outputs = traces.read_tokens(input_)
    made = traces.ngram_trace(prompts, outputs, metadata={"source": Path(input_).name}, **options)
    traces.write_trace(made, output)
    click.echo(f"{_statistics_table([(Path(output).name, traces.trace_statistics(made))])}\n")
    sizes = "the last {max_ngram} to {min_ngram} tokens, {match} match".format(**options)
    click.echo(f"Look-up of {sizes}, at most {made.max_draft_length} proposed")
    click.echo(f"{made.num_requests} requests, {len(made.proposed_tokens)} output tokens")
    click.echo(f"Written: {output}")


@trace.command()
@click.argument("preset")
@options_of("sample")
def sample(
    preset: str, output: str, requests: int, output_tokens: int, seed: int, overwrite: bool
) -> None:
    """Draw a random trace from a preset, or from a TOML file with the fields of a preset.

    \b
    Example:
      specmodel trace sample code-ngram --requests 100 --output ./code.jsonl
    """
    from specmodel.simulate.traces.files import check_written

    check_written(output)
    check_free(output, preset, overwrite=overwrite)
    traces.write_trace(_drawn(preset, requests, output_tokens, seed), output)
    click.echo(f"{requests} requests of {output_tokens} tokens\nWritten: {output}")


@trace.command()
@click.argument("names", metavar="FILE|PRESET...", nargs=-1, required=True)
def describe(names: tuple[str, ...]) -> None:
    """Show the tokens per step of traces or presets, and how accepted tokens cluster.

    For a preset, the command draws 1000 requests of 512 tokens and compares them with the published
    measurement.

    \b
    Example:
      specmodel trace describe code-ngram math-ngram
    """
    from specmodel.simulate.traces.files import SUFFIXES

    rows = []
    for name in names:
        is_file = Path(name).suffix in SUFFIXES
        trace = traces.read_trace(name) if is_file else _drawn(name, 1000, 512, 0)
        rows.append((Path(name).name, traces.trace_statistics(trace)))
        measured = None if is_file else traces.load_preset(name).measured
        if measured is not None:
            rows.append(("  measured", measured))
    click.echo(_statistics_table(rows))


def _statistics_table(rows: list[tuple[str, traces.statistics.TraceStatistics]]) -> str:
    """Return a table with a row for each trace, and a note on its columns."""
    from specmodel.simulate.traces.statistics import DRAFT_LENGTHS

    known = of_table("traces")
    lengths = [Column(f"at_{n}", "-", "", f"\n{n}", ".2f") for n in DRAFT_LENGTHS]
    cells = []
    for name, found in rows:
        by_length = dict(zip(found.draft_lengths, found.tokens_per_step, strict=True))
        row = {f"at_{length}": by_length.get(length) for length in DRAFT_LENGTHS}
        cells.append({"trace": name[:18]} | row | {c.name: getattr(found, c.name) for c in known})
    table = text_table(cells, [Column("trace", "-", ""), *lengths, *known])
    return f"{table}\n\n{wrap(PAGES['traces']['note'])}"


def _drawn(preset: str, requests: int, output_tokens: int, seed: int) -> traces.Trace:
    import numpy as np

    from specmodel.core.base.units import check
    from specmodel.simulate.traces.files import check_positions

    check("requests", requests, minimum=1, whole=True)
    check("output_tokens", output_tokens, minimum=1, whole=True)
    check("seed", seed, minimum=0, whole=True)
    check_positions(requests * output_tokens, "requests")
    generator = np.random.default_rng(seed)
    return traces.sample_trace(traces.load_preset(preset), requests, output_tokens, generator)
