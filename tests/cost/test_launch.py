"""What launch flags mean: of four engines, from lines, files, JSON and Python's dict."""

import json

import pytest
from rows import each_row, one_case

from specmodel import predict
from specmodel.core.base.errors import InputError
from specmodel.core.cost.launch import launched, speculative_arguments
from specmodel.core.cost.launch_lines import launch_line

SGLANG = "python3 -m sglang.launch_server --model x/y --speculative-algorithm EAGLE3"
SGLANG += " --speculative-num-steps 3"


def said(line):
    """What a launch line says, as one text, and its notes."""
    found = launched(*launch_line("line", line))
    return " ".join(f"{name}={value}" for name, value in found.arguments.items()), found.notes


@one_case(
    "line told",
    ("vllm serve x/y -tp 4", "tensor_parallel=4"),
    ("vllm serve x/y -dp 2 --tensor-parallel-size=4 -ep", "expert_parallel=8"),
    ("vllm serve x/y -sc.method mtp -sc.num_speculative_tokens 2", "drafter=mtp draft_length=2"),
    ("vllm serve x/y --spec-method mtp --spec-tokens 2", "drafter=mtp draft_length=2"),
    ("vllm serve x/y -cc.max_cudagraph_capture_size 64 -O3", "graph_limit=64"),
    ("vllm serve x/y --enforce-eager --no-async-scheduling", "('enforce_eager=true',)"),
    ("vllm serve x/y --kv-cache-dtype fp8_e4m3 -q modelopt_fp4", "kv_dtype=fp8 weight_dtype=fp4"),
    (f"{SGLANG} --tp 8 --dp 8 --enable-dp-attention --ep 8", "parallel=1 data_parallel=8 expert"),
    (f"{SGLANG} --tp 8 --moe-a2a-backend deepep", "tensor_parallel=8 expert_parallel=8"),
    (f"{SGLANG} --speculative-draft-model-quantization unquant", "('drafter.weight_dtype=bf16',)"),
    (f"{SGLANG} --speculative-eagle-topk 4 --speculative-num-draft-tokens 8", "verify_tokens=8"),
    ("sglang serve --model x/y --speculative-algo DFLASH --speculative-dflash-block-size 16",
     "drafter=dflash draft_length=15"),
    ("sglang serve --model x/y --speculative-algo DSPARK --speculative-dspark-block-size 5",
     "drafter=dspark draft_length=5"),
    ("trtllm-serve x/y --tp_size 8 --ep_size 4", "tensor_parallel=8 expert_parallel=4"),
    ("llama-server -m x.gguf -np 4 -ctk q8_0 -ncmoe 12", "kv_dtype=q8_0 batch_size=4"),
    ("./build/bin/llama-server -hf a/b:Q4_K_M -ot .ffn_.*_exps.=CPU", "host_expert_layers=all"),
    ("docker run --gpus all -e A=1 vllm/vllm-openai:v1 --model x/y -tp 2 | tee log", "parallel=2"),
    ("bash -c 'A=1 vllm serve x/y -tp 2 > log 2>&1'", "target=x/y tensor_parallel=2"),
    ("TP=8\nvllm serve x/y -tp $TP --port ${PORT:-1}", "tensor_parallel=8"),
)  # fmt: skip
def test_flags_mean_arguments(line, told):
    words, _ = said(line)
    assert {*told.split(" ")} <= {*words.split(" ")} or told in words


@one_case(
    "flags note",
    ("--enable-lora", "does not model LoRA adapters"),
    ("--enable-eplb", "does not model copies of busy experts"),
    ("--all2all-backend naive", "may select kernels that specmodel does not model"),
    ("--port 80 --trust-remote-code", "no effect on the prediction: --port, --trust-remote-code"),
    ("--max-num-seqs 64", "no effect on the prediction"),
    ("--not-there 7", "unknown, ignored: --not-there"),
    ("--pipeline-parallel-size 1", "no effect on the prediction"),
    ("--speculative-config.rejection_sample_method block --spec-method mtp", "give the acceptance"),
    ("--compilation-config.cudagraph_mode NONE", "slower than predicted"),
)
def test_other_flags_are_told(flags, note):
    _, notes = said(f"vllm serve x/y {flags}")
    assert note in "; ".join(notes)


@one_case(
    "line told",
    ("vllm serve x/y --pipeline-parallel-size 4", "passes through all stages"),
    ("vllm serve x/y -pp 2", "0.71x at 1 request and 0.88x at 8"),
    ("sglang serve --model x/y --pp-size 2", "Pipelines, in which"),
    ("trtllm-serve x/y --pp_size 2", "Pipelines, in which"),
    ("vllm serve x/y --cpu-offload-gb 20", "times would be much too short"),
    ("llama-server -m x --spec-draft-p-min 0.6", "predicted gain would be too small"),
    ("llama-server -m x -nkvo", "A KV cache on the host is not modelled"),
    ("llama-server -m x --spec-default", "ngram-mod, which is not modelled"),
    ("vllm serve x/y --tensor-paralel-size 8", "Write --tensor-parallel-size if you mean that"),
    ("vllm serve x/y -tp $TP", "Put a line such as TP=8 before the command"),
    (f"{SGLANG} --speculative-adaptive", "load --policy sglang"),
    ("sglang serve --model x --tp 8 --attn-dp-size 3", "a divisor of the 8 GPUs"),
    (
        "sglang serve --model x --speculative-num-steps 3",
        "SGLang drafts only if --speculative-algorithm names",
    ),
)
def test_what_is_not_modelled_is_refused_with_what_the_answer_would_miss(line, told):
    with pytest.raises(InputError, match=r"got .*(; expected|\. [A-Z])") as refused:
        said(line)
    assert told in str(refused.value)


FORMS = [
    ("vllm", "num_speculative_tokens_per_batch_size", [[1, 64, 3], [65, 128, 1], [129, 512, 0]]),
    ("vllm", "disable_by_batch_size", 65),
    ("tensorrt-llm", "draft_len_schedule", {"64": 3, "128": 1}),
    ("sglang", "adaptive", {"1": {"candidate_steps": [3]}, "65": {"candidate_steps": [1]}}),
]


@each_row(("engine", "key", "table"), FORMS)
def test_schedules_of_engines_are_draft_lengths_by_batch_size(tmp_path, engine, key, table):
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
    beyond = {"sglang": [1, 1, 1], "tensorrt-llm": [1, 1, 0]}.get(engine, [1, 1, 0])
    assert found.draft_length.tolist() == [3, 3, *([0] * 3 if key.startswith("dis") else beyond)]


@one_case(
    "config same",
    ({"method": "mtp", "num_speculative_tokens": 3}, {"drafter": "mtp", "draft_length": 3}),
    ({"method": "ngram", "num_speculative_tokens": 2}, {"drafter": "ngram", "draft_length": 2}),
    ({"method": "mtp", "num_speculative_tokens": 2, "quantization": "fp8"},
     {"drafter": "mtp", "draft_length": 2, "changes": ["drafter.weight_dtype=fp8"]}),
    ({"method": "mtp", "num_speculative_tokens": 3,
      "num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 9, 0]]},
     {"drafter": "mtp", "draft_length": "table:1-4=3:5-9=0"}),
)  # fmt: skip
def test_python_takes_the_dict_that_vllm_takes(config, same):
    where = {
        "target": "qwen3.5-397b",
        "hardware": "8xh200",
        "acceptance": 0.7,
        "batch_size": [1, 8],
    }
    one, other = predict(**where, speculative_config=config), predict(**where, **same)
    assert one.speedup.tolist() == other.speedup.tolist()


@one_case(
    "config told",
    ({"method": "magic"}, "speculative_config method: got 'magic'"),
    ({"num_speculative_tokens": 3}, "a method, such as"),
    ({}, "a method, such as"),
    ({"method": "mtp", "num_speculative_tokens": "x"}, "num_speculative_tokens: got 'x'"),
    ("[1]", "an object, such as"),
)
def test_a_dict_that_cannot_be_is_refused_by_its_key(config, told):
    with pytest.raises(InputError) as refused:
        speculative_arguments(config)
    assert told in str(refused.value)


def test_the_dict_goes_beside_no_argument_that_it_says():
    config = {"method": "mtp", "num_speculative_tokens": 3}
    with pytest.raises(InputError, match=r"draft_length: got 2\. The speculative_conf"):
        predict("qwen3.5-397b", "h200", speculative_config=config, draft_length=2, batch_size=1)


SCRIPT = r"""
# A script as benchmarks have them
DRAFT="x/head-eagle3"
if [ "$EVAL" = true ]; then
    CONFIG="{\"method\": \"eagle3\", \"model\": \"$DRAFT\", \"num_speculative_tokens\": 5}"
fi
FILE='options.yml'
cat > "$FILE" << EOF
speculative_config:
    decoding_type: MTP
    num_nextn_predict_layers: ${DEPTH:-3}
EOF
date "$(date +%s)"
"""


@one_case(
    "command told",
    ('vllm serve "$MODEL" -tp "${TP:-2}" --speculative-config "$CONFIG" --port "$PORT"',
     "drafter=eagle3 draft_length=5 tensor_parallel=2"),
    ("trtllm-serve $MODEL --tp_size=4 --config $FILE",
     "drafter=mtp draft_length=3 tensor_parallel=4"),
)  # fmt: skip
def test_variables_and_files_of_a_script_are_filled_in(command, told):
    words, notes = said(f"{SCRIPT}{command} > log 2>&1 &")
    assert words == told
    assert "the command does not set this variable" in "; ".join(notes)


@one_case(
    "command told",
    ("vllm serve x/y --speculative-config $SPEC", "Put a line such as TP=8"),
    ("""vllm serve x/y -sc '{"method": "mtp", "num_speculative_tokens": $N}'""", "such as TP=8"),
    ('echo "$(date +%s)"', "a command that starts vLLM"),
)
def test_what_a_script_does_not_set_is_refused(command, told):
    with pytest.raises(InputError) as refused:
        said(command)
    assert told in str(refused.value)
