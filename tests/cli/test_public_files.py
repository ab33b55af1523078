"""Files of other engines and benches at the two commands that read them, as people have them."""

import json
import re
from pathlib import Path

import pytest
from printed import in_one_line
from rows import cases

FILES = Path(__file__).parents[1] / "data" / "benchmarks" / "public"
WHERE = "--target llama-3.1-8b --hardware h200 --drafter eagle3"


@pytest.fixture
def text(tmp_path):
    """Write a text, and return its path."""

    def write(content, name="mine.log"):
        path = tmp_path / name
        path.write_text(content)
        return path

    return write


def lines_of_atom(*counts):
    """The line of ROCm/ATOM's PR 560 for all drafts so far, each by (drafts accepted 0, 1, ...)."""
    made = []
    for drafts in counts:
        steps, longest = sum(drafts), len(drafts) - 1
        accepted = sum(i * n for i, n in enumerate(drafts))
        shares = ", ".join(f"{i}: '{100 * n / steps:.2f}%'" for i, n in enumerate(drafts))
        rate = f"{100 * accepted / steps / longest:.2f}%"
        made.append(
            f"[atom 09:12:31] [MTP Stats         ] Average toks/fwd: {1 + accepted / steps:.2f},"
            f" Accepted/Total Draft tokens: {accepted}/{steps * longest}, Acceptance rate:"
            f" {rate}, Accepted tokens distribution: {{{shares}}}\n"
        )
    return "".join(made)


@cases(
    "counts tokens length",
    ([(290, 710)], 1.71, 1),
    ([(500, 500), (2900, 7100)], 1.71, 1),
    ([(25, 20, 25, 30)], 2.6, 3),
    ([(400, 300, 300)], 1.9, 2),
)
def test_the_last_total_of_atom_counts_and_fit_engine_says_what_it_lacks(
    counts, tokens, length, text, document, refuse
):
    path = text(lines_of_atom(*counts))
    found = document(f"acceptance {path}")
    assert (found["engine"], found["num_lines"], found["draft_length"]) == ("ATOM", 1, length)
    assert found["tokens_per_step"] == pytest.approx(tokens, abs=0.005)
    told = f"specmodel acceptance {path} reads its acceptance.\n"
    refuse(f"fit engine {path} {WHERE}", told)


GOLDEN = {
    "minimax": ("model: minimax-m3\nthinking_on: {1: 1.72, 2: 2.30, 3: 2.78, 5: 3.35}\n", 3.35),
    "nested": ("deepseek-v4-pro:\n  thinking_on:\n    1: 1.8\n    2: 2.5\n    3: 3.0\n", 3.0),
    "inline": ("qwen3.5-397b: {thinking_off: {1: 1.9, 3: 3.1}}\n", 3.1),
    "comments": (
        "# golden\nmodel: glm-5\nmethod: mtp\nthinking_on: {1: 1.85, 2: 2.4} # MTP\n",
        2.4,
    ),
}


@cases("kind", *GOLDEN)
def test_golden_lengths_are_rates_for_all_lengths(kind, text, document, refuse):
    content, longest = GOLDEN[kind]
    path = text(content, "golden.yaml")
    rows = document(f"acceptance {path}")["rows"]
    assert rows[-1]["tokens_per_step"] == longest
    assert rows[-1]["by_rates"] == pytest.approx(longest, rel=0.01)
    refuse(f"fit engine {path} {WHERE}", "reads its acceptance")


@cases(
    "name tokens length",
    ("flat_offline.json", 3.507, 3),
    ("trtllm_bench_mtp.json", 3.04, 3),
    ("trtllm_iterations.jsonl", 1 + 70 / 40, 3),
    ("sglang_batches.md", 2.5, None),
    ("spec_bench.md", 3.446, 3),
    ("evalscope.json", 2.0, None),
)
def test_acceptance_reads_what_a_file_tells_of_drafts(name, tokens, length, document):
    found = document(f"acceptance {FILES / name}")
    (run,) = found.get("runs", [found])
    assert run["tokens_per_step"] == pytest.approx(tokens, rel=1e-3)
    assert run["draft_length"] == length


@cases(
    "name",
    *("aiperf.csv", "genai_perf.csv", "trtllm_bench.json", "evalscope_1.json"),
    *("inferencex_mi355x.json", "inferencex_b200.json", "batched_bench.md", "sweep_bench.md"),
)
def test_acceptance_says_that_plain_runs_have_none(name, refuse):
    refuse(f"acceptance {FILES / name}", "expected a run with counts of drafts")


BOX = """
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━┓
┃ Metric                                     ┃ Value ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━┩
│ {0:42} │ {1:>5} │
└────────────────────────────────────────────┴───────┘
"""
GRID = """
+--------------------------------------------+-------+
| Metric                                     | Value |
+============================================+=======+
| {0:42} | {1:>5} |
+--------------------------------------------+-------+
"""


@cases("form", BOX, GRID, BOX.replace("│", "║").replace("┃", "║"))
@cases(
    "name",
    "Mean acceptance length (incl. bonus token)",
    "Mean acceptance length",
    "Acc Length",
    "Decoded Tok/Iter",
)
def test_tables_that_are_drawn_are_read(form, name, text, document):
    path = text(form.format(name, "2.62"), "table.txt")
    assert document(f"acceptance {path}")["tokens_per_step"] == 2.62


def fitted(page):
    """Measured and fitted times of a page's runs [ms]."""
    pairs = re.findall(r"([\d.]+)ms +[\d.]+ -> ([\d.]+)ms", page)
    return [tuple(map(float, each)) for each in pairs]


@cases(
    "name where milliseconds started",
    ("flat_offline.json", "--target deepseek-v4-pro --hardware 8xb300 --drafter mtp", [9.16],
     "TensorRT-LLM"),
    ("flat_offline.json", "--drafter mtp", [9.16], "TensorRT-LLM"),
    ("inferencex_b200.json", "", [8.59, 17.6], "SGLang"),
    ("inferencex_mi355x.json", "--target gpt-oss-120b --hardware 8xmi355x --engine vllm",
     [3.46, 4.21], "vLLM"),
    ("printed_vllm.txt", "--target qwen3-30b-a3b --hardware h200", [10.8], "vLLM"),
    ("batched_bench.md", "--target qwen3-8b --weight-dtype q8_0 --hardware m2_ultra",
     [12.7, 14.7, 17.8, 20.5], "llama.cpp"),
)  # fmt: skip
def test_fit_engine_fits_what_files_tell(name, where, milliseconds, started, run, tmp_path):
    command = f"fit engine {FILES / name} {where} --force --output {tmp_path / 'mine.toml'}"
    page = run(command)
    joined = in_one_line(page)
    assert f"Engine profile before the fit: {started}" in joined
    found = fitted(page)
    assert [measured for measured, _ in found] == pytest.approx(milliseconds, rel=0.01)
    for measured, now in found:
        assert now == pytest.approx(measured, rel=0.6)
    printed = joined[joined.index("specmodel predict") :].replace("\\", "")
    (tmp_path / "mine.toml").rename(tmp_path / "own.toml")
    typed = printed.removeprefix("specmodel ").replace("mine.toml", "own.toml")
    rows = json.loads(run(f"{typed} --batch-size 16 --json --force"))
    assert rows["rows" if "rows" in rows else "deployment"]


def test_a_row_that_drafts_says_what_is_assumed_and_what_it_lacks(run):
    page = in_one_line(run(f"fit engine {FILES / 'flat_offline.json'} --drafter mtp"))
    assert (
        "has no draft length: 3 is assumed, the shortest that gives 3.507 tokens per step" in page
    )
    assert "no run without speculation" in page
    assert "8 x NVIDIA B300 (tensor parallel 1, data parallel 8, expert parallel 8)" in page
    other = run(f"fit engine {FILES / 'flat_offline.json'} --drafter mtp --draft-length 4")
    assert "is assumed" not in in_one_line(other)


@cases(
    "typed told",
    ("--tensor-parallel 8", "--tensor-parallel: got 8; expected 1, as in these files"),
    ("--hardware 4xb300", "--hardware: got '4 GPUs'; expected 8, as in"),
    ("--hardware h200", "--hardware: got 'h200_sxm'; expected b300, as in"),
    ("--target gpt-oss-120b", "To use this one, give deepseek-v4-pro as the target"),
    ("--engine ideal", "--engine: got 'ideal'"),
)
def test_what_is_typed_must_be_what_the_row_tells(typed, told, refuse):
    refuse(f"fit engine {FILES / 'flat_offline.json'} --drafter mtp {typed}", told)


def test_an_engine_that_does_not_ship_is_named(refuse):
    where = "--target gpt-oss-120b --hardware 8xmi355x"
    told = ("--engine: got 'atom'. No such profile is shipped.", "specmodel list engines")
    refuse(f"fit engine {FILES / 'inferencex_mi355x.json'} {where}", *told)
