"""What engines have a draft model do beside a token a pass: what was verified, and prompts."""

import numpy as np
import pytest
from carried import added_by_prompt, draft_prefill_pass
from printed import refused

from specmodel import deploy, predict
from specmodel.core.cost import prefill_pass

WHERE = {"target": "qwen2-57b-a14b", "drafter": "qwen2-0.5b", "hardware": "h200_sxm"}
FIRST = {"ideal": (1, 1), "vllm-moesd-2025": (1, 1), "sglang": (5, 1), "vllm": (6, 1)}
"""Tokens of the first pass of four drafted tokens, and of the others, by engine."""


@pytest.mark.parametrize("engine", FIRST)
def test_engines_give_a_draft_model_first_what_they_do(engine):
    deployment, _ = deploy(**WHERE, engine=engine)
    tokens = []
    for part in deployment.drafter.passes(4):
        tokens += [float(part.tokens_per_sequence)] * int(part.count)
    first, later = FIRST[engine]
    assert tokens == [first, later, later, later]


def test_heads_read_prompts_too():
    """A head in a pass of its layers, a block drafter for its context alone, a look-up nothing."""
    deployments = {name: deploy(**{**WHERE, "drafter": name})[0] for name in ("eagle3", "dflash")}
    for deployment in deployments.values():
        (read, twice) = (draft_prefill_pass(deployment, tokens) for tokens in (1024, 2048))
        assert 0 < float(read.gpu_time) < float(prefill_pass(deployment, 1024).gpu_time) / 5
        assert 1.5 < float(twice.gpu_time / read.gpu_time) < 2.5
    block = deployments["dflash"]
    parts = draft_prefill_pass(block, 1024).work().components
    assert not any("attention" in name or "feed_forward" in name for name in parts)
    assert draft_prefill_pass(deploy(**{**WHERE, "drafter": "ngram"})[0], 1024) is None


@pytest.mark.parametrize("draft_length", [0, 3])
def test_steps_that_draft_carry_prompts_of_the_draft_model(draft_length):
    own = WHERE | {"batch_size": 8, "draft_length": draft_length, "acceptance": 0.8}
    idle = predict(**own, context_length=1088)
    loaded = predict(**own, context_length=1088, prompt_length=1024, output_length=128)
    deployment, _ = deploy(**WHERE)
    both = float(added_by_prompt(deployment, idle.forward_time, 1024, 8, 1088))
    if draft_length:
        both += float(draft_prefill_pass(deployment, 1024).total_time)
    tokens = float(idle.tokens_per_step)
    grown = float(loaded.step_time - idle.step_time)
    assert grown == pytest.approx(tokens * 7 / 128 * both, rel=1e-9)
    parts = [loaded.draft_time, loaded.verify_time, loaded.reject_time]
    assert np.sum(parts) == pytest.approx(float(loaded.step_time), rel=1e-9)


def test_an_unknown_way_is_one_line(tmp_path):
    text = 'schema_version = 1\nname = "x"\nsource = "y"\ndraft_model_first = "two tokens"\n'
    (tmp_path / "x.toml").write_text(text)
    refused("draft_model_first: got 'two tokens'", deploy, **WHERE, engine=tmp_path / "x.toml")
