"""The loop with an engine that nobody here wrote: vLLM on a CPU, measured, fitted and predicted.

Steps, each a command of this file, with the same FOLDER (from a checkout, extra [engine]):

    specmodel calibrate --device cpu --output FOLDER/cpu.toml
    python calibration/real_engine.py models FOLDER    # an MoE of random weights and its drafter
    python calibration/real_engine.py measure FOLDER   # serves them with vLLM, length by length
    python calibration/real_engine.py judge FOLDER     # fits a third of it, predicts the rest

`measure` starts and ends a server for each draft length and runs `specmodel measure-engine` on it,
and goes on where it was interrupted. --command starts vLLM in another way, as from an environment
of its own, or another program; what is not known here goes to `measure-engine`.

The drafter is the first layer of the target, whose later layers are damped: the more, the more
often the drafter is right. Weights are random, so routing is nearly balanced.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from specmodel.base.files import write_text
from specmodel.base.records import toml_text
from specmodel.calibrate.fitting import update_engine
from specmodel.calibrate.fitting.steps import measured_steps
from specmodel.calibrate.serving import read_benchmarks, served_runs
from specmodel.records.engine import EngineProfile, load_engine

CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "torch_dtype": "bfloat16",
    "hidden_size": 1024, "intermediate_size": 2048, "moe_intermediate_size": 512,
    "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64,
    "num_experts": 32, "num_experts_per_tok": 4, "norm_topk_prob": True, "decoder_sparse_step": 1,
    "mlp_only_layers": [], "vocab_size": 8192, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6, "rope_theta": 1e6, "hidden_act": "silu", "tie_word_embeddings": False,
    "attention_bias": False, "use_sliding_window": False, "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
"""Eight layers of 32 experts: 0.9 GB in bf16, nearly all of them experts."""

LENGTHS, BATCHES, PROMPTS, OUTPUT = (0, 1, 2, 3, 4, 5), (1, 2, 4, 8, 16), (128, 1024), 64
DAMPING, DRAFT_LAYERS, PORT = 0.1, 1, 8321
SERVE = (
    "vllm serve {folder}/target --port {port} --served-model-name target --dtype bfloat16"
    " --max-model-len 2048 --max-num-seqs 16 --no-enable-prefix-caching"
)
"""How the target is served; --speculative-config follows where it drafts."""
READY = 1200.0
"""Longest wait for a server [s]."""


# Models


def models(folder: Path, damping: float = DAMPING, draft_layers: int = DRAFT_LAYERS) -> None:
    """Write the target, the drafter that is its first layers, and a tokenizer of both."""
    import torch

    generator = torch.Generator().manual_seed(0)
    weights = {
        name: torch.empty(shape).normal_(0.0, shape[-1] ** -0.5, generator=generator)
        if len(shape) > 1
        else torch.ones(shape)
        for name, shape in shapes(CONFIG).items()
    }
    for name, weight in weights.items():
        is_output = name.endswith(("o_proj.weight", "down_proj.weight"))
        if is_output and int(name.split(".")[2]) >= draft_layers:
            weight *= damping
    own = {n: w for n, w in weights.items() if ".layers." not in n or _layer(n) < draft_layers}
    for kind, config, kept in (
        ("target", CONFIG, weights),
        ("drafter", CONFIG | {"num_hidden_layers": draft_layers}, own),
    ):
        path = folder / kind
        path.mkdir(parents=True, exist_ok=True)
        write_text(path / "config.json", json.dumps(config, indent=2))
        for name, text in tokenizer(int(str(CONFIG["vocab_size"]))).items():
            write_text(path / name, json.dumps(text))
        save({name: weight.to(torch.bfloat16) for name, weight in kept.items()}, path)


def _layer(name: str) -> int:
    return int(name.split(".")[2])


def shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight of a Qwen3-MoE, by its name in a checkpoint."""
    h, w, d = config["hidden_size"], config["moe_intermediate_size"], config["head_dim"]
    q, kv = (d * config[f"num_{kind}_heads"] for kind in ("attention", "key_value"))
    vocabulary = config["vocab_size"]
    found = {"model.embed_tokens": (vocabulary, h), "model.norm": (h,), "lm_head": (vocabulary, h)}
    for layer in (f"model.layers.{i}" for i in range(config["num_hidden_layers"])):
        found |= {
            f"{layer}.{name}": (h,) for name in ("input_layernorm", "post_attention_layernorm")
        }
        attention = {"q_proj": (q, h), "k_proj": (kv, h), "v_proj": (kv, h), "o_proj": (h, q)}
        attention |= {"q_norm": (d,), "k_norm": (d,)}
        found |= {f"{layer}.self_attn.{name}": shape for name, shape in attention.items()}
        found[f"{layer}.mlp.gate"] = (config["num_experts"], h)
        for expert in range(config["num_experts"]):
            block = {"gate_proj": (w, h), "up_proj": (w, h), "down_proj": (h, w)}
            found |= {f"{layer}.mlp.experts.{expert}.{n}": shape for n, shape in block.items()}
    return {f"{name}.weight": shape for name, shape in found.items()}


def save(weights: dict[str, Any], folder: Path) -> None:
    """Write weights in bf16 as a file of safetensors: a header in JSON, then the bytes."""
    import torch

    header, end = {}, 0
    for name, weight in weights.items():
        start, end = end, end + 2 * weight.numel()
        shape = list(weight.shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for weight in weights.values():
            file.write(weight.contiguous().view(torch.uint8).numpy().tobytes())


def tokenizer(size: int) -> dict[str, Any]:
    """Return files of a tokenizer of so many words, t0 and t1 at the beginning and the end."""
    words = {f"t{i}": i for i in range(size)}
    whole = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None,
        "decoder": None, "model": {"type": "WordLevel", "vocab": words, "unk_token": "t2"},
    }  # fmt: skip
    ends = {"bos_token": "t0", "eos_token": "t1", "unk_token": "t2"}
    return {
        "tokenizer.json": whole,
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", **ends},
    }


# Serving


@contextmanager
def served(command: str, log: Path) -> Iterator[None]:
    """Run a server until it is no longer needed, from when it answers."""
    environment = {"VLLM_CPU_KVCACHE_SPACE": "2", **os.environ}
    with (
        log.open("ab") as out,
        subprocess.Popen(shlex.split(command), stdout=out, stderr=out, env=environment) as process,
    ):
        try:
            end = time.monotonic() + READY
            while not _answers():
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"no server: see the end of {log}\n  {command}")
                time.sleep(1.0)
            yield
        finally:
            process.terminate()
            try:
                process.wait(60.0)
            except subprocess.TimeoutExpired:
                process.kill()


def _answers() -> bool:
    try:
        with urllib.request.urlopen(f"http://localhost:{PORT}/v1/models", timeout=5.0) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def measure(folder: Path, command: str, lengths: Sequence[int], more: Sequence[str]) -> None:
    """Serve with each draft length and measure; what is there already is not measured again."""
    for length in lengths:
        own = {"method": "draft_model", "model": f"{folder}/drafter"}
        told = json.dumps(own | {"num_speculative_tokens": length})
        words = command.format(folder=folder, port=PORT, draft_length=length)
        if length and "{draft_length}" not in command:
            words += f" --speculative-config '{told}'"
        ask = [
            *(sys.executable, "-m", "specmodel", "measure-engine", f"http://localhost:{PORT}"),
            *("--output", f"{folder}/served.{length}.csv", "--wait", "0"),
            *("--draft-length", str(length)),
            *("--concurrency", ",".join(map(str, BATCHES)), "--output-length", str(OUTPUT)),
            *("--prompt-length", ",".join(map(str, PROMPTS)), "--token-ids", "3:8191"),
            *("--temperature", "0", "--method", "draft_model", *more),
        ]
        with served(words, folder / "server.log"):
            status = subprocess.run(ask, check=False).returncode
        if status:
            raise SystemExit(status)


# Judging


def judge(folder: Path, engine: str) -> pd.DataFrame:
    """Return each load measured and predicted, by an engine fitted to a third of the runs."""
    where = {
        "target": f"{folder}/target/config.json",
        "drafter": f"{folder}/drafter/config.json",
        "hardware": f"{folder}/cpu.toml",
        "stack": "torch",
    }
    paths = sorted(folder.glob("served.[0-9].csv"))
    table = pd.concat([pd.read_csv(path) for path in paths], ignore_index=True)
    runs = read_benchmarks(paths)
    if len(runs) != len(table):
        raise SystemExit("the summary has rows that are no runs of their own")
    base = load_engine(engine)
    rows = served_runs(runs, where | {"engine": base})
    # every third load with all its draft lengths: what is predicted are loads that were not seen
    loads = [(run.concurrency, round(run.prompt_length or 0)) for run in runs]
    known = set(sorted(set(loads))[1::3])
    is_fitted = np.array([load in known for load in loads])
    fitted = [row for row, is_in in zip(rows, is_fitted, strict=True) if is_in]
    today = date.today().isoformat()
    update = update_engine(fitted, base, date=today, version=str(table["engine_version"][0]))
    write_text(folder / "engine.toml", toml_text(update.profile) + "\n")
    found = table.assign(
        prompt=[load[1] for load in loads],
        is_fitted=is_fitted,
        measured=table["step_ms"] / 1e3,
        predicted=_predicted(rows, update.profile),
    )
    return compared(found)


def _predicted(rows: Sequence[Any], profile: EngineProfile) -> np.ndarray:
    """Return what an engine makes of steps [s]."""
    own = [replace(row, deployment={**row.deployment, "engine": profile}) for row in rows]
    return np.asarray(measured_steps(own).predicted(profile.overheads))


def compared(found: pd.DataFrame) -> pd.DataFrame:
    """Return speculative loads beside plain ones: ratios of steps, speedups, and their errors."""
    load = ["concurrency", "prompt"]
    columns = [*load, "measured", "predicted", "step_spread"]
    plain = found[found["draft_length"] == 0].groupby(load, as_index=False)[columns[2:]].mean()
    both = found[found["draft_length"] > 0].merge(plain, on=load, suffixes=("", "_plain"))
    for kind in ("measured", "predicted"):
        both[f"ratio_{kind}"] = both[kind] / both[f"{kind}_plain"]
        both[f"speedup_{kind}"] = both["tokens_per_step"] / both[f"ratio_{kind}"]
    both["ratio_error"] = both["ratio_predicted"] / both["ratio_measured"] - 1.0
    both["speedup_error"] = both["speedup_predicted"] / both["speedup_measured"] - 1.0
    # (most - least) / median of n repeats is about 1.7 standard deviations for three
    both["noise"] = np.hypot(both["step_spread"], both["step_spread_plain"]) / 1.7 / np.sqrt(3.0)
    return both


def told(both: pd.DataFrame) -> str:
    """Return errors on loads that were fitted and on others, in lines."""
    lines = []
    for is_fitted, part in both.groupby("is_fitted"):
        ratio, speedup = part["ratio_error"].abs(), part["speedup_error"].abs()
        sure = part[(part["speedup_measured"] - 1.0).abs() > part["noise"]]
        right = ((sure["speedup_measured"] > 1.0) == (sure["speedup_predicted"] > 1.0)).sum()
        lines.append(
            f"{'fitted' if is_fitted else 'not fitted':10} {len(part):3} loads: ratio of steps off"
            f" by {ratio.mean():.1%} (worst {ratio.max():.1%}), speedup {speedup.mean():.1%},"
            f" sign right in {right} of {len(sure)}; noise {part['noise'].mean():.1%}"
        )
    return "\n".join(lines)


def figure(both: pd.DataFrame, path: Path) -> None:
    """Draw the plain step over the speculative one by batch size, measured and predicted."""
    from matplotlib.figure import Figure

    prompts = sorted(both["prompt"].unique())
    drawn = Figure(figsize=(3.4 * len(prompts), 2.8), layout="constrained")
    for axes, prompt in zip(
        drawn.subplots(1, len(prompts), squeeze=False)[0], prompts, strict=True
    ):
        for length, part in both[both["prompt"] == prompt].groupby("draft_length"):
            x = part["concurrency"]
            (line,) = axes.plot(x, 1 / part["ratio_predicted"], label=f"draft length {length}")
            axes.plot(x, 1 / part["ratio_measured"], "o", color=line.get_color(), markersize=4)
        axes.set(title=f"prompts of {prompt}", xlabel="batch size", xscale="log")
    axes.legend(fontsize=7)
    drawn.supylabel("plain step / speculative step", fontsize=9)
    drawn.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("step", choices=["models", "measure", "judge"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--damping", type=float, default=DAMPING, help="of later layers")
    parser.add_argument(
        "--command", default=SERVE, help="that serves: vLLM, or with {draft_length}"
    )
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="to draft; 0: plain")
    parser.add_argument("--engine", default="vllm", help="profile to start from")
    given, more = parser.parse_known_args()
    folder = given.folder.resolve()
    if given.step == "models":
        models(folder, given.damping)
    elif given.step == "measure":
        measure(folder, given.command, [int(n) for n in given.lengths.split(",")], more)
    else:
        both = judge(folder, given.engine)
        write_text(folder / "judged.csv", both.to_csv(index=False, float_format="%.6g"))
        figure(both, folder / "judged.png")
        print(told(both))


if __name__ == "__main__":
    main()
