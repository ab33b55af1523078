"""Files of figures: nothing cut off, no text over another or too small, nothing global touched."""

import os
import re
import subprocess
import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest
from rows import slow

pytest.importorskip("matplotlib")

import matplotlib as mpl
from texts import unreadable, written

from specmodel import predict
from specmodel.cli.plot import LEAST_WIDTH
from specmodel.plan import compare, explain, pass_components
from specmodel.plan.curves import measured_unions
from specmodel.show.plots.figures import (
    COLUMN_WIDTH,
    FONT_SIZE,
    TWO_COLUMNS,
    draw_figure,
    save_figure,
)

LONG = "Qwen3-Coder-480B-A35B-Instruct-FP8 with a drafter of its own"
SIZES = {
    "one": [7], "neighbours": list(range(33, 41)), "sixteen": list(range(1000, 1016)),
    "many": list(range(1, 513)), "huge and near": [1, 999_000_000, 10**9],
}  # fmt: skip


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


def best(sizes, contexts):
    context = np.reshape(contexts, (-1, 1))
    found = predict(**deployment(), batch_size=sizes, context_length=context, acceptance=0.7)
    return compare({"": found})


def carried(policies, rates):
    """What a search of capacities tries, the first policy carrying nothing."""
    rows = [
        {
            "policy": name, "request_rate": rate, "tpot_p90": 0.01 + rate / 1000,
            "ttft_p90": 0.1 * (1 + rate), "goodput": 1 / (1 + rate), "capacity": 4.0 * i,
            "predicted_low": 3.0 * i or None, "predicted_high": 5.5 * i or None,
            "simulated_low": 3.9 * i, "simulated_high": 4.1 * i,
        }
        for i, name in enumerate(policies)
        for rate in rates
    ]  # fmt: skip
    return pd.DataFrame(rows).astype({"predicted_low": float, "predicted_high": float})


def cases():
    """What the gallery has none of: many or few of a thing, and names that are long or odd."""
    for name, sizes in SIZES.items():
        yield "speedup", f"{name} sizes", partial(curve, sizes, ["a"])
        yield "best_draft_length", f"{name} sizes", partial(best, sizes, [512, 131072])
    yield "best_draft_length", "many contexts", partial(best, [1, 16], range(100, 4000, 100))
    efficiency = "target_efficiency"
    yield efficiency, "huge sizes", partial(curve, SIZES["huge and near"], ["a"], efficiency)
    six = [f"{LONG} {i}" for i in range(6)]
    odd = ["_hidden", "a$b$", "$", "two\nlines", "x" * 99, "", "#"]
    yield "speedup", "six long names", partial(curve, [1, 2, 4], six)
    yield "speedup", "odd names", partial(curve, [1, 2, 4], odd[:6])
    yield "policies", "odd names", partial(summary, odd)
    yield "policies", "long names", partial(summary, [f"my_module:{i}{LONG}" for i in range(24)])
    models = measured_unions().assign(model=lambda table: LONG + table["model"])
    yield "active_experts", "long names", lambda: models
    settings = {"target": "deepseek-v3", "drafter": "mtp", "tensor_parallel": 8}
    for kind in ("roofline", "components"):
        yield kind, "shared", lambda: pass_components(points([16], [3], **settings))
    yield "waterfalls", "four points", lambda: explain(points([1, 100000], [3, 10])).to_frame()
    names = [f"kernels.experts.bf16.activation_efficiency_{i}" for i in range(30)]
    for told, inputs in {"one": ["a"], "long names": names, "no marks": ["x" * 200]}.items():
        yield "tornado", told, partial(swings, inputs)
    for kind in ("load", "capacity"):
        yield kind, "one", partial(carried, ["none"], [1.5])
        yield kind, "long names", partial(carried, six, [0.001, 1000])


CASES = list(cases())


LAST = list({case[0]: case for case in CASES}.values())
DRAWN = [
    *((*case, COLUMN_WIDTH) for case in CASES),
    *((*case, width) for case in LAST for width in (LEAST_WIDTH, TWO_COLUMNS)),
]


@pytest.mark.parametrize("start", slow(0, 1, 2))
def test_every_text_can_be_read(start):
    for kind, name, table, width in DRAWN[start::3]:
        check_texts(f"{kind} of {name}, {width} inches", kind, table(), width)


def check_texts(told, kind, table, width):
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


def test_files_hold_text_and_no_type_3_fonts(tmp_path):
    for suffix in (".pdf", ".svg"):
        save_figure("speedup", curve([1, 2], ["a"]), str(tmp_path / f"a{suffix}"))
    pdf, svg = ((tmp_path / f"a{suffix}").read_bytes() for suffix in (".pdf", ".svg"))
    assert b"/CIDFontType2" in pdf
    assert b"/Type3" not in pdf
    assert re.search(rb"<text[^>]*>batch size \(requests\)</text>", svg)


def test_the_same_table_gives_the_same_bytes(tmp_path):
    """In processes whose hashes differ, as of two days."""
    code = """if True:
        import sys, pandas as pd
        from specmodel.show.plots.figures import save_figure
        table = pd.DataFrame({"batch_size": [1, 2], "speedup": [1.0, 1.5], "speedup_low": 0.9})
        for suffix in ("svg", "pdf", "png"):
            save_figure("speedup", table.assign(speedup_high=2), f"{sys.argv[1]}.{suffix}")
    """
    for name, seed in (("a", "1"), ("b", "2")):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code, tmp_path / name], env=environment, check=True)
    for suffix in ("svg", "pdf", "png"):
        first, second = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in "ab")
        assert first == second, suffix


def test_a_title_says_what_all_rows_share_if_asked():
    table = explain(points([16], [3])).to_frame().assign(case="a on b")
    told = "a on b\nbatch size 16, draft length 3, context length 1024"
    titled = partial(draw_figure, "waterfalls", has_title=True)
    assert titled(table).get_suptitle() == told
    assert draw_figure("waterfalls", table).get_suptitle() == ""
    several = explain(points([16, 32], [3])).to_frame()
    assert titled(several).get_suptitle().startswith("draft length 3")


def test_drawing_needs_no_pyplot_and_importing_no_matplotlib():
    code = """if True:
        import sys, specmodel.show.plots, specmodel.show.plots.figures
        print("matplotlib" in sys.modules)
        from specmodel.plan.curves import measured_unions
        specmodel.show.plots.figures.draw_figure("active_experts", measured_unions())
        print("matplotlib.pyplot" in sys.modules)
    """
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("width", [LEAST_WIDTH, 3.3, 7.0])
def test_a_figure_is_as_wide_as_asked(width):
    figure = draw_figure("active_experts", measured_unions(), width=width)
    assert figure.get_figwidth() == width
