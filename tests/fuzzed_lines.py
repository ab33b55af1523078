"""Random command lines: every command as it works, and what its words may be changed to."""

import random
import shlex

import click

from specmodel.cli.commands import main_group

NOWHERE = "http://localhost:1"
"""Where no server is."""
WHERE = "--target mixtral-8x7b --drafter eagle3 --hardware h200_sxm"
NGRAM = "--target model.toml --drafter ngram --hardware hardware.toml --engine engine.toml"
BLOCK = "--target mixtral-8x7b --drafter parallel --hardware h200_sxm"
RATE = "--acceptance-rate 0.7"
SMALL = "--batch-size 1,8 --draft-length 3"
DRAWN = "--requests 3 --output-tokens 40"
PLOTTED = {
    "predicted": "speedup target-efficiency pareto", "parts": "roofline components",
    "explained": "waterfalls", "sensitive": "tornado sobol", "needed": "break-even",
    "best": "best-draft-length", "replayed": "policies", "carried": "load capacity",
    "drained": "drain", "judged": "predicted-against-measured", "looped": "closed-loop",
    "steps": "timeline",
}  # fmt: skip
"""Tables, and the kinds of figures that are drawn from them."""
BASES = [
    *(f"predict {WHERE} {RATE} {SMALL}{more}" for more in ("", " --json", " --csv", " --interval")),
    f"predict {NGRAM} {SMALL} --tokens-per-step 1.4 --proposal-rate 0.4 --components",
    f"predict --target config.json --drafter llama.json --hardware h100_sxm {RATE} {SMALL} --json",
    f"predict {WHERE} {SMALL} --acceptance-by-position 0.8,0.7,0.6 --tensor-parallel 2",
    f"predict {NGRAM} {SMALL} --accepted-fraction 0.4 --set popularity=popularity.txt",
    f"predict {WHERE} {SMALL} --tokens-per-step 2.5 --engine sglang-v1 --tree-width 4 "
    "--verify-tokens 16 --host-speed 0.5 --interval",
    "predict --view plain --target model.toml --hardware alone.toml --batch-size 1,8 "
    "--tensor-parallel 1",
    f"predict --target model.toml --drafter eagle --hardware alone.toml {RATE} {SMALL} --json"
    " --tensor-parallel 1",
    f"predict --target qwen3.5-35b-a3b --drafter mtp --hardware h200_sxm {SMALL} "
    "--acceptance-rate 0.8 --set state_rollback=replay",
    f"predict --target glm-5.2 --drafter mtp --hardware b200 {SMALL} --tensor-parallel 8 "
    "--acceptance preset",
    "predict --view plain --target deepseek-v3 --hardware h200_sxm --data-parallel 8"
    " --expert-parallel 4 --set attention_dtype=bf16 --batch-size 1,8",
    "predict --view plain --target model.toml --hardware hardware.toml --engine engine.toml "
    "--batch-size 1:64:x8"
    " --prompt-length 900,5000 --output-length 100 --interval --components --json",
    f"predict --view peak {WHERE} {RATE} --batch-size 1:64 --draft-length 1,3",
    f"predict --view lengths {NGRAM} {RATE} --context-length 512,4096",
    f"break-even {WHERE} --batch-size 1,16 --draft-length 1:3",
    f"compare {WHERE} {RATE} --engine vllm,sglang,ideal --batch-size 1,16 --host-speed 0.5",
    f"compare {WHERE} {RATE} --batch-size 4 --draft-length 1 --tpot-target 30ms --for-load"
    " --attainment 0.5 --prompt-length 90 --output-length 3 --gpu-hour-price 2.5",
    f"predict --view terms {WHERE} {RATE} {SMALL}",
    f"schedule --for vllm {NGRAM} {RATE} --max-batch-size 32 --json",
    f"schedule --for sglang {WHERE} {RATE} --max-batch-size 32 --engine sglang-v1",
    f"schedule --for tensorrt-llm {WHERE} {RATE} --max-batch-size 32 --host-speed 2",
    f"schedule --for vllm {WHERE} {RATE} --max-batch-size 8 --max-draft-length 1 --for-load"
    " --tpot-target 30ms --prompt-length 90 --output-length 3 --attainment 0.5",
    f"schedule --for sglang --format cost-table {BLOCK} --max-draft-length 3 --batch-size 1,8",
    f"schedule --for vllm --format cost-table {WHERE} --max-draft-length 3 --csv"
    " --context-length 512,4096",
    f"sensitivity {WHERE} {RATE} --batch-size 4 --draft-length 3 --samples 64 --engine vllm",
    f"sensitivity {NGRAM} --step-efficiency 0.3 --batch-size 4 --draft-length 3 --json",
    "sweep qwen3-30b h200 --set target.experts_per_token=2,8 --batch-size 1:9:x2",
    f"sweep {WHERE} {SMALL} --tokens-per-step 2 --engine vllm --host-speed 0.5,2 --tree-width 1,4",
    f"sweep {NGRAM} --acceptance-rate 0.3,0.6 {SMALL} --output swept.csv --overwrite",
    f"simulate {WHERE} --trace chat-eagle {DRAWN} --policy none,fixed:2,cascade,goodput",
    "simulate --step-times times.csv --trace trace.jsonl --policy none,cascade,oracle --json",
    f"simulate {NGRAM} --trace preset.toml {DRAWN} --policy fixed:1,table:lengths.json,bandit",
    f"simulate {NGRAM} --trace preset.toml {DRAWN} --policy sglang:config=slots.json",
    f"load {WHERE} {RATE} --request-rate 1,4 --requests 30 --policy none,fixed:2,schedule --json",
    f"load {WHERE} {RATE} --workload load.csv --policy table:lengths.json --csv",
    f"load {WHERE} {RATE} --workload came.jsonl --time-window 1:8 --policy none,fixed:2",
    f"load {WHERE} {RATE} --workload came.json --drain 6 --samples 2 --policy none,below:4:2",
    f"load {NGRAM} --tokens-per-step 1.4 --measured-draft-length 3 --users 4 --requests 20"
    " --prompt-length 90 --output-length 20 --policy none,sglang:config=slots.json",
    f"load {WHERE} --trace trace.jsonl --request-rate 2 --requests 20 --prefill disaggregated:1"
    " --policy none,goodput --max-draft-length 3",
    f"load {WHERE} {RATE} --tpot-target 30ms --requests 30 --replications 2"
    " --policy none,fixed:2 --prompt-length 90 --output-length 20 --for-rate 40 --gpu-hour-price 2",
    f"load {WHERE} {RATE} --workload load.csv --ttft-target 1s --attainment 0.5 --requests 20"
    " --replications 1 --policy table:lengths.json --csv",
    f"load {WHERE} {RATE} --request-rate 1 --requests 20 --token-budget 1 --prefill disagg:1",
    f"load {WHERE} {RATE} --request-rate 1 --requests 20 --prompt-length 1 --output-length 1",
    f"load {WHERE} {RATE} --tpot-target 30ms --requests 20 --arrivals gamma:20 --attainment 0.95"
    " --policy none --replications 3 --workload code",
    f"load {WHERE} {RATE} --drain 6 --samples 2 --servers 2 --finished 0.9 --prompt-length 9"
    " --output-length lognormal:20:1 --policy none,below:4:2 --gpu-hour-price 2",
    f"predict {WHERE} {RATE} {SMALL} --set target.num_layers=4000 --force",
    f"predict qwen3-30b-a3b rtx_4090 --tensor-parallel 1 --drafter eagle3 --engine sglang-v1 {RATE}"
    " --context-length 0 --batch-size 1,7,54 --draft-length 1 --interval --csv",
    f"trace sample code-ngram {DRAWN} --output drawn.jsonl",
    "trace ngram requests.jsonl --output made.jsonl",
    "trace describe trace.jsonl trace.parquet own.csv own.jsonl code-ngram",
    *("list h200_sxm", "list model.toml", "list preset.toml", "list config.json"),
    *("list engine.toml", "list hardware", "list l40s --template"),
    *("acceptance before.prom after.prom", "acceptance vllm_eagle3.json --json"),
    "fit kernels kernels.csv --output fitted.toml",
    "fit check h200_sxm kernels.csv --stack trtllm",
    "fit check --serving engines.csv --json",
    "fit check --serving pairs.csv",
    "fit engine vllm_plain.json vllm_eagle3.json --target gpt-oss-120b --drafter eagle3 --force "
    "--output out.toml --hardware h200_sxm",
    "fit engine sglang.jsonl --target qwen3-30b-a3b --drafter eagle3 --output out.toml --force "
    "--hardware h200_sxm --engine sglang",
    "fit engine measured.csv --target olmoe-1b-7b --drafter eagle3 --hardware h200_sxm "
    "--output out.toml --force",
    "fit engine aiperf_plain.json guidellm_eagle3.json --drafter eagle3 --hardware h200_sxm",
    "fit check h200_sxm kernels.parquet --stack typical --figure drawn.svg",
    "fit check --serving engines.csv --ttft",
    *(f"calibrate --device cpu --output mine.toml --tiny{m}" for m in ("", " --again copy")),
    "calibrate --device cpu --output mine.toml --tiny --dry-run",
    f"simulate {NGRAM} --trace trace.parquet --policy fixed:1,cascade --records records.csv",
    f"sweep {WHERE} {RATE} {SMALL} --output swept.parquet",
    f"sweep {NGRAM} --acceptance-rate 0.3,0.6 --batch-size 1:8 --draft-length 0:3 --output parts/",
    f"predict --target ./served --drafter eagle3 --hardware h200_sxm {RATE} {SMALL} --json",
    f"predict --target qwen3-30b-a3b --drafter head.json --hardware h200_sxm {RATE} {SMALL}",
    f"predict --target qwen3-30b-a3b --drafter block.json --hardware b200 {RATE} {SMALL} --csv",
    f"predict made/small 2xh100 {RATE} --speculative-config start.json --batch-size 1,8",
    f"predict mixtral-8x7b h200 {RATE} --speculative-algorithm EAGLE3 --speculative-num-steps 3",
    "predict qwen3-30b h200 --columns speedup,tpot --tpot-target 20ms --no-interval",
    "break-even qwen3-30b h200 --batch-size 1,16",
    f"compare mixtral-8x7b 8xh200 {RATE} --tensor-parallel 8 --data-parallel 1 --batch-size 4",
    "list policies",
    "list presets",
    "list ./served",
    "predict --view plain --target ./served --hardware t4 --batch-size 1 --ignore-config-key "
    "sliding_window",
    "plot active-experts --output drawn.svg",
    *(
        f"plot {kind} {table}.csv --output drawn.svg"
        for table, kinds in PLOTTED.items()
        for kind in kinds.split()
    ),
]
"""Command lines that work, of every command."""
REFUSED = [f"acceptance {NOWHERE}/metrics"]
"""Lines that are refused whatever else is typed: no server is asked."""
IMPLAUSIBLE = (
    *("engine.pass_time=3.7", "target.num_layers=4000", "target.num_layers=100000"),
    *("engine.pass_time=1e300", "engine.kernel_time=1e200", "engine.reject_time=1e308"),
)
"""What-ifs of no machine or model, which are taken with --force only."""

WORDS = {
    "target": "mixtral-8x7b made/small qwen3-30b qwen2-57b-a14b opt-350m model.toml config.json",
    "drafter": "ngram eagle eagle3 mtp parallel qwen2-0.5b llama.json model.toml",
    "hardware": "h200_sxm 8xh200 h100 0xh200 t4 mi300x l40s b200 hardware.toml alone.toml",
    "engine": "ideal sglang sglang-v1 tensorrt-llm vllm vllm-moesd-2025 engine.toml",
    "host_speed": "0.01 0.3 1 2 100 101 0 -1 nan 1e9 0.5,2",
    "tree_width": "1 2 4 8 4096 4097 0 1.5 1,4",
    "stack": "typical datasheet trtllm vllm torch",
    "changes": (
        "hardware.memory.peak_bytes_per_s=1e300 hardware.memory.peak_bytes_per_s=3e12"
        " hardware.memory.capacity_bytes=1 hardware.num_multiprocessors=1 hardware.link.num_gpus=2"
        " hardware.dtype.bf16.peak_flops_per_s=1e308 target.num_layers=1 target.hidden_size=64"
        " target.vocabulary_size=10 target.ffn_size=0 target.num_experts=3 drafter.num_layers=0"
        " engine.pass_time=1e300 engine.kernel_time=1e-3 engine.reject_time=1e308 drafter.name=x"
        " engine.kernel_time=1e200 engine.reject_time_per_token=1e100 engine.draft_pass_time=1e-300"
        " hardware.memory.peak_bytes_per_s=1e9 hardware.memory.l2_bytes=1e300 target.kv_dtype=int4"
        " hardware.dtype.bf16.peak_flops_per_s=1e11 target.hidden_size=1000000 target.num_heads=1"
        " target.vocabulary_size=1000000000 target.expert_size=1 target.num_layers=100000"
        " target.layers=1 target.experts_per_token=1 engine.stack=trtllm hardware.name=x"
        " engine.tree_time=1 engine.hides_host=all engine.hides_host=plain engine.host_speed=0.01"
        " engine.gpu_time_factor=100 engine.hides_host=x engine.host_speed=0 engine.tree_time=-1"
        " engine.pass_time=3.7 target.num_layers=4000 target.name=\x1b[31m drafter.name=\x1b[31m"
    ),
    "dtype": "bf16 fp8 fp4 int4 int8 fp16 fp32 mxfp4",
    "popularity": "popularity.txt",
    "step_times": "times.csv",
    "trace": "trace.jsonl own.csv own.jsonl code-ngram math-ngram+chat-eagle preset.toml",
    "policies": (
        "none oracle best-fixed fixed:9 bandit sglang cascade:first_draft_length=1"
        " goodput:memory=5 table:lengths.json nowhere:Policy fixed: cascade:backoff_factor=0,none"
    ),
    "arrivals": "poisson gamma:0.5 gamma:20 gamma:100 gamma:nan bursts:8 bursts:1000 bursts:0",
    "prefill": "together disaggregated:1 disaggregated:2 disaggregated:0 disaggregated:",
    "attainment": "0.3 0.5 0.55 0.7 0.9 0.95 0.99 1 1e-13",
    "columns": "speedup,tpot limited_by speedup,speedup",
    "range": "acceptance_rate=0.5:0.9 routing_correlation=0:1 hardware.num_multiprocessors=1:9",
    "kind": "speedup roofline hardware tornado policies break-even sobol tables active-experts",
    "table": "predicted.csv explained.csv sensitive.csv needed.csv kernels.csv -",
    "speculative_config": 'start.json {"method":"mtp","num_speculative_tokens":2} {} [] {"x":1}',
    "speculative_algorithm": "EAGLE3 NEXTN NGRAM EAGLE x",
    "tpot_target": "20ms 0.02 1s 0 -1 20 x",
    "output": "drawn.svg out.csv out.toml out.jsonl parts/ / . out",
    "records": "records.csv trace.jsonl",
    "timeline": "line.svg",
    "device": "cpu cuda",
    "prompts": "prompts.jsonl prompts.txt trace.jsonl",
    "for": "vllm tensorrt-llm sglang",
    "config_format": "vllm tensorrt-llm sglang",
    "format": "schedule cost-table",
}
"""Plausible words of options and arguments, by their names."""
NUMBERS = "0 1 2 3 4 7 8 0.5 0.9 1e-6 1.0"
LISTS = "1 4 1,8 1:8:x2 1:5 2,2 3:1 0:3 512"
STRANGE = [
    *("", " ", "-1", "nan", "inf", "-inf", "1e308", "1e-320", "1e-30", "1e15", "1e400", "x"),
    *("1e200", "1e-200", "1e-9", "1e6", "0.999999999", "1:4", "1000", "0.1:0.9:0.4"),
    *("1" + "0" * 400, "-0", "1.5", "1e3", "1_0", "٣", "é√", "\udcff", "a\nb", "\x1b[31m"),
    "x" * 5000,
    *("1,", ",", ":", "1:", "1:x2", "true", "=", "a=b", "a.b=1", "./nope", "/", ".", "..", "~"),
    *("\N{FULLWIDTH DIGIT TWO}xh200", "\N{SUPERSCRIPT TWO}", "1" * 5000, "org/" + "m" * 3000),
    *("dflash:" + "1" * 5000, "fixed:\N{SUPERSCRIPT TWO}", "eagle3:\N{ARABIC-INDIC DIGIT SIX}"),
    *("/dev/null", "--", "--json", "-h", "nope.toml", "nope.csv", "folder.toml", "[", "{}", "%s"),
    *("http://localhost/metrics", "-", "H200", "1000000000", "100000", "9" * 18, "2e9", "0x10"),
]
CHEAP = {
    "workers": ["1", "0", "-1", "x"],
    "requests": ["1", "5", "0", "-1", "x", "1" + "0" * 400],
    "output_tokens": ["1", "50", "0", "-1", "x", "1" + "0" * 400],
    "samples": ["64", "128", "4", "0", "-1", "x", "1" + "0" * 400],
    "scheduler": ["", "x"],
    "wait": ["0"],
    "timeout": ["1", "0", "nan"],
    "yes": [],
    "length": [],
}
"""All values of options that other values make slow."""


def leaf(command: click.Command, words: list[str]) -> tuple[click.Command, int]:
    """The command that words name, and how many words do."""
    used, context = 0, click.Context(command)
    while isinstance(command, click.Group):
        inner = command.get_command(context, words[used])
        if inner is None and hasattr(command, "default"):
            inner = command.get_command(context, command.default(words[used]))
            used -= 1
        assert inner is not None
        command, used = inner, used + 1
    return command, used


def _value(parameter: click.Parameter, rng: random.Random) -> str:
    """A plausible or a strange value of an option or argument."""
    name = parameter.name or ""
    if name in CHEAP:
        return rng.choice(CHEAP[name])
    if rng.random() < 0.25:
        return rng.choice(STRANGE)
    if name.endswith("_dtype"):
        name = "dtype"
    if name in WORDS:
        return rng.choice(WORDS[name].split())
    is_number = parameter.type.name in ("integer", "float")
    return rng.choice((NUMBERS if is_number else LISTS + " " + NUMBERS).split())


def command_line(rng: random.Random) -> list[str]:
    """A command line that works but for up to three changes of its words."""
    words = shlex.split(rng.choice(BASES + REFUSED))
    command, used = leaf(main_group, words)
    options = [p for p in command.params if isinstance(p, click.Option)]
    options = [p for p in options if CHEAP.get(p.name or "") != []]
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        chance = rng.random()
        if chance < 0.7 and options:
            option = rng.choice(options)
            words.append(option.opts[0])
            if not option.is_flag:
                words.append(_value(option, rng))
        elif chance < 0.85 and len(words) > used:
            at = rng.randrange(used, len(words))
            words[at] = words[at] if words[at].startswith("--") else rng.choice(STRANGE)
        elif chance < 0.95 and len(words) > used:
            del words[rng.randrange(used, len(words))]
        else:
            words.insert(rng.randrange(len(words) + 1), rng.choice(STRANGE))
    return words
