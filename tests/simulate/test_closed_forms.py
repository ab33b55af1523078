"""Closed forms beside textbooks, beside each other, and beside the simulator."""

import math

import numpy as np
import pytest
from msgspec.structs import replace
from rows import slow

from specmodel import Acceptance, deploy
from specmodel.core.prediction import decode_deployed
from specmodel.simulate import Arrivals, Lengths, chain_state, draw_requests, prepare
from specmodel.simulate.closed_forms import LoadCurves, load_curves
from specmodel.simulate.drafting import fixed
from specmodel.simulate.limits import usual_scheduler
from specmodel.simulate.requests import WORKLOADS


def curves(first, slope, limit, output=101.0):
    """Return a line: residence of `first` seconds alone, and `slope` more with each other."""
    sizes = np.arange(limit)
    nothing = np.zeros(limit)
    return LoadCurves(
        tpot=np.asarray((first + slope * sizes) / (output - 1), float),
        prefill=nothing,
        joining=nothing,
        output_tokens=output,
    )


@pytest.mark.parametrize("limit", [1, 3, 10])
@pytest.mark.parametrize("load", [0.3, 0.8])
def test_the_chain_of_equal_residence_is_erlangs(limit, load):
    """M/M/c: C = (a^c / c!) / (1 - load) over that and the sum below; Lq = C load / (1 - load)."""
    state = chain_state(curves(2.0, 0.0, limit), load * limit / 2.0)
    a = load * limit
    last = a**limit / math.factorial(limit) / (1 - load)
    waits = last / (last + sum(a**n / math.factorial(n) for n in range(limit)))
    assert float(state.running) == pytest.approx(a, rel=1e-9)
    assert float(state.waiting) == pytest.approx(waits * load / (1 - load), rel=1e-9)
    assert state.largest_rate == limit / 2.0
    assert float(state.tpot) == pytest.approx(0.02, rel=1e-9)


def test_the_chain_ends_where_residence_jumps():
    """As where graphs end, at 20 others."""
    jumping = curves(1.0, 0.0, 100)
    jumping.tpot[20:] *= 4
    assert float(chain_state(jumping, 12.0).running) < 13
    assert np.isnan(chain_state(jumping, 30.0).running)


def test_rates_that_are_not_carried_have_no_state():
    state = chain_state(curves(2.0, 1.0, 50), [0.5, 2.0])
    assert np.isfinite(state.running).tolist() == [True, False]
    assert 0.9 < state.largest_rate < 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "work", "draft_length", "most"),
    [
        ("qwen3-8b", "code", 3, 0.5),  # above, the batch wanders past where graphs end
        *slow(
            ("qwen3-8b", "code", 0, 0.7),
            ("qwen3-30b-a3b", "summaries", 0, 0.7),
            ("qwen3-30b-a3b", "summaries", 3, 0.7),
        ),
    ],
)
def test_closed_forms_are_near_the_simulator(target, work, draft_length, most):
    deployment, _ = deploy(target=target, hardware="h100", drafter="eagle3")
    count, scheduler = 3000, usual_scheduler(deployment, 3)
    requests = draw_requests(Arrivals(request_rate=1.0), WORKLOADS[work], count, 1)
    acceptance = Acceptance(acceptance_rate=0.7)
    how = {"drafts": fixed(draft_length), "acceptance": acceptance}
    service = replace(prepare(deployment, scheduler, requests, 3), **how)
    found = load_curves(service, requests, acceptance)
    top = chain_state(found, 1e-3).largest_rate
    for share in (0.2, most):
        asked = draw_requests(Arrivals(request_rate=share * top), WORKLOADS[work], count, 1)
        run = service.run(asked)
        near = (0.04, 0.06, 0.05) if share > 0.6 else (0.02, 0.03, 0.04)
        chain = chain_state(found, share * top)
        assert run.mean_tpot == pytest.approx(float(chain.tpot), rel=near[0])
        assert run.running == pytest.approx(float(chain.running), rel=near[1])
        assert run.ttft[run.measured].mean() == pytest.approx(float(chain.ttft), rel=near[2])


@pytest.mark.parametrize("share", [0.0, 0.75])
def test_prompts_beyond_a_steps_tokens_or_cached_are_in_the_closed_form(share):
    deployment, _ = deploy(target="qwen3-8b", hardware="h100")
    lengths = Lengths(prompt_tokens=20_000, output_tokens=300)
    requests = draw_requests(Arrivals(request_rate=1.0), lengths, 600, 1)
    service = prepare(deployment, usual_scheduler(deployment, 0), requests, 0)
    service = replace(service, prefix_hit_rate=share)
    found = load_curves(service, requests)
    rate = 0.4 * chain_state(found, 1e-3).largest_rate
    run = service.run(draw_requests(Arrivals(request_rate=rate), lengths, 600, 1))
    state = chain_state(found, rate)
    assert run.mean_tpot == pytest.approx(float(state.tpot), rel=0.06)
    assert run.ttft[run.measured].mean() == pytest.approx(float(state.ttft), rel=0.12)


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
