"""``specmodel sensitivity``: what speedup and target efficiency at one point depend on."""

from __future__ import annotations

from typing import Any

from specmodel.answers import sensitivity as analyses
from specmodel.base.errors import InputError
from specmodel.base.ranges import parse_named_range
from specmodel.cli import settings
from specmodel.cli.answering import answering
from specmodel.show import sensitivities
from specmodel.show.forms import Answer

_CONTEXT = "KV entries per sequence before the step.  [default: 1024]"
_RANGE = "What is known of an input; uniform. Once for each."


@settings.command()
@settings.where_options()
@settings.own("batch_size", int, "Sequences decoded together.", required=True)
@settings.own("draft_length", int, settings.DRAFTED, required=True)
@settings.acceptance_options()
@settings.own("context_length", int, _CONTEXT)
@settings.detail_options()
@settings.own("range", "NAME=LOW:HIGH", _RANGE, to="ranges", multiple=True)
@settings.own("samples", int, "Of the variance analysis, a power of two.", default=1024)
@settings.own("seed", int, "Of all that is drawn.", default=0)
@answering()
def sensitivity(**options: Any) -> Answer:
    """Tell what the speedup depends on most.

    Elasticities: per cent of outcome per per cent of an input. One at a time: the outcome at both
    ends of each range. Shares of the variance: Sobol' indices, all inputs varying at once. Ranges
    of kernels and engine come from their calibration, that of the routing correlation from
    published models unless it is given; --range adds others.

    \b
    Examples:
      specmodel sensitivity --target qwen3-30b-a3b --drafter eagle \\
          --hardware h200_sxm --batch-size 8 --draft-length 3 \\
          --acceptance-rate 0.7 --range acceptance_rate=0.6:0.8
      specmodel sensitivity --target mixtral-8x7b --drafter ngram \\
          --hardware l40s --tensor-parallel 4 --batch-size 1 \\
          --draft-length 3 --acceptance-rate 0.5 --proposal-rate 0.4 \\
          --range proposal_rate=0.2:0.6 --json
    """
    return sensitivities.answer(sensitivity_from(options))


def sensitivity_from(options: dict[str, Any]) -> sensitivities.Sensitivity:
    """Return the analyses that the options of the command line ask for."""
    import numpy as np

    from specmodel.base.units import check
    from specmodel.cli.options import acceptance_from, deployment_from
    from specmodel.cost.memory import MemoryUse
    from specmodel.prediction.predicting import DEFAULT_CONTEXT_LENGTH

    seed = int(check("seed", options["seed"], minimum=0, whole=True))
    given = _given_ranges(options["ranges"])
    deployment, assumed = deployment_from(options)
    given_point = {name: options[name] for name in sensitivities.POINT}
    if given_point["context_length"] is None:
        given_point["context_length"] = assumed["context_length"] = DEFAULT_CONTEXT_LENGTH
    acceptance = acceptance_from(options)
    if acceptance.source:
        assumed["acceptance"] = acceptance.source
    point = analyses.OperatingPoint(**given_point, acceptance=acceptance)
    is_routing_known = "routing_correlation" not in assumed
    ranges = analyses.uncertain_ranges(deployment, point, given, routing_is_known=is_routing_known)
    swings = analyses.tornado(deployment, point, ranges)
    outputs = analyses.varying_outputs(swings)
    if not outputs:
        raise InputError("range", list(ranges), "a range that moves speedup or target efficiency")
    indices = analyses.sobol(
        deployment,
        point,
        ranges,
        samples=options["samples"],
        generator=np.random.default_rng(seed),
        outputs=outputs,
    )
    memory = MemoryUse(deployment, point.context_length, point.draft_length + 1)
    outcome = analyses.evaluate(deployment, point, {})
    return sensitivities.Sensitivity(
        deployment=deployment,
        point=point,
        outcome={name: value.item() for name, value in outcome.items()},
        ranges=ranges,
        elasticities=analyses.elasticities(deployment, point),
        swings=swings,
        indices=indices,
        samples=options["samples"],
        assumptions=assumed,
        warnings=(
            *memory.warnings(np.asarray(point.batch_size)),
            *deployment.warnings(np.asarray(point.batch_size), np.asarray(point.draft_length)),
        ),
    )


def _given_ranges(texts: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    given: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, low, high = parse_named_range("range", text)
        if name in given:
            raise InputError(f"range {name}", text, "one range of each input")
        given[name] = (low, high)
    return given
