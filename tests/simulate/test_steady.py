"""Steady states beside textbooks, and beside the simulator."""

import numpy as np
import pytest
from msgspec.structs import replace
from rows import each_listed

from specmodel import Acceptance, deploy
from specmodel.core.prediction import decode_deployed
from specmodel.simulate import Arrivals, Lengths, draw_requests, prepare
from specmodel.simulate.drafting import scheduled
from specmodel.simulate.limits import usual_scheduler
from specmodel.simulate.requests import WORKLOADS
from specmodel.simulate.trial import mean_running, steady_times


@pytest.mark.parametrize("limit", [1, 3, 10])
@pytest.mark.parametrize("load", [0.3, 0.8])
def test_of_equal_servers_as_many_work_as_are_asked_for(limit, load):
    """M/M/c: busy servers are rate times service, by Little's law."""
    leaves = np.arange(1, limit + 1) / 2.0
    assert mean_running(leaves, load * limit / 2.0) == pytest.approx(load * limit, rel=1e-9)


def test_the_chain_ends_where_residence_jumps():
    """As where graphs end, at 20 others."""
    stays = np.repeat([1.0, 4.0], [20, 80])
    leaves = np.arange(1, 101) / stays
    assert mean_running(leaves, 12.0) < 13


@pytest.mark.slow
@each_listed
def test_running_requests_are_near_the_simulated(target, work, draft_length, most):
    deployment, _ = deploy(target=target, hardware="h100", drafter="eagle3")
    count, acceptance = 3000, Acceptance(acceptance_rate=0.7)
    requests = draw_requests(Arrivals(request_rate=1.0), WORKLOADS[work], count, 1)
    service = prepare(deployment, usual_scheduler(deployment, 3), requests, 3)
    service = replace(service, drafts=scheduled([draft_length]), acceptance=acceptance)
    stays = steady_times(service, requests, acceptance)[2]
    leaves = np.arange(1, len(stays) + 1) / stays
    for share in (0.2, most):
        rate = share * leaves.max()
        run = service.run(draw_requests(Arrivals(request_rate=rate), WORKLOADS[work], count, 1))
        near = 0.06 if share > 0.6 else 0.03
        assert run.running == pytest.approx(mean_running(leaves, rate), rel=near)


@pytest.mark.parametrize("share", [0.0, 0.75])
def test_prompts_beyond_a_steps_tokens_or_cached_are_in_it(share):
    deployment, _ = deploy(target="qwen3-8b", hardware="h100")
    lengths = Lengths(prompt_tokens=20_000, output_tokens=300)
    requests = draw_requests(Arrivals(request_rate=1.0), lengths, 600, 1)
    service = prepare(deployment, usual_scheduler(deployment, 0), requests, 0)
    service = replace(service, prefix_hit_rate=share)
    stays = steady_times(service, requests, Acceptance(acceptance_rate=0.0))[2]
    leaves = np.arange(1, len(stays) + 1) / stays
    rate = 0.4 * leaves.max()
    run = service.run(draw_requests(Arrivals(request_rate=rate), lengths, 600, 1))
    assert run.running == pytest.approx(mean_running(leaves, rate), rel=0.08)


@pytest.mark.parametrize("prompt", [2048, 8192])
def test_a_wave_of_equal_requests_is_in_lockstep(prompt):
    deployment, _ = deploy(target="qwen3-8b", hardware="h200")
    lengths = Lengths(prompt_tokens=prompt, output_tokens=512)
    requests = draw_requests(Arrivals(users=16), lengths, 16)
    run = prepare(deployment, usual_scheduler(deployment, 0), requests, 0).run(requests)
    load = {"batch_size": 16, "prompt_length": prompt, "output_length": 512}
    together, at_random = (
        float(decode_deployed(deployment, {}, **load, lockstep=is_so).tpot)
        for is_so in (True, False)
    )
    assert run.tpot.mean() == pytest.approx(together, rel=0.04)
    assert run.tpot.mean() < 0.95 * at_random
