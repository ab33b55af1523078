"""Print figures of the README that no other command prints.

Usage: python calibration/figures.py WHAT [FILE]. WHAT is one of

    peer FILE   AIConfigurator 0.12.0 (stored in results/peer.csv) and this package, on the
                same rows of a table of measured engines that `specmodel fit check --serving` reads
    rounds      published rounds of drafters that draft a block (tests/data/draft_rounds.csv)
    gpt-oss     published decode times of gpt-oss-120b (tests/data/decode_times.csv), with fitted
                kernels and with the data sheet
    loop        stored closed loops (results/*/closed_loop_summary.csv)
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from msgspec.structs import replace

from specmodel import decode
from specmodel.calibrate.fit.measured import judge_serving, read_serving
from specmodel.core.cost.deploying import deploy
from specmodel.core.cost.latency import step_times
from specmodel.core.machines.engine import load_engine

BARE = load_engine("ideal").with_changes("engine", {"fuses_all": False})
"""Kernels one after another, and no overhead."""

RESULTS = Path(__file__).parent / "results"
DATA = Path(__file__).parents[1] / "tests" / "data"
DENSE = ("Llama-3.1-70B", "Qwen3-32B")


def told(name: str, errors: pd.Series) -> str:
    """Return a line on errors of predicted over measured [-]."""
    sizes = errors.abs()
    return (
        f"{name}: {len(sizes)} rows, mean {sizes.mean():.1%}, median {sizes.median():.1%},"
        f" worst {sizes.max():.1%}"
    )


def peer(path: str) -> None:
    answers = pd.read_csv(RESULTS / "peer.csv", dtype={"row": str}).set_index("row")
    table = read_serving(path)
    rows = tuple(row for row in table.rows if row.row in answers.index)
    judged = judge_serving(replace(table, rows=rows))[0].set_index("row")
    theirs = answers["predicted_tpot_ms"] / 1e3 / judged["measured"] - 1
    for models, part in (("all", judged), ("dense", judged[judged["model"].isin(DENSE)])):
        print(told(f"AIConfigurator, {models}", theirs[part.index]))
        print(told(f"specmodel, {models}", part["error"]))


def rounds() -> None:
    table = pd.read_csv(DATA / "draft_rounds.csv", comment="#")
    predicted = np.array([_round(row) for row in table.itertuples()])
    table["error"] = predicted / table["draft_time"] - 1
    alone, is_glm = table["batch_size"] == 1, table["target"] == "glm-5.2"
    print(told("deepseek-v4-flash", table.loc[~is_glm, "error"]))
    print(told("glm-5.2, batch size 1", table.loc[is_glm & alone, "error"]))
    many = 1 + table.loc[is_glm & ~alone, "error"]
    print(f"glm-5.2, batch size 8: measured over predicted {1 / many.mean():.2f}")


def _round(row: Any) -> float:
    """Return the predicted time of a round of DSpark [s]."""
    deployment, _ = deploy(
        target=row.target, hardware=row.hardware, stack=row.stack,
        tensor_parallel=row.tensor_parallel, drafter="dspark", engine=BARE,
    )  # fmt: skip
    times = step_times(
        deployment, batch_size=float(row.batch_size), draft_length=float(row.draft_length),
        verify_tokens=row.draft_length + 1.0, context_length=1024.0,
    )  # fmt: skip
    return float(times.draft_time)


def gpt_oss() -> None:
    rows = pd.read_csv(DATA / "decode_times.csv", comment="#")
    names = [str(name) for name in rows if name != "forward_time"]
    points = [dict(zip(names, point, strict=True)) for point in rows[names].to_numpy().tolist()]
    for stack in (None, "datasheet"):
        predicted = np.array(
            [float(decode(**point, stack=stack, engine=BARE).tpot) for point in points]
        )
        print(told(stack or "fitted", predicted / rows["forward_time"] - 1))


def loop() -> None:
    for path in sorted(RESULTS.glob("*/closed_loop_summary.csv")):
        for quantity, part in pd.read_csv(path).groupby("quantity"):
            floor = part["split_half"].mean()
            peaks = (part["by_peaks"] / part["measured"] - 1).abs().mean()
            says = told(f"{path.parent.name} {quantity}", part["error"])
            print(f"{says}, noise floor {floor:.1%}, by the peaks alone {peaks:.1%}")


def main() -> None:
    alone: dict[str, Callable[[], None]] = {"rounds": rounds, "gpt-oss": gpt_oss, "loop": loop}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=["peer", *alone])
    parser.add_argument("file", nargs="?")
    options = parser.parse_args()
    if options.what == "peer" and not options.file:
        parser.error("peer takes a FILE")
    peer(options.file) if options.what == "peer" else alone[options.what]()


if __name__ == "__main__":
    main()
