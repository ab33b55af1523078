"""vLLM's adaptive verification: how many drafted tokens of a batch are worth a pass.

Every request drafts its full length; the rule says how many of all these tokens are verified, those
that are likeliest to hold. It looks at the batch, so that it belongs to serving, not to replays.
"""

from collections.abc import Sequence


def verified_drafts(
    survival: Sequence[float],
    requests: int,
    sampling: int,
    draft_time: float,
    verify_times: Sequence[float],
    tokens: int,
) -> int:
    """Return how many drafted tokens vLLM 0.33 verifies: those with most tokens per second.

    Numba compiles it as it stands; lists and arrays do.

    Parameters
    ----------
    survival, requests
        Chance that a drafted token and all before it hold, falling by position, of each of so many
        requests; or of each token of the batch, in falling order, with one request [-].
    sampling
        Requests that emit a token in this step whatever is drafted: prompts in parts do not
        [request].
    draft_time, verify_times, tokens
        Seconds of the drafter [s], and of a pass by its tokens, from 0 to the most that it may have
        [s]; and the tokens of this pass that are not drafted [token].

    Examples
    --------
    Two requests, of which each verifies one token, since a pass of five is slow:

    >>> verified_drafts([0.8, 0.6], 2, 2, 0.1, [1.0, 1.0, 1.0, 1.1, 1.2, 2.0, 2.0], 2)
    2
    """
    best, drafted = 0, 0
    expected, most = float(sampling), sampling / (draft_time + verify_times[tokens])
    for chance in survival:
        for _ in range(min(requests, len(verify_times) - 1 - tokens - drafted)):
            drafted += 1
            expected += chance
            gained = expected / (draft_time + verify_times[tokens + drafted])
            if gained > most:
                best, most = drafted, gained
    return best
