"""The fewest GPUs that hold a deployment: by its own memory, and what is said where none do."""

from msgspec.structs import replace
from printed import refused
from rows import cases, each_listed, values_of

from specmodel import deploy, predict
from specmodel.core.cost import MemoryUse
from specmodel.core.cost.layouts import HELD, layout_of, smallest_layout

REQUESTS, TOKENS = HELD


@each_listed
def test_the_fewest_that_hold_it_are_taken(target, hardware, count):
    """It fits, and on half as many it does not."""
    deployment = deploy(target=target, hardware=hardware, drafter="ngram")[0]
    laid = replace(deployment, **smallest_layout(deployment))
    assert laid.layout.num_gpus == count
    assert MemoryUse(laid, TOKENS, 1).max_batch_size >= REQUESTS
    if count > 1:
        fewer = replace(deployment, **layout_of(deployment, count // 2))
        assert MemoryUse(fewer, TOKENS, 4).max_batch_size < REQUESTS


def test_nodes_have_a_replica_each_and_experts_over_all():
    """It does not depend on the layout that is there; degrees that do not cut are passed over."""
    small = deploy(target="mixtral-8x7b", hardware="h100_sxm", tensor_parallel=8)[0]
    assert smallest_layout(small) == {"tensor_parallel": 2}
    refused("tensor_parallel: got 3; expected .*evenly", layout_of, small, 3)
    deployment = deploy(target="deepseek-r1", hardware="h100_sxm")[0]
    expected = {"tensor_parallel": 8, "data_parallel": 2, "expert_parallel": 16}
    assert smallest_layout(deployment) == layout_of(deployment, 16) == expected


@cases("target hardware count", ("qwen3-235b-a22b", "t4", 31), ("deepseek-r1", "gb10", 7))
def test_what_no_layout_holds_says_how_many_would_do(target, hardware, count):
    deployment = deploy(target=target, hardware=hardware)[0]
    refused(f": {count} GPUs", smallest_layout, deployment)
    one = MemoryUse(deployment, TOKENS, 4)
    needed = one.weight_bytes + REQUESTS * float(one.bytes_per_request)
    assert (count - 1) * one.capacity_bytes < needed <= count * one.capacity_bytes


@each_listed
def test_gpus_hold_what_was_asked(asked, count):
    """One card for one request; several are counted where they share a slow link."""
    words = {"drafter": "mtp", "weight_dtype": "int4_g32", "acceptance": 0.7, "draft_length": 2}
    p = predict("qwen3.8-27b", "rtx_3090", **words, **asked)
    assert (p.deployment.layout.num_gpus, "link" in p.assumptions) == (count, count > 1)


@cases("target hardware checkpoint", *values_of("engines.txt", "checkpoints that fit"))
def test_where_16_bits_do_not_fit_a_published_checkpoint_is_taken(target, hardware, checkpoint):
    p = predict(target, hardware, drafter="ngram", acceptance=0.7, batch_size=[1, 16])
    assert p.fits.all()
    assert str(p.assumptions.get("checkpoint", "None")).partition(" (")[0] == str(checkpoint)
    own = predict(target, "8xb300", drafter="ngram", acceptance=0.7, weight_dtype="bf16")
    assert "checkpoint" not in own.assumptions
