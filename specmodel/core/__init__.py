"""Model costs: from sizes, rates and overheads to times, and from times to a prediction.

It stands alone: it never imports planning, simulation, calibration or output.
"""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.core import (
        algebra as algebra,
        cost as cost,
        drafters as drafters,
        layers as layers,
        machines as machines,
        models as models,
        prediction as prediction,
    )

__getattr__, __dir__ = front(__name__)
