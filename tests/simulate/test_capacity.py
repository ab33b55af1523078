"""Capacity beside servers whose capacity is known by hand, and the coverage of its intervals."""

import numpy as np
import pytest
from printed import refused
from rows import listed
from scipy import stats

from specmodel.simulate import Targets
from specmodel.simulate.capacity import FINE, GROWTH, Load, search, widened

WIDTH = GROWTH ** (1 / FINE)
"""From the capacity to the first rate found to fail."""


def by_formula(slowness, *, count=1000):
    """Rates at which the slowness at a share p of requests is slowness(rate, p)."""
    shares = (np.arange(count) + 0.5) / count
    return lambda rate: Load(rate=rate, slowness=(slowness(rate, shares),))


def exponential_wait(service, target):
    """Times in the system of an M/M/1 queue: exponential with mean service / (1 - load)."""

    def slowness(rate, share):
        load = rate * service
        return -np.log1p(-share) * service / (1 - load) / target if load < 1 else share + np.inf

    return slowness


@pytest.mark.parametrize("start", [0.01, 3.0, 50.0])
@pytest.mark.parametrize("attainment", [0.5, 0.9, 0.99])
def test_the_capacity_of_a_queue_with_exponential_times_is_found_from_anywhere(start, attainment):
    """P(T <= t) = 1 - exp(-(1/s - rate) t) = a gives the rate 1/s + log(1 - a)/t."""
    service, target = 0.05, 2.0
    found = search(by_formula(exponential_wait(service, target)), attainment, start)
    expected = 1 / service + np.log(1 - attainment) / target
    assert found.rate <= expected * 1.002
    assert found.rate * WIDTH >= expected * 0.998
    fails = next(load.rate for load in found.loads if load.rate > found.rate)
    assert 1 < fails / found.rate <= WIDTH * 1.000001
    assert len(found.loads) <= 16 + abs(np.log(expected / start)) / np.log(GROWTH)
    assert found.scaled(1.0) == pytest.approx(expected, rel=0.003)


@pytest.mark.parametrize("factor", [0.85, 0.95, 1.1, 1.3])
def test_times_in_proportion_give_the_capacity_of_a_slower_queue(factor):
    try_rate = by_formula(exponential_wait(0.05, 2.0))
    found = widened(search(try_rate, 0.9, 3.0), try_rate, (0.85, 1.3))
    expected = 1 / (0.05 * factor) + np.log(0.1) / 2.0
    assert found.scaled(factor) == pytest.approx(expected, rel=0.02)


def test_the_interval_holds_the_capacity_under_drawn_factors():
    """80 % of 1,000 factors leave the capacity, by its formula, inside the interval."""
    try_rate = by_formula(exponential_wait(0.05, 2.0))
    found = search(try_rate, 0.9, 3.0)
    drawn = np.exp(0.1 * np.random.default_rng(1).standard_normal(1000))
    true = 1 / (0.05 * drawn) + np.log(0.1) / 2.0
    low, high = widened(found, try_rate, (np.exp(-0.12816), np.exp(0.12816))).predicted
    base = (1 / 0.05 + np.log(0.1) / 2.0) / found.rate  # of the steps of the grid
    assert 0.77 <= np.mean((true >= low * base) & (true <= high * base)) <= 0.83


def test_rates_are_tried_as_far_as_an_interval_reaches():
    try_rate = by_formula(lambda rate, share: share * 0 + rate**0.2)
    found = widened(search(try_rate, 0.9, 1.0), try_rate, (0.8, 1.3))
    for factor in (0.8, 1.3):  # rate^0.2 = 1/f gives f^-5, at 1/f of which times are f as long
        assert found.scaled(factor) == pytest.approx(factor**-6, rel=0.01)


def test_no_lower_rate_is_tried_where_times_no_longer_fall_and_the_low_end_is_none():
    """Slowness (0.9 + rate / 10) of at least 0.9 misses targets of 1/1.3 at every rate."""
    tried, try_rate = [], by_formula(lambda rate, share: share * 0 + 0.9 + rate / 10)

    def noted(rate):
        tried.append(rate)
        return try_rate(rate)

    found = widened(search(try_rate, 0.9, 1.0), noted, (0.95, 1.3))
    assert found.scaled(1.3) == 0
    assert found.predicted[0] == 0 < found.rate < found.predicted[1]
    lower = [rate for rate in tried if rate < found.rate]
    assert 1 <= len(lower) <= 12  # falls by less than 0.5 % a step from a rate of 0.22


def test_a_rate_that_passes_again_is_not_taken():
    def slowness(rate, share):
        return share * 0 + (1.5 if 2 < rate < 2.6 or rate > 8 else 0.5)

    assert 2 / WIDTH <= search(by_formula(slowness), 0.9, 1.0).rate <= 2


@pytest.mark.parametrize(("met", "attainment"), [((19, 19, 19), 0.95), ((17, 19), 0.9)])
def test_the_share_asked_for_passes_whatever_its_sum_rounds_to(met, attainment):
    slowness = tuple(np.repeat([0.5, 2.0], [n, 20 - n]) for n in met)
    load = Load(rate=1.0, slowness=slowness)
    assert load.passes(attainment)
    assert load.quantile(attainment) == 0.5
    assert Load(rate=1.0, slowness=(np.repeat([0.5, 2.0], [11, 9]),)).quantile(0.55) == 0.5


def test_a_lower_rate_that_fails_by_chance_leaves_the_interval_around_the_rate():
    def slowness(rate, share):
        return share * 0 + (rate / 4 if rate > 1 else 2 - rate if rate < 0.5 else rate)

    try_rate = by_formula(slowness)
    found = widened(search(try_rate, 0.9, 0.8), try_rate, (0.7, 3.0))
    low, high = found.predicted
    assert 0 <= low <= found.rate <= high


def test_rates_that_never_fail_are_refused():
    try_rate = by_formula(lambda rate, share: share * 0)
    refused("All rates up to this one meet the targets", search, try_rate, 0.9, 1.0)


def test_unsteady_loads_fail_whatever_requests_met():
    load = Load(rate=1.0, slowness=(np.zeros(10),), is_steady=False)
    assert load.share() == 1
    assert not load.passes(0.5)


FACTORS = (0.9, 1.0, 1.1, 1.05, 0.95)
"""Of the capacities of replications, over 1.3 requests/s."""


def of_replications(capacities):
    """Requests whose slowness goes from half to one and a half times the rate over a capacity."""
    slow = np.linspace(0.5, 1.5, 1000)
    return lambda rate: Load(rate=rate, slowness=tuple(slow * rate / own for own in capacities))


@pytest.mark.parametrize("times", [1, 4])
def test_the_simulation_interval_is_of_students_law(times):
    """Within 5 % beyond ten replications, which take the law of ten."""
    factors = FACTORS * times
    found = search(of_replications(np.multiply(1.3, factors)), 0.9, 1.25)
    low, high = found.simulated
    exact = stats.t.ppf(0.9, len(factors) - 1) * stats.sem(np.log(factors))
    assert np.log(high / found.rate) == pytest.approx(exact, rel=1e-3 if times == 1 else 0.05)
    assert low * high == pytest.approx(found.rate**2)


@pytest.mark.parametrize("start", [0.3, 1.2, 6.0])
def test_all_replications_decide_and_each_tells_its_own_capacity(start):
    """A tenth of each misses at its factor times 1.3/1.4, of all together near the middle one."""
    try_rate = of_replications(np.multiply(1.3, FACTORS))
    found = search(try_rate, 0.9, start)
    every = [GROWTH ** (place / FINE) for place in range(-2 * FINE, 2 * FINE)]
    passing = [rate for rate in every if try_rate(rate).passes(0.9)]
    assert found.rate == max(passing)
    assert found.by_replication == pytest.approx(np.multiply(1.3, FACTORS) / 1.4, rel=1e-3)
    assert found.met is not None
    assert len(found.met.slowness) == 5


@listed
def test_targets_that_mean_nothing_are_refused(fields, culprit):
    refused(culprit, Targets, **fields)
