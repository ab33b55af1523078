"""Turn measured acceptance into arguments of `specmodel.predict`."""

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np

MOSTLY = 0.9
"""Share of steps with a draft above which all steps are assumed to have a draft [-]. The first
tokens of answers, which prompts emit, may be counted as steps without a draft."""


def proposal_share(drafts: float, accepted: float, emitted: float) -> float:
    """Return the share of steps with a draft, from counts of the same period [-].

    Each step emits the accepted tokens and one more. vLLM's acceptance length is a mean over steps
    with a draft. A look-up that proposes in half of the steps therefore gains half as much.

    Parameters
    ----------
    drafts, accepted, emitted
        Steps of a request with a draft [-], accepted tokens, and all emitted tokens [token].
    """
    share = drafts / max(emitted - accepted, drafts)
    return share if share < MOSTLY else 1.0


def shares_reached(counts: Sequence[float]) -> list[float]:
    """Return shares of drafts with at least 1, 2, ... accepted tokens [-].

    Parameters
    ----------
    counts
        Number of drafts with 0, 1, ... accepted tokens, of which at least one is above 0 [-].
    """
    at_least: list[float] = np.cumsum(counts[::-1])[::-1].tolist()
    return [count / at_least[0] for count in at_least[1:]]


def acceptance_arguments(
    tokens_per_step: float,
    rates: Sequence[float] = (),
    *,
    longest: int | None = None,
    mean: float | None = None,
    proposal_rate: float | None = None,
) -> list[dict[str, Any]]:
    """Return an acceptance as arguments of `specmodel.predict`, in one form or two.

    Rates by position end at the last measured position, and the other form has no such end. If
    drafts vary in length, the arguments contain the mean length, because predict charges the length
    that it is given. The other form then describes a look-up, in which some steps have no draft.

    Parameters
    ----------
    tokens_per_step
        Tokens emitted per request and step: accepted tokens and one more [token].
    rates
        Chance by position that a token is accepted if all tokens before it were; empty if unknown
        [-].
    longest, mean
        Longest draft, and the mean draft if lengths vary; None if unknown [token].
    proposal_rate
        Share of steps with a draft; None for all steps [-].

    Returns
    -------
    list of dict
        Arguments by name. If draft_length is None, you have to choose it.
    """
    tokens = {"tokens_per_step": round(float(tokens_per_step), 4)}
    if mean is None or (longest and mean > 0.98 * longest):  # as requests end
        by_position = ",".join(f"{round(rate, 4):g}" for rate in rates)
        first = [{"acceptance_by_position": f"conditional:{by_position}"}] if rates else []
        return [*first, tokens | {"measured_draft_length": longest}]
    share = float(f"{proposal_rate or 1.0:.4g}")
    # the whole number of tokens near the mean, but at least the number of accepted tokens
    least = [ceil((tokens_per_step - 1) / by - 1e-6) for by in (1.0, share)]
    every, own = (max(round(mean / by), n, 1) for by, n in zip((1.0, share), least, strict=True))
    looked_up = {"draft_length": own} | tokens | {"proposal_rate": share}
    return [looked_up] if share == 1 else [{"draft_length": every} | tokens, looked_up]
