"""Configurations that transformers saved again: other keys and defaults, the same shape."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from configs import CONFIGS, read

ROOT = Path(__file__).parents[2]
VL = CONFIGS["Qwen--Qwen3-VL-30B-A3B-Instruct"]
OF_ENGINES = ("vllm--", "sglang--")
"""Names of classes that transformers lacks, or has of another model."""


def test_the_wrapper_says_whether_the_head_is_tied():
    """The head is the wrapper's; what is inside is a default of transformers."""
    for is_tied in (False, True):
        text = VL["text_config"] | {"tie_word_embeddings": not is_tied}
        model = read(VL, text_config=text, tie_word_embeddings=is_tied)
        assert model.has_tied_embeddings == is_tied


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("transformers"), reason="transformers writes the files")
def test_what_transformers_saves_again_is_read_to_the_same_shape(tmp_path):
    """Those of the configurations that it knows; the table holds no key that does not matter.

    It adds how Inkling-2-Small is quantised, which no file of the hub says.
    """
    own = {name: config for name, config in CONFIGS.items() if not name.startswith(OF_ENGINES)}
    for name, config in own.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
    script = ROOT / "calibration/resaved.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, check=True
    )
    (different,) = [line for line in done.stdout.splitlines() if ": differs" in line]
    assert different.startswith("transformers--inkling2: differs: expert_dtype None -> mxfp8")
    assert done.stdout.count(": equal") > 50
