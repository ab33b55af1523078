"""``specmodel sensitivity``: the inputs that speedup and target efficiency depend on."""

from typing import Any

from specmodel.cli import settings
from specmodel.cli.output import answering
from specmodel.cli.positionals import where_options
from specmodel.core.base.errors import InputError
from specmodel.core.base.ranges import parse_named_range
from specmodel.core.base.text import Viewed


@settings.command()
@where_options(has_start=True)
@settings.options_of("sensitivity")
@answering(figure="tornado")
def sensitivity(**options: Any) -> Viewed:
    """Show which inputs the speedup depends on most.

    An elasticity is the change of the speedup, in per cent, if an input rises by 1 %. One table
    shows the speedup at both ends of each input's range. Sobol' indices are shares of the
    variance of the speedup if all inputs vary together.

    The ranges of kernel times and CPU overheads come from the errors of their fits. The range of
    acceptance comes from published drafters on different tasks. The range of the routing
    correlation comes from published models, unless you give --routing-correlation. --range sets
    the range of an input. --figure draws the speedup at both ends of each range.

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
    from specmodel.cli.options import case_from
    from specmodel.plan.sensitivity import analyse_case

    drawn = {name: options[name] for name in ("samples", "seed")}
    ranges = _given_ranges(options["ranges"])
    return analyse_case(case_from(options), ranges, **drawn)


def _given_ranges(texts: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    given: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, low, high = parse_named_range("range", text)
        if name in given:
            raise InputError(f"range {name}", text, "one range for each input; this input has two")
        given[name] = (low, high)
    return given
