"""Commands about acceptance traces. Nothing heavy is imported before they run."""

from pathlib import Path
from typing import Any

import click

from specmodel.commands.settings import SETTINGS
from specmodel.errors import InputError


@click.group(context_settings=SETTINGS)
def trace() -> None:
    """Make acceptance traces: what a drafter proposes, position by position.

    \b
    Example:
      specmodel trace ngram ./requests.jsonl --output ./ngram.jsonl
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
    output. Texts and Parquet need the extra [traces]. The defaults are the choice of a public
    benchmark of n-gram speculation.

    \b
    Example:
      specmodel trace ngram ./requests.jsonl --min-ngram 2 --match last \\
          --output ./ngram.parquet
    """
    from specmodel.traces import ngram_trace, read_tokens, write_trace
    from specmodel.traces.files import trace_suffix

    for path, kind in ((input_, "input"), (tokenizer, "tokenizer")):
        if path is not None and Path(output).resolve() == Path(path).resolve():
            raise InputError("output", output, f"another file than the {kind}")
    trace_suffix(output, "output")
    prompts, outputs = read_tokens(input_, tokenizer)
    made = ngram_trace(prompts, outputs, metadata={"source": Path(input_).name}, **options)
    write_trace(made, output)
    has_proposal = made.proposed_tokens > 0
    click.echo(f"{made.num_requests} requests, {len(has_proposal)} output positions")
    sizes = "the last {max_ngram} to {min_ngram} tokens, {match} match".format(**options)
    click.echo(f"Look-up of {sizes}, at most {made.max_draft_length} proposed")
    click.echo(f"Positions with a proposal: {has_proposal.mean():.1%}")
    if has_proposal.any():
        accepted = made.accepted_tokens[has_proposal].mean()
        click.echo(f"Accepted where proposed: {accepted:.2f} tokens on average")
    click.echo(f"Written: {output}")
