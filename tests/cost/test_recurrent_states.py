"""What verifying costs where layers keep a state: traffic, memory, trees, and published figures."""

import numpy as np
import pytest
from hybrids import hybrid
from msgspec.structs import replace
from printed import refused
from rows import each_listed
from strategies import pass_of

from specmodel import deploy, load_architecture, load_engine, ngram_drafter, predict
from specmodel.core.cost import MemoryUse, pass_work, step_times
from specmodel.core.cost.blocks import BlockedTimes
from specmodel.core.layers import Layout, sequence_group
from specmodel.core.layers.states import StateKeeping

BIG, MIDDLE, SMALL = "Qwen3.5-397B-A17B", "Qwen3.5-122B-A10B", "Qwen3.5-35B-A3B"
STATE = 64 * 128 * 128 * 4
"""Of one layer of the larger two [B]."""
PAST = (2 * 16 * 128 + 64 * 128) * 2
"""What a convolution of theirs keeps of a token [B]."""
EXPERTS = {"expert_dtype": "fp4"}
STACKS = {slots: StateKeeping(slots=slots) for slots in ("chain", "aligned", "scratch")}
STACKS |= {"replay": StateKeeping(rollback="replay")}


def recurrence_bytes(tokens, keeping, **point):
    """Traffic of the recurrence of one sequence in one layer, in states."""
    given = {"batch_size": 1, "tokens_per_sequence": tokens} | point
    work = pass_of(hybrid(BIG), states=keeping, **given).components["recurrence"]
    return work.cache_bytes / (45 * STATE)


def deployed(name=MIDDLE, **options):
    given = {"hardware": "h200_sxm", "drafter": "mtp", "stack": "datasheet"} | options
    return deploy(target=hybrid(name), **given)


# --- traffic ---


def test_slower_kernels_take_longer_for_each_state():
    """Those of SGLang before 0.5.10, in decode steps and in verification alike."""
    engine = replace(load_engine("sglang"), state_time_factor=3.0)
    slow, usual = (deployed(engine=e)[0].states for e in (engine, "sglang"))
    for tokens in (1, 4):
        moved = recurrence_bytes(tokens, slow), recurrence_bytes(tokens, usual)
        assert moved[0] == pytest.approx(3 * moved[1])


def test_plain_passes_move_one_state_there_and_back():
    """What verification moves is counted with the other mixers, in `test_rows_and_gates`."""
    assert {recurrence_bytes(1, keeping) for keeping in STACKS.values()} == {2}


def test_chunk_of_a_prompt_writes_one_state():
    """Among sequences that are verified it changes nothing for them."""
    decoding = sequence_group(batch_size=6, tokens_per_sequence=4, context_length=100)
    chunk = sequence_group(batch_size=1, tokens_per_sequence=512, logits_per_sequence=0)
    work = pass_work(hybrid(BIG), [decoding, chunk]).components["recurrence"]
    assert work.cache_bytes == pytest.approx(45 * STATE * (6 * 5 + 2), rel=1e-12)


# --- published ---


@each_listed
def test_law_of_states_against_measured_verification(hardware, tokens, measured):
    """Recurrence over 2, 4 and 8 tokens over that over one, batch 256, KDA with 96 heads in vLLM
    (`kda_perf` of aiconfigurator-core 0.12): reading one state and writing one a token says 1.5,
    2.5 and 4.5, up to 6 % below what H200 took, and up to 7 % above what B200 took."""
    point = {"tokens_per_sequence": np.array([1.0, tokens])}
    parts = pass_of(hybrid(BIG), batch_size=256, **point).components
    plain, verified = parts["recurrence"].cache_bytes
    assert verified / plain == pytest.approx((1 + tokens) / 2, rel=1e-12)
    assert verified / plain == pytest.approx(measured, rel=0.10), hardware


@each_listed
def test_target_efficiency_falls_by_what_states_write(name, degree, dtypes, without, native, share):
    """A table derived elsewhere from bandwidth alone: bytes of weights, caches and states, no
    activations, no arithmetic, no messages; uniform routing, context 8192, bf16 but for what
    `dtypes` say, a KV cache of bf16. "Without" leaves the states out of both passes.

    Ours is within 0.02 where it tells most (batch 128, and with states at batch 32), and up to
    0.025 above at batch 32 without them."""
    model = hybrid(name, **dtypes)
    batch, length = np.array([32.0, 128.0, 128.0]), np.array([3.0, 3.0, 5.0])

    def parts(tokens):
        point = {"batch_size": batch, "tokens_per_sequence": tokens, "context_length": 8192}
        work = pass_of(model, layout=Layout(degree), **point).components
        return {name: part.weight_bytes + part.cache_bytes for name, part in work.items()}

    plain, verified = parts(1.0), parts(length + 1)
    ours = sum(plain.values()) / sum(verified.values())
    assert ours == pytest.approx(native, abs=0.02)
    for passes in (plain, verified):
        passes["stateless"] = sum(passes.values()) - passes["recurrence"]
    assert plain["stateless"] / verified["stateless"] == pytest.approx(without, abs=0.025)
    all_bytes = plain["stateless"] + plain["recurrence"]
    assert plain["recurrence"][1] / all_bytes[1] == pytest.approx(share, abs=0.02)


def test_state_lengthens_a_verify_pass_at_large_batches():
    """Where nearly all experts are loaded anyway, and contexts are short."""
    options = {"tensor_parallel": 2, **EXPERTS, "routing_correlation": 0.0}
    drafter = ngram_drafter(proposal_rate=1.0)
    given = {"hardware": "h200_sxm", "drafter": drafter, "stack": "datasheet", "acceptance": 0.7}
    p = predict(target=hybrid(MIDDLE), batch_size=[1, 128], draft_length=3, **given, **options)
    assert p.limited_by.tolist() == ["experts", "state"]


# --- memory ---


@each_listed
def test_states_reserved_with_and_without_drafted_tokens(keeping, drafted, states, tokens, more):
    """Bytes that one layer of a model reserves for a request."""
    net = next(iter(hybrid(BIG).mixers))
    found = net.reserved_bytes(np.float64(drafted + 1), STACKS[keeping], hybrid(BIG).stream, 1)
    assert found == states * STATE + tokens * PAST + more


@pytest.mark.parametrize(("options", "slots", "columns"), [
    ({"engine": "ideal"}, 2 + 3, (2 + 3) * (3 + 3)), ({"engine": "sglang"}, 2 + 3, 3 + 3 + 3),
])  # fmt: skip
def test_memory_of_a_request_follows_the_engine(options, slots, columns):
    """Qwen3.5-122B, 36 recurrent and 12 other layers, on two GPUs, 1000 tokens and 4 more."""
    d, assumed = deployed(tensor_parallel=2, drafter="ngram", **options)
    memory = MemoryUse(d, 1000.0, 4.0)
    states = 36 * (slots * STATE + columns * PAST) / 2
    assert memory.bytes_per_request == 1004 * 24576 / 2 + states
    kept = assumed["state_slots"].values
    assert kept["slots"] == ("scratch" if options["engine"] == "sglang" else "aligned")
    assert [*kept["states"]] == [3, 4]
    fitting = memory.capacity_bytes - memory.weight_bytes
    assert memory.max_batch_size == max(np.floor(fitting / memory.bytes_per_request), 0)


@pytest.mark.parametrize(("drafted", "entries", "blocks"), [
    (0, 400, 1 + 3), (1, 400, 1 + 3 * 2), (3, 400, 1 + 3 * 4), (1, 2000, 3 + 3 * 3),
])  # fmt: skip
def test_a_request_takes_whole_blocks_of_pages_in_vllm(drafted, entries, blocks):
    """Qwen3.8-27B has 16 layers of attention, a 17th with MTP, and three groups as large of 48
    layers with states: of 48 heads of 128 by 128, and windows of 10,240 channels."""
    d, _ = deploy(target="qwen3.8-27b", hardware="rtx_4090", drafter="mtp", weight_dtype="int4")
    memory = MemoryUse(d, entries - drafted - 1.0, drafted + 1.0)
    state, token = 48 * 128 * 128 * 4 + (3 + drafted) * 10240 * 2, 2 * 4 * 256 * 2
    page = 16 * token * np.ceil(state / (16 * token))
    assert memory.bytes_per_request == blocks * 17 * page
    plain = memory.without_drafter
    assert (plain.bytes_per_request < memory.bytes_per_request) or not drafted
    assert plain.weight_bytes == d.target.weight_bytes(d.layout) < memory.weight_bytes
    assert plain.free_bytes - memory.free_bytes > memory.weight_bytes - plain.weight_bytes


def test_requests_whose_states_find_no_room_wait():
    """Those that run take turns with the others: more requests add no throughput, but wait."""
    where = {"target": "qwen3.8-27b", "hardware": "rtx_4090", "weight_dtype": "int4"}
    where |= {"tensor_parallel": 1}
    asked = {"context_length": 400, "draft_length": 1, "acceptance": 0.85, "drafter": "mtp"}
    p = predict(**where, **asked, batch_size=[4, 8, 16, 64])
    running, plain = p.evaluation.at_once
    assert (running <= p.max_batch_size).all()
    assert (running[0], p.throughput[-1]) == (4, pytest.approx(p.throughput[-2]))
    assert p.tpot[-1] == pytest.approx(4 * p.tpot[-2])
    alone = [predict(**where, **asked, batch_size=int(n)) for n in (running[-1], plain[-1])]
    made = running[-1] * alone[0].tokens_per_step / alone[0].step_time
    assert p.speedup[-1] == pytest.approx(made / (plain[-1] / alone[1].forward_time))
    assert p.speedup[0] > 1 > p.speedup[-1]
    assert p.limited_by[-1] == "memory"


# --- trees, words, other models ---


def test_trees_are_refused():
    d, _ = deployed()
    point = {"batch_size": 4, "draft_length": 3, "context_length": 100}
    message = r"^verify_tokens: got 8; .*a chain\): recurrent layers of Qwen3.5-122B"
    refused(message, step_times, d, verify_tokens=8, **point)
    step_times(d, verify_tokens=4, **point)
    target = load_architecture("mixtral-8x7b").with_changes("t", {"vocabulary_size": 248320})
    d, _ = deploy(target=target, hardware="h200_sxm", drafter=hybrid(SMALL))
    refused(r"recurrent layers of Qwen3.5-35B-A3B", step_times, d, verify_tokens=9, **point)


def test_trees_read_the_states_of_parents_again_in_sglang():
    """SGLang 0.5.23, ``fused_sigmoid_gating_recurrent.py``: each token but the first of a tree
    loads the state of its parent, where a chain keeps it in registers."""
    chain, tree = (deployed(engine="sglang", tree_width=n)[0].states for n in (1, 2))
    tokens = np.array([1.0, 8.0])
    assert chain.moved(tokens).tolist() == [1, 8 + 2]  # written, and one copied
    assert tree.moved(tokens).tolist() == [1, 8 + 2 + 7]


@pytest.mark.parametrize("changes", [{}, {"engine": "vllm"}, {"state_rollback": "replay"}])
def test_trees_need_an_engine_that_keeps_a_state_for_each_token(changes):
    given = {"engine": "sglang"} | changes if changes.get("state_rollback") else changes
    d, _ = deployed(tree_width=2, **given)
    point = {"batch_size": 1, "draft_length": 3, "verify_tokens": 4, "context_length": 100}
    refused(r"^tree_width: got 2; .*Only SGLang", step_times, d, **point)


def test_what_is_done_with_states_is_said_only_where_there_are_any():
    refused(r"^state_rollback: got 'undo'; .*native, replay", deployed, state_rollback="undo")
    _, assumed = deployed()
    assert assumed["state_rollback"] == "native"
    _, assumed = deploy(target="mixtral-8x7b", hardware="h200_sxm", drafter="ngram")
    assert not {"state_rollback", "state_slots"} & assumed.keys()


def test_requests_that_wait_are_timed_in_blocks_as_one_by_one():
    points = {"batch_size": np.arange(1, 1001, 9)[:, None], "context_length": 64 * np.arange(1, 61)}
    asked = {"draft_length": 3, "acceptance_rate": 0.8}
    whole = predict("qwen3.5-397b", "h200", **points, **asked)
    assert isinstance(whole.evaluation.times, BlockedTimes)
    assert not whole.fits.all()
    for row, column in ((0, 0), (40, 30), (110, 59)):
        batch, context = points["batch_size"][row, 0], points["context_length"][column]
        one = predict("qwen3.5-397b", "h200", batch_size=batch, context_length=context, **asked)
        for name in ("speedup", "forward_time", "step_time", "active_experts_verify"):
            assert getattr(whole, name)[row, column] == pytest.approx(getattr(one, name), rel=1e-12)
