"""What people paste: names of checkpoints and GPUs, and the flags of their start commands."""

import json
import re
import shlex
from pathlib import Path

import pytest
from rows import each_row, listed, one_case, rows_of

from specmodel import deploy, list_architectures, list_hardware, load_architecture
from specmodel.core.base.dtypes import check_dtype
from specmodel.core.base.naming import counted, known_name
from specmodel.core.cost.launch import launched, speculative_arguments
from specmodel.core.cost.launch_lines import MEANS, engines, launch_line
from specmodel.core.machines.hardware import full_name
from specmodel.core.models.checkpoints import checkpoint
from specmodel.plan.config_formats import one_length

GPUS = list_hardware()


def pasted(section):
    """Rows of what people paste; - is nothing."""
    rows = rows_of("pasted.txt", section)
    return [[None if cell == "-" else cell for cell in row] for row in rows]


@each_row(("typed", "name", "dtype"), pasted("checkpoints"))
def test_a_checkpoint_is_a_shipped_model_and_a_dtype(typed, name, dtype):
    assert checkpoint(typed, list_architectures()) == (name, dtype or "")
    if dtype:
        assert load_architecture(typed).weight_dtype == dtype
        assert load_architecture(typed, weight_dtype="bf16").weight_dtype == "bf16"


@each_row("typed", ["Inferact/MiniMax-M3-EAGLE3", "../qwen3-8b", "someone/a-model", "", "-", "fp8"])
def test_other_names_are_no_checkpoint_of_a_shipped_model(typed):
    assert checkpoint(typed, list_architectures()) is None


@one_case("typed weights experts attention activations cache module", *pasted("dtypes"))
def test_dtypes_as_published(typed, weights, experts, attention, activations, cache, module):
    own = load_architecture(typed)
    assert (own.weight_dtype, own.expert_dtype) == (weights, experts)
    assert (own.attention_dtype, own.activation_dtype) == (attention, activations)
    assert (own.kv_dtype, own.mtp_dtype) == (cache, module)
    model, dtype = checkpoint(typed, list_architectures())
    if dtype == "fp4" and experts is None:  # typed as a dtype, all but its cache is the same
        where = {"hardware": "b200", "kv_dtype": cache}
        given, _ = deploy(target=model, weight_dtype="nvfp4", **where)
        assert given.target == deploy(target=typed, **where)[0].target


@each_row(("typed", "count", "name"), pasted("gpus"))
def test_gpus_are_named_and_counted_as_people_do(typed, count, name):
    found, rest = counted(typed)
    assert found == (count and int(count))
    assert known_name(full_name(rest, GPUS), GPUS, "hardware") == name


@pytest.fixture
def said(document):
    """What a command says of a --speculative-config."""

    def said(words, config):
        typed = shlex.quote(json.dumps(config))
        return document(f"predict {words} --batch-size 8 --speculative-config {typed}")

    return said


def test_keys_without_an_effect_are_named(said):
    plain = {"method": "eagle3", "num_speculative_tokens": 3}
    more = {"attention_backend": "FLASH_ATTN", "moe-backend": "triton", "prefill_token_shift": 1}
    one, other = (said("qwen3-30b-a3b h100", config) for config in (plain, plain | more))
    assert one["rows"] == other["rows"]
    names = other["assumptions"].pop("names")
    kernels, _, nothing = names.replace("--speculative-config ", "").partition("; ")
    assert (
        kernels
        == "may select kernels that specmodel does not model: attention_backend, moe_backend"
    )
    assert nothing == "no effect on the prediction: prefill_token_shift"
    assert one["assumptions"] == other["assumptions"]


def test_dtypes_of_a_drafter_are_read(said):
    config = {"method": "eagle3", "num_speculative_tokens": 3, "kv_cache_dtype": "auto"}
    words = "qwen3-8b h100 --acceptance-rate 0.7"
    plain, narrow = (said(words, config | c) for c in ({}, {"quantization": "fp8"}))
    assert narrow["assumptions"]["draft_dtype"] == "fp8"
    assert narrow["rows"][0]["memory_bytes"] < plain["rows"][0]["memory_bytes"]


@each_row(("words", "method", "model", "drafter"), pasted("drafters"))
def test_drafters_are_those_that_engines_take(said, words, method, model, drafter):
    config = {"method": method, "model": model, "num_speculative_tokens": 3}
    config = {key: value for key, value in config.items() if value}
    found = said(f"{words} --acceptance-rate 0.7", config)
    assert found["deployment"]["drafter"] == drafter


@listed
def test_no_part_of_a_method_is_dropped(refuse, method):
    """What vLLM, SGLang and llama.cpp call otherwise is another method, or none."""
    config = json.dumps({"method": method, "model": "x/y", "num_speculative_tokens": 4})
    for typed in (
        f"--speculative-config {shlex.quote(config)}",
        f"--speculative-algo {method} --speculative-num-steps 4",
        f"--drafter {method}",
    ):
        refuse(f"predict gpt-oss-120b b200 {typed}", f"got '{method}'")


def of_config(config):
    """What a configuration of vLLM says."""
    return speculative_arguments(json.dumps(config))


@listed
def test_heads_are_told_by_words_in_names_and_what_is_not_read_is_said(model, drafter):
    said = of_config({"model": model})
    assert said.arguments["drafter"] == drafter
    assert [model in note for note in said.notes] == [True] * (model != drafter)


def test_what_one_pass_drafts_is_told_by_parallel_drafting():
    for method, drafter in (("eagle3", "p-eagle"), ("draft_model", "pard"), ("dflash", "dflash")):
        config = {"method": method, "model": "x/y", "parallel_drafting": True}
        assert of_config(config).arguments["drafter"] == drafter


def test_an_assistant_gains_what_it_was_seen_to_gain(rows):
    """Gemma-4-31B on one RTX PRO 6000 with vLLM, 5 drafted: 39.7 and 132.5 tokens/s (a reader)."""
    line = "predict gemma-4-31b 1xrtx_pro_6000 --weight-dtype fp8 --drafter mtp --draft-length 5"
    (row,) = rows(f"{line} --batch-size 1")
    assert 1 / row["forward_time"] == pytest.approx(39.7, rel=0.05)
    assert row["speedup_low"] < 132.5 / 39.7 < row["speedup_high"]


@each_row(("tokens", "gain"), [(6.65, 3.72), (5.263, 3.02), (4.337, 2.49), (3.448, 2.01)])
def test_two_dgx_sparks_are_joined_by_their_network(rows, tokens, gain):
    """NVIDIA's checkpoint, whose attention has 16 bits, as reported without CUDA graphs."""
    line = "predict glm-5.3-flash 2xgb10 --weight-dtype nvfp4 --kv-dtype fp8 --drafter dflash"
    (row,) = rows(f"{line} --draft-length 7 --tokens-per-step {tokens} --batch-size 1")
    assert row["speedup"] == pytest.approx(gain, rel=0.14)
    assert 1 / row["forward_time"] == pytest.approx(20.3, rel=0.05)


@each_row(("words", "model", "other"), pasted("heads"))
def test_acceptance_of_another_head_is_said_to_be(run, said, words, model, other):
    config = {"method": "eagle3", "model": model, "num_speculative_tokens": 3}
    source = said(words, config)["assumptions"]["acceptance"]
    assert source.partition("of another head: ")[2] == (other or "")
    typed = shlex.quote(json.dumps(config))
    screen = run(f"predict {words} --batch-size 8 --speculative-config {typed}")
    assert ("of another head" in screen) == bool(other)


def test_what_was_given_is_what_is_to_be_pasted():
    for engine, kind in (("vllm", "eagle3"), ("sglang", "eagle3"), ("sglang", "mtp")):
        assert "a/b" in one_length(engine, kind, 3, path="a/b")[0]
    assert "DRAFTER" not in one_length("sglang", "mtp", 3)[0]


@listed
def test_sglang_is_told_to_run_more_requests_with_a_drafter(document, layout, sizes, requests):
    """Each algorithm in ``arg_groups/speculative_hook.py`` of 0.5.23; one number for all ranks."""
    words = f"predict qwen3.5-397b 8xh200 --engine sglang --acceptance-rate 0.7 {layout}"
    facts = document(f"{words} --batch-size {sizes}")["facts"]
    paste = f"{facts['engine_option']} {facts['paste_into']}"
    found = re.search(r"--max-running-requests (\d+)", paste)
    assert not re.search(r"-max-bs-decode \d{4}", paste)  # which counts requests, not tokens
    assert (found and int(found[1])) == requests


def test_a_checkpoint_in_fp32_runs_in_16_bits_unless_told_not_to(document, refuse, tmp_path):
    """As vLLM's ``_resolve_auto_dtype`` has it; SGLang takes fp16."""
    sizes = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12}
    sizes |= {"num_attention_heads": 12, "vocab_size": 128256, "max_position_embeddings": 4096}
    found = {}
    for name in ("float32", "bfloat16"):
        (tmp_path / name).mkdir()
        config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "dtype": name}
        (tmp_path / name / "config.json").write_text(json.dumps(config | sizes))
        words = f"predict llama-3.1-8b a100 --drafter {tmp_path / name} --draft-length 3"
        found[name] = document(f"{words} --acceptance-rate 0.6 --batch-size 1,8")
    assert found["float32"]["rows"] == found["bfloat16"]["rows"]
    told = found["float32"]["assumptions"]
    assert "float32 (run in bf16" in told.pop("ignored_config_key")
    assert told == found["bfloat16"]["assumptions"]
    plain = f"predict {tmp_path / 'float32'} a100 --view plain"
    assert document(plain)["rows"][0]["memory_bytes"] < 1e9
    refuse(f"{plain} --weight-dtype fp32", "got 'fp32'")


def test_shares_may_be_typed_in_per_cent(rows):
    words = "predict qwen3-8b h100 --draft-length 3 --batch-size 1 --accepted-fraction"
    assert rows(f"{words} 0.5") == rows(f"{words} 50%")


@listed
def test_dtypes_are_named_as_checkpoints_do(typed, dtype):
    assert check_dtype("weight_dtype", typed) == dtype


def test_heads_are_read_inside_their_wrapper_and_others_are_named(said, document, refuse, tmp_path):
    inner = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336}
    inner |= {"num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 1}
    inner |= {"vocab_size": 128256, "eagle_fc_bias": True, "torch_dtype": "bfloat16"}
    head, words = tmp_path / "config.json", "llama-3.1-8b h100 --acceptance-rate 0.6"
    module = {"architectures": ["DeepseekV3ForCausalLMNextN"], "hidden_size": 7168}
    head.write_text(json.dumps(module))
    of_r1 = document(f"predict deepseek-r1 8xh200 --batch-size 1 --drafter {tmp_path}")
    assert of_r1["deployment"]["drafter"] == "MTP head"
    own = {"model_type": "eagle", "architectures": ["EAGLEModel"], "model": inner}
    head.write_text(json.dumps(own))
    found = document(f"predict {words} --batch-size 1 --drafter {head}")
    config = {"method": "eagle3", "model": str(tmp_path), "num_speculative_tokens": 3}
    for each in (found, said(words, config)):
        assert each["deployment"]["drafter"] == "EAGLE head"  # by its own file
    for other, told in rows_of("pasted.txt", "heads that are not modelled"):
        other = json.loads(other)
        head.write_text(json.dumps(other))
        refuse(f"predict {words} --drafter {head}", told)


TEXT = (Path(__file__).parents[1] / "data/launch_lines.txt").read_text(encoding="utf-8")
BLOCKS = [block.partition("\n") for block in TEXT.split("\n\n# http")[1:]]
LINES = [
    (source, *head.removeprefix("> ").split(" | ", 1), line)
    for source, _, rest in BLOCKS
    for head, _, line in [rest.partition("\n")]
]


@each_row(("source", "gpu", "told", "line"), LINES)
def test_a_launch_line_is_read_or_refused_truly(run, refuse, tmp_path, source, gpu, told, line):
    file = tmp_path / "launch.sh"
    file.write_text(line, encoding="utf-8")
    words = f"predict {gpu} --batch-size 1 --verbose --from-command {file}"
    if told.startswith("!"):
        refuse(words, *told.removeprefix("!").split(" | "))
        return
    page = run(words, one_line=True)
    assert [part for part in told.split(" | ") if part not in page] == []


@each_row(("source", "line"), [(row[0], row[-1]) for row in LINES if not row[2].startswith("!")])
def test_each_flag_of_a_line_means_something_or_is_told(source, line):
    engine, flags = launch_line("from_command", line)
    notes = " ".join(launched(engine, flags).notes)
    others = {flag.typed for name, flag in flags.items() if name not in MEANS}
    assert {typed for typed in others if typed not in notes} == set()
    of_benchmark = "vllm bench" in line  # whose own flags are not those of a server
    assert of_benchmark or "unknown, ignored" not in notes


def test_all_that_means_something_is_a_flag_of_an_engine():
    known = {name for engine in engines().values() for name in engine.kinds}
    assert [name for name in MEANS if name.partition(".")[0] not in known] == []
