"""Random architectures, hardware and layouts for property tests."""

import json
from pathlib import Path

from hypothesis import strategies as st
from msgspec.structs import replace
from shapes import plain_shape

from specmodel import Architecture, Deployment, HardwareProfile, load_hardware, ngram_drafter
from specmodel.core.base import as_table, build
from specmodel.core.cost import MemoryUse, pass_work
from specmodel.core.layers import Layout, PassWork, sequence_group


def mixers(kind: str, choices: dict[str, list[object]]) -> st.SearchStrategy[dict[str, object]]:
    """Return layers of a kind with random values of their fields."""
    fields = {name: st.sampled_from(values) for name, values in choices.items()}
    return st.fixed_dictionaries({"kind": st.just(kind)} | fields)


_MIXERS = json.loads((Path(__file__).parent / "data/random_mixers.json").read_text("utf-8"))
LATENTS, *_OTHERS = (mixers(kind, choices) for kind, choices in _MIXERS.items())
RECURRENT = st.one_of(*_OTHERS)
GPU = load_hardware(Path(__file__).parent / "data/random_gpu.toml")
WEIGHTS = st.sampled_from(["bf16", "fp8", "mxfp4", "int4"])


def pass_of(model: Architecture, **point: object) -> PassWork:
    """Return the work of a pass over equal sequences."""
    given = sequence_group.__kwdefaults__.keys() | {"batch_size"}
    sequences = {name: point.pop(name) for name in given & point.keys()}
    return pass_work(model, sequence_group(**sequences), **point)


def one_layer(model: Architecture) -> Architecture:
    """Return a model that only has the last layer of another model, without a window."""
    last = as_table(model)["layers"][-1] | {"count": 1}
    last["mixer"].pop("window", None)
    return model.with_changes("t", {"layers": [last]})


def with_windows(model: Architecture, window: int, count: int) -> Architecture:
    """Return a model with a window in the first `count` of its equal layers."""
    (group,) = as_table(model)["layers"]
    windowed = group | {"count": count, "mixer": group["mixer"] | {"window": window}}
    rest = group | {"count": group["count"] - count}
    return model.with_changes("t", {"layers": [part for part in (windowed, rest) if part["count"]]})


@st.composite
def layouts(draw: st.DrawFn, model: Architecture) -> Layout:
    """Draw a layout that cuts a model evenly, on nodes of four or eight GPUs."""
    tensor = draw(st.sampled_from([n for n in (1, 2, 4) if all(m.cuts(n) for m in model.mixers)]))
    expert = 1
    if model.is_moe:
        degrees = [e for e in (1, 2, 4, 8, 16) if model.num_experts % e == 0 and e % tensor == 0]
        expert = draw(st.sampled_from([1, *degrees]))
    return Layout(tensor, expert, draw(st.sampled_from([4, 8])))


@st.composite
def architectures(draw: st.DrawFn) -> Architecture:
    """Draw a decoder: dense or MoE, gated or not, windowed or not, with any grouping of heads."""
    kv_heads = draw(st.sampled_from([1, 2, 4, 8]))
    num_layers = draw(st.integers(1, 80))
    num_experts = draw(st.sampled_from([2, 8, 60, 64, 256]))
    dense_layers = draw(st.integers(0, num_layers))
    windowed_layers = draw(st.integers(0, num_layers))
    window = draw(st.integers(16, 100_000)) if windowed_layers else None
    heads = {"num_heads": kv_heads * draw(st.integers(1, 16)), "num_kv_heads": kv_heads}
    heads |= {"head_dim": draw(st.sampled_from([64, 128]))}
    latent = draw(st.none() | LATENTS)
    attending = {"kind": "attention"} | heads
    if latent:
        attending = {"num_heads": heads["num_heads"]} | latent
    shape = {"hidden_size": 64 * draw(st.integers(2, 128)), "num_layers": num_layers}
    shape |= {"vocabulary_size": draw(st.integers(1000, 200_000)), "num_dense_layers": dense_layers}
    shape |= {"num_sliding_layers": 0 if latent else windowed_layers, "window": window}
    shape |= {"ffn_size": draw(st.integers(256, 30_000)), "is_gated": draw(st.booleans())}
    shape |= {"weight_dtype": draw(WEIGHTS), "expert_dtype": draw(st.none() | WEIGHTS)}
    shape |= {"activation_dtype": draw(st.sampled_from(["bf16", "fp8"])), "mixer": attending}
    experts = {"num_experts": num_experts, "shared_expert_size": 1024}
    experts |= {"experts_per_token": draw(st.integers(1, min(num_experts, 16)))}
    experts |= {"expert_size": draw(st.integers(256, 20_000))}
    experts |= {"num_shared_experts": draw(st.integers(0, 2))}
    model = build(Architecture, plain_shape(name="random", experts=experts, **shape), "model")
    if model.is_moe:
        model = model.with_changes("target", {"latent_size": draw(st.sampled_from([0, 256]))})
    recurrent = draw(st.none() | RECURRENT)
    if recurrent is None:
        return model
    layers = as_table(model)["layers"]
    group = layers[-1] | {"mixer": recurrent, "count": draw(st.integers(1, 80))}
    if draw(st.booleans()):  # layers of one purpose
        group |= {"feed_forward": None}
    return model.with_changes("target", {"layers": [group, *layers]})


@st.composite
def hardware(draw: st.DrawFn) -> HardwareProfile:
    """Draw a GPU with a ridge point that a profile may have."""
    bandwidth = draw(st.floats(5e10, 1e13))
    drawn = {
        "memory.peak_bytes_per_s": bandwidth, "link.peak_bytes_per_s": bandwidth / 8,
        "link.collective_latency": draw(st.floats(0, 1e-5)),
        "link.hop_latency": draw(st.floats(0, 1e-6)),
        "network.peak_bytes_per_s": max(bandwidth / 80, 1e9),
        "network.hop_latency": draw(st.floats(0, 1e-5)),
        "dtype.bf16.peak_flops_per_s": bandwidth * draw(st.floats(2, 2000)),
    }  # fmt: skip
    return GPU.with_changes("model", drawn)


def draft_bytes(deployment: Deployment) -> float:
    """Return the weight bytes of the drafter on the fullest GPU, by comparison with a look-up."""
    alone = replace(deployment, drafter=ngram_drafter())
    kept = [MemoryUse(each, 1000.0, 4.0).weight_bytes for each in (deployment, alone)]
    return kept[0] - kept[1]
