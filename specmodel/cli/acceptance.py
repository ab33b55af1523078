"""Command that reads acceptance off a running engine. Nothing heavy is imported before."""

from typing import TYPE_CHECKING

import click

from specmodel.base.errors import InputError
from specmodel.base.text import align, wrap
from specmodel.cli.settings import SETTINGS

if TYPE_CHECKING:
    from specmodel.measure.scrapes import MeasuredAcceptance

_NGRAM = (
    "Steps without a draft are not counted. With --drafter ngram, give predict the first line below"
    " and the --proposal-rate: it reads --tokens-per-step as a mean over all steps."
)


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
    from specmodel.measure.scrapes import scraped_acceptance

    for path in (file, later):
        if path == "-" or (path and "://" in path):
            url = path if path != "-" else "http://localhost:8000/metrics"
            raise InputError("file", path, f"a saved scrape: curl -s {url} > run.prom")
    measured = scraped_acceptance(file, later, model)
    click.echo(_json(measured) if as_json else _text(measured))


def _json(measured: "MeasuredAcceptance") -> str:
    from specmodel.show.report import json_text

    figures = {f: v.tolist() if hasattr(v, "tolist") else v for f, v in vars(measured).items()}
    name = {"model_name": figures.pop("model_name")}
    units = {f: "token" if "token" in f or f.endswith("length") else "-" for f in figures}
    warnings = list(filter(None, [_warning(measured)]))
    head = name | {"warnings": warnings, "units": units}
    return json_text(head | figures | {"predict": _options(measured)})


def _text(measured: "MeasuredAcceptance") -> str:
    name = measured.model_name if measured.model_name.isprintable() else repr(measured.model_name)
    engines = f" of {measured.num_engines} engines" if measured.num_engines > 1 else ""
    summary = [
        ("acceptance rate", measured.acceptance_rate, "P(token accepted, all before it were)"),
        ("tokens per step", measured.tokens_per_step, "of the steps that had a draft"),
        ("accepted fraction", measured.accepted_fraction, "accepted / drafted"),
        ("mean draft length", measured.mean_draft_length, f"at most {measured.max_draft_length}"),
    ]
    lines = [f"{title:17}  {value:.4f}  {meaning}" for title, value, meaning in summary]
    reached = measured.accepted_by_position
    table = align(
        [
            ("position", [f"{i + 1}" for i in range(len(reached))]),
            ("accepted", [f"{count}" for count in reached]),
            ("of drafts", [f"{count / measured.num_drafts:.4f}" for count in reached]),
            ("if all before", [f"{rate:.4f}" for rate in measured.acceptance_by_position]),
        ]
    )
    warning = _warning(measured)
    sections = [
        wrap(f"{name}: {measured.num_drafts} drafts{engines}"),
        "\n".join(lines),
        table,
        *([wrap(f"Warning: {warning}.")] if warning else []),
        wrap(_NGRAM),
        "\n".join(["To predict, give one of:", *_options(measured)]),
    ]
    return "\n\n".join(sections)


def _warning(measured: "MeasuredAcceptance") -> str:
    """Return what short drafts do to the figures, if there are some."""
    longest = measured.max_draft_length
    if measured.num_draft_tokens >= measured.num_drafts * longest:
        return ""
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
