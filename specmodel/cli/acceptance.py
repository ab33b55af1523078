"""Command that reads acceptance off a running engine. Nothing heavy is imported before."""

import json
from typing import TYPE_CHECKING, Any

import click

from specmodel.base.text import align, wrap
from specmodel.cli.settings import SETTINGS

if TYPE_CHECKING:
    from specmodel.calibrate.scrapes import MeasuredAcceptance

JSON_SCHEMA_VERSION = 1

_NGRAM = (
    "Steps without a draft are not counted. With --drafter ngram, give predict the first line below"
    " and the --proposal-rate: it reads --tokens-per-step as a mean over all steps."
)

_UNITS = {
    "num_engines": "-",
    "num_drafts": "-",
    "num_draft_tokens": "token",
    "num_accepted_tokens": "token",
    "accepted_by_position": "-",
    "mean_draft_length": "token",
    "max_draft_length": "token",
    "acceptance_rate": "-",
    "acceptance_by_position": "-",
    "tokens_per_step": "token",
    "accepted_fraction": "-",
}


@click.command(context_settings=SETTINGS)
@click.argument("file")
@click.argument("later", required=False)
@click.option("--model", metavar="NAME", help="Which model_name, where there are several.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def acceptance(file: str, later: str | None, model: str | None, *, as_json: bool) -> None:
    """Read acceptance off a running vLLM, ready for predict.

    FILE is a saved scrape of its metrics; with LATER, what was counted between the two. The
    counters hold steps that had a draft only: an n-gram look-up that proposes nothing is not in
    them, so give predict its --proposal-rate as well.

    \b
    Examples:
      curl -s http://localhost:8000/metrics > before.prom
      curl -s http://localhost:8000/metrics > after.prom
      specmodel acceptance ./before.prom ./after.prom
    """
    from specmodel.calibrate.scrapes import measured_acceptance, read_scrape

    counters = read_scrape(file, model)
    if later is not None:
        counters = read_scrape(later, model) - counters
    measured = measured_acceptance(counters)
    click.echo(_json(measured) if as_json else _text(measured))


def _json(measured: "MeasuredAcceptance") -> str:
    from specmodel import __version__

    document: dict[str, Any] = {
        "schema_version": JSON_SCHEMA_VERSION,
        "version": __version__,
        "model_name": measured.model_name,
        "warnings": [warning] if (warning := _warning(measured)) else [],
        "units": _UNITS,
    }
    for name in _UNITS:
        value = getattr(measured, name)
        document[name] = value.tolist() if hasattr(value, "tolist") else value
    document["predict"] = _options(measured)
    return json.dumps(document, indent=2, allow_nan=False)


def _text(measured: "MeasuredAcceptance") -> str:
    name = measured.model_name if measured.model_name.isprintable() else repr(measured.model_name)
    engines = f" of {measured.num_engines} engines" if measured.num_engines > 1 else ""
    figures = {
        "acceptance rate": (measured.acceptance_rate, "P(token accepted, all before it were)"),
        "tokens per step": (measured.tokens_per_step, "of the steps that had a draft"),
        "accepted fraction": (measured.accepted_fraction, "accepted / drafted"),
        "mean draft length": (measured.mean_draft_length, f"at most {measured.max_draft_length}"),
    }
    summary = align(
        [
            ("", list(figures)),
            ("", [f"{value:.4f}" for value, _ in figures.values()]),
            ("", [meaning for _, meaning in figures.values()]),
        ],
        left=[""],
    )
    reached = measured.accepted_by_position
    table = align(
        [
            ("position", [f"{i + 1}" for i in range(len(reached))]),
            ("accepted", [f"{count:.0f}" for count in reached]),
            ("of drafts", [f"{count / measured.num_drafts:.4f}" for count in reached]),
            ("if all before", [f"{rate:.4f}" for rate in measured.acceptance_by_position]),
        ]
    )
    warning = _warning(measured)
    ready = "\n".join(_options(measured))
    sections = [
        wrap(f"{name}: {measured.num_drafts} drafts{engines}"),
        summary.lstrip("\n"),
        table,
        *([wrap(f"Warning: {warning}.")] if warning else []),
        wrap(_NGRAM),
        f"To predict, give one of:\n{ready}",
    ]
    return "\n\n".join(sections)


def _warning(measured: "MeasuredAcceptance") -> str:
    if not measured.has_short_drafts:
        return ""
    longest = measured.max_draft_length
    return (
        f"the mean draft had {measured.mean_draft_length:.4g} tokens, of at most {longest}. The"
        " acceptance rate, solved at the mean, and the rates from position 2 on, which count what"
        " was not drafted as rejected, are too low. The lines below still give the tokens per step"
        f" at draft length {longest}; predict charges each step for a draft of full length"
    )


def _options(measured: "MeasuredAcceptance") -> list[str]:
    """Return what can be pasted behind ``specmodel predict``."""
    rates = ",".join(f"{round(rate, 4):g}" for rate in measured.acceptance_by_position.tolist())
    # Not at the mean draft length: it need not be whole, and the engine is asked for the longest.
    return [
        f"--acceptance-by-position {rates}",
        f"--tokens-per-step {round(measured.tokens_per_step, 4):g}"
        f" --measured-draft-length {measured.max_draft_length}",
    ]
