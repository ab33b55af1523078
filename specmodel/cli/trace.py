"""Commands about acceptance traces, and requests by what ``--trace`` names.

Nothing heavy is imported before they run.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specmodel.base.errors import InputError, nearest
from specmodel.base.text import Columns, align, wrap
from specmodel.cli.settings import SETTINGS

if TYPE_CHECKING:
    from specmodel.replay.blocks import Source
    from specmodel.replay.traces import AcceptanceProcess, Trace
    from specmodel.replay.traces.statistics import TraceStatistics

DEFAULT_REQUESTS = 300
DEFAULT_OUTPUT_TOKENS = 512
MOST = 10**7
"""Most requests drawn [request], and most tokens of each [token]."""
MOST_POSITIONS = 10**11
"""Most output tokens of all requests drawn [token]."""

_FIGURES = {
    "proposal_share": "posi-\ntions",
    "autocorrelation": "\nr1",
    "window_correlation": "\nw",
    "smallest_tokens_per_step": "least\nmean",
    "largest_tokens_per_step": "most\nmean",
}
"""Titles of the figures beside tokens per step."""


@click.group(context_settings=SETTINGS)
def trace() -> None:
    """Make and describe acceptance traces: what a drafter gets accepted, position by position.

    \b
    Examples:
      specmodel trace ngram ./requests.jsonl --output ./ngram.jsonl
      specmodel trace describe code-ngram
    """


@trace.command(context_settings=SETTINGS)
@click.argument("input_", metavar="INPUT.jsonl")
@click.option("--output", required=True, metavar="FILE", help="Trace to write: .jsonl or .parquet.")
@click.option(
    "--min-ngram", type=int, default=3, show_default=True, help="Fewest last tokens looked for."
)
@click.option(
    "--max-ngram", type=int, default=5, show_default=True, help="Most, which are tried first."
)
@click.option(
    "--match",
    type=click.Choice(["first", "last"]),
    default="first",
    show_default=True,
    help="Which of several earlier occurrences is taken.",
)
@click.option(
    "--max-proposal", type=int, default=20, show_default=True, help="Longest proposal, in tokens."
)
@click.option("--tokenizer", metavar="FILE", help="tokenizer.json that encodes texts.")
def ngram(input_: str, output: str, tokenizer: str | None, **options: Any) -> None:
    """Compute the exact trace of a prompt-lookup drafter.

    This needs no model and no GPU. Each line of INPUT.jsonl is a request with prompt_token_ids
    and output_token_ids of greedy decoding; or, with a tokenizer, with the texts prompt and
    output. Texts and Parquet need the extra [traces]. The public benchmark that the n-gram presets
    were fitted to looks for 7 to 3 tokens. The share of steps that propose is what predict takes
    as --proposal-rate.

    \b
    Example:
      specmodel trace ngram ./requests.jsonl --min-ngram 2 --match last \\
          --output ./ngram.parquet
    """
    from specmodel.replay.traces import ngram_trace, read_tokens, write_trace
    from specmodel.replay.traces.files import trace_suffix

    refuse_inputs("output", output, {"the input": input_, "the tokenizer": tokenizer})
    trace_suffix(output, "output")
    prompts, outputs = read_tokens(input_, tokenizer)
    made = ngram_trace(prompts, outputs, metadata={"source": Path(input_).name}, **options)
    write_trace(made, output)
    click.echo(_steps_table(made))
    sizes = "the last {max_ngram} to {min_ngram} tokens, {match} match".format(**options)
    click.echo(f"Look-up of {sizes}, at most {made.max_draft_length} proposed")
    click.echo(f"{made.num_requests} requests, {len(made.proposed_tokens)} output tokens")
    click.echo(f"Written: {output}")


def _steps_table(trace: "Trace") -> str:
    """Return what a look-up gives at fixed draft lengths, step by step."""
    from specmodel.replay.traces.statistics import DRAFT_LENGTHS, steps_at

    lengths = [length for length in DRAFT_LENGTHS if length <= trace.max_draft_length]
    columns: Columns = [("draft length", ["tokens per step", "steps that propose"])]
    for length in lengths:
        tokens, share = steps_at(trace, length)
        columns.append((str(length), [f"{tokens:.2f}", f"{share:.1%}"]))
    return align(columns, left=("draft length",))


@trace.command(context_settings=SETTINGS)
@click.argument("preset")
@click.option("--output", required=True, metavar="FILE", help="Trace to write: .jsonl or .parquet.")
@click.option("--requests", default=DEFAULT_REQUESTS, show_default=True, help="Requests to draw.")
@click.option(
    "--output-tokens",
    default=DEFAULT_OUTPUT_TOKENS,
    show_default=True,
    help="Output tokens of each.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the draws.")
def sample(preset: str, output: str, requests: int, output_tokens: int, seed: int) -> None:
    """Draw a trace from a preset, or from a TOML file like one.

    \b
    Example:
      specmodel trace sample code-ngram --requests 100 --output ./code.jsonl
    """
    from specmodel.replay.traces import write_trace
    from specmodel.replay.traces.files import trace_suffix

    refuse_inputs("output", output, {"the preset": preset})
    trace_suffix(output, "output")
    drawn = _drawn(preset, requests, output_tokens, seed)
    write_trace(drawn, output)
    click.echo(f"{requests} requests of {output_tokens} tokens\nWritten: {output}")


@trace.command(context_settings=SETTINGS)
@click.argument("names", metavar="FILE|PRESET...", nargs=-1, required=True)
def describe(names: tuple[str, ...]) -> None:
    """Show tokens per step and how acceptance clusters, of traces or presets.

    Beside a preset, of which 1000 requests of 512 tokens are drawn, stands what was measured.

    \b
    Example:
      specmodel trace describe code-ngram math-ngram
    """
    from specmodel.replay.traces import load_preset, read_trace, trace_statistics
    from specmodel.replay.traces.files import SUFFIXES

    rows = []
    for name in names:
        is_file = Path(name).suffix in SUFFIXES
        statistics = trace_statistics(read_trace(name) if is_file else _drawn(name, 1000, 512, 0))
        rows.append((Path(name).name, statistics))
        measured = None if is_file else load_preset(name).measured
        if measured is not None:
            rows.append(("  measured", measured))
    click.echo(_statistics_table(rows))


def refuse_inputs(argument: str, output: str, inputs: Mapping[str, str | None]) -> None:
    """Refuse to write a file that is read, under another name or by a link too."""
    for kind, path in inputs.items():
        if path is not None and _is_same(Path(path), Path(output)):
            raise InputError(argument, output, f"another file than {kind}")


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one is not there yet, or is a link to itself
        return os.path.realpath(one) == os.path.realpath(other)
    except ValueError:  # what no file can be named
        return False


def _statistics_table(rows: list[tuple[str, "TraceStatistics"]]) -> str:
    """Return a row for each trace in at most 80 columns, and what the columns are."""
    from specmodel.replay.traces.statistics import DRAFT_LENGTHS

    columns: Columns = [("trace", [name[:26] for name, _ in rows])]
    for length in DRAFT_LENGTHS:
        by_length = [dict(zip(f.draft_lengths, f.tokens_per_step, strict=True)) for _, f in rows]
        columns.append((f"\n{length}", [_optional(each.get(length)) for each in by_length]))
    for name, title in _FIGURES.items():
        columns.append((title, [_optional(getattr(each, name)) for _, each in rows]))
    note = (
        "Tokens per step at each fixed draft length; share of positions with a proposal; at draft"
        " length 3: lag-1 autocorrelation, correlation of windows of 16 steps, and the means of"
        " the slowest and the fastest request."
    )
    return f"{align(columns, left=('trace',))}\n\n{wrap(note)}"


def _optional(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _drawn(preset: str, requests: int, output_tokens: int, seed: int) -> "Trace":
    import numpy as np

    from specmodel.base.units import check
    from specmodel.replay.traces import load_preset, sample_trace
    from specmodel.replay.traces.files import check_positions

    for name, value, least in (
        ("requests", requests, 1), ("output_tokens", output_tokens, 1), ("seed", seed, 0)
    ):  # fmt: skip
        check(name, value, minimum=least, whole=True)
    check_positions(requests * output_tokens, "requests")
    generator = np.random.default_rng(seed)
    return sample_trace(load_preset(preset), requests, output_tokens, generator)


def named_requests(name: str, sizes: dict[str, int]) -> tuple["Source", str, list[str]]:
    """Return the requests of a trace or of a mix of presets.

    Parameters
    ----------
    name
        A file, or presets joined by +.
    sizes
        The numbers of requests and of output_tokens to draw from presets, if given [-].

    Returns
    -------
    tuple
        Requests, how they read in a heading, and the presets that ship among them.
    """
    from specmodel.base.units import check
    from specmodel.replay import Sample
    from specmodel.replay.traces import list_presets, read_trace
    from specmodel.replay.traces.files import SUFFIXES

    if Path(name).suffix in SUFFIXES:
        for option, size in sizes.items():
            raise InputError(option, size, "none, as the trace has its own")
        trace = read_trace(name)
        return trace, f"{Path(name).name}, {trace.num_requests} requests", []
    presets = [preset.strip() for preset in name.split("+")]
    sizes = {"requests": DEFAULT_REQUESTS, "output_tokens": DEFAULT_OUTPUT_TOKENS} | sizes
    for option, size in sizes.items():
        check(option, size, minimum=1, maximum=MOST, whole=True)
    requests, length = sizes.values()
    if requests * length > MOST_POSITIONS:
        expected = f"at most {MOST_POSITIONS // length} of {length} tokens each"
        raise InputError("requests", requests, expected)
    processes = [_process(preset) for preset in presets]
    sample = Sample(processes=processes, num_requests=requests, output_tokens=length)
    heading = f"{' + '.join(presets)}, {requests} requests of {length} tokens"
    return sample, heading, [preset for preset in presets if preset in list_presets()]


def _process(preset: str) -> "AcceptanceProcess":
    """Return a preset by name or file; errors call it a trace, as the option does."""
    from specmodel.base.records import is_path, load
    from specmodel.replay.traces import AcceptanceProcess, list_presets
    from specmodel.replay.traces.files import SUFFIXES
    from specmodel.replay.traces.synthetic import FOLDER

    if preset not in list_presets() and not is_path(preset):
        known = nearest(preset, list_presets())
        expected = f"a {' or '.join(SUFFIXES)} file, or a preset such as {known}"
        raise InputError("trace", preset, expected)
    return load(AcceptanceProcess, preset, FOLDER, "trace")
