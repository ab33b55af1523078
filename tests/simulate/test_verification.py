"""Adaptive verification step by step, against vLLM's rule on every number of tokens."""

import numpy as np
import pytest
from constant_steps import requests_of, tpot_of
from engine_rules import verified_drafts

from specmodel import Acceptance, deploy
from specmodel.simulate import Arrivals, Lengths, Service, Study
from specmodel.simulate.drafting import verifying
from specmodel.simulate.state import Limits
from specmodel.simulate.tables import TabulatedTimes

REACHED = (0.72, 0.55, 0.41, 0.31, 0.22, 0.14, 0.09)
RATES = Acceptance(acceptance_by_position=(np.array(REACHED) / (1, *REACHED[:-1])).tolist())
GRAPH, MOST, LONGEST = 60, 24, len(REACHED)
BY_TOKENS = 10e-3 + 0.1e-3 * np.arange(4000) + 50e-3 * (np.arange(4000) > GRAPH)
"""Seconds of a step by its tokens, which jump behind the largest graph."""


def jumping_times():
    """Return those times as a server's table has them."""
    nodes = np.arange(MOST + 1.0), np.array([0.0, 2000.0]), np.array([0.0, 1e9])
    lengths, prompts = np.arange(1, LONGEST + 2)[:, None], nodes[1]
    decoding = (lengths * nodes[0]).astype(int)
    base = np.repeat(BY_TOKENS[decoding][..., None], 2, axis=2)
    added = np.broadcast_to(0.1e-3 * prompts, (*decoding.shape, 2))
    beyond = added + 50e-3 * (decoding <= GRAPH)[..., None]
    more = np.repeat(np.concatenate([added, beyond])[..., None], 2, axis=3)
    more[:, 0] += 10e-3
    return TabulatedTimes(
        base=base, context_step=1e9, more=more, nodes=nodes, graph_tokens=float(GRAPH)
    )


@pytest.mark.parametrize("compiled", [False, True])
def test_each_step_verifies_as_many_tokens_as_the_rule_on_all_of_them(compiled):
    generator, times = np.random.default_rng(4), jumping_times()
    prompts, outputs = (generator.integers(low, 60, 200) for low in (1, 2))
    requests = requests_of(prompts, outputs, users=MOST)
    drafts = verifying(times, RATES, LONGEST, 50.0)
    limits = Limits(blocks=10_000, max_running=MOST, token_budget=4000)
    service = Service(times=times, limits=limits, drafts=drafts, acceptance=RATES)
    log = service.run(requests, log_steps=10_000, compiled=compiled).log
    log = log[log["decoding"] > 0]
    assert ((log["longer"] > 0) & (log["prompt_tokens"] > 0)).any()
    for step in log:
        decoding = int(step["decoding"])
        beside = decoding + int(step["prompt_tokens"])
        sampling = int(step["batch"])  # with so large a budget, a prompt is read in one step
        rule = verified_drafts(REACHED, decoding, sampling, BY_TOKENS, beside)
        assert step["draft_length"] * decoding + step["longer"] == rule
        assert step["step_time"] == pytest.approx(BY_TOKENS[beside + rule])


@pytest.mark.search
def test_it_gains_where_every_fixed_length_of_the_block_loses():
    """V4-Pro on eight B300, graphs of 1,024 tokens, SPEED-Bench (vLLM's blog, August 2026).

    At 256 requests it took 26.0 ms a token, plain decoding 33.8; fixed lengths of 5, 6 and 7 lost
    26, 26 and 53 % of its tokens a second, and 2.65 tokens were made a step, of 3.44 at 1.
    """
    served = {"target": "deepseek-v4-pro", "hardware": "b300", "drafter": "dspark"}
    served |= {"tensor_parallel": 8, "expert_parallel": 8, "kv_dtype": "fp8", "graph_limit": 1024}
    study = Study(
        deployment=deploy(**served)[0],
        acceptance=RATES,
        max_draft_length=LONGEST,
        lengths=Lengths(prompt_tokens=300, output_tokens=512),
        num_requests=880,
    )
    adaptive = "adaptive-verification"
    runs = {
        (users, name): study.run(name, Arrivals(users=users))
        for users, names in ((64, ("none", adaptive)), (256, ("none", "fixed:5", adaptive)))
        for name in names
    }
    assert tpot_of(runs[64, adaptive]) < tpot_of(runs[64, "none"])
    plain, fixed, own = (runs[256, name] for name in ("none", "fixed:5", adaptive))
    assert fixed.throughput < 0.85 * plain.throughput < plain.throughput < own.throughput
    assert tpot_of(plain) == pytest.approx(33.8e-3, rel=0.05)
    assert tpot_of(own) == pytest.approx(26.0e-3, rel=0.15)
    assert own.tokens_per_step == pytest.approx(2.65, rel=0.06)
