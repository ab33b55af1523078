"""The command that predicts."""

from typing import Any

import click

from specmodel.cli.settings import (
    SETTINGS,
    acceptance_options,
    check_forms,
    detail_options,
    echo_warnings,
    form_options,
    where_options,
)


@click.command(context_settings=SETTINGS)
@where_options(required=True)
@click.option(
    "--batch-size",
    required=True,
    metavar="VALUES",
    help="Sequences decoded together: 1,2,4 or 1:64:2 or 1:128:x2.",
)
@click.option(
    "--draft-length",
    required=True,
    metavar="VALUES",
    help="Tokens drafted per sequence and step, 0 for none.",
)
@acceptance_options()
@click.option(
    "--context-length",
    metavar="VALUES",
    help="KV entries per sequence before the step.  [default: 1024]",
)
@click.option(
    "--verify-tokens",
    type=int,
    help="Target tokens per sequence, for trees.  [default: draft length + 1]",
)
@click.option(
    "--max-draft-length", type=int, help="Longest draft considered for the best one.  [default: 10]"
)
@detail_options()
@click.option("--interval", is_flag=True, help="Add central 80 % intervals.")
@click.option(
    "--components", is_flag=True, help="Add the breakdown of each pass; CSV has it alone."
)
@form_options()
def predict(*, as_json: bool, as_csv: bool, components: bool, **options: Any) -> None:
    """Predict target efficiency and speedup of speculative decoding.

    Give exactly one form of acceptance. All but the rate and the rates by position hold at the
    draft length they were measured at.

    \b
    Examples:
      specmodel predict --target qwen2-57b-a14b --drafter qwen2-0.5b \\
          --hardware a800_sxm_80gb --tensor-parallel 2 --batch-size 1:64:x2 \\
          --draft-length 4 --acceptance-rate 0.9 --context-length 512
      specmodel predict --target ./config.json --drafter ngram \\
          --proposal-rate 0.4 --hardware l40s --batch-size 1 --draft-length 1:5 \\
          --tokens-per-step 1.4 --measured-draft-length 3 --json
    """
    check_forms(as_json, as_csv)
    from specmodel.cli.options import predict_from
    from specmodel.prediction import report

    prediction = predict_from(options)

    if as_json:
        click.echo(report.to_json(prediction, with_components=components))
        return
    if as_csv:
        if components:
            from specmodel.answers import pass_components

            click.echo(pass_components(prediction).to_csv(index=False), nl=False)
        else:
            click.echo(report.to_csv(prediction))
        echo_warnings(prediction.warnings)
        return
    sections = [
        f"{report.heading(prediction.deployment)}\n{report.verdict(prediction)}",
        *report.warnings(prediction),
        report.table(prediction),
        *([report.components(prediction)] if components else []),
        report.assumptions(prediction),
    ]
    click.echo("\n\n".join(sections))
