"""The decoder and the draft-verify-reject loop are correct (skipped without torch)."""

import pytest

from specmodel.core.base import build

torch = pytest.importorskip("torch")

from printed import refused
from shapes import plain_shape

import decoder as own
from decoder import Decoder, Pass, Speculator, State, _feed_forward, decode, speculate
from specmodel import Architecture
from specmodel.calibrate.measure.kernels import layers

CPU = torch.device("cpu")
HEADS = {"kind": "attention", "num_heads": 4, "num_kv_heads": 2, "head_dim": 8}
SMALL = {"hidden_size": 32, "num_layers": 2, "mixer": HEADS, "vocabulary_size": 40}
EXPERTS = {"num_experts": 6, "experts_per_token": 2, "expert_size": 16}
MOE = build(Architecture, plain_shape(name="moe", experts=EXPERTS, **SMALL), "model")
DENSE = build(Architecture, plain_shape(name="dense", ffn_size=24, **SMALL), "model")


@pytest.fixture(autouse=True)
def _one_thread_and_no_gradients():
    """Use one thread: on a busy machine, threads wait long for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield
    torch.set_num_threads(threads)


def start(decoder, batch, context=5):
    tokens = torch.randint(0, 40, (batch, 2), generator=torch.Generator().manual_seed(3))
    return State(tokens, torch.full((batch,), context))


def cache_of(decoder, batch):
    """Return a cache with the same context for all decoders, up to the token before the last."""
    cache = decoder.new_cache(batch, 256)
    for i, layer in enumerate(cache):
        layer.copy_(torch.randn(layer.shape, generator=torch.Generator().manual_seed(i)))
    state = start(decoder, batch)
    decoder.forward(state.tokens[:, :1], state.positions - 1, cache)
    return cache


def speculator(target, drafter, batch, gamma):
    own, other = cache_of(target, batch), cache_of(drafter, batch)
    passes = Pass(drafter, other, 2, wanted=1), Pass(drafter, other, 1)
    return Speculator(Pass(target, own, gamma + 1), *passes, gamma)


def plain(target, batch):
    return Pass(target, cache_of(target, batch), 1)


@pytest.mark.parametrize(
    ("architecture", "is_own_drafter", "batch", "gamma"),
    [(MOE, False, 3, 4), (DENSE, True, 1, 1)],
    ids=["moe-other", "dense-own"],
)
def test_speculation_emits_what_plain_decoding_does(architecture, is_own_drafter, batch, gamma):
    target = Decoder(architecture, CPU, torch.float32, seed=1)
    drafter = target if is_own_drafter else Decoder(DENSE, CPU, torch.float32, seed=2)
    expected, state = start(target, batch), start(target, batch)
    decode(plain(target, batch), expected, 30)
    speculate(speculator(target, drafter, batch, gamma), state, [None] * 30)
    lengths = []
    for long, short in zip(state.sequences(), expected.sequences(), strict=True):
        assert len(long) >= 30
        assert long[:30] == short
        lengths.append(len(long))
    if is_own_drafter and architecture is DENSE:
        # with the same cache a drafter that is the target has every draft accepted
        assert lengths == [30 * (gamma + 1)] * batch


def test_a_script_decides_how_many_are_accepted():
    target, drafter = Decoder(MOE, CPU, seed=1), Decoder(DENSE, CPU, seed=2)
    state = start(target, 2)
    scripts = [torch.tensor(accepted) for accepted in ([0, 3], [2, 1], [3, 0])]
    speculate(speculator(target, drafter, 2, 3), state, scripts)
    assert [len(tokens) for tokens in state.sequences()] == [5 + 3, 4 + 3]
    assert (state.positions - 5).tolist() == [8, 7]


def test_experts_are_the_weighted_sum_of_their_blocks():
    generator = torch.Generator().manual_seed(0)
    E, h, w, k = 5, 16, 8, 2
    shapes = ((E, h), (E, 2 * w, h), (E, h, w))
    weights = layers.ExpertWeights(*(torch.randn(own, generator=generator) for own in shapes))
    x = torch.randn(7, h, generator=generator)
    for forced in (None, torch.tensor([[0, 3]] * 6 + [[4, 1]])):
        scores = (x @ weights.router.T).softmax(-1)
        chosen = scores.topk(k).indices if forced is None else forced
        share = scores.gather(1, chosen)
        share = share / share.sum(-1, keepdim=True)
        expected = torch.zeros_like(x)
        for t in range(7):
            for i in range(k):
                e = int(chosen[t, i])
                block = _feed_forward(x[t : t + 1], weights.gate_up[e], weights.down[e])
                expected[t] += share[t, i] * block[0]
        got = layers.experts(x, weights, k, forced)
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


def test_attention_is_causal_softmax_over_the_cache():
    generator = torch.Generator().manual_seed(0)
    batch, count, heads, groups, dim, capacity = 2, 3, 4, 2, 8, 12
    query = torch.randn(batch, count, heads, dim, generator=generator)
    key, value = (torch.randn(batch, count, groups, dim, generator=generator) for _ in range(2))
    flat = torch.randn(2 * batch * capacity * groups * dim, generator=generator)
    cache = layers.laid_out(flat, batch, capacity, groups, dim)
    first = torch.tensor([4, 8])
    before = cache.clone()
    span = layers.span_of(first, count, capacity, heads // groups, torch.float32)
    got = layers.attend(query, key, value, cache, span)
    for b in range(batch):
        keys, values = before[0, b].clone(), before[1, b].clone()
        for i in range(count):
            keys[first[b] + i], values[first[b] + i] = key[b, i], value[b, i]
        for i in range(count):
            seen = int(first[b]) + i + 1
            for head in range(heads):
                group = head // (heads // groups)
                weight = (keys[:seen, group] @ query[b, i, head] * dim**-0.5).softmax(0)
                expected = weight @ values[:seen, group]
                torch.testing.assert_close(got[b, i, head], expected, atol=1e-4, rtol=1e-4)


def test_quantised_weights_are_multiplied_with_their_scales():
    row = own.operators(MOE.with_changes("target", {"weight_dtype": "int8"}), CPU)["experts"]
    drawn = {"int8": torch.randint(-9, 9, (3, 8, 16), dtype=torch.int8), "base": torch.rand(3, 8)}
    stored = own.Stored(row, lambda *shape, dtype: drawn[dtype], (3, 8, 16))
    wide = drawn["int8"] * drawn["base"][..., None]
    x, ends = torch.randn(5, 16), torch.tensor([2, 2, 5])
    expected = torch.cat([x[:2] @ wide[0].T, x[2:] @ wide[2].T])
    torch.testing.assert_close(stored.grouped(x, ends), expected, atol=1e-4, rtol=1e-4)
    alone = own.Stored(row, lambda *shape, dtype: drawn[dtype][0], (8, 16))
    torch.testing.assert_close(alone.times(x), x @ wide[0].T, atol=1e-4, rtol=1e-4)


def test_other_architectures_are_refused():
    shared = MOE.with_changes("target", {"num_shared_experts": 1, "shared_expert_size": 8})
    refused("architecture", Decoder, shared, CPU)
    small = MOE.with_changes("target", {"weight_dtype": "fp4"})
    refused("weight_dtype", Decoder, small, CPU)
