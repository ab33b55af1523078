"""Time vLLM's FlashAttention 3 on this GPU, with one and with several query tokens.

Usage: python calibration/gpu_attention.py OUT.csv

Needs vLLM (0.24 was run) and a Hopper GPU. A row is the attention of one layer in a decode step, in
the form in which vLLM launches it in a CUDA graph: keys in pages of 16, at most 32 splits, a
schedule made before. Rows with `plan` 0 have no schedule, like the passes of drafters
(`build_for_drafting`). Each graph contains CALLS calls. If caches are small, the calls use
different caches, so that keys come from memory. A time is the median of REPEATS.
"""

import csv
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from vllm.vllm_flash_attn import flash_attn_varlen_func, get_scheduler_metadata

PAGE, SPLITS = 16, 32
CALLS, REPEATS = 8, 15
HEADS = ((32, 4), (64, 8), (32, 8), (16, 2), (8, 1), (28, 4), (32, 32))
"""Heads of queries and of keys: Qwen3-30B, Qwen3-32B, Mixtral; fewer points of a half and an
eighth of these, of Qwen2-57B and of as many keys as queries."""
POINTS = (
    *((batch, 256) for batch in (1, 8, 64, 256)),
    *((batch, 1024) for batch in (1, 8, 32, 128)),
    *((batch, 4096) for batch in (1, 4, 16, 64)),
    *((batch, 16384) for batch in (1, 8, 16)),
    *((batch, 32000) for batch in (1, 4, 8)),
    (1, 131072),
    (4, 131072),
)
QUERIES = (1, 2, 3, 4, 6, 8, 16)
FIELDS = ("num_heads", "num_kv_heads", "head_dim", "batch", "query_tokens", "context", "plan", "us")
MOST_BYTES, L2_BYTES = 20e9, 2e8
"""Largest cache, and size above which the L2 cache keeps nothing between two calls."""


def main() -> None:
    """Write a row for each shape as it is measured."""
    memory = torch.empty(int(MOST_BYTES / 2), device="cuda", dtype=torch.bfloat16).normal_()
    with Path(sys.argv[1]).open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, FIELDS)
        writer.writeheader()
        for row in rows(memory):
            writer.writerow(row)
            stream.flush()


def rows(memory: torch.Tensor) -> Iterator[dict[str, float]]:
    """Give rows of all shapes that fit."""
    for num_heads, num_kv_heads in HEADS:
        few = (num_heads, num_kv_heads) not in HEADS[:3]
        for batch, context in POINTS:
            if few and context not in (1024, 16384):
                continue
            for queries in QUERIES[::2] if few else QUERIES:
                for planned in (1, 0) if queries in (1, 4) else (1,):
                    shape = {
                        "num_heads": num_heads,
                        "num_kv_heads": num_kv_heads,
                        "head_dim": 128,
                        "batch": batch,
                        "query_tokens": queries,
                        "context": context,
                    }
                    if (seconds := time_of(shape, bool(planned), memory)) is not None:
                        yield shape | {"plan": planned, "us": round(1e6 * seconds, 3)}


def time_of(shape: dict[str, int], planned: bool, memory: torch.Tensor) -> float | None:
    """Return the seconds of a call, None where its caches do not fit."""
    batch, queries = shape["batch"], shape["query_tokens"]
    pages = -(-shape["context"] // PAGE)
    one = 2 * batch * pages * PAGE * shape["num_kv_heads"] * shape["head_dim"]
    if one > len(memory):
        return None
    copies = int(min(CALLS, max(1, L2_BYTES // one), len(memory) // one))
    sizes = (copies, 2, batch * pages, PAGE, shape["num_kv_heads"], shape["head_dim"])
    caches = memory[: copies * one].view(sizes)
    kind: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}
    query = torch.randn(batch * queries, shape["num_heads"], shape["head_dim"], **kind)
    out = torch.empty_like(query)
    whole: dict[str, Any] = {"device": "cuda", "dtype": torch.int32}
    table = torch.randperm(batch * pages, device="cuda").to(torch.int32).view(batch, pages)
    starts = torch.arange(0, (batch + 1) * queries, queries, **whole)
    used = torch.full((batch,), shape["context"], **whole)
    plan = None
    if planned:
        plan = get_scheduler_metadata(
            batch_size=batch,
            max_seqlen_q=queries,
            max_seqlen_k=shape["context"],
            num_heads_q=shape["num_heads"],
            num_heads_kv=shape["num_kv_heads"],
            headdim=shape["head_dim"],
            cache_seqlens=used,
            qkv_dtype=torch.bfloat16,
            cu_seqlens_q=starts,
            page_size=PAGE,
            causal=True,
            num_splits=SPLITS,
        )

    def call(number: int) -> None:
        flash_attn_varlen_func(
            q=query,
            k=caches[number % copies, 0],
            v=caches[number % copies, 1],
            out=out,
            cu_seqlens_q=starts,
            max_seqlen_q=queries,
            seqused_k=used,
            max_seqlen_k=shape["context"],
            causal=True,
            block_table=table,
            scheduler_metadata=plan,
            fa_version=3,
            num_splits=SPLITS if planned else 0,
        )

    return _graph_time(call)


def _graph_time(call: Callable[[int], None]) -> float:
    for number in range(2):
        call(number)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(CALLS):
            call(number)
    times = list[float]()
    for _ in range(REPEATS):
        # torch gives the type of an event, and not of how it is made
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e-3 / CALLS)
    return statistics.median(times)


if __name__ == "__main__":
    main()
