"""Programs of passes against their work in numbers, timed one component after another."""

import numpy as np
import pytest
from msgspec.structs import replace
from one_by_one import pass_time
from rows import each_row

from specmodel import deploy, list_architectures
from specmodel.core.cost import step_times, target_pass
from specmodel.core.cost.blocks import MANY, TOTALS, BlockedTimes
from specmodel.core.layers import sequence_group
from specmodel.core.machines.engine import Overheads

GENERATOR = np.random.default_rng(11)


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
    prompts = {"tokens_per_sequence": [700, 200, 3000], "logits_per_sequence": 1}
    prompt = sequence_group(batch_size=1, **prompts)
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


@pytest.mark.parametrize("drafter", ["ngram", "eagle3", "dflash", "qwen2-0.5b"])
@pytest.mark.parametrize("longest", [7, 100])  # of 100 drafted tokens prompts' kernels verify some
def test_steps_in_blocks_take_what_they_take_at_once(drafter, longest):
    target = "qwen2-57b-a14b" if drafter == "qwen2-0.5b" else "qwen3.5-397b-a17b"
    where = {"target": target, "hardware": "a100_sxm_80gb", "tensor_parallel": 4}
    deployment, _ = deploy(**where, engine="vllm", drafter=drafter)
    longest = min(longest, deployment.drafter.block_size or longest)
    draft_length = GENERATOR.integers(0, longest + 1, MANY + 5).astype(float)
    points = {"batch_size": GENERATOR.integers(1, 257, MANY + 5).astype(float)}
    points |= {"draft_length": draft_length, "verify_tokens": draft_length + 1}
    points |= {"context_length": GENERATOR.integers(0, 200_000, MANY + 5).astype(float)}
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
