"""Policies that learn: goodput, SGLang's moving average, a bandit."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from specmodel.base.errors import InputError
from specmodel.base.units import check
from specmodel.replay.policies.policy import is_number


def _whole(name: str, value: int, least: int) -> int:
    """Return a whole number of at least `least`, or refuse anything else."""
    if not (is_number(value, whole=True) and value >= least):
        raise InputError(name, value, f"a whole number of at least {least}")
    return value


def _share(name: str, value: float) -> float:
    """Return a number above 0, at most 1, or refuse anything else."""
    if not (is_number(value) and 0 < value <= 1):
        raise InputError(name, value, "a number above 0, at most 1")
    return value


def scheduled_draft_length(schedule: Sequence[Sequence[int]], batch_size: int) -> int:
    """Return the draft length that vLLM takes from a schedule by batch size.

    Parameters
    ----------
    schedule, batch_size
        Entries of first batch size, last one (included) [request] and draft length [token]; in a
        gap, and beyond the last entry, that of the entry before holds; the batch size [request].

    Examples
    --------
    >>> scheduled_draft_length([[1, 16, 3], [17, 64, 2], [65, 4096, 0]], 20)
    2
    """
    expected = "[first batch size, last batch size, draft length]"
    if not isinstance(schedule, Sequence) or not schedule:
        raise InputError("table", schedule, f"at least one {expected}")
    for entry in schedule:
        is_entry = isinstance(entry, Sequence) and len(entry) == 3
        if not is_entry or any(type(number) is not int for number in entry):
            raise InputError("table", entry, expected)
        if entry[0] > entry[1] or entry[2] < 0:
            expected = "a range that is not reversed, and a length of at least 0"
            raise InputError("table", list(entry), expected)
    return _draft_length_at(sorted(schedule, key=list), batch_size)


def _draft_length_at(ranges: Sequence[Sequence[int]], batch_size: int) -> int:
    """Return the draft length at a batch size; refuse ranges that leave out 1 or overlap."""
    end = chosen = 0
    for first, last, length in ranges:
        if first != 1 and end == 0:
            expected = "ranges of which the first starts at 1"
            raise InputError("table", [first, last, length], expected)
        if first <= end:
            expected = f"ranges that do not overlap: another holds {first} too"
            raise InputError("table", [first, last, length], expected)
        if first <= batch_size:
            chosen = length
        end = last
    return chosen


class Goodput:
    """Choose the draft length with the most expected tokens per second.

    Goodput-driven schedulers work this way. Expected tokens at draft length K are 1 + a + ... + a^K
    with a moving estimate a of the acceptance rate: accepted tokens over tries, each weighted by
    its age. Times come from a profile of the deployment. A step without a proposal says nothing
    about acceptance, if the policy is told so; else it counts as a rejection.

    Parameters
    ----------
    step_time
        Time of a step at draft length 0, 1, ... [s].
    first_acceptance_rate
        Estimate before anything was seen [-].
    memory, probe_interval
        Steps after which an observation has lost 1 - 1/e, about two thirds, of its weight; and
        steps without speculation after which one token is drafted, to learn again [-].
    """

    def __init__(
        self,
        step_time: Sequence[float],
        first_acceptance_rate: float = 0.5,
        memory: float = 50.0,
        probe_interval: int = 16,
    ) -> None:
        rate = first_acceptance_rate
        if not (is_number(rate) and 0 < rate < 1):
            raise InputError("goodput first_acceptance_rate", rate, "a number above 0 and below 1")
        if not (is_number(memory) and memory >= 1):
            raise InputError("goodput memory", memory, "a number of at least 1")
        times = check("goodput step_time", step_time, above=0)
        if times.ndim != 1:
            raise InputError("goodput step_time", step_time, "one list of times")
        self._step_time = times.tolist()
        self._kept = 1 - 1 / memory
        self._accepted, self._rejected = first_acceptance_rate, 1 - first_acceptance_rate
        self._probe_interval = _whole("goodput probe_interval", probe_interval, 1)
        self._idle = 0
        self._draft_length = self._choose()

    def propose(self) -> int:
        """Return the draft length of the next step [token]."""
        return self._draft_length

    def observe(
        self, emitted_tokens: int, step_time: float, drafted_tokens: int | None = None
    ) -> None:
        """Take in emitted tokens, and drafted ones if fewer than were asked for [token]."""
        if self._draft_length == 0:
            self._idle += 1
            if self._idle >= self._probe_interval:
                self._idle, self._draft_length = 0, min(1, len(self._step_time) - 1)
            return
        drafted = self._draft_length if drafted_tokens is None else drafted_tokens
        if drafted == 0:
            return
        accepted = emitted_tokens - 1
        self._accepted = self._accepted * self._kept + accepted
        self._rejected = self._rejected * self._kept + (accepted < drafted)
        self._draft_length = self._choose()

    def _choose(self) -> int:
        """Return the draft length with the most expected tokens per second."""
        rate = self._accepted / (self._accepted + self._rejected)
        best, best_goodput = 0, 1 / self._step_time[0]
        tokens = last = 1.0
        for length in range(1, len(self._step_time)):
            last *= rate
            tokens += last
            if tokens / self._step_time[length] > best_goodput:
                best, best_goodput = length, tokens / self._step_time[length]
        return best


class AcceptedAverage:
    """Draft one token more than a moving average of those accepted, the adaptive rule of SGLang.

    Parameters
    ----------
    max_draft_length, first_draft_length
        Longest draft, and draft length until the warm-up is over [token].
    weight, warm_up, update_interval
        Weight of the newest step in the average; steps before the first change, and between
        changes [-].
    """

    def __init__(
        self,
        max_draft_length: int,
        first_draft_length: int = 3,
        weight: float = 0.2,
        warm_up: int = 10,
        update_interval: int = 5,
    ) -> None:
        first = _whole("sglang first_draft_length", first_draft_length, 1)
        self._max_draft_length = max_draft_length
        self._draft_length = min(first, max_draft_length)
        self._average = float(self._draft_length)
        self._weight = _share("sglang weight", weight)
        self._warm_up = _whole("sglang warm_up", warm_up, 0)
        self._update_interval = _whole("sglang update_interval", update_interval, 1)
        self._steps = 0

    def propose(self) -> int:
        """Return the draft length of the next step [token]."""
        return self._draft_length

    def observe(self, emitted_tokens: int, step_time: float) -> None:
        """Take in what a step emitted [token]; its time [s] does not matter to the rule."""
        self._average += self._weight * (emitted_tokens - 1 - self._average)
        self._steps += 1
        if self._steps >= self._warm_up and self._steps % self._update_interval == 0:
            length = round(self._average) + 1
            self._draft_length = max(1, min(length, self._max_draft_length))


class DiscountedBandit:
    """Treat draft lengths as the arms of a bandit whose reward is tokens per second.

    Tokens and seconds of each arm are sums in which older steps count less. An arm seen with
    weight w has a spread in proportion to 1 / sqrt(w), as the mean of w observations has.

    Parameters
    ----------
    draft_lengths
        The arms [token].
    method, generator
        "ucb" for the largest upper confidence bound, "thompson" for the largest draw, and the
        source of these draws.
    discount, width
        Weight that an observation keeps at the next step; and the width of the bound, or standard
        deviation of the draw, relative to the mean reward of an arm seen once [-].
    """

    def __init__(
        self,
        draft_lengths: Sequence[int],
        method: Literal["ucb", "thompson"] = "ucb",
        discount: float = 0.98,
        width: float = 0.3,
        generator: np.random.Generator | None = None,
    ) -> None:
        if method not in ("ucb", "thompson"):
            raise InputError("bandit method", method, "ucb or thompson")
        if not (is_number(width) and 0 <= width < math.inf):
            raise InputError("bandit width", width, "a number of at least 0")
        if method == "thompson" and generator is None:
            raise InputError("bandit generator", None, "a generator, as thompson draws")
        if not len(draft_lengths):
            raise InputError("bandit draft_lengths", draft_lengths, "at least one draft length")
        self._draft_lengths = [_whole("bandit draft_lengths", each, 0) for each in draft_lengths]
        self._discount, self._width = _share("bandit discount", discount), width
        self._generator = generator if method == "thompson" else None
        arms = len(self._draft_lengths)
        self._weight, self._tokens, self._time = [0.0] * arms, [0.0] * arms, [0.0] * arms
        self._arm = 0

    def propose(self) -> int:
        """Return the draft length of the next step [token]."""
        return self._draft_lengths[self._arm]

    def observe(self, emitted_tokens: int, step_time: float) -> None:
        """Take in what a step emitted [token] and how long it took [s]."""
        for sums in (self._weight, self._tokens, self._time):
            for arm in range(len(sums)):
                sums[arm] *= self._discount
        self._weight[self._arm] += 1
        self._tokens[self._arm] += emitted_tokens
        self._time[self._arm] += step_time
        self._arm = self._choose()

    def _choose(self) -> int:
        """Return the arm to play: one not yet seen, else the one with the highest score."""
        unseen = next((arm for arm, time in enumerate(self._time) if time == 0), None)
        if unseen is not None:
            return unseen
        means = [tokens / time for tokens, time in zip(self._tokens, self._time, strict=True)]
        scale = self._width * sum(self._tokens) / sum(self._time)
        if self._generator is not None:
            widths = self._generator.standard_normal(len(means)).tolist()
        else:
            widths = [1.0] * len(means)
            scale *= math.sqrt(math.log(1 + sum(self._weight)))
        pairs = zip(means, widths, self._weight, strict=True)
        scores = [mean + scale / math.sqrt(weight) * width for mean, width, weight in pairs]
        return max(range(len(scores)), key=scores.__getitem__)
