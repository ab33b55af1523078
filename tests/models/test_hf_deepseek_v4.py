"""Configurations of DeepSeek-V4: plans of layers, dtypes of checkpoints, and what is refused."""

import json

import configs
import numpy as np
import pytest
from configs import CONFIGS, flat
from strategies import pass_of

from specmodel.base.errors import InputError
from specmodel.base.records import as_table
from specmodel.cost.deploying import deploy
from specmodel.cost.latency import step_times
from specmodel.drafters.by_name import load_drafter
from specmodel.drafters.mtp import mtp_drafter
from specmodel.layers.batch import Layout
from specmodel.models.architecture import Architecture, load_architecture

FLASH = CONFIGS["deepseek-ai--DeepSeek-V4-Flash"]
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"}
NVFP4 = FP8 | {
    "quant_algo": "MIXED_PRECISION",
    "moe_quant_algo": "NVFP4",
    "group_size": 16,
    "quantized_layers": {"layers.0.ffn.experts": {"quant_algo": "NVFP4", "group_size": 16}},
    "ignore": ["*.attn.*", "*.ffn.shared_experts.*", "head", "mtp.*"],
}
NAMES = ["compressed_sparse_attention", "heavily_compressed_attention"]


def read(**changes):
    return configs.read(FLASH, **changes)


def ratios(model):
    return {group.mixer.ratio: group.count for group in model.layers}


def test_what_ships_is_what_the_configuration_says():
    shipped, model = (
        load_architecture("deepseek-v4-flash"),
        read(expert_dtype="fp4", quantization_config=FP8),
    )
    for name in ("mixers", "feed_forwards", "residuals", "mtp_layer", "num_norms", "parts"):
        assert getattr(shipped, name) == getattr(model, name)
    assert shipped.stream == model.stream


@pytest.mark.parametrize(("changes", "weights", "experts"), [
    ({"expert_dtype": "fp4", "quantization_config": FP8}, "fp8_block", "mxfp4"),
    ({"quantization_config": FP8 | {"expert_dtype": "fp4"}}, "fp8_block", "mxfp4"),
    ({"expert_dtype": "fp8", "quantization_config": FP8}, "fp8_block", None),
    ({"model_type": "deepseek_ref", "quantization_config": FP8}, "fp8_block", None),
    ({"expert_dtype": "fp4", "quantization_config": NVFP4}, "fp8_block", "fp4"),
    ({}, "bf16", None),
])  # fmt: skip
def test_dtypes_of_checkpoints(changes, weights, experts):
    """What is cached has 8 bits in all of them, as engines have it."""
    model = read(**changes)
    assert (model.weight_dtype, model.expert_dtype) == (weights, experts)
    assert model.kv_dtype == "fp8"


def test_file_beside_that_repeats_experts(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(FLASH | {"quantization_config": NVFP4}))
    record = {"quant_algo": "MIXED_PRECISION", "quantized_layers": NVFP4["quantized_layers"]}
    beside = {"quantization": record | {"exclude_modules": NVFP4["ignore"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
    with pytest.raises(InputError, match="expert_dtype: got None; expected fp4 or fp8"):
        Architecture.from_hf_config(tmp_path)
    given = FLASH | {"quantization_config": NVFP4, "expert_dtype": "fp4"}
    (tmp_path / "config.json").write_text(json.dumps(given))
    assert Architecture.from_hf_config(tmp_path).expert_dtype == "fp4"


def test_kinds_that_transformers_lists():
    types = ["sliding_attention"] * 2 + NAMES * 20 + NAMES[:1]
    listed = read(compress_ratios=None, layer_types=types)
    assert ratios(listed) == ratios(read()) == {0: 2, 4: 21, 128: 20}
    rates = dict(zip(NAMES, (4, 128), strict=True))
    assert ratios(read(compress_ratios=None, layer_types=types, compress_rates=rates)) == {
        0: 2, 4: 21, 128: 20
    }  # fmt: skip


def test_ratios_without_those_of_modules():
    assert ratios(read(compress_ratios=FLASH["compress_ratios"][:43])) == ratios(read())


# V4.1: entries that layers share


def read_shared(**changes):
    return configs.read(flat("deepseek-ai--DeepSeek-V4.1-Flash"), **changes)


def tensors_of_v41():
    """Return what a layer, a source, an owner of an index and all around have, by vLLM's names."""
    h, q, heads, groups, experts, width = 5120, 1280, 64, 8, 384, 2304
    layer = {
        "wq_a": h * q, "wkv": h * 512, "q_norm": q, "kv_norm": 512, "attn_sink": heads,
        "wq_b": q * heads * 512, "wo_a": heads * 512 * 1024, "wo_b": groups * 1024 * h,
        "norms": 2 * h, "hc": 2 * (24 * 4 * h + 24 + 3), "gate": h * experts,
        "shared_experts": 3 * h * width, "experts": experts * 3 * h * width,
    }  # fmt: skip
    source = {"wkv": h * 512, "norm": 512, "indexer.wk": 512 * 128, "indexer.k_norm": 128}
    owner = {"indexer.wq_b": q * 32 * 128, "indexer.weights_proj": h * 32}
    around = {"embed": 129280 * h, "head": 129280 * h, "norm": h, "hc_head": 4 * 4 * h + 5}
    return layer, source, owner, around


def test_parameters_of_v41_are_the_sum_of_tensors():
    """4 layers make entries, of which 3 have a gate, 8 select, and 2 read n-grams."""
    layer, source, owner, around = (sum(part.values()) for part in tensors_of_v41())
    gates, ngrams = 3 * 5120 * 512, 2 * (3 * 8 * 256) * 5 * 5120
    tables = (384006168 + 384016682) * 256
    model = read_shared()
    total = 40 * layer + 4 * source + gates + 8 * owner + around + ngrams
    assert model.total_parameters == total + tables
    idle = 40 * (384 - 6) * 3 * 5120 * 2304
    assert model.active_parameters == total - idle - 129280 * 5120
    assert tables / 2 / 1e9 == pytest.approx(98.3, abs=0.02)


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
    windows = 40 * 128
    gathered = 38 * 512
    written = 40 + 3 / 2 + 1
    assert found["attention_core"].cache_bytes == 2 * 528 * (windows + gathered + written)
    keys = 3 * 10_000 / 2 + 5 * 10_000
    written = 3 / 2 + 5
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
    assert plain.num_mtp_modules == 3
    assert plain.mtp_layer.mixer.ratio == 0


def test_dspark_of_v41_is_made_of_its_modules():
    """Three layers with a window and fewer experts, reading three layers: as config.json says."""
    drafter = load_drafter("dspark", read_shared())
    (head,) = drafter.architectures
    (group,) = head.layers
    assert (group.count, group.mixer.window, group.mixer.ratio) == (3, 128, 0)
    assert (head.num_experts, head.experts_per_token) == (128, 3)
    assert head.input_projection_size == 3 * 5120
    assert head.ngram_memory is None
    popularity = np.full(384, 6 / 384)
    given = {"hardware": "b300", "tensor_parallel": 4, "popularity": popularity}
    deployment, _ = deploy(target=read_shared(), drafter=drafter, **given)
    times = step_times(
        deployment, batch_size=8.0, draft_length=5.0, verify_tokens=6.0, context_length=1000.0
    )
    assert float(times.draft_time) > 0


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("deepseek-v4.1-flash", "203 GB of tables on the host"),
        ("qwen3.8-flash-next", "102 GB of tables on the host"),
        ("qwen3.5-397b-a17b", None),
    ],
)
def test_tables_that_no_gpu_holds_are_told(target, told):
    assumed = deploy(target=target, hardware="b200", tensor_parallel=8)[1]
    assert (str(note) if (note := assumed.get("ngram_memory")) else None) == told
