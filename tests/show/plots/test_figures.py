"""Files of figures: nothing cut off, no text over another or too small, nothing global touched."""

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd
import pytest
from rows import slow

pytest.importorskip("matplotlib")

import matplotlib as mpl
from matplotlib.figure import Figure
from texts import unreadable, written

from specmodel import deploy, predict
from specmodel.answers import break_even, compare, explain, pass_components
from specmodel.answers.curves import measured_unions
from specmodel.answers.sensitivity import OperatingPoint, sobol, tornado, uncertain_ranges
from specmodel.cli.plot import LEAST_WIDTH
from specmodel.show.plots import KINDS
from specmodel.show.plots.figures import (
    COLUMN_WIDTH,
    FONT_SIZE,
    TWO_COLUMNS,
    draw_figure,
    save_figure,
)

LONG = "Qwen3-Coder-480B-A35B-Instruct-FP8 with a drafter of its own"
SIZES = {
    "one": [7],
    "two": [3, 100],
    "neighbours": list(range(33, 41)),
    "few": [1, 3, 8],
    "sixteen": list(range(1000, 1016)),
    "octaves": [2.0**i for i in range(10)],
    "many": list(range(1, 513)),
    "huge": [1, 1000, 123456, 10**9],
    "huge and near": [999_000_000, 10**9],
}


def deployment(**changes):
    settings = {"target": "qwen3-30b-a3b", "hardware": "h200_sxm", "drafter": "eagle3"}
    return settings | changes


def points(sizes, lengths, **changes):
    lengths = np.reshape(lengths, (-1, 1))
    where = deployment(**changes)
    return predict(**where, batch_size=sizes, draft_length=lengths, acceptance=0.7, engine="sglang")


def curve(sizes, names, quantity="speedup"):
    """Lines of any name, some of which do not fit."""
    table = pd.DataFrame([(n, b) for n in names for b in sizes], columns=["target", "batch_size"])
    table[quantity] = 1 + np.sin(np.arange(len(table))) / 3
    table[f"{quantity}_low"], table[f"{quantity}_high"] = table[quantity] - 0.1, table[quantity] + 1
    return table.assign(max_batch_size=float(np.median(sizes)))


def summary(names):
    ends = {"speedup_low": 0.8, "speedup_high": 1.4}
    return pd.DataFrame({"policy": names, "speedup": np.linspace(0.9, 1.3, len(names))} | ends)


def swings(names):
    table = pd.DataFrame({"input": names, "low": 1.23456e-6, "high": 9.87654e12})
    swing = np.linspace(1, 0.01, len(names))
    for name in ("speedup", "target_efficiency"):
        table[f"{name}_at_low"], table[f"{name}_at_high"] = 1 - swing, 1 + swing / 2
        table[f"{name}_nominal"] = 1.0
    return table


def shares(names):
    table = pd.DataFrame({"input": names, "output": "speedup"})
    for name in ("first_order", "total"):
        table[name], table[f"{name}_low"], table[f"{name}_high"] = 0.3, -0.1, 0.5
    return table


def steps(count):
    phases = np.resize(["baseline", "test", "test", "set"], count)
    utility = np.where(phases == "test", np.linspace(0.5, 3, count), np.nan)
    emitted = 1 + np.arange(count) % 4
    columns = {"draft_length": 3, "emitted_tokens": emitted, "phase": phases}
    return pd.DataFrame(columns | {"utility": utility, "window_utility": 1.1})


def timings(kinds, low, high):
    times = np.geomspace(low, high, 20)
    parts = [{"component": kind, "latency": times, "predicted": 1.05 * times} for kind in kinds]
    return pd.concat(map(pd.DataFrame, parts))


def loop(sizes, lengths):
    table = pd.DataFrame(
        [(b, n) for n in lengths for b in sizes], columns=["batch_size", "draft_length"]
    )
    return table.assign(measured=0.7, predicted=0.8, spread=0.1)


def at_a_point(analysis):
    where, _ = deploy(**deployment())
    point = OperatingPoint(batch_size=16, draft_length=3, acceptance=0.7)
    ranges = uncertain_ranges(where, point)
    extra = {"samples": 64, "generator": np.random.default_rng(0)} if analysis is sobol else {}
    return analysis(where, point, ranges, **extra)


def best(sizes, contexts):
    context = np.reshape(contexts, (-1, 1))
    found = predict(**deployment(), batch_size=sizes, context_length=context, acceptance=0.7)
    return compare({"": found})


def needed(sizes, lengths, contexts=(1024,)):
    found = predict(
        **deployment(),
        batch_size=sizes,
        draft_length=np.reshape(lengths, (-1, 1)),
        context_length=np.reshape(contexts, (-1, 1, 1)),
        acceptance=0.7,
    )
    return break_even(found)


def long_names() -> pd.DataFrame:
    return measured_unions().assign(model=lambda table: LONG + table["model"])


def carried(policies: list[str], rates: list[float]) -> pd.DataFrame:
    """What a search of capacities tries, the first policy carrying nothing."""
    rows = [
        {
            "policy": name,
            "request_rate": rate,
            "tpot_p90": 0.01 + rate / 1000,
            "ttft_p90": 0.1 * (1 + rate),
            "goodput": 1 / (1 + rate),
            "capacity": 4.0 * i,
            "predicted_low": 3.0 * i or None,
            "predicted_high": 5.5 * i or None,
            "simulated_low": 3.9 * i,
            "simulated_high": 4.1 * i,
        }
        for i, name in enumerate(policies)
        for rate in rates
    ]
    return pd.DataFrame(rows).astype({"predicted_low": float, "predicted_high": float})


def drained(policies: list[str], sizes: list[int]) -> pd.DataFrame:
    """What is found of drains in which more and more run, in ever less of the time."""
    rows = [
        {"policy": name, "makespan": 10.0 + i}
        | {f"share_at_{size}": 1 / len(sizes) for size in sizes}
        | {f"last_at_{size}": (10.0 + i) / size for size in sizes}
        for i, name in enumerate(policies)
    ]
    return pd.DataFrame(rows)


def parts_of_passes(sizes: list[int], changes: dict[str, object]) -> pd.DataFrame:
    return pass_components(points(sizes, [3], **changes))


def fronts(sizes) -> pd.DataFrame:
    table = pd.DataFrame({"batch_size": sizes, "tpot": [5e-3 + n * 1e-4 for n in sizes]})
    rate = table["batch_size"] / table["tpot"]
    return table.assign(forward_time=2 * table["tpot"], throughput=rate, tpot_target=0.02)


def cases() -> Iterator[tuple[str, str, object]]:
    for name, sizes in SIZES.items():
        yield "speedup", f"{name} sizes", lambda s=sizes: curve(s, ["a"])
        yield "best_draft_length", f"{name} sizes", lambda s=sizes: best(s, [512, 131072])
        yield "break_even", f"{name} sizes", lambda s=sizes: needed(s, [1, 4])
        if len(sizes) <= 6:
            yield "components", f"{name} sizes", lambda s=sizes: pass_components(points(s, [3]))
    for name in ("few", "huge"):  # the axis is that of the speedup
        sizes = SIZES[name]
        efficiency = partial(curve, sizes, ["a"], "target_efficiency")
        yield "target_efficiency", f"{name} sizes", efficiency
        yield "closed_loop", f"{name} sizes", lambda s=sizes: loop(s, [1, 4])
    six = [f"{LONG} {i}" for i in range(6)]
    yield "speedup", "six long names", lambda: curve([1, 2, 4], six)
    yield "speedup", "six short names", lambda: curve([1, 2, 4], list("abcdef"))
    odd = ["_hidden", "a$b$", "$", "two\nlines", "x" * 99, "", "#"]
    yield "speedup", "odd names", lambda: curve([1, 2, 4], odd[:6])
    many = {f"hardware.memory.{name}": name for name in ("peak_bytes_per_s", "capacity_bytes")}
    yield (
        "speedup",
        "long titles",
        lambda: curve([1, 2], ["a", "b"]).rename(columns={"target": "".join(many)}),
    )
    yield "policies", "odd names", lambda: summary(odd)
    yield "speedup", "predicted", lambda: points([1, 8, 64], [1, 3, 5]).to_frame()
    yield "active_experts", "published", measured_unions
    yield "active_experts", "long names", long_names
    yield "best_draft_length", "one cell", lambda: best([4], [1024])
    yield "best_draft_length", "many contexts", lambda: best([1, 16], range(100, 4000, 100))
    yield "break_even", "the default", lambda: needed([2**i for i in range(10)], range(1, 9))
    yield "break_even", "by context", lambda: needed([1, 64], 3, [512, 4096, 131072])
    for name, changes in {
        "dense": {"target": "llama-3.1-8b"},
        "shared": {"target": "deepseek-v3", "drafter": "mtp", "tensor_parallel": 8},
        "data sheet": {"stack": "datasheet", "drafter": "ngram"},
    }.items():
        yield "roofline", name, partial(parts_of_passes, [16], changes)
        yield "components", name, partial(parts_of_passes, [1, 2, 4, 8, 16, 512], changes)
    yield "waterfalls", "one point", lambda: explain(points([16], [3])).to_frame()
    yield "waterfalls", "four points", lambda: explain(points([1, 100000], [3, 10])).to_frame()
    names = [f"kernels.experts.bf16.activation_efficiency_{i}" for i in range(30)]
    yield "tornado", "real", lambda: at_a_point(tornado)
    yield "tornado", "one", lambda: swings(["a"])
    yield "tornado", "long names", lambda: swings(names)
    yield "tornado", "no marks", lambda: swings(["x" * 200])
    yield "sobol", "real", lambda: at_a_point(sobol)
    yield "sobol", "one", lambda: shares(["a"])
    yield "sobol", "long names", lambda: shares(names)
    yield "policies", "one", lambda: summary(["cascade"])
    yield "policies", "few", lambda: summary(["none", "fixed:1", "oracle"])
    yield (
        "policies",
        "long names",
        lambda: summary([f"my_module:MyPolicy:{i}{LONG}" for i in range(24)]),
    )
    yield "timeline", "one step", lambda: steps(1)
    yield "timeline", "long", lambda: steps(100)
    kinds = ("attention", "elementwise", "experts", "gemm")
    yield "predicted_against_measured", "narrow", lambda: timings(kinds, 1.1e-5, 1.3e-5)
    yield "predicted_against_measured", "wide", lambda: timings(kinds, 1e-7, 10)
    yield "predicted_against_measured", "long names", lambda: timings([LONG], 1e-5, 3e-4)
    for name, policies, rates in (
        ("one", ["none"], [1.5]),
        ("few", ["none", "fixed:3", "sglang"], [0.8, 1, 1.25, 13.2]),
        ("long names", [f"table:{i}{LONG}" for i in range(6)], [0.001, 1000]),
    ):
        yield "load", name, partial(carried, policies, rates)
        yield "capacity", name, partial(carried, policies, rates)
        yield "drain", name, partial(drained, policies, [2**n for n in range(3 * len(policies))])
    yield from (("pareto", f"{len(n)} sizes", partial(fronts, n)) for n in ([1], [1, 8, 64, 512]))
    yield "closed_loop", "six lengths", lambda: loop([1, 3, 8], range(1, 7))


CASES = list(cases())


LAST = list({case[0]: case for case in CASES}.values())
DRAWN = [
    *((*case, COLUMN_WIDTH) for case in CASES),
    *((*case, width) for case in LAST for width in (LEAST_WIDTH, TWO_COLUMNS)),
]


@pytest.mark.parametrize("start", slow(0, 1, 2))
def test_every_text_can_be_read(start) -> None:
    for kind, name, table, width in DRAWN[start::3]:
        check_texts(f"{kind} of {name}, {width} inches", kind, table(), width)


def check_texts(told, kind, table, width) -> None:
    with mpl.rc_context({"font.size": FONT_SIZE}):
        figure = draw_figure(kind, table, width=width)
        texts = written(figure)
    assert len(texts) > 3, told
    for text in texts:
        assert text.get_fontsize() >= 6, (told, text)
        assert "$" not in text.get_text().replace(r"\$", ""), "exponents are smaller than the text"
    assert unreadable(figure) == [], told
    axes = [ax for ax in figure.axes if ax.get_xlabel() or ax.get_ylabel()]
    assert all(min(ax.bbox.width, ax.bbox.height) / figure.dpi > 0.7 for ax in axes), told


def test_every_kind_is_tried() -> None:
    assert {kind for kind, _, _ in CASES} == set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_nothing_global_is_touched(suffix, tmp_path) -> None:
    before = dict(mpl.rcParams)
    save_figure("speedup", curve([1, 2], ["a"]), str(tmp_path / f"a{suffix}"), width=4.5)
    assert dict(mpl.rcParams) == before
    assert (tmp_path / f"a{suffix}").stat().st_size > 1000


def test_files_hold_text_and_no_type_3_fonts(tmp_path) -> None:
    for suffix in (".pdf", ".svg"):
        save_figure("speedup", curve([1, 2], ["a"]), str(tmp_path / f"a{suffix}"))
    pdf, svg = ((tmp_path / f"a{suffix}").read_bytes() for suffix in (".pdf", ".svg"))
    assert b"/CIDFontType2" in pdf
    assert b"/Type3" not in pdf
    assert re.search(rb"<text[^>]*>batch size \(requests\)</text>", svg)


def test_a_title_says_what_all_rows_share_and_can_be_left_out() -> None:
    table = explain(points([16], [3])).to_frame().assign(case="a on b")
    told = "a on b\nbatch size 16, draft length 3, context length 1024"
    assert draw_figure("waterfalls", table).get_suptitle() == told
    assert draw_figure("waterfalls", table, has_title=False).get_suptitle() == ""
    several = explain(points([16, 32], [3])).to_frame()
    assert draw_figure("waterfalls", several).get_suptitle().startswith("draft length 3")


def test_drawing_needs_no_pyplot_and_importing_no_matplotlib() -> None:
    code = """if True:
        import sys, specmodel.show.plots, specmodel.show.plots.figures
        print("matplotlib" in sys.modules)
        from specmodel.answers.curves import measured_unions
        specmodel.show.plots.figures.draw_figure("active_experts", measured_unions())
        print("matplotlib.pyplot" in sys.modules)
    """
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("width", [LEAST_WIDTH, 3.3, 7.0])
def test_a_figure_is_as_wide_as_asked(width) -> None:
    figure = draw_figure("active_experts", measured_unions(), width=width)
    assert isinstance(figure, Figure)
    assert figure.get_figwidth() == width
