"""What speculation gains: operating points evaluated, with intervals."""

from typing import TYPE_CHECKING

from specmodel.base.fronts import front

if TYPE_CHECKING:
    from specmodel.prediction.decoding import decode as decode
    from specmodel.prediction.outcome import Prediction as Prediction
    from specmodel.prediction.predicting import predict as predict

__getattr__, __dir__ = front(__name__)
