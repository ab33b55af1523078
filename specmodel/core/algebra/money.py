"""Compute the cost of tokens from the price of GPUs and their throughput."""

from specmodel.core.base.units import LARGEST_PRICE, FloatArray, Numeric, check


def cost_per_million_tokens(
    gpu_hour_price: Numeric, num_gpus: Numeric, throughput: Numeric
) -> FloatArray:
    """Return the cost of a million output tokens, in the currency of the price.

    Parameters
    ----------
    gpu_hour_price, num_gpus
        Price of a GPU for an hour, and number of GPUs [-].
    throughput
        Output tokens of all requests [token/s].

    Returns
    -------
    FloatArray
        Cost in the currency of the price [-].

    >>> round(float(cost_per_million_tokens(3.6, 2, 1000)), 9)
    2.0
    """
    price = check("gpu_hour_price", gpu_hour_price, minimum=0, maximum=LARGEST_PRICE)
    gpus = check("num_gpus", num_gpus, minimum=1)
    return price * gpus / 3600 / check("throughput", throughput, above=0) * 1e6
