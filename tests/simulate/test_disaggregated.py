"""Disaggregated prefill: queues, order, and steps that carry none."""

import numpy as np
import pytest
from constant_steps import constant_times, requests_of
from msgspec.structs import replace
from printed import refused

from specmodel.simulate import Arrivals, Lengths, Service, draw_requests
from specmodel.simulate.disaggregated import DisaggregatedPrefill
from specmodel.simulate.state import Limits


def ran(requests, servers, transfer=0.25):
    class Prefill(DisaggregatedPrefill):
        def transfer_time(self, requests):
            return np.full(requests.count, transfer)

    prefill = Prefill(servers=servers, deployment=None)
    times = constant_times(0.001, 1.0, max_requests=50)
    service = Service(times=times, limits=Limits(blocks=10_000), prefill=prefill)
    return service.run(requests, compiled=False)


def test_prompts_wait_for_a_server_and_their_entries_are_handed_on():
    requests = requests_of(100, [3, 3, 1, 3], [0.0, 0.0, 0.0, 5.0])
    run = ran(requests, 2)
    assert run.ttft.tolist() == [1.25, 1.25, 2.25, 1.25]
    assert run.state.prefilled_tokens == 0, "steps carry no prefill"
    assert run.tpot[[0, 1, 3]] == pytest.approx([0.001] * 3)
    assert run.state.free_blocks == 10_000


def test_one_server_waits_as_pollaczek_and_khinchine_say_of_fixed_work():
    waits = []
    for seed in range(20):
        lengths = Lengths(prompt_tokens=100, output_tokens=2)
        requests = draw_requests(Arrivals(request_rate=0.5), lengths, 3000, seed)
        waits.append(ran(requests, 1, 0.0).ttft.mean() - 1.0)
    error = np.std(waits, ddof=1) / len(waits) ** 0.5
    assert np.mean(waits) == pytest.approx(0.5 / (2 * (1 - 0.5)), abs=3 * error)


def test_a_prompt_beyond_the_budget_is_cut():
    requests = requests_of(20_000, 2)
    assert ran(requests, 1, 0.0).ttft.tolist() == [3.0]  # of 8,192 tokens, two whole and a rest
    cached = replace(requests, cached_tokens=np.array([12_000]))
    assert ran(cached, 1, 0.0).ttft.tolist() == [1.0], "what is cached is not computed"


def test_users_are_refused():
    requests = draw_requests(Arrivals(users=2), Lengths(prompt_tokens=9, output_tokens=9), 4)
    refused("prefill", ran, requests, 1)
