"""Programs of passes against their work in numbers, timed one component after another."""

from dataclasses import replace

import numpy as np
import pytest
from one_by_one import pass_time
from rows import each_row

from specmodel.cost.blocks import MANY, TOTALS, BlockedTimes
from specmodel.cost.deploying import deploy
from specmodel.cost.latency import step_times, target_pass
from specmodel.cost.programs import _MOST_TOGETHER
from specmodel.layers.batch import sequence_group
from specmodel.machines.engine import Overheads
from specmodel.models.architecture import list_architectures

GENERATOR = np.random.default_rng(11)
LAYOUTS = ({}, {"tensor_parallel": 2}, {"tensor_parallel": 2, "expert_parallel": 4})


@each_row("name", list_architectures())
def test_a_program_takes_as_long_as_its_components(name):
    """Decoding, verification with chances, a prompt, and both, at points along two axes."""
    deployment, _ = deploy(target=name, hardware="h200_sxm", engine="vllm")
    batch, context = GENERATOR.integers(1, 300, 3), GENERATOR.integers(0, 50_000, (4, 1))
    decoding = sequence_group(batch_size=batch, context_length=context)
    verifying = sequence_group(
        batch_size=batch, tokens_per_sequence=4.0, context_length=context,
        speculating_share=0.5, speculating_chance=0.9,
    )  # fmt: skip
    prompt = sequence_group(
        batch_size=1, tokens_per_sequence=[700, 200, 3000], logits_per_sequence=1
    )
    for sequences in (decoding, verifying, prompt, [verifying, prompt]):
        found = target_pass(deployment, sequences)
        overheads = deployment.engine_seconds
        one_by_one = pass_time(found.work(), deployment.hardware, deployment.kernels, overheads)
        one_by_one = one_by_one.scaled({}, overheads.gpu_time_factor)
        np.testing.assert_allclose(found.total_time, one_by_one.total_time, rtol=1e-12)
        shown = one_by_one.components
        assert [n for n in found.components if n in shown] == list(shown)
        for part, time in shown.items():
            own = found.components[part].total_time
            alone = np.broadcast_to(time.total_time, own.shape)
            np.testing.assert_allclose(own, alone, rtol=1e-12)


@pytest.mark.parametrize("name", ["deepseek-v3", "qwen3.5-397b-a17b", "gpt-oss-120b"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_point_is_the_same_alone_and_among_many(name, layout):
    """To the last bits, as powers round: nothing depends on how many points there are."""
    deployment, _ = deploy(target=name, hardware="h100_sxm", engine="sglang", **layout)
    count = _MOST_TOGETHER + 5
    batch = GENERATOR.integers(1, 300, count).astype(float)
    context = GENERATOR.integers(0, 50_000, count).astype(float)
    group = sequence_group(batch_size=batch, context_length=context, tokens_per_sequence=3)
    many = target_pass(deployment, group).total_time
    for i in (0, 7, count - 1):
        one = replace(group, batch_size=batch[i], context_length=context[i])
        assert target_pass(deployment, one).total_time == pytest.approx(many[i], rel=1e-15)


@pytest.mark.parametrize("drafter", ["ngram", "eagle3", "mtp", "dflash", "qwen2-0.5b"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_step_is_the_same_alone_and_in_a_list(drafter, layout):
    """To the last bit: at one point, plain and verify pass are timed together, in a list apart."""
    target = "qwen2-57b-a14b" if drafter == "qwen2-0.5b" else "qwen3.5-397b-a17b"
    deployment, _ = deploy(
        target=target, hardware="h200_sxm", engine="vllm", drafter=drafter, **layout
    )
    for draft_length in (0, 1, 5, 300):
        if draft_length > (deployment.drafter.block_size or 300):
            continue
        step = {"draft_length": draft_length, "verify_tokens": draft_length + 1}
        one = step_times(deployment, batch_size=8, context_length=500, **step)
        many = step_times(deployment, batch_size=[8, 9], context_length=500, **step)
        for name in ("forward_time", "verify_time", "draft_time", "step_time"):
            assert getattr(one, name) == np.broadcast_to(getattr(many, name), 2)[0]
        for name, passed in many.passes.items():
            for part, time in one.passes[name].components.items():
                alone = np.broadcast_to(passed.components[part].total_time, 2)[0]
                assert time.total_time == alone, (name, part)


@pytest.mark.parametrize("drafter", ["ngram", "eagle3", "dflash", "qwen2-0.5b"])
@pytest.mark.parametrize("longest", [7, 100])  # of 100 drafted tokens prompts' kernels verify some
def test_steps_in_blocks_take_what_they_take_at_once(drafter, longest):
    target = "qwen2-57b-a14b" if drafter == "qwen2-0.5b" else "qwen3.5-397b-a17b"
    deployment, _ = deploy(
        target=target, hardware="a100_sxm_80gb", engine="vllm", drafter=drafter, tensor_parallel=4
    )
    longest = min(longest, deployment.drafter.block_size or longest)
    draft_length = GENERATOR.integers(0, longest + 1, MANY + 5).astype(float)
    points = {
        "batch_size": GENERATOR.integers(1, 257, MANY + 5).astype(float),
        "draft_length": draft_length,
        "verify_tokens": draft_length + 1,
        "context_length": GENERATOR.integers(0, 200_000, MANY + 5).astype(float),
    }
    at_once, blocked = step_times(deployment, **points), BlockedTimes(deployment, points)
    for name in TOTALS:
        np.testing.assert_allclose(getattr(blocked, name), getattr(at_once, name), rtol=1e-13)


def test_draws_of_the_host_come_before_points():
    deployment, _ = deploy(target="mixtral-8x7b", hardware="h100_sxm", engine="ideal")
    group = sequence_group(batch_size=np.array([1.0, 8.0, 64.0]), context_length=500)
    draws = np.array([[0.0], [1e-6]])
    drawn = target_pass(replace(deployment, overheads=Overheads(kernel_time=draws)), group)
    plain = target_pass(deployment, group)
    launches = sum(work.kernels for work in plain.work().components.values())
    assert drawn.total_time.shape == (2, 3)
    np.testing.assert_allclose(drawn.total_time - plain.total_time, launches * draws * [1, 1, 1])
