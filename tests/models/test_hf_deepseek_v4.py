"""Configurations of DeepSeek-V4: plans of layers, dtypes of checkpoints, and what is refused."""

import configs
import numpy as np
import pytest
from configs import CONFIGS, flat
from rows import listed
from strategies import pass_of

from specmodel import deploy, load_drafter, mtp_drafter, predict
from specmodel.core.base import as_table
from specmodel.core.layers import Layout

FLASH = CONFIGS["deepseek-ai--DeepSeek-V4-Flash"]


def read(**changes):
    return configs.read(FLASH, **changes)


@listed
def test_dtypes_of_checkpoints(changes, weights, experts):
    """What is cached has 8 bits in all of them, as engines have it."""
    model = read(**changes)
    assert (model.weight_dtype, model.expert_dtype, model.kv_dtype) == (weights, experts, "fp8")


# V4.1: entries that layers share


def read_shared(**changes):
    return configs.read(flat("deepseek-ai--DeepSeek-V4.1-Flash"), **changes)


def test_layers_that_share():
    """Entries of 528 bytes and keys of 132 in 4 of 40 layers; windows in all."""
    model = read_shared()
    kinds = [(g.count, g.mixer.ratio, g.mixer.has_own_cache, g.mixer.has_indexer)
             for g in model.layers]  # fmt: skip
    assert kinds == [
        (2, 0, True, True), (3, 2, True, True), (15, 2, False, False), (1, 1, True, True),
        (15, 1, False, False), (4, 1, False, True),
    ]  # fmt: skip
    kept = [float(model.sequence_bytes(np.array(n))) for n in (4096.0, 4097.0)]
    assert kept[1] - kept[0] == 3 * (528 + 132) / 2 + 528 + 132
    assert kept[0] == 4096 * (kept[1] - kept[0]) + 40 * 128 * 528 + 3 * 2 * 2 * 512 * 4


def test_layers_that_read_entries_of_others_in_a_pass():
    """All compressed layers gather 512 entries a token; 8 read all keys, 4 write entries."""
    found = pass_of(read_shared(), batch_size=2, context_length=9999).components
    windows, gathered = 40 * 128, 38 * 512
    written = 40 + 3 / 2 + 1
    assert found["attention_core"].cache_bytes == 2 * 528 * (windows + gathered + written)
    keys, written = 3 * 10_000 / 2 + 5 * 10_000, 3 / 2 + 5
    assert found["indexer"].cache_bytes == pytest.approx(2 * 132 * (keys + written))


def test_tables_of_ngrams_are_capacity():
    """The host has them unless told; GPUs then hold 1.03 bytes of each element, each a share."""
    model = read_shared()
    memory = as_table(model.ngram_memory)
    held = model.with_changes("target", {"ngram_memory": memory | {"is_on_gpu": True}})
    more = held.weight_bytes(Layout(4)) - model.weight_bytes(Layout(4))
    elements = model.ngram_memory.table_parameters(model.around)
    assert more == pytest.approx(elements * (1 + 1 / 32) / 4)
    found = pass_of(model, batch_size=3, layout=Layout(4)).components["ngram_memory"]
    assert found.weight_bytes == 2 * (24 * 256) * 5 * 5120 / 4 * 2
    rows = 3 * 2 * 24 * 256
    assert found.activation_bytes == rows * (2 + (1 + 1 / 32) / 4) + 3 * 2 * 5 * 5120 / 4 * 2


def test_modules_of_v41_are_a_block_for_another_drafter():
    """DSpark's three layers are no module for multi-token prediction."""
    model = read_shared()
    assert model.num_mtp_modules == 0
    head = mtp_drafter(model)
    assert head.assumed == (("mtp_block", "none in the checkpoint, as if it had one"),)
    mixer = head.architectures[0].layers[0].mixer
    assert mixer == next(iter(model.mixers))
    plain = read_shared(dspark_block_size=None)
    assert (plain.num_mtp_modules, plain.mtp_layer.mixer.ratio) == (3, 0)


def test_dspark_of_v41_is_made_of_its_modules():
    """Three layers with a window and fewer experts, reading three layers: as config.json says."""
    drafter = load_drafter("dspark", read_shared())
    (head,) = drafter.architectures
    (group,) = head.layers
    assert (group.count, group.mixer.window, group.mixer.ratio) == (3, 128, 0)
    assert (head.num_experts, head.experts_per_token) == (128, 3)
    assert head.input_projection_size == 3 * 5120
    assert head.ngram_memory is None
    given = {"hardware": "b300", "tensor_parallel": 4, "popularity": np.full(384, 6 / 384)}
    p = predict(target=read_shared(), drafter=drafter, **given, draft_length=5, batch_size=8)
    assert float(p.draft_time) > 0


def test_tables_that_no_gpu_holds_are_told():
    assumed = deploy(target="deepseek-v4.1-flash", hardware="b200", tensor_parallel=8)[1]
    assert assumed["ngram_memory"].values["bytes"] == pytest.approx(203e9, rel=2e-3)
