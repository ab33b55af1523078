"""Goodput: the draft length with the most expected tokens per second."""

from collections.abc import Sequence

from specmodel.base.errors import InputError
from specmodel.base.units import check
from specmodel.replay.policies.policy import ASKED, FREE, StatePolicy, is_number, whole_number

# places of whole numbers; behind them tries and hits by position, then the window as a ring
IDLE, PROBE, SEEN, NEXT, WINDOW, LONGEST, COUNTS = range(FREE, FREE + 7)
# places of real numbers; the step times follow
FIRST_RATE, STEP_TIMES = range(2)
PAIR = 256
"""A step in the window is one number: drafted tokens times this, and those accepted."""
MOST_STEPS = 10**6
"""Longest window [-]."""


class Goodput(StatePolicy):
    """Choose the draft length with the most expected tokens per second.

    Goodput-driven schedulers work this way. Acceptance is kept by position of the draft, over a
    window of the last steps that drafted anything: how many of them came to a position, and how
    many of these had it accepted. The rate of a position also counts one step with the rate of the
    position before it, so that positions never reached are as likely as the last that was. A step
    without a proposal says nothing about acceptance. Times come from a profile of the deployment.

    Parameters
    ----------
    step_time
        Time of a step at draft length 0, 1, ... [s].
    first_acceptance_rate
        Estimate before anything was seen [-].
    window, probe_interval
        Steps that acceptance is counted over; and steps without speculation after which one token
        is drafted, to learn again [-].
    """

    def __init__(
        self,
        step_time: Sequence[float],
        first_acceptance_rate: float = 0.5,
        window: int = 50,
        probe_interval: int = 16,
    ) -> None:
        rate = first_acceptance_rate
        if not (is_number(rate) and 0 < rate < 1):
            raise InputError("goodput first_acceptance_rate", rate, "a number above 0 and below 1")
        times = check("goodput step_time", step_time, above=0)
        if times.ndim != 1:
            raise InputError("goodput step_time", step_time, "one list of times")
        longest = len(times) - 1
        size = whole_number("goodput window", window, 1, MOST_STEPS)
        whole = [0] * (COUNTS + 2 * longest + size)
        whole[WINDOW], whole[LONGEST] = size, longest
        whole[PROBE] = whole_number("goodput probe_interval", probe_interval, 1)
        real = [float(rate), *times.tolist()]
        super().__init__(whole, real)
        whole[ASKED] = best_length(whole, real)


def goodput(
    whole: list[int], real: list[float], emitted_tokens: int, step_time: float, drafted: int
) -> None:
    """Take in emitted and drafted tokens [token]; the time of a step does not matter [s]."""
    if drafted == 0 or take_in(whole, drafted, emitted_tokens - 1) or whole[IDLE] > 0:
        next_length(whole, real)


Goodput.react = goodput


def take_in(whole: list[int], drafted: int, accepted: int) -> bool:
    """Count a request's step that drafted something; return whether that changes what is known.

    A server calls it for each request of a step, and `next_length` once behind them.
    """
    pair = drafted * PAIR + accepted
    ring = COUNTS + 2 * whole[LONGEST] + whole[NEXT]
    leaves = whole[ring]
    whole[ring] = pair
    whole[NEXT] = 0 if whole[NEXT] + 1 == whole[WINDOW] else whole[NEXT] + 1
    whole[SEEN] = 1
    if pair == leaves:
        return False
    if leaves > 0:
        count(whole, leaves, -1)
    count(whole, pair, 1)
    return True


def count(whole: list[int], pair: int, sign: int) -> None:
    """Add a step to tries and hits by position, or take it away."""
    drafted, accepted = pair // PAIR, pair % PAIR
    longest = whole[LONGEST]
    for i in range(min(drafted, accepted + 1)):
        whole[COUNTS + i] += sign
    for i in range(accepted):
        whole[COUNTS + longest + i] += sign


def next_length(whole: list[int], real: list[float]) -> None:
    """Choose the draft length of the next step; a probe goes on until something was drafted.

    A server first writes the times of its batch into `real`, from `STEP_TIMES` on.
    """
    if whole[ASKED] == 0:
        whole[IDLE] += 1
    elif whole[SEEN] == 0:
        return
    else:
        whole[IDLE] = 0
    whole[SEEN], whole[ASKED] = 0, best_length(whole, real)
    if whole[ASKED] == 0 and whole[IDLE] >= whole[PROBE]:
        whole[ASKED] = min(1, whole[LONGEST])


def best_length(whole: list[int], real: list[float]) -> int:
    """Return the draft length with the most expected tokens per second [token]."""
    longest, rate = whole[LONGEST], real[FIRST_RATE]
    best, most = 0, 1 / real[STEP_TIMES]
    tokens = last = 1.0
    for i in range(longest):
        rate = (whole[COUNTS + longest + i] + rate) / (whole[COUNTS + i] + 1)
        last *= rate
        tokens += last
        gained = tokens / real[STEP_TIMES + 1 + i]
        if gained > most:
            best, most = i + 1, gained
    return best


PARTS = goodput, take_in, count, next_length, best_length
"""The functions that numba compiles."""
