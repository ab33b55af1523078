"""Add the cost of tokens to the throughput of a prediction."""

from msgspec.structs import replace

from specmodel.core.algebra.money import cost_per_million_tokens
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import LARGEST_PRICE, check
from specmodel.core.prediction.accepted import NEEDS_ACCEPTANCE
from specmodel.core.prediction.outcome import Prediction
from specmodel.core.prediction.table import Column

COST = Column(
    "cost_per_million_tokens",
    "-",
    "of output, in the currency of the price of a GPU",
    title="$/M\ntokens",
    form="{cost_per_million_tokens:.3g}",
)


def priced(prediction: Prediction, gpu_hour_price: float | None) -> Prediction:
    """Return a prediction with the column `cost_per_million_tokens`; unchanged without a price."""
    if gpu_hour_price is None:
        return prediction
    if prediction.turned:
        raise InputError("gpu_hour_price", gpu_hour_price, NEEDS_ACCEPTANCE)
    price = check("gpu_hour_price", gpu_hour_price, minimum=0, maximum=LARGEST_PRICE)
    gpus = prediction.deployment.layout.num_gpus
    made = next(column.of for column in prediction.shown if column.name == "throughput")
    cost = replace(COST, source=lambda e: cost_per_million_tokens(price, gpus, made(e)))
    return replace(prediction, shown=(*prediction.shown, cost))
