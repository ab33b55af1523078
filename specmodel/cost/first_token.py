"""Time to the first token of a request that meets others in an engine."""

import numpy as np

from specmodel.base.units import FloatArray


def first_token_time(
    prefill_time: FloatArray,
    step_time: FloatArray,
    batch_size: FloatArray,
    output_length: FloatArray,
    constant_time: FloatArray | float = 0.0,
) -> FloatArray:
    """Return the mean time from a request to its first token, in steady state.

    Parameters
    ----------
    prefill_time
        Pass of one prompt [s].
    step_time
        Time of a token of the others, which share of prefill they carry included [s].
    batch_size
        Requests that are always in the engine: one comes where one ends [request].
    output_length
        Tokens that each makes [token].
    constant_time
        What the engine adds to every first token: HTTP, tokens of texts, scheduling [s].

    Returns
    -------
    FloatArray
        Broadcasts with the arguments [s].

    Notes
    -----
    A request comes as another ends, when the next step of the others has been started: it waits
    for that step, then its prompt is prefilled at once. Each of the others is in prefill for a
    share ``prefill_time / (prefill_time + output_length * step_time)`` of its time; where the
    request meets that, it waits for half of a prefill on average. Engines with few requests hardly
    queue more; prompts that all come at the start of a benchmark do, and are not counted.

    Examples
    --------
    >>> alone = first_token_time(np.array(0.2), np.array(0.01), np.array(1.0), np.array(980.0))
    >>> four = first_token_time(np.array(0.2), np.array(0.01), np.array(4.0), np.array(980.0))
    >>> float(alone), float(four.round(3))
    (0.2, 0.216)
    """
    others = np.maximum(batch_size - 1, 0.0)
    busy = prefill_time / (prefill_time + output_length * step_time)
    waiting = np.minimum(others, 1.0) * step_time + others * busy * prefill_time / 2
    return np.asarray(prefill_time + waiting + constant_time)
