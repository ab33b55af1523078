"""Layers with a short convolution: weights, windows and work by hand, and what is read of them."""

import numpy as np
from configs import CONFIGS, read
from printed import refused
from rows import each_listed

from specmodel import deploy, load_architecture
from specmodel.core.cost import MemoryUse
from specmodel.core.layers import ShortConvolution

MODEL = load_architecture("lfm2-8b-a1b")
H, LAYERS, KERNEL = 2048, 18, 3
RUN = {"target": MODEL, "hardware": "b200", "drafter": "ngram"}
LAYER = next(mixer for mixer in MODEL.mixers if isinstance(mixer, ShortConvolution))
SMALL = CONFIGS["LiquidAI--LFM2-1.2B"] | {"num_hidden_layers": 4, "full_attn_idxs": [2]}
SMALL |= {"block_ff_dim": 1000, "block_multiple_of": 64, "intermediate_size": None}


def test_weights_and_windows_by_hand():
    assert LAYER.weights(H) == H * 3 * H + H * KERNEL + H * H
    assert LAYER.weights(H, 8) == LAYER.weights(H) / 8
    assert MODEL.sequence_bytes(np.zeros(())) == LAYERS * H * (KERNEL - 1) * 2
    kv = 6 * 2 * 8 * 64 * 2
    assert MODEL.sequence_bytes(100) - MODEL.sequence_bytes(0) == 100 * kv


def test_windows_reserved_for_drafted_tokens():
    """In as many slots as of models with states: 2 without drafts, 5 with three drafted tokens."""
    target = deploy(**RUN, engine="ideal", stack="datasheet")[0]
    kept = [float(MemoryUse(target, 0.0, tokens).bytes_per_request) for tokens in (1.0, 4.0)]
    entries, windows = 3 * 6 * 2 * 8 * 64 * 2, LAYERS * H * 2 * (5 * (2 + 3) - 2 * 2)
    assert kept[1] - kept[0] == entries + windows


# What is read


@each_listed
def test_width_of_dense_blocks(changes, width):
    assert [block.ffn_size for block in read(SMALL, **changes).feed_forwards] == [width]


def test_lists_of_quantisation_know_its_matrices():
    record = {"quant_method": "fp8"}
    kept = [f"model.layers.{i}.conv.{part}_proj" for i in (0, 1, 3) for part in ("in", "out")]
    model = read(SMALL, quantization_config=record | {"ignored_layers": kept})
    dtypes = {type(s.part).__name__: s.stream.weight_dtype for s in model.parts}
    assert dtypes["ShortConvolution"] == "bf16"
    assert dtypes["GroupedAttention"] == dtypes["DenseFeedForward"] == "fp8"
    one = ["model.layers.0.feed_forward.w1"]
    refused("some in layer 0", read, SMALL, quantization_config=record | {"ignored_layers": one})
