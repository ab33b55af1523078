"""What policies carry by simulation: runs long enough, queues by hand, the same for any order."""

from functools import cache

import pytest
from constant_steps import constant_times
from msgspec.structs import force_setattr, replace
from printed import refused

from specmodel import Acceptance, InputError, deploy
from specmodel.simulate import Arrivals, Lengths, Service, Study, Targets, Trial, capacities
from specmodel.simulate.carried import capacity_row, check_alone
from specmodel.simulate.state import Limits

DEPLOYMENT, _ = deploy(target="qwen3-30b-a3b", hardware="h100", drafter="eagle3")
SHORT = Lengths(prompt_tokens=120, output_tokens=40, output_spread=0.3)


def trial(lengths=SHORT, *, tpot=0.015, **fields):
    how = {"num_requests": fields.pop("num_requests", 200), "seed": fields.pop("seed", 0)}
    how |= {"acceptance": Acceptance(acceptance_rate=0.7), "max_draft_length": 3}
    made = Study(deployment=DEPLOYMENT, lengths=lengths, **how)
    targets = fields.pop("targets", Targets(tpot=tpot, ttft=0.25))
    return Trial(study=made, targets=targets, **({"replications": 2} | fields))


@cache
def capacity(policy):
    """What the usual trial finds, which several tests look at."""
    return trial().capacity(policy)


@pytest.mark.search
def test_one_server_with_constant_work_has_the_capacity_of_its_waits():
    """M/D/1 of one request at a time, prompt and token of a second each: P(wait = 0) = 1 - load.

    A first token within 1 s of the start is met exactly by those who do not wait at all, so that
    the share 1 - 2 rate meets it: 70 % at 0.15 requests/s.
    """
    lengths = Lengths(prompt_tokens=5, output_tokens=2)
    tried = trial(lengths, targets=Targets(ttft=1.0 + 1e-9, attainment=0.7), replications=4)
    tried = on_constant_times(tried, Limits(blocks=10**6, max_running=1), requests=3000)
    found = tried.capacity("none")
    assert found.rate == pytest.approx(0.15, rel=0.04)
    low, high = found.simulated
    assert low < 0.15 * 1.04
    assert high > 0.15 * 0.96


def on_constant_times(tried, limits, requests):
    """Return a trial on a server whose steps take a second, whatever they carry."""
    times = constant_times(1.0, 1.0, limits.max_running)
    own = Service(times=times, limits=limits)
    tried.study.__dict__.update(plain_service=own, first_token_time=0.0)
    force_setattr(tried.study, "num_requests", requests)
    return tried


@pytest.mark.search
def test_where_only_slots_limit_the_capacity_is_that_at_which_requests_wait_ever_longer():
    """Steps of a second in 16 slots, one with the prompt and 19 more a request: 16/20 a s."""
    tried = trial(Lengths(prompt_tokens=5, output_tokens=20), targets=Targets(tpot=3.0))
    tried = on_constant_times(
        tried, Limits(blocks=10**6, max_running=16, token_budget=10**5), requests=3000
    )
    tried.study.plain_service.times.more[:] = 0.0
    found = tried.capacity("none")
    assert found.rate == pytest.approx(0.8, rel=0.06)


@pytest.mark.search
def test_the_same_seed_gives_the_same_in_any_order_and_another_nearly_the_same():
    first, second, other = trial(), trial(), trial(seed=5)
    first.load("none", 20.0)
    found, again, differs = (tried.load("fixed:2", 20.0) for tried in (first, second, other))
    assert again.means == found.means
    assert differs.means != found.means
    assert differs.means["tpot"] == pytest.approx(found.means["tpot"], rel=0.05)


@pytest.mark.search
def test_workers_give_the_same_records():
    pieces = [(trial(), "none"), (trial(tpot=0.012), "none")]
    alone, shared = (capacities(pieces, workers=workers) for workers in (1, 2))
    for one, other in zip(alone, shared, strict=True):
        assert one.rate == other.rate
        assert [load.means for load in one.loads] == [load.means for load in other.loads]
    refused(r"workers.*at least 1", capacities, pieces, workers=0)


def test_the_work_of_a_run_is_what_rate_and_mean_output_make_of_it():
    """So that the noise of lengths and arrivals does not pass for load."""
    tried = trial(Lengths(prompt_tokens=50, output_tokens=60, output_spread=1.0))
    for seed in range(3):
        found = tried._requests(seed, 7.0, 400, 0.01).at(slice(400))
        work = found.output_tokens.sum() / found.arrival_time[-1]
        assert work == pytest.approx(7.0 * tried.mean_output)
    assert tried.mean_output == pytest.approx(60, rel=0.03)  # the longest are cut


@pytest.mark.search
def test_tighter_targets_and_larger_shares_carry_less():
    rates = [
        trial(targets=Targets(tpot=tpot, ttft=0.25, attainment=share)).capacity("none").rate
        for tpot, share in ((0.015, 0.5), (0.015, 0.95), (0.01, 0.95), (0.003, 0.9))
    ]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == 0


def test_targets_that_a_request_alone_misses_are_told_with_its_times():
    with pytest.raises(InputError, match=r"tpot_target.*of a single request with fixed:3"):
        check_alone(trial(tpot=0.001), ["none", "fixed:3"])
    check_alone(trial(tpot=0.005), ["none", "fixed:3"])
    times = {name: trial().alone(name)[0] for name in ("none", "fixed:3")}
    between = Targets(ttft=sum(times.values()) / 2, tpot=1.0)
    assert times["none"] < between.ttft
    check_alone(trial(targets=between), [*times])  # one that misses does not refuse the other
    with pytest.raises(InputError, match=r"ttft_target.*of a single request with fixed:3"):
        check_alone(trial(targets=between), ["fixed:3"])


def test_a_row_tells_how_sure_a_capacity_is():
    tried = trial()
    row = capacity_row(tried, "fixed:3", capacity("fixed:3"))
    assert row["predicted_low"] < row["simulated_low"] < row["capacity"] < row["predicted_high"]
    nothing = capacity_row(tried, "none", trial(tpot=0.004).capacity("none"))
    assert (nothing["capacity"], nothing["tpot"], nothing["predicted_low"]) == (0, None, None)


@pytest.mark.search
def test_a_coarse_search_is_a_tenth_off_at_most():
    found = trial(is_coarse=True).capacity("fixed:3").rate
    assert found == pytest.approx(capacity("fixed:3").rate, rel=0.1)


def test_arrivals_in_bursts_carry_less():
    bursts = Arrivals(request_rate=1.0, process="bursts", burst=20)
    assert trial(arrivals=bursts).capacity("none").rate < capacity("none").rate


@pytest.mark.search
@pytest.mark.parametrize("factor", [0.9, 1.15])
def test_slower_steps_carry_what_the_interval_says_of_their_factor(factor):
    """A server whose steps all take so many times as long, simulated anew."""
    found, other = (trial(num_requests=2000) for _ in range(2))
    found = found.capacity("none")
    service = other.study.plain_service
    scaled = replace(
        service.times, base=factor * service.times.base, more=factor * service.times.more
    )
    other.study.__dict__["plain_service"] = replace(service, times=scaled)
    told = found.rate * found.scaled(factor) / found.scaled(1.0)
    assert told == pytest.approx(other.capacity("none").rate, rel=0.04)


def test_nine_in_ten_requests_stay_within_each_target_at_the_capacity():
    targets, met = trial().targets, capacity("fixed:3").met
    assert targets.attainment == 0.9
    for name in ("ttft", "tpot"):
        target = getattr(targets, name)
        assert target is None or met.means[f"{name}_p90"] <= target
