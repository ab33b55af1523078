"""Contexts that are long: beyond what published acceptance is of, and what a model is made for."""

import pytest

import specmodel
from specmodel.cli import main


def told(**more):
    found = specmodel.predict("qwen3-30b-a3b", "h100", drafter="eagle3", batch_size=1, **more)
    return [warning for warning in found.warnings if "prompts of some thousand" in warning]


def test_published_acceptance_at_long_context_warns_and_ones_own_does_not():
    (warning,) = told(context_length=131_072)
    assert "131,072" in warning
    assert not told(context_length=8192)
    assert not told(context_length=131_072, acceptance=0.7)


def test_a_context_beyond_the_model_s_own_is_said_once_with_both():
    where = {"target": "qwen3-8b", "hardware": "h200", "batch_size": 1, "draft_length": 1}
    beyond = specmodel.predict(**where, context_length=[1000, 40_961], acceptance=0.7)
    (warning,) = (warning for warning in beyond.warnings if "made for" in warning)
    assert warning.startswith("a context of 40,961 is longer than the 40,960 tokens that Qwen3-8B")
    within = specmodel.predict(**where, context_length=40_960, acceptance=0.7)
    assert not any("made for" in warning for warning in within.warnings)


WHERE = "qwen3-8b h200 --drafter eagle3"


@pytest.mark.parametrize(
    "command",
    [
        f"predict {WHERE} --batch-size 1 --context-length 500000",
        f"break-even {WHERE} --batch-size 1 --context-length 500000",
        f"schedule {WHERE} --for vllm --context-length 500000",
        f"simulate {WHERE} --trace code-eagle --policy none,fixed:2 --requests 5 --output-tokens 9"
        " --context-length 500000",
        f"load {WHERE} --request-rate 0.1 --requests 5 --prompt-length 499900 --output-length 100",
    ],
)
def test_every_answer_says_so(command, capsys):
    assert main(command.split()) == 0
    assert "500,000 is longer than the 40,960" in " ".join(capsys.readouterr().out.split())
