"""Analyse how speedup and target efficiency at one operating point depend on each input.

There are three analyses. `elasticities` returns the effect of a small change, `tornado` the effect
of each input's range by itself, and `sobol` each input's share of the variance if all inputs vary
together.

>>> from specmodel import deploy
>>> deployment, _ = deploy(target="mixtral-8x7b", hardware="h100_sxm", drafter="ngram")
>>> point = OperatingPoint(batch_size=8, draft_length=1, acceptance=0.6)
>>> table = elasticities(deployment, point).set_index("input")
>>> round(float(table.speedup["acceptance_rate"]), 6)  # 0.2 * 0.6 / 1.12
0.107143
>>> ranges = uncertain_ranges(deployment, point, {"acceptance_rate": (0.5, 0.7)})
>>> float(tornado(deployment, point, ranges).set_index("input").high["acceptance_rate"])
0.7
"""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.plan.sensitivity.analyses import (
        Sensitivity as Sensitivity,
        analyse as analyse,
        analyse_case as analyse_case,
        elasticities as elasticities,
        sensitivity_facts as sensitivity_facts,
        sobol as sobol,
        tornado as tornado,
        varying_outputs as varying_outputs,
    )
    from specmodel.plan.sensitivity.indices import (
        SobolIndices as SobolIndices,
        sobol_indices as sobol_indices,
    )
    from specmodel.plan.sensitivity.inputs import (
        OUTPUTS as OUTPUTS,
        Input as Input,
        OperatingPoint as OperatingPoint,
        evaluate as evaluate,
        list_inputs as list_inputs,
    )
    from specmodel.plan.sensitivity.uncertainty import (
        Range as Range,
        calibrated_ranges as calibrated_ranges,
        uncertain_ranges as uncertain_ranges,
    )

__getattr__, __dir__ = front(__name__)
