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
    if whole[ASKED] == 0:
        whole[IDLE] += 1
        if whole[IDLE] >= whole[PROBE]:
            whole[IDLE], whole[ASKED] = 0, min(1, whole[LONGEST])
        return
    if drafted == 0:
        return
    pair = drafted * PAIR + emitted_tokens - 1
    ring = COUNTS + 2 * whole[LONGEST] + whole[NEXT]
    leaves = whole[ring]
    whole[ring] = pair
    whole[NEXT] = 0 if whole[NEXT] + 1 == whole[WINDOW] else whole[NEXT] + 1
    if pair == leaves:
        return  # what is known stays as it is
    if leaves > 0:
        count(whole, leaves, -1)
    count(whole, pair, 1)
    whole[ASKED] = best_length(whole, real)


Goodput.react = goodput


def count(whole: list[int], pair: int, sign: int) -> None:
    """Add a step to tries and hits by position, or take it away."""
    drafted, accepted = pair // PAIR, pair % PAIR
    longest = whole[LONGEST]
    for i in range(min(drafted, accepted + 1)):
        whole[COUNTS + i] += sign
    for i in range(accepted):
        whole[COUNTS + longest + i] += sign


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


PARTS = goodput, count, best_length
"""The functions that numba compiles."""
