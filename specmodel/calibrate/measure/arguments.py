"""Turn measured acceptance into arguments of `specmodel.predict`."""

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np

MOSTLY = 0.9
"""Share of steps with a draft from which all are taken to have one: where they were not counted
apart, first tokens of answers, which prompts emit, pass for steps without one [-]."""


def proposal_share(drafts: float, accepted: float, emitted: float) -> float:
    """Return the share of steps that had a draft, from what was counted in the same time [-].

    Each step emits one token beside those accepted. vLLM counts drafts where there was one, and its
    acceptance length is by draft: a look-up that proposes in half of the steps gains half of that.

    Parameters
    ----------
    drafts, accepted, emitted
        Steps of a request with a draft [-], tokens accepted, and all that were emitted [token].
    """
    share = drafts / max(emitted - accepted, drafts)
    return share if share < MOSTLY else 1.0


def shares_reached(counts: Sequence[float]) -> list[float]:
    """Return shares of drafts that accepted at least 1, 2, ... tokens, by counts of 0, 1, ... [-].

    Parameters
    ----------
    counts
        Drafts of which so many tokens were accepted, some of them above 0 [-].
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

    Rates by position end at the last measured position; the other form goes further. If drafts vary
    in length, the arguments have the mean length, as predict charges the length that it is given.
    The other form then describes a look-up, which has a draft in a share of steps.

    Parameters
    ----------
    tokens_per_step
        Tokens emitted per request and step: accepted ones and one more [token].
    rates
        Chance that a token is accepted if all before it were, by position; empty if unknown [-].
    longest, mean
        Longest draft, and the mean draft if lengths vary; None if unknown [token].
    proposal_rate
        Share of steps with a draft; None for all [-].

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
    # whole tokens near the mean, at least as many as were accepted
    least = [ceil((tokens_per_step - 1) / by - 1e-6) for by in (1.0, share)]
    every, own = (max(round(mean / by), n, 1) for by, n in zip((1.0, share), least, strict=True))
    looked_up = {"draft_length": own} | tokens | {"proposal_rate": share}
    return [looked_up] if share == 1 else [{"draft_length": every} | tokens, looked_up]
