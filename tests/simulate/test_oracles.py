"""The simulator beside queueing theory, and beside `predict` in its limits."""

import numpy as np
import pytest
from constant_steps import constant_times, requests_of, tpot_of
from msgspec.structs import replace
from rows import each_row, slow

import specmodel
from specmodel import Acceptance, deploy
from specmodel.simulate import (
    Arrivals,
    Lengths,
    Service,
    Study,
    Variation,
    draw_requests,
    prepare,
    replay_times,
    simulate,
    timeline,
)
from specmodel.simulate.drafting import drafting, scheduled
from specmodel.simulate.limits import usual_scheduler
from specmodel.simulate.state import BY_BATCH, OWN, Limits
from specmodel.simulate.tables import TabulatedTimes
from specmodel.simulate.traces import load_preset, sample_trace

QWEN = {"target": "qwen3-30b-a3b", "hardware": "h100", "drafter": "eagle3"}
WORKS = {"fixed": ([2], [1.0]), "mixed": ([1, 9], [0.75, 0.25])}


@pytest.mark.parametrize(
    ("work", "load"), [("mixed", 0.5), *slow(("mixed", 0.8), ("fixed", 0.5), ("fixed", 0.8))]
)
def test_one_request_at_a_time_waits_as_pollaczek_and_khinchine_say(work, load):
    """W = rate E[S^2] / (2 (1 - load)), with exact moments of the work S of steps of a second."""
    steps, chances = (np.array(each, dtype=float) for each in WORKS[work])
    mean, square = (steps * chances).sum(), (steps**2 * chances).sum()
    rate = load / mean
    waits = []
    for replication in range(24):
        random = np.random.default_rng([replication, len(work)])
        count = 4000
        arrivals = Arrivals(request_rate=rate).times(count, replication)
        outputs = random.choice(steps, count, p=chances).astype(np.int64)
        requests = requests_of(5, outputs, arrivals)
        service = Service(times=constant_times(1.0, 1.0), limits=Limits(blocks=1000))
        run = service.run(requests, compiled=False)
        waits.append((run.started - requests.arrival_time)[run.measured].mean())
    expected = rate * square / (2 * (1 - load))
    error = np.std(waits, ddof=1) / len(waits) ** 0.5
    assert error < 0.05 * expected
    assert np.mean(waits) == pytest.approx(expected, abs=3 * error)


@pytest.mark.parametrize(
    ("arrivals", "draft_length"), [(Arrivals(users=1), 3), (Arrivals(request_rate=1e-5), 0)]
)
def test_one_user_decodes_as_predicted_at_batch_size_one(arrivals, draft_length):
    requests = draw_requests(arrivals, Lengths(prompt_tokens=500, output_tokens=2000), 80, 2)
    deployment, _ = deploy(**QWEN)
    how = {"drafts": scheduled([draft_length]), "acceptance": Acceptance(acceptance_rate=0.7)}
    service = prepare(deployment, usual_scheduler(deployment, 3), requests, 3)
    run = replace(service, **how).run(requests)
    contexts = np.linspace(500, 2500, 41)
    at = {"batch_size": 1, "draft_length": draft_length}
    predicted = specmodel.predict(**QWEN, **at, context_length=contexts, acceptance=0.7)
    assert tpot_of(run) == pytest.approx(predicted.tpot.mean(), rel=0.01)
    assert run.ttft.max() == pytest.approx(run.ttft.min(), rel=1e-6)


@pytest.mark.parametrize("users", [4, 40])
@pytest.mark.parametrize("draft_length", [0, 2])
def test_a_closed_loop_of_endless_outputs_is_a_batch(users, draft_length):
    requests = draw_requests(
        Arrivals(users=users), Lengths(prompt_tokens=400, output_tokens=1200), users, 2
    )
    deployment, _ = deploy(**QWEN)
    service = prepare(deployment, usual_scheduler(deployment, 2), requests, 2)
    table, sizes = service.times, np.arange(service.times.max_requests + 1)
    rows = [table.step_time(k, sizes, 700) for k in range(3)]  # the context is held
    held = np.repeat(np.array(rows)[:, :, None], table.base.shape[2], axis=2)
    service = replace(
        service,
        times=replace(table, base=held),
        drafts=scheduled([draft_length]),
        acceptance=Acceptance(acceptance_rate=0.7),
    )
    run = service.run(requests, log_steps=400)
    full = run.log["decoding"] == users
    at = {"batch_size": users, "draft_length": draft_length}
    predicted = specmodel.predict(**QWEN, **at, context_length=700, acceptance=0.7)
    emitted = run.log["emitted_tokens"][full].sum() / full.sum() / users
    assert run.log["step_time"][full] == pytest.approx(float(predicted.step_time), rel=2e-3)
    noise = 4 * 1.2 / (full.sum() * users) ** 0.5
    assert emitted == pytest.approx(
        float(predicted.tokens_per_step), abs=noise if draft_length else 0
    )
    assert emitted == pytest.approx(float(predicted.tokens_per_step), rel=0.03)


def test_drafts_fare_as_acceptance_does_at_the_context_of_their_step():
    """At the ends exactly as with that of the nearest alone, in between in the mean."""
    deployment, _ = deploy(**QWEN)

    def accepted(prompt, **form):
        study = Study(
            deployment=deployment,
            acceptance=Acceptance(**form, measured_draft_length=3),
            max_draft_length=3,
            lengths=Lengths(prompt_tokens=prompt, output_tokens=50),
            num_requests=300,
        )
        requests = study.requests(Arrivals(users=8))
        requests = replace(requests, prompt_tokens=np.full(300, prompt))
        return study.service("fixed:3").run(requests).accepted_tokens.tolist()

    by_context = {"acceptance_by_context": {2048: 3.2, 32_768: 2.1}}
    for prompt, tokens in ((100, 3.2), (40_000, 2.1)):
        assert accepted(prompt, **by_context) == accepted(prompt, tokens_per_step=tokens)
    between = sum(accepted(8192, **by_context))
    assert between == pytest.approx(sum(accepted(8192, tokens_per_step=2.65)), rel=0.02)


@pytest.mark.parametrize(
    "form", [{"acceptance_rate": 0.6}, {"acceptance_by_context": {100: 1.3, 10_000: 1.3}}]
)
def test_a_lookup_emits_what_is_predicted(form):
    where = {"target": "mixtral-8x7b", "hardware": "h200", "tensor_parallel": 2}
    where["drafter"] = specmodel.ngram_drafter(proposal_rate=0.3)
    measured = {} if "acceptance_rate" in form else {"measured_draft_length": 3}
    acceptance = Acceptance(**form, **measured)
    study = Study(
        deployment=deploy(**where)[0],
        acceptance=acceptance,
        max_draft_length=3,
        lengths=Lengths(prompt_tokens=100, output_tokens=500),
        num_requests=60,
    )
    run = study.run("fixed:3", Arrivals(users=8))
    predicted = specmodel.predict(
        **where, batch_size=8, draft_length=3, context_length=350, acceptance=acceptance
    )
    tokens = float(predicted.tokens_per_step)
    assert run.tokens_per_step == pytest.approx(tokens, abs=4 * 1.2 / (30_000 / tokens) ** 0.5)


@each_row("policy", ["none", "fixed:3", "cascade", "goodput", "sglang"])
def test_one_user_with_a_state_of_each_request_is_the_replay(policy):
    """To the last digit as context grows, without noise: every step, and every request.

    A server emits the first token with the prompt, before the first position that is replayed.
    """
    deployment, _ = deploy(
        target="olmoe-1b-7b", hardware="rtx_6000_ada", engine="vllm-moesd-2025", drafter="eagle"
    )
    times = replay_times(deployment, max_draft_length=7, context_length=0, growth=900)
    lengths = np.random.default_rng(2).integers(20, 400, 12)
    trace = sample_trace(load_preset("code-eagle"), 12, lengths, np.random.default_rng(3))
    trace = replace(trace, prompt_tokens=np.arange(10, 130, 10))
    still = Variation(timing_noise=0.0, request_expert_spread=0.0, step_expert_spread=0.0)
    how = {"seed": 5, "policy_state": "request", "variation": still}
    records = simulate(trace, times, [policy], **how)
    steps = [timeline(trace, times, policy, request=n, **how) for n in range(12)]

    names = ("proposed_tokens", "accepted_tokens")
    served = replace(trace, **{n: np.insert(getattr(trace, n), trace.starts, 0) for n in names})
    flat = times.table(pauses=policy not in ("none", "fixed:3"))
    base = np.delete(flat.base.reshape(-1, flat.rows), 1, axis=0)  # a step without a proposal
    table = TabulatedTimes(
        base=np.repeat(base[:, None], 2, axis=1),
        context_step=times.context_step,
        more=np.zeros((len(base), 2, 2, 2)),
        nodes=(np.array([0.0, 1.0]),) * 3,
    )
    asked = {"times": table, "acceptance": None, "max_draft_length": 7, "context": 0.0}
    drafts = drafting(policy, state="request", **asked)
    acceptance = replace(served, output_tokens=lengths + 1)
    service = Service(
        times=table, limits=Limits(blocks=10_000), drafts=drafts, acceptance=acceptance
    )
    requests = requests_of(trace.prompt_tokens, lengths + 1, users=1)
    run = service.run(requests, log_steps=10_000, compiled=False)
    log = run.log[run.log["decoding"] > 0]
    for name in ("draft_length", "emitted_tokens", "step_time"):
        expected = np.concatenate([own[name] for own in steps])
        np.testing.assert_array_equal(log[name], expected)
    np.testing.assert_array_equal(run.drafted_tokens, records["drafted_tokens"])
    spent = np.split(log["step_time"], np.cumsum(records["steps"])[:-1])
    if policy != "none":  # whose time is a sum over positions, added in another order
        assert [np.cumsum(own)[-1] for own in spent] == records["time"].tolist()
        assert service.drafts.kind == (BY_BATCH if policy == "fixed:3" else OWN)
