"""Layers of DeepSeek-V4: fits give planted numbers back, and published layers are met."""

from dataclasses import replace

import numpy as np
import pytest

from specmodel.algebra.roofline import KernelParameters
from specmodel.base.errors import InputError
from specmodel.base.records import as_table
from specmodel.cost.deploying import deploy
from specmodel.cost.latency import target_pass
from specmodel.layers.batch import sequence_group
from specmodel.machines.fallbacks import choose_kernels, load_rankings
from specmodel.machines.hardware import load_hardware
from specmodel.models.architecture import load_architecture

pd = pytest.importorskip("pandas")
modules = pytest.importorskip("published.compressed_modules")
layers_fit = pytest.importorskip("published.layers")

INDEXER = {"memory_efficiency": 0.65, "compute_efficiency": 0.45}
PLANTED = {
    "launch_time": 3e-6,
    "memory_efficiency": 0.7,
    "compute_efficiency": 0.4,
    "index_launch_time": 1e-6,
    "group_time": 3e-7,
}
STREAMS = {"launch_time": 2e-6, "memory_efficiency": 0.8, "depth_time": 1e-10}
SHIPPED = [
    (name, stack)
    for name in ("h100_sxm", "h200_sxm", "b200", "b300", "gb200")
    for stack in load_hardware(name).fitted
    if stack != "torch"
]
NOT_TIMED = {("h100_sxm", "trtllm"), ("h200_sxm", "trtllm")}
"""Stacks whose compressed attention nobody published."""


def points(names, *values):
    """Return a row for each combination of values, not timed yet, every other shape fitted."""
    table = pd.MultiIndex.from_product(values, names=names).to_frame(index=False)
    shape = [n for n in names if n in (*modules.SHAPE, *modules.STREAM_SHAPE)]
    shapes = table[shape].astype(str).agg("/".join, axis=1)
    is_fitted = shapes.isin(sorted(shapes.unique())[::2])
    return table.assign(shape=shapes, role=np.where(is_fitted, "fit", "judge"))


def attention():
    names = [*modules.SHAPE, "batch_size", "context_length"]
    batches, contexts = (1, 8, 64, 512), (100, 4000, 60_000)
    table = points(names, (4, 128), ("Flash", "Pro"), (16, 32, 64), batches, contexts)
    return table.assign(kv_dtype="fp8")


def streams():
    names = [*modules.STREAM_SHAPE, "num_tokens"]
    return points(names, ("pre", "post"), (4096, 7168), (1, 16, 256, 1024, 4096)).assign(
        kv_dtype="bf16"
    )


def timed(table, works, of_kind, planted, held=()):
    parameters = {
        kind: KernelParameters(**{name: planted[of] for name, of in names.items()}, sharpness=2.0)
        for kind, names in of_kind.items()
    }
    parameters |= {kind: replace(parameters[kind], **own) for kind, own in held}
    hardware = load_hardware("h200_sxm")
    times = layers_fit.predicted_time(list(works(table, hardware)), hardware, parameters)
    return table.assign(latency=times)


def test_planted_parameters_of_attention_come_back():
    held = [("compressed_indexer", INDEXER)]
    table = timed(attention(), modules.compressed_work, modules.OF_KIND, PLANTED, held)
    found = modules.fit_compressed_modules(table, load_hardware("h200_sxm"), 0.45)
    assert list(found) == [("compressed_attention", "fp8"), ("compressed_indexer", "fp8")]
    for (kind, _), fitting in found.items():
        assert fitting.fit.sharpness == 2
        for name, of in modules.OF_KIND[kind].items():
            assert getattr(fitting.fit, name) == pytest.approx(PLANTED[of], rel=1e-3)
        assert fitting.fit.is_held_out
    fit = found["compressed_indexer", "fp8"].fit
    assert {name: getattr(fit, name) for name in INDEXER} == INDEXER


def test_planted_parameters_of_streams_come_back():
    table = timed(streams(), modules.stream_work, modules.STREAM_OF_KIND, STREAMS)
    found = modules.fit_stream_modules(table, load_hardware("h200_sxm"))
    fit = found["hyper_connections", "bf16"].fit
    for name, value in STREAMS.items():
        assert getattr(fit, name) == pytest.approx(value, rel=1e-3)


def test_fewer_points_than_parameters_are_refused():
    table = timed(
        attention(), modules.compressed_work, modules.OF_KIND, PLANTED, [("compressed_indexer", {})]
    )
    few = table.assign(role=np.where(table.index < 3, "fit", "judge"))
    with pytest.raises(InputError, match=r"measurements: got '3 layers with fp8'; .*more than 5"):
        modules.fit_compressed_modules(few, load_hardware("h200_sxm"), 0.45)


@pytest.mark.parametrize("read", [modules.compressed_modules, modules.stream_modules])
def test_unknown_engine_is_refused(read):
    with pytest.raises(InputError, match=r"engine: got 'tgi'; expected one of sglang, trtllm"):
        read("h200_sxm", "tgi")


def test_profiles_have_what_was_published():
    for name, stack in SHIPPED:
        own = load_hardware(name).fitted[stack]
        assert set(own.hyper_connections) == {"bf16"}
        timed_here = set() if (name, stack) in NOT_TIMED else {"fp8", "bf16"}
        assert set(own.compressed_attention) == set(own.compressed_indexer) == timed_here


def test_a_stack_without_takes_typical_layers():
    kernels = choose_kernels(load_hardware("h200_sxm"), "trtllm")
    places = ("compressed_attention", "fp8"), ("compressed_indexer", "fp8")
    assert {kernels.borrowed[place] for place in places} == {"typical"}
    assert ("hyper_connections", "fp8") not in kernels.borrowed
    assert kernels.kind_of_errors("compressed_indexer") == "compressed_attention"
    fit = kernels.fits["compressed_attention"]["fp8"]
    left_out = load_rankings().kinds["compressed_attention"]
    assert fit.mean_error >= left_out.error["typical"]
    assert fit.shape_spread > left_out.spread["typical"]
    flash = {"target": "deepseek-v4-flash", "stack": "trtllm"}
    assumed = deploy(**flash, hardware="h200_sxm")[1]
    assert str(assumed["compressed_attention_fp8"]) == "typical kernels"
    assert "compressed_attention_fp8" not in deploy(**flash, hardware="b300")[1]


def table_of(read, name, stack):
    pytest.importorskip("aiconfigurator_core")
    pytest.importorskip("pyarrow")
    rows = read(name, stack)
    return rows[rows["role"] == "judge"].reset_index(drop=True)


def errors(rows, works, of_kind, name, stack, dtype):
    hardware = load_hardware(name)
    own = hardware.fitted[stack]
    parameters = {kind: getattr(own, kind)[dtype].parameters for kind in of_kind}
    times = layers_fit.predicted_time(list(works(rows, hardware)), hardware, parameters)
    return times / rows["latency"] - 1


@pytest.mark.dataset
@pytest.mark.parametrize(("name", "stack"), [s for s in SHIPPED if s not in NOT_TIMED])
def test_published_attention_that_was_not_fitted(name, stack):
    """HCA and CSA apart: at most a tenth off in the median, on shapes that were not fitted."""
    rows = table_of(modules.compressed_modules, name, stack)
    error = errors(rows, modules.compressed_work, modules.OF_KIND, name, stack, "fp8")
    fit = load_hardware(name).fitted[stack].compressed_attention["fp8"]
    assert error.abs().median() == pytest.approx(fit.median_error, abs=1e-4)
    for ratio in (4, 128):
        assert error[rows["ratio"] == ratio].abs().median() <= 0.10
    assert error.abs().mean() <= 0.10
    half = 1.2815515594 * np.hypot(fit.shape_spread, fit.row_spread)
    assert 0.7 <= (np.abs(np.log1p(error)) <= half).mean() <= 0.95
    assert len(rows) == fit.num_judged > 1000


@pytest.mark.dataset
@pytest.mark.parametrize(("name", "stack"), SHIPPED)
def test_published_streams_that_were_not_fitted(name, stack):
    """TensorRT-LLM's cut their sums in ways of their own from 32 tokens on: 11 and 14 % off."""
    rows = table_of(modules.stream_modules, name, stack)
    error = errors(rows, modules.stream_work, modules.STREAM_OF_KIND, name, stack, "bf16")
    fit = load_hardware(name).fitted[stack].hyper_connections["bf16"]
    assert error.abs().median() == pytest.approx(fit.median_error, abs=1e-4)
    most = 0.15 if (name, stack) in NOT_TIMED else 0.10
    assert error.abs().median() <= most


@pytest.mark.dataset
def test_what_scores_that_are_all_alike_take_longer_is_taken_off():
    """SGLang's choice takes 65 us longer on B200 at 8,192 tokens, which its layers show."""
    pytest.importorskip("aiconfigurator_core")
    pytest.importorskip("pyarrow")
    table = modules.compressed_modules("b200", "sglang")
    one = table[(table["ratio"] == 4) & (table["family"] == "Flash") & (table["num_heads"] == 64)]
    times = one[one["batch_size"] == 1].set_index("context_length")["latency"]
    assert times[8192] == pytest.approx(times[2048], rel=0.1)
    assert times[8192] == pytest.approx(times[131_072], rel=0.1)


@pytest.mark.parametrize(("target", "ratio", "batch", "context", "measured"), [
    ("deepseek-v4-pro", 4, 1, 512, 144e-6), ("deepseek-v4-pro", 4, 1, 65_536, 160e-6),
    ("deepseek-v4-pro", 4, 128, 6144, 342e-6), ("deepseek-v4-flash", 128, 1, 8192, 82e-6),
    ("deepseek-v4-flash", 128, 128, 1024, 117e-6),
])  # fmt: skip
def test_layers_of_a_pass_take_as_long_as_published(target, ratio, batch, context, measured):
    """vLLM's on H200, matrices in fp8, one GPU; from aiconfigurator-core 0.12.0."""
    model = load_architecture(target)
    layer = next(group for group in model.layers if group.mixer.ratio == ratio)
    alone = model.with_changes("target", {"layers": [as_table(layer) | {"count": 10}]})
    deployment, _ = deploy(target=alone, hardware="h200_sxm", stack="vllm")
    group = sequence_group(batch_size=batch, context_length=context)
    parts = target_pass(deployment, group).components
    names = ("attention_projections", "compressor", "indexer", "index_selection", "attention_core")
    found = sum(float(parts[name].total_time) for name in names if name in parts) / 10
    assert found == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize(("tokens", "hca", "csa"), [
    (16, 83e-6, 103e-6), (128, 118e-6, 144e-6), (1024, 475e-6, 543e-6), (3072, 1309e-6, 1742e-6),
    (8192, 3382e-6, 7529e-6), (16_384, 6830e-6, 12_548e-6),
])  # fmt: skip
def test_chunks_of_a_prompt_that_no_fit_saw(tokens, hca, csa):
    """vLLM's on H200: DeepSeek-V4-Flash, one prompt, one GPU; 16 tokens are as many verified.

    From ``dsv4_hca_context_module_perf`` and that of CSA, aiconfigurator-core 0.12.0.
    """
    model = load_architecture("deepseek-v4-flash")
    group = sequence_group(batch_size=1, tokens_per_sequence=tokens)
    for ratio, measured in ((128, hca), (4, csa)):
        layer = next(layer for layer in model.layers if layer.mixer.ratio == ratio)
        alone = model.with_changes("target", {"layers": [as_table(layer) | {"count": 10}]})
        deployment, _ = deploy(target=alone, hardware="h200_sxm", stack="vllm")
        run = target_pass(deployment, group)
        parts, of = run.components, run.kinds
        kinds = ("compressed_attention", "compressed_indexer")
        found = sum(float(t.total_time) for part, t in parts.items() if of[part] in kinds) / 10
        assert 0.75 < found / measured < 1.25


@pytest.mark.parametrize(("stack", "hardware", "hca", "csa"), [
    ("trtllm", "b200", (68, 86, 110, 154, 236), (121, 149, 178, 244, 355)),
    ("sglang", "h200_sxm", (68, 97, 160, 270, 493), (105, 142, 240, 364, 652)),
])  # fmt: skip
def test_batches_of_several_tokens_each_that_no_fit_saw(stack, hardware, hca, csa):
    """DeepSeek-V4-Flash, 16 heads, contexts of 128: 4 or 8 tokens of 16, 64 and 256 sequences [us].

    From ``dsv4_hca_context_module_perf`` and that of CSA, aiconfigurator-core 0.12.0. vLLM's run
    kernels for prompts there, which its verify passes do not.
    """
    model = load_architecture("deepseek-v4-flash")
    for ratio, measured in ((128, hca), (4, csa)):
        layer = next(layer for layer in model.layers if layer.mixer.ratio == ratio)
        alone = model.with_changes("target", {"layers": [as_table(layer) | {"count": 10}]})
        deployment, _ = deploy(target=alone, hardware=hardware, stack=stack, tensor_parallel=4)
        group = sequence_group(
            batch_size=[16, 64, 64, 256, 256],
            tokens_per_sequence=[4, 4, 8, 4, 8],
            context_length=128,
        )
        run = target_pass(deployment, group)
        parts, of = run.components, run.kinds
        kinds = ("compressed_attention", "compressed_indexer")
        found = sum(time.total_time for part, time in parts.items() if of[part] in kinds) / 10
        ratio_of_times = found * 1e6 / np.array(measured)
        assert ((ratio_of_times > 0.75) & (ratio_of_times < 1.2)).all(), ratio_of_times
