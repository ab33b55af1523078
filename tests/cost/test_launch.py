"""What launch flags mean: of four engines, from lines, files, JSON and Python's dict."""

import json
from pathlib import Path

from printed import refused
from rows import listed

from specmodel import predict
from specmodel.core.cost.launch import launched, speculative_arguments
from specmodel.core.cost.launch_lines import launch_line

SGLANG = "python3 -m sglang.launch_server --model x/y --speculative-algorithm EAGLE3"
SGLANG += " --speculative-num-steps 3"


def said(line):
    """What a launch line says, as one text, and its notes."""
    found = launched(*launch_line("line", line))
    return " ".join(f"{name}={value}" for name, value in found.arguments.items()), found.notes


@listed
def test_flags_mean_arguments(line, told):
    words, _ = said(line)
    assert {*told.split(" ")} <= {*words.split(" ")} or told in words


@listed
def test_other_flags_are_told(flags, note):
    _, notes = said(f"vllm serve x/y {flags}")
    assert note in "; ".join(notes)


@listed
def test_what_is_not_modelled_is_refused_with_what_the_answer_would_miss(line, told):
    assert told in refused(r"got .*(; expected|\. [A-Z])", said, line)


@listed
def test_schedules_of_engines_are_draft_lengths_by_batch_size(tmp_path, engine, key, table, beyond):
    file = tmp_path / "told"
    config = {"method": "mtp", "num_speculative_tokens": 3, key: table}
    line = f"vllm serve x/y --speculative-config '{json.dumps(config)}'"
    if engine == "sglang":
        file.write_text(json.dumps(table))
        line = f"{SGLANG} --speculative-adaptive --speculative-adaptive-config {file}"
    elif engine == "tensorrt-llm":
        file.write_text(f"speculative_config:\n  decoding_type: MTP\n  {key}: {{64: 3, 128: 1}}\n")
        line = f"trtllm-serve x/y --config {file}"
    length = launched(*launch_line("line", line)).arguments["draft_length"]
    where = {"target": "qwen3-30b-a3b", "hardware": "h200", "drafter": "eagle3", "acceptance": 0.7}
    found = predict(**where, draft_length=length, batch_size=[1, 64, 65, 128, 129])
    assert found.draft_length.tolist() == [3, 3, *beyond]


@listed
def test_python_takes_the_dict_that_vllm_takes(config, same):
    where = {"target": "qwen3.5-397b", "hardware": "8xh200", "acceptance": 0.7}
    typed = {"speculative_config": config}
    one, other = (predict(**where, **how, batch_size=[1, 8]) for how in (typed, same))
    assert one.speedup.tolist() == other.speedup.tolist()


@listed
def test_a_dict_that_cannot_be_is_refused_by_its_key(config, told):
    assert told in refused("expected", speculative_arguments, config)


def test_the_dict_goes_beside_no_argument_that_it_says():
    config = {"method": "mtp", "num_speculative_tokens": 3}
    both = {"speculative_config": config, "draft_length": 2, "batch_size": 1}
    message = r"draft_length: got 2\. The speculative_conf"
    refused(message, predict, "qwen3.5-397b", "h200", **both)


SCRIPT = (Path(__file__).parents[1] / "data/launch_script.sh").read_text(encoding="utf-8")
"""A script as benchmarks have them."""


@listed
def test_variables_and_files_of_a_script_are_filled_in(command, told):
    words, notes = said(f"{SCRIPT}{command} > log 2>&1 &")
    assert words == told
    assert "the command does not set this variable" in "; ".join(notes)
