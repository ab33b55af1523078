"""What engines keep in memory beside or beyond a checkpoint: absorbed matrices, and padding."""

import pytest

from specmodel import decode, load_architecture
from specmodel.layers.batch import Layout

LATENTS = 128 * 512 * (128 + 128)
"""Weights of `kv_b_proj` of DeepSeek-V3 and V3.2 [-]."""


@pytest.mark.parametrize("name", ["deepseek-v3", "deepseek-v3.2"])
@pytest.mark.parametrize("cut", [1, 8])
def test_absorbed_matrices_have_16_bits_beside_those_of_the_checkpoint(name: str, cut: int) -> None:
    model = load_architecture(name)
    (mixer,) = model.mixers
    assert mixer.widened_bytes(model.stream, cut) == 2 * LATENTS / cut
    wide = load_architecture(name, weight_dtype="bf16")
    assert mixer.widened_bytes(wide.stream, cut) == 0  # views of what the checkpoint holds


@pytest.mark.parametrize(
    ("engine", "hardware", "cut", "sides"),
    [
        ("vllm", "b200", 1, (3072, 2944)),
        ("vllm", "b200", 8, (3072, 384)),
        ("sglang", "b200", 8, (2944, 384)),
        ("vllm", "h200_sxm", 1, (2880, 2880)),
        ("vllm", "h200_sxm", 4, (2880, 768)),
        ("tensorrt-llm", "b200", 8, (2880, 360)),
    ],
)
def test_experts_of_mxfp4_are_padded_in_memory(
    engine: str, hardware: str, cut: int, sides: tuple[int, int]
) -> None:
    """gpt-oss-120b: 36 layers of 128 experts of 2,880 by 2,880, in 4.25 bits."""
    where = {"target": "gpt-oss-120b", "hardware": hardware, "engine": engine}
    held = decode(**where, tensor_parallel=cut, batch_size=1).memory_bytes
    told = load_architecture("gpt-oss-120b").weight_bytes(Layout(cut))
    more = 36 * 128 * 3 * (sides[0] * sides[1] - 2880 * 2880 / cut) * 4.25 / 8
    kept = held - told - more
    assert 0 < kept < 0.1e9  # the cache of one request
