"""CUDA graphs: which passes an engine captures by default, and what larger ones take."""

import json
from pathlib import Path

import numpy as np
import pytest
from printed import refused
from rows import each_row, values_of

from specmodel import decode, deploy, load_engine, predict
from specmodel.core.cost import step_times

POINT = {"target": "qwen3-30b-a3b", "drafter": "eagle3", "hardware": "h200_sxm"}
POINT |= {"engine": "vllm", "acceptance": 0.7}


def predicted(**changes):
    return predict(**(POINT | {"batch_size": 128, "draft_length": 3} | changes))


def beyond(kind="beyond_graphs", **changes):
    """Values of the notes on passes that no CUDA graph holds."""
    return [note.values for note in predicted(**changes).notes if note.kind == kind]


def limit_of(engine, hardware, gpus):
    given = {"engine": engine, "hardware": hardware, "tensor_parallel": gpus}
    return predicted(**given).deployment.graph_limit


@each_row(("engine", "hardware", "gpus", "count", "unit"), values_of("engines.txt", "graphs"))
def test_defaults_are_those_of_the_engines(engine, hardware, gpus, count, unit):
    limit = limit_of(engine, hardware, gpus)
    assert (limit.count, limit.unit, limit.default_of) == (count, unit, load_engine(engine).name)
    name = f"{limit.default_of} (own runs)"
    own = load_engine(engine).with_changes("engine", {"name": name})
    assert limit_of(own, hardware, gpus) == limit


def test_a_processor_has_none_and_other_engines_have_none_that_is_known():
    for engine in ("ideal", "tensorrt-llm", "vllm-moesd-2025"):
        assert limit_of(engine, "h100_sxm", 1) is None
    cpu = Path(__file__).parents[2] / "calibration/results/intel_xeon_2_threads/cpu.toml"
    found = predicted(hardware=cpu, drafter="ngram", batch_size=512)
    assert found.deployment.graph_limit is None
    assert not any("graph" in note.kind for note in found.notes)


def test_beyond_it_the_host_launches_each_kernel():
    """128 x 4 tokens are captured, 129 x 4 are not; the time is kernels times seconds, by hand."""
    inside, beyond = predicted(batch_size=[128, 129]).evaluation.times.verify_pass.launch_time
    works = predicted(batch_size=129).evaluation.times.verify_pass.work().components
    launches = sum(part.kernels for part in works.values()) + 1.5 * works["routed_experts"].kernels
    assert launches > 48 * 15
    assert inside == 0
    assert beyond == pytest.approx(launches * load_engine("vllm").eager_kernel_time, rel=1e-9)


def test_an_all_reduce_outside_graphs_is_launched_as_three_kernels():
    """Two of 48 layers, of embedding and of logits."""
    point = {"batch_size": 129, "tensor_parallel": 4, "engine": "vllm-0.14"}
    found = predicted(**point).evaluation.times.verify_pass
    works = found.work().components.values()
    each = {"message": 3.0, "experts": 2.5}
    launched = sum(float(np.max(part.kernels)) * each.get(part.kind, 1.0) for part in works)
    assert sum(part.kernels for part in works if part.kind == "message") == 2 * 48 + 2
    seconds = load_engine("vllm").eager_kernel_time
    assert float(found.launch_time) == pytest.approx(launched * seconds)


@pytest.mark.parametrize("engine", ["vllm-0.24", "vllm-0.30", "vllm-0.33"])
def test_a_drafter_is_eager_or_not_as_told(engine):
    def launched(**told):
        where = {"target": "qwen3-14b", "drafter": "qwen3-0.6b", "hardware": "h200_sxm"}
        own, _ = deploy(**where, engine=engine, **told)
        point = {"batch_size": 1, "draft_length": 3, "verify_tokens": 4, "context_length": 99}
        return float(step_times(own, **point).draft_passes[1].each.launch_time)

    assert launched(eager_drafter=False) == 0 < launched() <= launched(eager_drafter=True)


@pytest.mark.parametrize(("eager", "captured"), [(16.644e-3, 2.149e-3), (16.812e-3, 2.516e-3)])
def test_a_kernel_takes_what_eager_passes_took(tmp_path, eager, captured):
    """GLM-OCR's 16 layers of text in vLLM 0.17.1 on an A100: launches are 0.7 as long."""
    config = {"model_type": "glm4", "hidden_size": 1024, "intermediate_size": 4096}
    config |= {"num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 8}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | {"head_dim": 128, "vocab_size": 59392}), encoding="utf-8")
    point = {"target": path, "hardware": "a100_sxm_80gb", "batch_size": 1, "enforce_eager": True}
    launched = float(decode(**point).evaluation.times.plain_pass.launch_time)
    assert launched / (eager - captured) == pytest.approx(0.69, abs=0.02)


def test_plain_passes_have_a_limit_too():
    times = predicted(batch_size=[512, 513], draft_length=0).evaluation.times
    assert np.diff(times.plain_pass.launch_time) > 0.03


def test_requests_count_by_replica():
    given = {"engine": "sglang", "draft_length": 7, "hardware": "h100_sxm"}
    option = {"unit": "request", "option": "--cuda-graph-max-bs-decode", "needed": 257}
    assert not beyond(**given, batch_size=256)
    (note,) = beyond(**given, batch_size=257)
    assert note.items() >= {**option, "count": 256, "default_of": "SGLang"}.items()
    more = given | {"data_parallel": 2, "batch_size": 512}
    assert not beyond(**more)
    (note,) = beyond(**more | {"batch_size": 514})
    assert note["batch_sizes"] == (514, 514), "as was asked for, of all replicas"
    assert note.items() >= option.items()


def test_a_larger_limit_is_a_field_of_the_engine_or_an_argument():

    own = load_engine("vllm").with_changes("engine", {"graph_limit": 4096})
    point = {"batch_size": 256, "draft_length": 7}
    assert not beyond(engine=own, **point)
    (note,) = beyond(**point)
    assert note["batch_sizes"] == (256, 256)
    assert (note["count"], note["unit"], note["default_of"]) == (512, "token", "vLLM")
    assert (note["option"], note["needed"]) == ("--max-cudagraph-capture-size", 2048)
    lifted = predicted(engine=own, **point).speedup
    assert predicted(graph_limit=4096, **point).speedup == lifted
    assert lifted > 1.35 * predicted(**point).speedup


def test_what_is_no_limit_is_refused_by_name():
    limits = ("graph_limit", -1), ("graph_limit", 2.5), ("graphs", "trtllm")
    for field, value in (*limits, ("eager_kernel_time", -1)):
        refused(field, load_engine("vllm").with_changes, "engine", {field: value})


def test_sizes_are_rounded_to_whole_drafts_and_padded_to_the_next():
    """Powers of two with five drafted: 6, 12, 18, 36, 66, 132, 258, and none for 516 tokens."""
    powers = [2**n for n in range(10)]
    point = {"batch_size": [1, 4, 30, 43, 44], "draft_length": 5, "graph_limit": powers}
    limit = predicted(**point).deployment.graph_limit
    sizes = np.array(point["batch_size"], dtype=float)
    assert limit.padded(sizes, 6 * sizes, 1).tolist() == [1, 6, 43, 43, np.inf]
    assert limit.padded(2 * sizes, 12 * sizes, 2).tolist() == [2, 12, 86, 86, np.inf]
    assert limit.is_beyond(sizes, 6 * sizes, 1).tolist() == [False] * 4 + [True]
    assert limit.padded(sizes, sizes, 1).tolist() == [1, 4, 32, 64, 64], "plain ones"
    times = predicted(**point).evaluation.times.verify_pass
    assert times.launch_time[3] == 0 < times.launch_time[4]
    kinds = {kind: times.components[name].total_time for name, kind in times.kinds.items()}
    assert kinds["experts"][2] == kinds["experts"][3]
    assert kinds["attention"][2] < kinds["attention"][3]


def test_sglang_pads_requests_and_one_size_is_no_list():
    captured = {"engine": "sglang", "hardware": "h100_sxm", "graph_limit": [1, 4, 16]}
    limit = predicted(**captured).deployment.graph_limit
    assert limit.padded(np.array([3.0, 17.0]), np.array([12.0, 68.0]), 1).tolist() == [4, np.inf]
    assert limit.typed == "--cuda-graph-bs-decode 1 4 16"
    assert beyond(**captured, batch_size=17)
    assert predicted(graph_limit=512).deployment.graph_limit.sizes == ()


def test_where_graphs_of_earlier_versions_ended_is_told():
    """1,024 tokens from 0.28 on, 512 before: 64 x 8 tokens are held by both, 64 x 9 by one."""
    point = {"hardware": "gb200", "batch_size": 64}
    assert not beyond("earlier_graphs", **point, draft_length=7)
    (note,) = beyond("earlier_graphs", **point, draft_length=8)
    assert note["count"] == 512
    old, new = (predicted(**point, draft_length=8, engine=e) for e in ("vllm-0.24", "vllm-0.28"))
    assert new.speedup > 1.5 * old.speedup
    assert not predicted(**point, enforce_eager=True).deployment.graph_limit.count


def test_a_version_that_nobody_read_is_that_of_the_nearest_and_said():
    for version, as_read in (("0.99", "0.33"), ("0.10", "0.14"), ("0.24", ""), ("0.33.1", "")):
        _, told = deploy(target="mixtral-8x7b", hardware="gb200", engine=f"vllm-{version}")
        expected = f"vLLM {version} with the rules of {as_read}" if as_read else None
        assert told.get("engine_version") == expected
