"""How much speedup and target efficiency at one operating point depend on every input.

Three analyses: `elasticities`, the effect of a small change; `tornado`, that of the range of each
input by itself; `sobol`, the share of the variance that each decides when all vary at once.
"""

from specmodel.sensitivity.analyses import elasticities, sobol, tornado, varying_outputs
from specmodel.sensitivity.evaluation import OUTPUTS, evaluate
from specmodel.sensitivity.indices import SobolIndices, sobol_indices
from specmodel.sensitivity.inputs import Input, OperatingPoint, list_inputs
from specmodel.sensitivity.uncertainty import Range, calibrated_ranges, uncertain_ranges

__all__ = [
    "OUTPUTS",
    "Input",
    "OperatingPoint",
    "Range",
    "SobolIndices",
    "calibrated_ranges",
    "elasticities",
    "evaluate",
    "list_inputs",
    "sobol",
    "sobol_indices",
    "tornado",
    "uncertain_ranges",
    "varying_outputs",
]
