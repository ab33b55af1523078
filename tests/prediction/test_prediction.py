"""Prediction end to end: identities, drafters, memory, and the forms of acceptance."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace
from one_by_one import pass_time
from printed import refused
from rows import cases, faults, one_case
from strategies import pass_of

from specmodel import (
    Acceptance,
    Deployment,
    EngineProfile,
    deploy,
    load_architecture,
    load_engine,
    load_hardware,
    predict,
)
from specmodel.core import drafters
from specmodel.core.algebra.experts import expert_use
from specmodel.core.algebra.routing import zipf_popularity
from specmodel.core.cost import resolve, step_times
from specmodel.core.prediction import intervals
from specmodel.core.prediction.evaluate import evaluate

ENGINE = EngineProfile(
    schema_version=1, name="test", source="invented for tests", kernel_time=2e-6, pass_time=3e-4,
    draft_pass_time=1e-4, reject_time=2e-4, reject_time_per_request=1e-6,
)  # fmt: skip
QWEN2 = {"target": "qwen2-57b-a14b", "drafter": "qwen2-0.5b", "hardware": "a800_sxm_80gb"}
QWEN2 |= {"tensor_parallel": 2, "context_length": 512}
BY_POSITION = Acceptance(acceptance_by_position=[0.8, 0.6, 0.4])
MEASURED = Acceptance(tokens_per_step=4.7)
LONGER = Acceptance(tokens_per_step=4.7, measured_draft_length=4)


def qwen2(**changes):
    point = {"batch_size": [1, 16, 64], "draft_length": 4, "acceptance": 0.8, "engine": ENGINE}
    return predict(**(QWEN2 | point | changes))


def launches(part):
    return sum(np.asarray(time.launch_time).item() for time in part.components.values())


@pytest.mark.parametrize("stack", ["datasheet", None])
def test_overheads_add_up_as_stated(stack):
    """The engine's time of a kernel adds to the kernel's own, which is 0 by the data sheet."""
    apart = load_engine("ideal").with_changes("engine", {"fuses_all": False})
    ideal, real = qwen2(engine=apart, stack=stack), qwen2(stack=stack)
    assert (launches(ideal.times.forward) == 0) == (stack == "datasheet")
    kernels = launches(real.times.forward) - launches(ideal.times.forward)
    more = real.forward_time - ideal.forward_time
    np.testing.assert_allclose(more, kernels + ENGINE.pass_time, rtol=1e-9)
    np.testing.assert_allclose(real.reject_time, 2e-4 + 1e-6 * real.batch_size, rtol=1e-12)
    draft_kernels = launches(real.times.drafting[0].each) - launches(ideal.times.drafting[0].each)
    np.testing.assert_allclose(real.draft_time - ideal.draft_time, 4 * (draft_kernels + 1e-4), 1e-9)


@settings(max_examples=15)
@given(st.floats(0.05, 0.95), st.integers(1, 8))
def test_every_form_of_acceptance_gives_the_same_speedup(rate, length):
    by_rate = qwen2(acceptance=rate, draft_length=length)
    tokens = by_rate.tokens_per_step[0].item()
    efficiency = {"step_efficiency": tokens / (length + 1), "measured_draft_length": length}
    forms = [{"tokens_per_step": tokens}, {"accepted_fraction": (tokens - 1) / length}]
    for form in (*forms, efficiency, {"acceptance_by_position": [rate] * 10}):
        other = qwen2(acceptance=Acceptance(**form), draft_length=length)
        np.testing.assert_allclose(other.speedup, by_rate.speedup, rtol=1e-9)


def test_measured_acceptance_carries_to_other_lengths_through_the_rate():
    measured = Acceptance(tokens_per_step=3.3616, measured_draft_length=4)
    p = qwen2(acceptance=measured, draft_length=[[2], [6]])
    np.testing.assert_allclose(p.speedup, qwen2(draft_length=[[2], [6]]).speedup, rtol=1e-9)
    other = Acceptance(tokens_per_step=2.0)
    refused("measured_draft_length", qwen2, acceptance=other, draft_length=[[2], [6]])


def test_trees_take_tokens_per_step_and_verify_tokens():
    tree = qwen2(acceptance=Acceptance(tokens_per_step=3.5), verify_tokens=32, drafter="eagle")
    chain = qwen2(acceptance=Acceptance(tokens_per_step=3.5), drafter="eagle")
    assert (tree.verify_time > chain.verify_time).all()
    assert (tree.tokens_per_step == 3.5).all()
    assert (tree.draft_time > chain.draft_time).all()  # a pass carries the width of the tree
    assert np.isnan(tree.best_draft_length).all()
    assert tree.rows()[0]["break_even_acceptance_rate"] is None
    refused(r"^verify_tokens: got 32", qwen2, verify_tokens=32)
    refused("tokens_per_step", qwen2, acceptance=Acceptance(tokens_per_step=5.5), verify_tokens=32)
    none = {"acceptance": Acceptance(tokens_per_step=1), "draft_length": 0}
    refused("verify_tokens", qwen2, verify_tokens=3, **none)


def test_step_without_a_proposal_costs_a_plain_pass():
    """At batch size 1 a share r of the steps is speculative, the others are plain."""
    full, rate = qwen2(drafter=drafters.ngram_drafter(), batch_size=1), 0.3
    part = qwen2(drafter=drafters.ngram_drafter(proposal_rate=rate), batch_size=1)
    mean = rate * full.verify_time + (1 - rate) * full.forward_time
    np.testing.assert_allclose(part.verify_time, mean, rtol=1e-12)
    np.testing.assert_allclose(part.tokens_per_step, rate * full.tokens_per_step + 1 - rate, 1e-12)
    never = qwen2(drafter=drafters.ngram_drafter(proposal_rate=0.0))
    np.testing.assert_allclose(never.speedup, 1, rtol=1e-12)
    assert np.isnan(never.break_even_acceptance_rate).all()


def test_tokens_per_step_of_an_ngram_drafter_is_the_mean_over_all_steps():
    """What was given comes back: 1.40 over all steps, 44 % of which have a proposal."""
    some = drafters.ngram_drafter(proposal_rate=0.44)
    p = qwen2(drafter=some, acceptance=Acceptance(tokens_per_step=1.4))
    np.testing.assert_allclose(p.tokens_per_step, 1.4, rtol=1e-12)
    sigma = qwen2(drafter=some, acceptance=Acceptance(step_efficiency=1.4 / 5))
    np.testing.assert_allclose(sigma.speedup, p.speedup, rtol=1e-9)
    refused("tokens_per_step", qwen2, drafter=some, acceptance=Acceptance(tokens_per_step=4.0))


def test_popularity_may_differ_between_layers(tmp_path):
    """Each layer loads the experts that its own popularity says, which no average of them does."""
    layers = np.stack([zipf_popularity(128, 8, a) for a in (0.0, 0.5, 1.2)])
    path = tmp_path / "layers.txt"
    path.write_text("\n".join(" ".join(map(repr, row.tolist())) for row in layers))
    point = {"target": "qwen3-30b-a3b", "hardware": "h200_sxm", "drafter": "mtp"}
    point |= {"batch_size": [1, 8], "draft_length": 3, "acceptance": 0.7, "expert_parallel": 1}
    each = [predict(**point, popularity=layer).active_experts_verify for layer in layers]
    for told in (layers, path):
        found = predict(**point, popularity=told).active_experts_verify
        np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-12)
    assert (found < predict(**point, popularity=layers.mean(axis=0)).active_experts_verify).all()


def test_popularity_is_not_passed_to_another_model():
    popularity = zipf_popularity(128, 8, 0.7)
    base = {"target": "qwen3-235b-a22b", "hardware": "h200_sxm", "engine": "ideal"}
    base |= {"batch_size": 4, "draft_length": 2, "acceptance": 0.7, "context_length": 500}
    base |= {"tensor_parallel": 8}
    for name in ("qwen3-32b", "qwen3-30b-a3b"):
        skewed = predict(**base, drafter=name, popularity=popularity)
        assert skewed.draft_time == predict(**base, drafter=name).draft_time
    head, equal = (predict(**base, drafter="mtp", popularity=p) for p in (popularity, "equal"))
    assert head.draft_time < equal.draft_time


def test_batches_where_some_propose_against_enumeration():
    """The mean over how many of 6 sequences have a proposal, each number run as its own pass."""
    rate, batch, length = 0.4, 6, 3
    deployment = Deployment(
        target=load_architecture("mixtral-8x7b"), drafter=drafters.ngram_drafter(),
        hardware=load_hardware("h100_sxm"), engine=load_engine("ideal"), tensor_parallel=2,
        routing_correlation=0.2,
    )  # fmt: skip
    exact = 0.0
    for proposing in range(batch + 1):
        work = pass_of(
            deployment.target, batch_size=batch, tokens_per_sequence=length + 1, context_length=512,
            routing_correlation=0.2, speculating_share=proposing / batch, layout=deployment.layout,
        )  # fmt: skip
        time = pass_time(work, deployment.hardware).total_time
        chance = math.comb(batch, proposing) * rate**proposing * (1 - rate) ** (batch - proposing)
        exact += chance * float(time)
    some = replace(deployment, drafter=drafters.ngram_drafter(proposal_rate=rate))
    point = {"batch_size": batch, "draft_length": length, "context_length": 512}
    mean = step_times(some, **point, verify_tokens=length + 1).verify_time
    assert mean == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("exponent", [0.0, 0.6])
@pytest.mark.parametrize("rate", [0.05, 0.4, 0.9])
def test_experts_of_a_batch_where_some_propose(rate, exponent):
    """The mean over all patterns of proposals is the union of sequences that each may have one."""
    batch, length, c = np.array([1, 3, 8]), 4, 0.2
    popularity = zipf_popularity(128, 8, exponent)
    p = predict(
        target="qwen3-30b-a3b", hardware="h200_sxm", draft_length=length, acceptance=0.5,
        drafter=drafters.ngram_drafter(proposal_rate=rate), batch_size=batch,
        routing_correlation=c, context_length=100, popularity=popularity,
    )  # fmt: skip
    use = rate * expert_use(length + 1, popularity, c) + (1 - rate) * popularity
    exact = (1 - (1 - use) ** batch[:, None]).sum(axis=1)
    np.testing.assert_allclose(p.active_experts_verify, exact, rtol=1e-9)


def test_memory_adds_weights_cache_and_drafter():
    p = qwen2(batch_size=8)
    target, drafter = load_architecture("qwen2-57b-a14b"), load_architecture("qwen2-0.5b")
    kv = 517 * (28 * 2 * 2 * 128 * 2 + 24 * 2 * 64 * 2)  # half of the KV heads
    twice = 28 * 3584 * 64 + 57 * 3584 + 49 * 896  # routers and norms are on both
    expected = target.total_parameters + drafter.total_parameters + twice + 8 * kv
    assert p.memory_bytes[()] == expected
    assert p.max_batch_size[()] == (0.9 * 80 * 2**30 - (expected - 8 * kv)) // kv
    assert p.warnings == ()
    whole = qwen2(batch_size=8, memory_utilization=1)
    assert whole.max_batch_size[()] == (80 * 2**30 - (expected - 8 * kv)) // kv
    assert p.assumptions["memory_utilization"] == 0.9
    assert "memory_utilization" not in whole.assumptions


def test_beyond_memory_warns_with_figures():
    p = predict(
        target="mixtral-8x7b", drafter="eagle", hardware="h100_sxm", tensor_parallel=2,
        engine="ideal", batch_size=[1, 4096], draft_length=3, acceptance=0.5, context_length=4096,
    )  # fmt: skip
    (note,) = p.notes
    assert (note.kind, note.values["largest"]) == ("beyond_memory", p.max_batch_size.min())
    sizes = [note.values[f"{name}_bytes"] / 1e9 for name in ("usable", "capacity")]
    assert sizes == pytest.approx([77.3, 85.9], abs=0.05)
    assert p.warnings == (str(note),)

    too_small = predict("mixtral-8x7b", "1xt4", drafter="ngram", batch_size=1, acceptance=0.5)
    assert not too_small.notes[0].values["do_weights_fit"]
    assert too_small.max_batch_size[()] == 0


def test_dtypes_move_bytes_and_arithmetic():
    sheet = {"hardware": "h100_sxm", "stack": "datasheet"}
    plain = qwen2(engine="ideal", batch_size=1, **sheet)
    halved = qwen2(engine="ideal", batch_size=1, weight_dtype="fp8", **sheet)
    ratio = (halved.forward_time / plain.forward_time).item()
    assert 0.5 < ratio < 0.56  # embedding and head stay in bf16
    on_a800 = qwen2(activation_dtype="fp8")
    assert on_a800.assumptions["arithmetic"].values == {"dtype": "bf16", "lacking": "fp8"}


@one_case(
    "changes argument",
    *faults("prediction"),
    ({"acceptance": Acceptance(acceptance_by_position=[0.5])}, "acceptance_by_position"),
)
def test_bad_input_names_the_argument(changes, argument):
    refused(f"^{argument}: got", qwen2, **changes)


def test_a_point_does_not_depend_on_its_neighbours():
    """Chains beside trees keep their best length."""
    measured = Acceptance(tokens_per_step=2.5, measured_draft_length=4)
    tree = {"acceptance": measured, "drafter": "eagle", "batch_size": 16}
    both = qwen2(**tree, draft_length=[[2], [4]], verify_tokens=[5, 20])
    alone = qwen2(**tree, draft_length=4)
    assert both.best_draft_length[1, 0] == alone.best_draft_length
    assert both.tokens_per_step.tolist() == [[2.5, 2.5], [alone.tokens_per_step, 2.5]]
    assert np.isnan(both.break_even_acceptance_rate).tolist() == [[True, True], [False, True]]


def test_intervals_are_those_of_errors_left_out_and_count_nothing_twice(monkeypatch):
    """Where only GEMMs err, by e^(s x + r y), a pass takes the rest and e^(1.28 (s² + r²)^½) b."""
    monkeypatch.setattr(intervals, "DRAWS", 40_000)
    where = {"target": "llama-3.1-8b", "drafter": "ngram", "hardware": "h200_sxm"}
    deployment = deploy(**where, engine="ideal")[0]
    fits = deployment.kernels.fits
    known = replace(fits["attention"]["bf16"], shape_spread=0.0, row_spread=0.0)
    wide = fits["gemm"]["bf16"]
    loose = {"covariance": (0.2 * np.eye(len(wide.varied))).tolist()}
    wide = replace(wide, **{"shape_spread": 0.3, "row_spread": 0.4} | loose)
    fits = {**fits, "gemm": {"bf16": wide}, "attention": {"bf16": known}}
    kernels = replace(deployment.kernels, fits=fits)
    point = {"batch_size": 4.0, "draft_length": 0.0, "verify_tokens": 1.0, "context_length": 512.0}
    points = {name: np.asarray(value) for name, value in point.items()}
    drawn = replace(deployment, kernels=kernels), points, Acceptance(acceptance_rate=0.5)
    found = intervals.central_intervals(evaluate(*drawn), np.random.default_rng(3))["forward_time"]
    plain = step_times(deployment, **points).forward
    parts = [(part.total_time, plain.kinds[name]) for name, part in plain.components.items()]
    erring = sum(time for time, kind in parts if kind != "attention")
    rest = sum(time for time, kind in parts if kind == "attention")
    error = 0.5 * 4 * np.sqrt(0.1 * 0.9 / 40_000) / 0.1755  # of a decile of a normal law
    for end, z in ((found.low, -1.2816), (found.high, 1.2816)):
        assert np.log((end - rest) / erring) == pytest.approx(0.5 * z, abs=error)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "sglang-v1", "vllm-moesd-2025"])
def test_an_interval_holds_its_own_prediction(engine):
    """Also where an overhead near 0, which no draw goes below, lets most draws lie to one side."""
    points = {"batch_size": [1, 54, 400], "context_length": [[[0]], [[30_000]]]}
    points |= {"draft_length": [[1], [8]], "acceptance_rate": 0.3}
    where = {"drafter": "eagle3", "engine": engine, "tensor_parallel": 1}
    found = predict("qwen3-30b-a3b", "rtx_4090", **where, **points, interval=True)
    assert len(found.intervals) > 5
    for name, ends in found.intervals.items():
        own = np.broadcast_to(found.value(name), ends.low.shape)
        assert (ends.low <= own).all(), name
        assert (own <= ends.high).all(), name


def test_a_prediction_is_a_table_of_80_columns():
    p = qwen2(draft_length=[[0], [4]])
    lines = p.to_text(80).splitlines()
    assert all(len(line) <= 80 for line in (*lines, *str(p).splitlines()))
    many = str(qwen2(batch_size=np.arange(1, 201), draft_length=[[1], [2]])).splitlines()
    assert many[-1] == "The first 60 of 400 points; to_frame() has all."
    assert len(many) < 70


@cases(
    "given told",
    ({"drafter": "mtp", "draft_length": 1, "max_draft_length": 1}, None),
    ({"drafter": "mtp", "draft_length": 3}, ("beyond_measured", 1, False)),
    ({"drafter": "mtp", "draft_length": 3, "acceptance": BY_POSITION}, None),
    ({"drafter": "eagle3", "draft_length": 3}, None),
    ({"draft_length": 4, "acceptance": MEASURED, "max_draft_length": 4}, None),
    ({"draft_length": 4, "acceptance": MEASURED}, None),
    ({"draft_length": 5, "acceptance": LONGER}, ("beyond_measured", 4, True)),
    ({"drafter": "ngram", "draft_length": 3}, None),
    ({"drafter": drafters.ngram_drafter(), "draft_length": 3}, ("every_step_proposes",)),
    ({"drafter": drafters.ngram_drafter(proposal_rate=0.4), "draft_length": 3}, None),
)
def test_what_was_not_measured_is_said(given, told):
    notes = qwen2(batch_size=1, **{"acceptance": 0.85} | given).notes
    known = [[n.values[k] for k in ("known", "is_measured") if k in n.values] for n in notes]
    assert [(n.kind, *v) for n, v in zip(notes, known, strict=True)] == [told] * bool(told)


def test_how_often_a_look_up_proposes_is_given_or_taken_from_traces():
    """Given, it is no assumption; else it is that of measured traces."""
    named = {"target": "mixtral-8x7b", "hardware": "h100_sxm", "drafter": "ngram"}
    deployment, assumed = resolve(named)
    assert deployment.drafter.proposal_rate == assumed["proposal_rate"] == 0.2
    deployment, assumed = resolve(named | {"proposal_rate": 1})
    assert deployment.drafter.proposal_rate == 1
    assert "proposal_rate" not in assumed


def test_what_does_not_fit_is_a_column_and_the_warning_names_the_draft_length():
    """With recurrent layers a drafted token takes a state, so that longer drafts fit fewer."""
    where = {"drafter": "mtp", "engine": "vllm", "tensor_parallel": 8, "acceptance": 0.7}
    points = {"draft_length": [[1], [9]], "batch_size": [1, 120, 2000]}
    p = predict("qwen3.5-397b-a17b", "h200_sxm", **where, **points)
    assert p.fits.tolist() == [[True, True, False], [True, False, False]]
    (told,) = [note.values for note in p.notes if note.kind == "beyond_memory"]
    assert (told["largest"], told["fewest_at"]) == (p.max_batch_size.min(), {"draft length": 9})
    marks = [line.split()[-2] for line in p.to_text(200).splitlines()[2:]]
    assert marks == ["yes", "yes", "no", "yes", "no", "no"]
