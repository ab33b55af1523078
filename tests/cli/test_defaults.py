"""What is taken where nothing is named is what people serve, and the first screen says so."""

import pytest
from rows import each_row

TAKEN = [
    ("gemma-4-26b h100 --acceptance gemma-4-26b-a4b-mtp", "gemma-4-26b-a4b-mtp"),
    ("qwen3-next-80b h100", "an MTP module of its own (drafter mtp)"),
    ("mixtral-8x7b 2xh100", "Mixtral-8x7B + EAGLE head"),
    ("llama-3.3-70b 4xh100", "of llama-3.1-70b, not llama-3.3-70b"),
    ("glm-5 8xh200", "zai-org/GLM-5-FP8"),
    ("qwen3.5-27b rtx_3090 --batch-size 1", "GPUs over PCIe"),
    ("deepseek-v4-flash 8xh200 --drafter dspark --acceptance-rate 0.8", "vLLM 0.26 and 0.27"),
]


@each_row(("words", "said"), TAKEN)
def test_the_first_screen_says_what_was_taken(words, said, run):
    assert said in run(f"predict {words}", one_line=True)


@pytest.mark.parametrize("command", ["predict", "schedule"])
def test_a_head_of_the_checkpoint_needs_no_path(command, document):
    words = "deepseek-v4-flash 8xh200 --drafter dspark --acceptance-rate 0.8"
    told = document(f"{command} {words}")
    options = told["facts"]["engine_option"]["value"] if command == "predict" else told["fragment"]
    assert '"method": "dspark"' in options
    assert '"model"' not in options


def test_lengths_are_such_as_the_engine_takes(document):
    """MiMo-V2-Flash has three modules: vLLM takes up to 3, or a multiple."""
    for acceptance in ("", " --acceptance-rate 0.9"):
        told = document(f"predict mimo-v2-flash 8xh200{acceptance}")["facts"]
        length = told["one_length"]["value"]
        assert length <= 3 or length % 3 == 0
        assert f'"num_speculative_tokens": {length}' in told["engine_option"]["value"]
