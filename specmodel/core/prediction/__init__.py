"""Predict what speculation gains at operating points, with intervals."""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.core.prediction.columns import COLUMNS as COLUMNS
    from specmodel.core.prediction.decoding import (
        decode as decode,
        decode_deployed as decode_deployed,
    )
    from specmodel.core.prediction.outcome import Prediction as Prediction
    from specmodel.core.prediction.predicting import (
        predict as predict,
        predict_deployed as predict_deployed,
    )

__getattr__, __dir__ = front(__name__)
