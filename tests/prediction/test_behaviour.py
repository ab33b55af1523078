"""What MoESD says in words, with its models and GPUs: by data sheets and by fitted kernels."""

import numpy as np
import pytest
from published_tables import read_table
from rows import cases

from specmodel import Acceptance, load_architecture, load_engine, predict

BATCH = np.unique(np.geomspace(1, 4096, 300).round())
KERNELS = {"datasheet": {"engine": "ideal", "stack": "datasheet"}, "fitted": {"engine": "ideal"}}
KERNELS |= {"vllm": {"engine": "vllm-moesd-2025"}}
"""Arguments by whose kernels run: those of the GPU, under an engine or an ideal one."""
every_kernels = pytest.mark.parametrize("kernels", KERNELS)


def run(target, drafter, acceptance, context, c, kernels):
    return predict(
        target=target, drafter=drafter, hardware="a800_sxm_80gb", tensor_parallel=2,
        batch_size=BATCH, draft_length=4, acceptance=acceptance, context_length=context,
        routing_correlation=c, max_draft_length=10, **KERNELS[kernels],
    )  # fmt: skip


@every_kernels
@pytest.mark.parametrize("context", [0, 512])
@pytest.mark.parametrize("c", [0.0, 0.18])
def test_sparser_models_peak_later_and_stay_good_over_a_wider_range(context, c, kernels):
    """Qwen2-57B-A14B with 4, 8 and 16 of its 64 experts (MoESD, Figure 4)."""
    target = load_architecture("qwen2-57b-a14b")
    peaks, widths = [], []
    for k in (16, 8, 4):
        sparse = target.with_changes("target", {"experts_per_token": k})
        efficiency = run(sparse, "qwen2-0.5b", 0.8, context, c, kernels).target_efficiency
        peak = efficiency.argmax()
        assert 0 < peak < BATCH.size - 1
        good = BATCH[efficiency > efficiency[peak] / np.sqrt(2)]
        assert good[-1] < BATCH[-1]
        peaks.append(BATCH[peak])
        widths.append(good[-1] - good[0])
    assert (peaks, widths) == (sorted(set(peaks)), sorted(set(widths)))


@every_kernels
@pytest.mark.parametrize("context", [0, 512])
@cases("target drafter", ("opt-30b", "opt-350m"), ("qwen3-32b", "qwen2-0.5b"))
def test_target_efficiency_of_a_dense_model_never_rises(target, drafter, context, kernels):
    efficiency = run(target, drafter, 0.8, context, 0.0, kernels).target_efficiency
    assert (np.diff(efficiency) <= 1e-12).all()


@every_kernels
@pytest.mark.parametrize("context", [0, 512])
def test_best_draft_length_over_the_batch(context, kernels):
    """Low, high, low for an MoE; never rising for a dense model."""
    moe = run("qwen2-57b-a14b", "qwen2-0.5b", 0.6, context, 0.18, kernels).best_draft_length
    top = moe.max()
    rising, falling = moe[: moe.argmax() + 1], moe[moe.argmax() :]
    assert moe[0] < top > moe[-1]
    if kernels != "vllm":  # its overheads let one draft pay before the dip
        assert (np.diff(rising) >= 0).all()
    assert (np.diff(falling) <= 0).all()
    dense = run("opt-30b", "opt-350m", 0.6, context, 0.0, kernels).best_draft_length
    assert dense[0] > dense[-1]
    assert (np.diff(dense) <= 0).all()


@every_kernels
def test_moe_gains_more_than_dense_at_moderate_batches(kernels):
    """Qwen2-57B-A14B against OPT-30b beyond batch size 16 (MoESD, Figure 2)."""
    moe = run("qwen2-57b-a14b", "qwen2-0.5b", 0.8, 256, 0.18, kernels)
    dense = run("opt-30b", "opt-350m", 0.8, 256, 0.0, kernels)
    moderate = (BATCH > 24) & (BATCH <= 100)
    assert (moe.speedup[moderate] > dense.speedup[moderate]).all()
    assert moe.speedup[0] < dense.speedup[0]


def test_a_higher_ridge_point_gives_a_larger_peak():
    """On the data sheet: launches weigh more on a faster GPU, and drafting is mostly launches."""
    models = {"target": "qwen2-57b-a14b", "drafter": "qwen2-0.5b", "stack": "datasheet"}
    point = {"batch_size": BATCH, "draft_length": 4, "acceptance": 0.8, "context_length": 256}
    gpus, asked = ("h20", "a800_sxm_80gb", "h100_sxm"), {**models, **point, "engine": "ideal"}
    peaks = [predict(**asked, hardware=name).speedup.max() for name in gpus]
    assert peaks == sorted(peaks)


@every_kernels
def test_the_drafter_on_one_gpu_costs_speedup_on_four(kernels):
    point = {"batch_size": 32, "draft_length": 4, "acceptance": 0.8, "context_length": 256}
    names = {"target": "qwen2-57b-a14b", "drafter": "qwen2-0.5b", "hardware": "a800_sxm_80gb"}
    two, four = (predict(**names, **point, **KERNELS[kernels], tensor_parallel=n) for n in (2, 4))
    assert four.forward_time < two.forward_time
    assert four.speedup < two.speedup


def excess_over_measured_peaks(**names):
    """Predicted over measured less one for each of the 24 cells of MoESD's Table 1, by target."""
    batch = [1, 2, *range(4, 61, 4), 80, 100]
    excess = {}
    for row in read_table("moesd_table1.csv"):
        p = predict(
            target=row["target"], drafter=row["drafter"], hardware="a800_sxm_80gb",
            tensor_parallel=2, batch_size=batch, draft_length=int(row["draft_length"]),
            acceptance=Acceptance(step_efficiency=float(row["step_efficiency"])),
            context_length=300, **names,
        )  # fmt: skip
        over = p.speedup.max() / float(row["speedup"]) - 1
        excess.setdefault(row["target"], []).append(over)
    return excess


def test_the_ideal_engine_is_above_every_measured_peak():
    excess = excess_over_measured_peaks(stack="datasheet", engine="ideal")
    assert min(map(min, excess.values())) > 0


def test_fitted_kernels_and_engine_meet_the_measured_peaks():
    """The engine was fitted to the same 24 cells, the kernels to other measurements."""
    excess = excess_over_measured_peaks(engine="vllm-moesd-2025")
    assert set(map(len, excess.values())) == {12}
    for target, over in excess.items():
        assert np.abs(over).mean() < 0.05, target
        assert abs(np.mean(over)) < 0.02, target


def test_overhead_of_each_pass_raises_the_speedup_at_batch_size_1():
    """A bound on throughput is none on the speedup: a pass is paid once for several tokens."""
    engine = load_engine("ideal").with_changes("engine", {"pass_time": 2e-3})
    point = {"batch_size": 1, "draft_length": 3, "acceptance": 0.7, "context_length": 1024}
    names = {"target": "gpt-oss-120b", "drafter": "eagle", "hardware": "a100_sxm_80gb"}
    for kernels in ({"stack": "datasheet"}, {}):
        ideal = predict(**names, **point, **kernels)
        slow = predict(**names, **point, **kernels, engine=engine)
        assert ideal.speedup < slow.speedup
        assert ideal.throughput > slow.throughput
        assert slow.speedup > 1
        if kernels:
            assert ideal.speedup < 1


@every_kernels
@pytest.mark.parametrize("target", ["qwen3-235b-a22b", "mixtral-8x7b", "llama-3.1-70b"])
def test_long_context_raises_target_efficiency_at_large_batches(target, kernels):
    """KV is shared by the verified tokens: batch size 128, 32k against 1k."""
    where = {"target": target, "drafter": "ngram", "hardware": "h100_sxm", "tensor_parallel": 8}
    point = {"batch_size": 128, "draft_length": 3, "acceptance": 0.7}
    p = predict(**where, **KERNELS[kernels], **point, context_length=[1024, 32_768])
    assert p.target_efficiency[1] > p.target_efficiency[0] + 0.02
