"""Sparse attention: sizes of published models, what a pass reads, and what tokens share."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace
from rows import each_row, one_case, values_of
from strategies import pass_of

from specmodel import Architecture, InputError, load_architecture
from specmodel.core.base import as_table, build
from specmodel.core.base.records import field_names
from specmodel.core.layers import LatentAttention, LayerGroup, Layout
from specmodel.core.layers.engines import NO_ENGINE, engine_code
from specmodel.core.layers.sparse import index_reads

HOPPER, BLACKWELL = 9.0, 10.0

DEEPSEEK_V32 = load_architecture("deepseek-v3.2", weight_dtype="bf16")
GLM_52, M3 = load_architecture("glm-5.2"), load_architecture("minimax-m3")
(DEEPSEEK,), (GLM, GLM_SHARED) = DEEPSEEK_V32.mixers, GLM_52.mixers


def test_bytes_of_an_entry():
    """vLLM's nvfp4_ds_mla: 256 B of latent, 32 of scales, 64 of rotary key; its 8 bits have 656."""
    assert [DEEPSEEK.entry_bytes(dtype) for dtype in ("fp4", "fp8", "bf16")] == [352, 656, 1152]
    for degree in (1, 8):
        kept = replace(GLM_52, kv_dtype="fp8").sequence_bytes(1000.0, degree)
        assert kept == 1000 * (78 * 656 + 21 * 132)


def test_weights_of_a_layer():
    """Latent attention, and an indexer that is not cut."""
    names = set(field_names(LatentAttention)) - {"kind", "window"}
    latent = LatentAttention(**{name: getattr(DEEPSEEK, name) for name in names})
    indexer = 1536 * 64 * 128 + 7168 * 128 + 2 * 128 + 7168 * 64
    for degree in (1, 8):
        own = latent.weights(7168, degree)
        assert DEEPSEEK.weights(7168, degree) == own + indexer
        shared = replace(DEEPSEEK, has_indexer=False)
        assert shared.weights(7168, degree) == own


VLLM_INDEXER = {"index_selection": ["fill", "cooperative_topk"]}
VLLM_INDEXER["indexer"] = ["k_norm", "fused_indexer_q_rope_quant", "rotary_emb", "cat"]
VLLM_INDEXER["indexer"] += ["indexer_k_quant_and_cache", "fp8_fp4_paged_mqa_logits"]
"""What a decode step runs for an indexer beside its matrices in vLLM 0.33 on Hopper: `Indexer` of
``model_executor/models/deepseek_v2.py``; `sparse_attn_indexer`, which fills the list with -1, and
`SparseIndexerTopk` in ``model_executor/layers``. ``models/deepseek_v32`` runs the first five and
the fill inside two kernels of attention."""


def test_indexer_without_a_latent_of_queries_reads_what_the_layer_reads():
    whole, shared = (replace(DEEPSEEK, q_lora_rank=0, has_indexer=has) for has in (True, False))
    queries = DEEPSEEK.index_num_heads * DEEPSEEK.index_head_dim
    read_once = DEEPSEEK.index_num_heads + DEEPSEEK.index_head_dim
    made = 7168 * (queries + read_once) + 2 * DEEPSEEK.index_head_dim
    assert whole.weights(7168) - shared.weights(7168) == made


def components(architecture=DEEPSEEK_V32, capability=HOPPER, **point):
    return pass_of(architecture, compute_capability=capability, **point).components


def test_indexer_launches_what_vllm_does():
    """Four layers with an indexer each, and one of four."""
    one, three = LayerGroup(count=1, mixer=GLM), LayerGroup(count=3, mixer=GLM_SHARED)
    models = [replace(GLM_52, layers=own) for own in ((replace(one, count=4),), (one, three))]
    every, first = (components(model, batch_size=5, context_length=9000) for model in models)
    for name, kernels in VLLM_INDEXER.items():
        assert (every[name].kernels, first[name].kernels) == (4 * len(kernels), len(kernels))
    own, shared = (found["attention_projections"] for found in (every, first))
    # queries are made of their latent; the key and weights of heads of hidden values
    assert own.depth - shared.depth == 3 * (2048 + 6144 + 6144)
    read_and_made = 2048 + 6144 + (32 * 128 + 128 + 32)
    assert own.activation_bytes - shared.activation_bytes == 5 * 3 * read_and_made * 2


def test_decoding_reads_all_index_keys_and_gathers_the_best():
    found = components(batch_size=4, context_length=100_000)
    assert found["indexer"].memory_cause == "index"
    assert found["indexer"].cache_bytes == 4 * 61 * 132 * (100_001 + 1)
    assert found["indexer"].flop == 4 * 61 * 2 * 64 * 128 * 100_001
    core = found["attention_core"]
    assert (core.memory_cause, core.cache_bytes) == ("KV", 4 * 61 * 1152 * (2048 + 1))
    assert core.flop == 4 * 61 * 2 * 128 * (576 + 512) * 2048
    kinds = [found[name].kind for name in ("attention_projections", "indexer", "attention_core")]
    assert kinds == ["sparse_attention", "indexer", "sparse_attention"]


def test_short_context_is_attended_whole():
    """Kernels compute whole lists all the same, and there is nothing to choose from."""
    found = components(batch_size=1, context_length=999)
    assert found["attention_core"].cache_bytes == 61 * 1152 * (1000 + 1)
    assert found["attention_core"].flop == 61 * 2 * 128 * (576 + 512) * 2048
    assert found["index_selection"].groups == 0


def test_choosing_takes_a_processor_for_each_token():
    found = components(batch_size=np.array([1.0, 1000.0, 2000.0]), context_length=4095)
    few, many, more = found["index_selection"].groups
    assert few == pytest.approx(61 * 128 / 2, rel=1e-3)
    assert many == pytest.approx(61 * 1000 / 2, rel=1e-2)
    assert more == pytest.approx(2 * many, rel=1e-2)


SHARING = [(HOPPER, 2, 1), (HOPPER, 3, 3), (HOPPER, 4, 1)]


@one_case("capability tokens reads", *SHARING, (BLACKWELL, 3, 1), (None, 2, 1), (None, 4, 4))
def test_tokens_that_share_index_keys(capability, tokens, reads):
    """The kernel takes 1, 2 or 4 tokens of a sequence on Hopper and any number on Blackwell.

    Every other number is cut into sequences of one token, each of which reads all keys.
    """
    context = 100_000
    point = {"batch_size": 2, "tokens_per_sequence": tokens, "context_length": context}
    found = components(capability=capability, **point)
    read = reads * (context + tokens)
    assert found["indexer"].cache_bytes == pytest.approx(2 * 61 * 132 * (read + tokens))
    assert found["attention_core"].cache_bytes == 2 * 61 * 1152 * (tokens * 2048 + tokens)


def test_chunk_of_a_prompt_reads_index_keys_once():
    point = {"tokens_per_sequence": 4096, "context_length": 10_000, "logits_per_sequence": 1}
    found = components(batch_size=1, **point)
    assert found["indexer"].cache_bytes == 61 * 132 * (14_096 + 4096)
    pairs = 4096 * (10_000 + 4097 / 2)
    assert found["indexer"].flop == pytest.approx(61 * 2 * 64 * 128 * pairs)
    assert found["attention_core"].cache_bytes == 61 * 1152 * (4096 * 2048 + 4096)


def test_the_index_is_on_every_gpu():
    one, eight = (components(layout=Layout(n), batch_size=3, context_length=5000) for n in (1, 8))
    assert one["indexer"].cache_bytes == eight["indexer"].cache_bytes
    assert one["indexer"].flop == eight["indexer"].flop
    assert one["attention_core"].cache_bytes == eight["attention_core"].cache_bytes
    assert one["attention_core"].flop == 2 * eight["attention_core"].flop  # 64 heads at least


@given(
    st.sampled_from([(GLM_52, "attention_core"), (M3, "block_sparse_core")]), st.floats(0, 1e6),
    st.floats(1.0, 1.001), st.floats(0.5, 512), st.integers(1, 9),
    st.sampled_from([None, 8.0, 9.0, 10.0, 12.0]),
)  # fmt: skip
def test_work_is_continuous_and_grows(chosen, context, more, batch, tokens, capability):
    model, core = chosen

    def at(context: float, batch: float) -> list[float]:
        point = {"batch_size": batch, "context_length": context}
        found = components(model, capability, tokens_per_sequence=tokens, **point)
        parts = [found[name] for name in ("indexer", core)]
        return [float(v) for p in parts for v in (p.flop, p.cache_bytes, p.activation_bytes)]

    before = at(context, batch)
    for after in (at(context * more, batch), at(context, batch * more)):
        for old, new in zip(before, after, strict=True):
            assert old * (1 - 1e-12) <= new <= old * (1 + 1e-12 + 1.001 * (more - 1)) + 1e-9


def test_reads_between_whole_numbers_are_interpolated():
    found = index_reads(np.array([2.5, 3.5, 4.25]), NO_ENGINE.rows_together(HOPPER))
    np.testing.assert_allclose(found, [2.0, 2.0, 2.0])


@each_row(("stack", "capability", "reads"), values_of("engines.txt", "index keys"))
def test_engines_share_index_keys_as_their_code_says(stack, capability, reads):
    tokens = np.array([1.0, 2.0, 3.0, 4.0, 8.0])
    together = engine_code(stack).rows_together(capability)
    np.testing.assert_array_equal(index_reads(tokens, together), reads)


def test_a_model_in_which_no_layer_selects_is_refused():
    shared = [LayerGroup(count=3, mixer=GLM_SHARED)]
    with pytest.raises(InputError, match=r"^model.has_indexer: got False; .*true in at least one"):
        build(Architecture, as_table(GLM_52) | {"layers": shared}, "model")
    with pytest.raises(
        InputError, match=r"^set target.has_indexer: got False; .*true in at least one"
    ):
        GLM_52.with_changes("set target", {"has_indexer": False})
    assert GLM_52.with_changes("target", {"has_indexer": True}).mixers.keys() == {GLM}


def test_latent_attention_with_a_window_keeps_and_reads_no_more():
    """As in dots3: as without a window in contexts that fit into it."""
    sizes = {"num_heads": 64, "kv_lora_rank": 1024, "q_lora_rank": 1024, "v_head_dim": 128}
    whole = LatentAttention(**sizes, qk_nope_head_dim=192, qk_rope_head_dim=64)
    windowed = replace(whole, window=512)
    assert (windowed.for_head.place, windowed.for_head.mixer) == (2, whole)
    groups = [LayerGroup(count=2, mixer=mixer) for mixer in (windowed, whole)]
    models = [replace(DEEPSEEK_V32, layers=(group,)) for group in groups]
    assert models[0].sequence_bytes(9e4) == models[1].sequence_bytes(512.0) == 2 * 512 * 1088 * 2
    points = (models[1], 511), (models[0], 511), (models[0], 90_000)
    found = [components(model, batch_size=2, context_length=n) for model, n in points]
    inside, long, beyond = (parts["attention_core"] for parts in found)
    for field in ("flop", "cache_bytes"):
        assert getattr(inside, field) == getattr(long, field) == getattr(beyond, field) > 0
