"""Time decode steps of a vLLM with random weights on this GPU, for gpu_engine.py.

Usage: python calibration/gpu_steps.py PLAN.json OUT.csv [--configs FOLDER] [--seconds 540]

Needs vLLM (0.24 was run) and a GPU, but neither weights nor a network. PLAN.json is a list of
engines: name, model (a folder with a config.json, possibly below FOLDER) and batches. If the engine
drafts, it has method (ngram, eagle3, mtp or draft_model), draft_length and draft (a folder).
Optional are contexts (default 256), tokens_per_step (accepted by vLLM's synthetic rejection),
temperature (default 1), limit (of CUDA graphs; 0 runs eagerly), more (pairs of batch and context),
arguments of EngineArgs and environment (variables). Each engine runs in its own process, which is
ended after its time. A row is written as soon as it is measured. Drafts of n-gram are random, so
that random weights reject them. A step is the median time between outputs while all requests
decode.

If a plan has prompts (lengths), OUT.prompts.csv has the time of each prompt alone to its first
token. If it has beside (pairs of batch and prompt), OUT.beside.csv has the time that such a prompt
adds to the step of a batch that decodes. If it has loads (rate, requests, prompt, output, seed),
OUT.requests.csv has a row for each request of Poisson arrivals, in the form that load_judge.py
reads. At rate 0 all requests come at once, and with sigma outputs are log-normal.
"""

import argparse
import contextlib
import csv
import itertools
import json
import multiprocessing
import os
import random
import signal
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FIELDS = (
    *("name", "model", "method", "draft_length", "batch", "context", "tokens_per_step_request"),
    *("step_ms", "p10_ms", "p90_ms", "draft", "limit", "temperature", "sync", "version"),
)
PROMPT_FIELDS = ("name", "model", "method", "draft_length", "prompt_tokens", "ttft_ms", "version")
BESIDE_FIELDS = (
    *("name", "model", "method", "draft_length", "batch", "prompt_tokens", "context"),
    *("step_ms", "added_ms", "version"),
)
REQUEST_FIELDS = (
    *("name", "draft_length", "request_rate", "seed", "repeat", "number", "arrival_time"),
    *("first_token", "last_token", "prompt_tokens", "output_tokens", "events"),
)
STEPS, WARM, FEWEST = 40, 6, 8
"""Steps timed, steps before them, and the fewest that count."""
MOST_SECONDS = 170.0
"""Longest time of an engine, including its compilation [s]."""
PROMPT_REPEATS = 5
BESIDE_CONTEXT, BESIDE_REPEATS, BESIDE_STEPS = 512, 12, 6
"""Context of requests that decode, prompts that they carry, and the steps between two prompts."""
SPREAD, MOST_OUTPUT = 0.3, 7000
"""By how much prompts and outputs under load differ from their mean [-], and the longest output."""


def main() -> None:
    """Run the engines of a plan one after another, as long as there is time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("plan", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--configs", type=Path, default=Path())
    parser.add_argument("--seconds", type=float, default=540.0, help="for all engines")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["vllm.v1.engine.llm_engine"])
    for engine in json.loads(options.plan.read_text(encoding="utf-8")):
        left = min(end - time.monotonic(), engine.get("seconds", MOST_SECONDS))
        if left < 30:
            print(f"no time left for {engine['name']}", flush=True)
            continue
        arguments = (engine, options.configs, options.output)
        process = server.Process(target=measure, args=arguments)
        process.start()
        process.join(left)
        if process.is_alive():
            print(f"{engine['name']} took longer than {left:.0f} s", flush=True)
        if process.pid:
            with contextlib.suppress(ProcessLookupError):  # what the engine left behind
                os.killpg(process.pid, signal.SIGKILL)
        process.join()


def measure(engine: dict[str, Any], configs: Path, output: Path) -> None:
    """Start an engine and write a row for each of its batch sizes and contexts."""
    os.setsid()  # the engine's own processes end with this one
    os.environ |= {"HF_HUB_OFFLINE": "1"} | engine.get("environment", {})
    import vllm
    from vllm.v1.engine.llm_engine import LLMEngine

    if engine.get("method") == "ngram":
        _draft_at_random()
    started = LLMEngine.from_engine_args(vllm.EngineArgs(**_arguments(engine, configs)))
    vocabulary = started.model_config.get_vocab_size()
    about = {name: engine.get(name, "") for name in FIELDS} | {
        "method": engine.get("method", "none"),
        "draft_length": engine.get("draft_length", 0),
        "temperature": engine.get("temperature", 1.0),
        "sync": int(engine.get("arguments", {}).get("async_scheduling") is False),
        "version": vllm.__version__,
    }
    points = [
        (batch, context) for context in engine.get("contexts", [256]) for batch in engine["batches"]
    ]
    _steps(started, engine, 2, 64, vocabulary)  # what the first request compiles is no step
    for batch, context in points + engine.get("more", []):
        times, tokens = _steps(started, engine, batch, context, vocabulary)
        if len(times) < FEWEST:
            print(f"{engine['name']} {batch}x{context}: too few steps", flush=True)
            continue
        ordered, steps = sorted(times), len(times)
        row = about | {
            "batch": batch,
            "context": context,
            "tokens_per_step_request": round(sum(tokens) / steps / batch, 4),
            "step_ms": round(1e3 * statistics.median(times), 4),
            "p10_ms": round(1e3 * ordered[steps // 10], 4),
            "p90_ms": round(1e3 * ordered[9 * steps // 10], 4),
        }
        _append(output, FIELDS, row)
        print(f"{engine['name']} {batch}x{context}: {row['step_ms']} ms", flush=True)
    for tokens in engine.get("prompts", []):
        seconds = [_first_token(started, tokens, vocabulary) for _ in range(PROMPT_REPEATS)]
        row = about | {
            "prompt_tokens": tokens,
            "ttft_ms": round(1e3 * statistics.median(seconds), 4),
        }
        _append(output.with_suffix(".prompts.csv"), PROMPT_FIELDS, row)
        print(f"{engine['name']} prompt of {tokens}: {row['ttft_ms']} ms", flush=True)
    for batch, tokens in engine.get("beside", []):
        step, added = _beside(started, engine, batch, tokens, vocabulary)
        row = about | {"batch": batch, "prompt_tokens": tokens, "context": BESIDE_CONTEXT}
        row |= {"step_ms": round(1e3 * step, 4), "added_ms": round(1e3 * added, 4)}
        _append(output.with_suffix(".beside.csv"), BESIDE_FIELDS, row)
        print(f"{engine['name']} {tokens} beside {batch}: {row['added_ms']} ms", flush=True)
    for load in engine.get("loads", []):
        for row in _load(started, load, vocabulary):
            _append(output.with_suffix(".requests.csv"), REQUEST_FIELDS, about | row)
        print(f"{engine['name']} at {load['rate']} requests/s", flush=True)


def _arguments(engine: dict[str, Any], configs: Path) -> dict[str, Any]:
    """Return the engine's arguments; graphs of exactly the sizes that its steps have."""
    length, limit = engine.get("draft_length", 0), engine.get("limit")
    found: dict[str, Any] = {
        "model": str(configs / engine["model"]),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "enable_prefix_caching": False,
        "max_model_len": 8192,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 256,
        "gpu_memory_utilization": 0.92,
        "generation_config": "vllm",
        "seed": 0,
    }
    if length:
        found["speculative_config"] = {
            "method": engine["method"],
            "num_speculative_tokens": length,
            **({"model": str(configs / engine["draft"])} if engine.get("draft") else {}),
            **({"prompt_lookup_max": 3} if engine["method"] == "ngram" else {}),
        }
        if accepted := engine.get("tokens_per_step"):
            found["speculative_config"] |= {
                "rejection_sample_method": "synthetic",
                "synthetic_acceptance_length": accepted,
            }
    if limit == 0:
        found["enforce_eager"] = True
    else:
        most = limit or 512
        sizes = {batch * tokens for batch in engine["batches"] for tokens in (1, length + 1)}
        captured = sorted(size for size in sizes | {most} if size <= most)
        found["compilation_config"] = {"cudagraph_capture_sizes": captured}
    more: dict[str, Any] = engine.get("arguments", {})
    return found | more


def _steps(
    started: Any, engine: dict[str, Any], batch: int, context: int, vocabulary: int
) -> tuple[list[float], list[int]]:
    """Return times of steps in which all requests decode [s], and the tokens each made."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    length = engine.get("draft_length", 0)
    sampling = SamplingParams(
        temperature=engine.get("temperature", 1.0),
        max_tokens=(STEPS + 3 * WARM) * (length + 1),
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )
    names = [f"{context}-{batch}-{place}" for place in range(batch)]
    for name in names:
        prompt = {"prompt_token_ids": _prompt(context, vocabulary)}
        started.add_request(name, prompt, sampling)
    made, marks, ready = dict.fromkeys(names, 0), list[tuple[float, int]](), 0
    while started.has_unfinished_requests() and len(marks) <= STEPS:
        outputs, now = started.step(), time.perf_counter()
        new = {each.request_id: len(each.outputs[0].token_ids) for each in outputs}
        for name, tokens in new.items():
            made[name] += tokens
        if any(each.finished for each in outputs):
            break
        if len(new) == batch and min(made.values()) > 0:
            ready += 1
            if ready > WARM:
                marks.append((now, sum(new.values())))
    started.abort_request(names)
    while started.has_unfinished_requests():
        started.step()
    pairs = list(itertools.pairwise(marks))
    return [later[0] - first[0] for first, later in pairs], [later[1] for _, later in pairs]


def _first_token(started: Any, tokens: int, vocabulary: int) -> float:
    """Return the time of a prompt to its first token on an idle engine [s]."""
    from vllm import SamplingParams

    prompt, begun = _prompt(tokens, vocabulary), time.perf_counter()
    sampling = SamplingParams(max_tokens=1, ignore_eos=True, detokenize=False)
    started.add_request(f"prompt-{begun}", {"prompt_token_ids": prompt}, sampling)
    while started.has_unfinished_requests():
        started.step()
    return time.perf_counter() - begun


def _beside(
    started: Any, engine: dict[str, Any], batch: int, tokens: int, vocabulary: int
) -> tuple[float, float]:
    """Return a step's seconds while a batch decodes, and what a prompt in it adds [s]."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    length = engine.get("draft_length", 0)
    shared = {"ignore_eos": True, "detokenize": False, "output_kind": RequestOutputKind.DELTA}
    steps = (BESIDE_REPEATS + 8) * BESIDE_STEPS
    sampling = SamplingParams(max_tokens=steps * (length + 1), **shared)
    names = [f"beside-{batch}-{tokens}-{place}" for place in range(batch)]
    for name in names:
        prompt = {"prompt_token_ids": _prompt(BESIDE_CONTEXT, vocabulary)}
        started.add_request(name, prompt, sampling)
    marks, sent, seen = list[float](), 0, set[str]()
    while started.has_unfinished_requests() and len(marks) < steps - 2 * BESIDE_STEPS:
        outputs, now = started.step(), time.perf_counter()
        seen |= {each.request_id for each in outputs}
        if len(seen & set(names)) < batch or not outputs:
            continue
        marks.append(now)
        place = len(marks) - 5 * BESIDE_STEPS
        if place >= 0 and place % BESIDE_STEPS == 0 and sent < BESIDE_REPEATS:
            prompt = {"prompt_token_ids": _prompt(tokens, vocabulary)}
            once = SamplingParams(max_tokens=1, **shared)
            started.add_request(f"beside-{batch}-{tokens}-prompt-{sent}", prompt, once)
            sent += 1
    started.abort_request(names)
    while started.has_unfinished_requests():
        started.step()
    between = [later - first for first, later in itertools.pairwise(marks)]
    plain = statistics.median(between[BESIDE_STEPS : 5 * BESIDE_STEPS - 2])
    windows = [
        between[start : start + BESIDE_STEPS]
        for start in range(5 * BESIDE_STEPS, len(between), BESIDE_STEPS)
    ][:sent]
    added = [sum(window) - len(window) * plain for window in windows]
    return plain, statistics.median(added[1:])


def _load(started: Any, load: dict[str, Any], vocabulary: int) -> list[dict[str, Any]]:
    """Return requests that came at random, when they had their first and last tokens [s]."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    draw = random.Random(load.get("seed", 1))
    rows, at = list[dict[str, Any]](), 0.0
    for number in range(load["requests"]):
        at += draw.expovariate(load["rate"]) if load["rate"] else 0.0
        lengths = [
            round(draw.uniform(1 - SPREAD, 1 + SPREAD) * load[name])
            for name in ("prompt", "output")
        ]
        if sigma := load.get("sigma"):
            factor = draw.lognormvariate(-(sigma**2) / 2, sigma)
            lengths[1] = max(1, min(round(factor * load["output"]), MOST_OUTPUT))
        rows.append(
            {"request_rate": load["rate"], "seed": load.get("seed", 1), "repeat": 0}
            | {"number": number, "arrival_time": at, "events": 0}
            | {"prompt_tokens": lengths[0], "output_tokens": lengths[1]}
        )
    prompts = [_prompt(row["prompt_tokens"], vocabulary) for row in rows]
    begun, sent = time.perf_counter(), 0
    while sent < len(rows) or started.has_unfinished_requests():
        while sent < len(rows) and rows[sent]["arrival_time"] <= time.perf_counter() - begun:
            sampling = SamplingParams(
                max_tokens=rows[sent]["output_tokens"],
                ignore_eos=True,
                detokenize=False,
                output_kind=RequestOutputKind.DELTA,
            )
            name = f"{load['rate']}-{load.get('seed', 1)}-{sent}"
            started.add_request(name, {"prompt_token_ids": prompts[sent]}, sampling)
            sent += 1
        if not started.has_unfinished_requests():
            time.sleep(1e-4)
            continue
        outputs, now = started.step(), time.perf_counter() - begun
        for each in outputs:
            row = rows[int(each.request_id.rpartition("-")[2])]
            if each.outputs[0].token_ids:
                row["events"] += 1
                row["last_token"] = round(now, 6)
                row.setdefault("first_token", row["last_token"])
    return rows


def _prompt(tokens: int, vocabulary: int) -> list[int]:
    return [random.randrange(10, vocabulary - 10) for _ in range(tokens)]


def _draft_at_random() -> None:
    """Have vLLM's look-up on the host draft random tokens for every request."""
    from vllm.v1.spec_decode.ngram_proposer import NgramProposer

    def propose(self: Any, length: int, sampled: list[list[int]], *_: Any, **__: Any) -> Any:
        most = self.vocabulary - 10
        return [[random.randrange(10, most) for _ in range(length)] if s else [] for s in sampled]

    start = NgramProposer.__init__

    def begin(self: Any, config: Any, *more: Any, **others: Any) -> None:
        self.vocabulary = config.model_config.get_vocab_size()  # drafts are drawn at once
        start(self, config, *more, **others)

    NgramProposer.__init__, NgramProposer.propose = begin, propose


def _append(path: Path, fields: Sequence[str], row: dict[str, Any]) -> None:
    """Add a row to a table, with its head if it is new."""
    is_new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fields)
        if is_new:
            writer.writeheader()
        writer.writerow({name: row[name] for name in fields})


if __name__ == "__main__":
    main()
