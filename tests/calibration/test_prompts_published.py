"""Attention of prompts: fits to published timings, and their errors."""

import numpy as np
import pandas as pd
import pytest
from planted import H200, PLANTED, planted
from rows import slow

from published import datasets
from published.mixers import LEAST_TOKENS, MOST_TOKENS, prompts
from published.tables import STACKS
from specmodel import deploy, load_hardware
from specmodel.calibrate.fit import fit_kernels
from specmodel.calibrate.fit.timed_work import error_table, predict_measured
from specmodel.calibrate.measure import check_measurements
from specmodel.core.cost import target_pass
from specmodel.core.layers import sequence_group

FEW = [stack for stack in STACKS if stack[0] in ("h200_sxm", "l40s")]


@pytest.mark.parametrize("kind", datasets.PROMPTS)
def test_fits_give_planted_times_back(kind):
    fit = fit_kernels(check_measurements(planted(kind)), H200)[kind, "bf16"].fit
    known = PLANTED["prompt_attention"]
    assert fit.is_held_out
    assert fit.percentile_90_error < 1e-3
    assert fit.launch_time == pytest.approx(known["launch_time"], rel=0.01)
    assert fit.tile_rows == pytest.approx(known["tile_rows"], rel=0.01)


def test_few_blocks_take_a_whole_round_and_many_their_number():
    rows = planted("prompt_attention", launch_time=0.0, activation_efficiency=100.0)
    time = rows.groupby(["num_heads", "query_tokens"])["latency"].min()
    assert time[96, 256] < 6 * time[2, 256]  # 48 times the work, 4 and 192 blocks of 200
    assert time[96, 32768] > 25 * time[2, 32768]


@pytest.mark.dataset
@pytest.mark.parametrize("stack", [*FEW, *slow(*((key,) for key in STACKS if key not in FEW))])
def test_prompts_on_shapes_that_were_not_fitted(stack):
    hardware, engine, version = stack
    version = STACKS[stack].get("prompt_attention", version)
    parts = [prompts(kind, hardware, engine, version) for kind in datasets.PROMPTS]
    named = zip(datasets.PROMPTS, parts, strict=True)
    table = pd.concat([part.assign(component=kind) for kind, part in named if len(part)])
    assert table["query_tokens"].min() >= LEAST_TOKENS
    assert (table["batch_size"] * table["query_tokens"]).max() <= MOST_TOKENS
    table = check_measurements(table.assign(hardware=hardware, stack=engine, version=version))
    errors = error_table(predict_measured(table, load_hardware(hardware), engine))
    errors = errors[errors["rows"] == "all"].set_index(["component", "dtype"])
    assert len(errors) >= (1 if hardware == "a100_sxm_80gb" else 2)
    is_blackwell = hardware in ("b200", "b300", "gb200", "gb300")
    is_mixed = engine == "vllm" and is_blackwell  # FlashInfer's kernels
    for (kind, _), row in errors.iterrows():
        most = 0.13 if is_mixed else 0.065 if kind == "latent_prompt_attention" else 0.09
        assert row["median_error"] <= most, (kind, row)
        assert abs(row["bias"]) <= 0.06


@pytest.mark.dataset
@pytest.mark.parametrize(("name", "most"), [("b200", 0.06), ("h200_sxm", 0.11)])
def test_modules_of_latent_attention_with_prompts_are_as_published(name, most):
    """Median error for projections, core and the kernels between them in 16 bits, without a fit.

    The kernels between them (norms of latents, rotation, writing to the cache) are added here.
    """
    folder = datasets._data_folder() / datasets.FOLDERS[name] / "mla/trtllm/1.3.0rc20"
    raw = pd.read_parquet(folder / "mla_context_module_perf.parquet")
    raw = raw.query("gemm_type == 'bfloat16' and isl >= 1024")
    raw = raw[raw["batch_size"] * raw["isl"] <= MOST_TOKENS]
    missed = []
    for (cache, heads), rows in raw.groupby(["kv_cache_dtype", "num_heads"]):
        if heads < 16:
            continue
        deployment, _ = deploy(
            target="deepseek-v3", hardware=name, stack="trtllm", tensor_parallel=128 // heads,
            kv_dtype={"bfloat16": "bf16"}.get(cache, cache), weight_dtype="bf16",
            activation_dtype="bf16",
        )  # fmt: skip
        batch, tokens = (rows[name].to_numpy(float) for name in ("batch_size", "isl"))
        point = {"tokens_per_sequence": tokens, "logits_per_sequence": 1}
        group = sequence_group(batch_size=batch, **point)
        parts = target_pass(deployment, group).components
        names = ("attention_projections", "key_value_projections", "prompt_attention")
        time = sum(parts[part].total_time for part in names) / 61
        between = deployment.hardware.fitted["trtllm"].elementwise["bf16"]
        values = 2 * (1536 + 512 + (heads + 1) * 64)  # each read and written, 2 B each
        moved = rows["batch_size"] * rows["isl"] * 2 * values
        bytes_per_s = between.activation_efficiency * deployment.hardware.memory.peak_bytes_per_s
        time = time + 3 * between.launch_time + moved.to_numpy(float) / bytes_per_s
        missed.append(time / (rows["latency"].to_numpy() * 1e-3) - 1)
    assert np.median(np.abs(np.concatenate(missed))) <= most
