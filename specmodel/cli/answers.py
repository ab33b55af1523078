"""Commands that answer: sweet spot, best draft length, break-even, comparison, explanation."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from specmodel.base.errors import InputError
from specmodel.cli.settings import (
    SETTINGS,
    acceptance_options,
    check_forms,
    detail_options,
    echo_warnings,
    form_options,
    where_options,
)

if TYPE_CHECKING:
    import pandas as pd

    from specmodel.prediction.outcome import Prediction

MOST_EXPLAINED = 5
"""Most points explained side by side [-]."""

Command = TypeVar("Command", bound=Callable[..., Any])

_NO_BEST = {"max_draft_length": 1}
"""Spares the search for a best draft length where it is not asked for."""

_CONTEXT = click.option(
    "--context-length",
    metavar="VALUES",
    help="KV entries per sequence before the step.  [default: 1024]",
)


def _batch_size(default: str | None = None) -> Callable[[Command], Command]:
    words = "Sequences decoded together: 1,2,4 or 1:64:2 or 1:128:x2."
    return _values("--batch-size", words, default)


def _draft_length(default: str | None = None) -> Callable[[Command], Command]:
    return _values("--draft-length", "Tokens drafted per sequence and step.", default)


def _values(name: str, words: str, default: str | None) -> Callable[[Command], Command]:
    if default is None:
        return click.option(name, required=True, metavar="VALUES", help=words)
    return click.option(name, default=default, show_default=True, metavar="VALUES", help=words)


@click.command("sweet-spot", context_settings=SETTINGS)
@where_options(required=True)
@_batch_size("1:512")
@_draft_length()
@acceptance_options()
@_CONTEXT
@detail_options()
@form_options()
def sweet_spot(*, as_json: bool, as_csv: bool, **options: Any) -> None:
    """Find the batch sizes where speculation pays.

    And where it pays most. Batch sizes that do not fit in memory are left out.

    \b
    Example:
      specmodel sweet-spot --target qwen3-30b-a3b --drafter eagle3 \\
          --hardware h200_sxm --engine sglang --draft-length 1,3,5 \\
          --acceptance-rate 0.7
    """
    from specmodel.answers import sweet_spots
    from specmodel.cli import answers_report as report
    from specmodel.cli.options import predict_from

    check_forms(as_json, as_csv)
    prediction = predict_from(options | _NO_BEST)
    _need_drafts(prediction, options)
    spots = sweet_spots(prediction)
    if not _printed({"": prediction}, spots, as_json, as_csv):
        verdict = report.sweet_spot_verdict(spots, prediction)
        click.echo(report.page(prediction, verdict, report.sweet_spot_table(spots)))


@click.command("best-draft-length", context_settings=SETTINGS)
@where_options(required=True)
@_batch_size("1:512:x2")
@acceptance_options()
@_CONTEXT
@click.option("--max-draft-length", type=int, help="Longest draft considered.  [default: 10]")
@detail_options()
@form_options()
def best_draft_length(*, as_json: bool, as_csv: bool, **options: Any) -> None:
    """Find the best draft length.

    The one with the largest speedup, by batch size and context.

    \b
    Example:
      specmodel best-draft-length --target mixtral-8x7b --drafter eagle \\
          --hardware h100_sxm --tensor-parallel 2 --acceptance-rate 0.7 \\
          --context-length 512,4096,16384
    """
    from specmodel.answers import best_draft_lengths
    from specmodel.cli import answers_report as report
    from specmodel.cli.answers_options import lengths_from

    check_forms(as_json, as_csv)
    prediction = lengths_from(options)
    best = best_draft_lengths(prediction)
    if not _printed({"": prediction}, best, as_json, as_csv):
        verdict = report.best_length_verdict(best, prediction)
        click.echo(report.page(prediction, verdict, report.best_length_table(best)))


@click.command("break-even", context_settings=SETTINGS)
@where_options(required=True)
@_batch_size("1:512:x2")
@_draft_length("1:8")
@click.option(
    "--proposal-rate", type=float, help="Share of steps with a proposal (ngram).  [default: 1]"
)
@_CONTEXT
@detail_options()
@form_options()
def break_even(*, as_json: bool, as_csv: bool, **options: Any) -> None:
    """Find the acceptance that is needed.

    The acceptance rate from which speculation pays, by batch size and draft length.

    \b
    Example:
      specmodel break-even --target qwen3-30b-a3b --drafter eagle3 \\
          --hardware h100_sxm --engine sglang
    """
    from specmodel.answers import break_even as least_rates
    from specmodel.cli import answers_report as report
    from specmodel.cli.options import predict_from

    check_forms(as_json, as_csv)
    # the rate needed depends on no rate given
    prediction = predict_from(options | _NO_BEST | {"acceptance_rate": 0.0})
    _need_drafts(prediction, options)
    table = least_rates(prediction)
    if not _printed({"": prediction}, table, as_json, as_csv):
        verdict = report.break_even_verdict(table, prediction)
        click.echo(report.page(prediction, verdict, report.break_even_table(table)))


@click.command(context_settings=SETTINGS)
@where_options(required=True)
@_batch_size("1:512:x2")
@click.option(
    "--acceptance-rate",
    required=True,
    metavar="VALUES",
    help="P(token accepted, all before it were): one for all, or one for each drafter.",
)
@click.option(
    "--proposal-rate", type=float, help="Share of steps with a proposal (ngram).  [default: 1]"
)
@click.option(
    "--context-length", metavar="VALUE", help="KV entries before the step.  [default: 1024]"
)
@click.option("--max-draft-length", type=int, help="Longest draft considered.  [default: 10]")
@detail_options()
@form_options()
def compare(*, as_json: bool, as_csv: bool, **options: Any) -> None:
    """Compare targets, drafters, GPUs or engines.

    Each may be a list; every alternative has its best draft length.

    \b
    Example:
      specmodel compare --target qwen3-30b-a3b --drafter ngram,eagle3 \\
          --acceptance-rate 0.4,0.7 --hardware h100_sxm,h200_sxm
    """
    from specmodel.answers import compare as side_by_side
    from specmodel.cli import answers_report as report
    from specmodel.cli.answers_options import alternatives_from

    check_forms(as_json, as_csv)
    predictions = alternatives_from(options)
    if len({context for p in predictions.values() for context in p.context_length.ravel()}) > 1:
        raise InputError("context_length", options["context_length"], "one context length")
    table = side_by_side(predictions)
    if not _printed(predictions, table, as_json, as_csv):
        verdict = report.compare_verdict(table)
        click.echo(report.compare_page(predictions, verdict, report.compare_table(table)))


@click.command(context_settings=SETTINGS)
@where_options(required=True)
@_batch_size()
@_draft_length()
@acceptance_options()
@_CONTEXT
@detail_options()
@form_options()
def explain(*, as_json: bool, as_csv: bool, **options: Any) -> None:
    """Explain what limits the speedup.

    What takes how much from target efficiency and speedup. Contributions are Shapley values: they
    sum exactly, and no order is chosen.

    \b
    Example:
      specmodel explain --target qwen3-30b-a3b --drafter eagle3 \\
          --hardware h200_sxm --engine sglang --batch-size 1,16,128 \\
          --draft-length 3 --acceptance-rate 0.7
    """
    from specmodel.answers import explain as explained
    from specmodel.cli import answers_report as report
    from specmodel.cli.options import predict_from

    check_forms(as_json, as_csv)
    prediction = predict_from(options | _NO_BEST)
    _need_drafts(prediction, options)
    if prediction.speedup.size > MOST_EXPLAINED and not (as_json or as_csv):
        expected = f"at most {MOST_EXPLAINED} points side by side, or --json or --csv"
        raise InputError("batch_size", f"{prediction.speedup.size} points", expected)
    explanation = explained(prediction)
    if not _printed({"": prediction}, explanation.to_frame(), as_json, as_csv):
        verdict = report.explain_verdict(explanation)
        click.echo(report.page(prediction, verdict, report.explain_tables(explanation)))


def _need_drafts(prediction: "Prediction", options: dict[str, Any]) -> None:
    if not prediction.draft_length.all():
        raise InputError("draft_length", options["draft_length"], "at least 1")


def _printed(
    predictions: "Mapping[str, Prediction]", frame: "pd.DataFrame", as_json: bool, as_csv: bool
) -> bool:
    """Print for programs, where that was asked for."""
    if as_json:
        from specmodel.cli.answers_report import to_json

        click.echo(to_json(predictions, frame))
    elif as_csv:
        click.echo(frame.to_csv(index=False), nl=False)
        echo_warnings(dict.fromkeys(w for p in predictions.values() for w in p.warnings))
    return as_json or as_csv
