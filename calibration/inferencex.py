"""Compare predicted gains of MTP with InferenceX's pages, whose prompts are random tokens.

Usage: python calibration/inferencex.py [FILE]

FILE, by default `calibration/tables/inferencex.csv`, has a row for each page and concurrency: page,
target, hardware (8xh200), engine, draft_length, isl, osl, concurrency, tpot_off_ms, tpot_mtp_ms,
and is_extrapolated, which is true where the plain curve is extended. Columns of OPTIONS are
present if known. The acceptance of these runs is not published. Gains are therefore predicted in
four ways: with published acceptance, on mixed use, with a shift of the logit of acceptance fitted
to each page, and with the shift fitted to all other pages. The last is the accuracy of
`task="random"` on a new page; intervals are those of the last.
"""

import argparse
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar

from specmodel import predict
from specmodel.core.algebra.acceptance import Acceptance, acceptance_from_lengths
from specmodel.core.base.units import FloatArray
from specmodel.core.drafters.measured_heads import PublishedHead, published_head_of
from specmodel.core.drafters.tasks import MIXTURE, task_shifts

OPTIONS = ("weight_dtype", "kv_dtype", "tensor_parallel", "data_parallel", "expert_parallel")
"""Columns that are read if they are known. By default, tensor_parallel is the number of all
GPUs."""
SHARE = 0.9
"""Mean length of prompts and outputs, which are drawn from 0.8 to 1 of the nominal length [-]."""
TABLE = Path(__file__).parent / "tables" / "inferencex.csv"


def head_of(row: Any) -> PublishedHead:
    """Return the published head of a row's target."""
    return cast(PublishedHead, published_head_of(row.target, "mtp"))


def told(row: Any, **given: Any) -> Any:
    """Return the prediction of a row without and with drafts, at the whole numbers around it."""
    known = {name: getattr(row, name) for name in OPTIONS if pd.notna(getattr(row, name, None))}
    return predict(
        row.target,
        row.hardware,
        drafter="mtp",
        engine=row.engine,
        batch_size=[int(row.concurrency), int(row.concurrency) + 1],
        context_length=round(SHARE * (row.isl + row.osl / 2)),
        **{"tensor_parallel": int(row.hardware.partition("x")[0])} | known | given,
    )


def lengths(row: Any) -> dict[str, int]:
    """Return the prompts and outputs of a row [token]."""
    return {"prompt_length": round(SHARE * row.isl), "output_length": round(SHARE * row.osl)}


def times(row: Any) -> dict[str, float]:
    """Return the time of a plain token, a step with drafts, and prompts in its tokens [s]."""
    part = row.concurrency % 1
    both = {"draft_length": [[0], [int(row.draft_length)]]}
    alone, loaded = told(row, **both), told(row, **both, **lengths(row))
    step, carried, plain = (
        values @ [1 - part, part]
        for values in (alone.step_time[1], (loaded.tpot - alone.tpot)[1], loaded.tpot[0])
    )
    return {"plain": plain, "step": step, "carried": carried}


def errors(rows: pd.DataFrame, tokens: FloatArray) -> FloatArray:
    """Return predicted over measured gain less one, with so many tokens a step [-]."""
    gain = rows["plain"] / (rows["step"] / tokens + rows["carried"])
    return np.asarray(gain / rows["gain"] - 1)


def with_shift(rows: pd.DataFrame, shift: float) -> FloatArray:
    """Return the errors of gains with a shift of acceptance [-]."""
    each = cast(Any, rows.itertuples())
    return errors(rows, np.array([head_of(r).derived(shift, r.draft_length)[-1] for r in each]))


def fitted(rows: pd.DataFrame) -> float:
    """Return the shift that meets the gains of rows best, by squares of logarithms [-]."""
    found = minimize_scalar(
        lambda shift: float((np.log1p(with_shift(rows, shift)) ** 2).sum()), bounds=(-4, 1)
    )
    return float(found.x)


def interval(row: Any, shift: float, spread: float) -> tuple[float, float]:
    """Return the 80 % interval of a row's gain with a shift of acceptance [-]."""
    rates = acceptance_from_lengths(head_of(row).derived(shift, row.draft_length))
    acceptance = Acceptance(acceptance_by_position=rates.tolist(), spread=spread)
    given = {"acceptance": acceptance, "draft_length": int(row.draft_length)}
    ends = told(row, interval=True, **given, **lengths(row)).intervals["speedup"]
    return float(ends.low.mean()), float(ends.high.mean())


def judged(table: pd.DataFrame) -> pd.DataFrame:
    """Return rows with predictions, errors of gains, and intervals."""
    table = table.reset_index(drop=True)
    table = table.join(pd.DataFrame([times(row) for row in cast(Any, table.itertuples())]))
    table["gain"] = table["tpot_off_ms"] / table["tpot_mtp_ms"]
    table["plain_error"] = 1e3 * table["plain"] / table["tpot_off_ms"] - 1
    each = [(head_of(row), row.draft_length) for row in cast(Any, table.itertuples())]
    for name in ("code", MIXTURE):
        tokens = [head.tokens_on(name, length)[-1] for head, length in each]
        table[name] = errors(table, np.array(tokens))
    pages, spread = [], task_shifts()["random"].derived_spread
    for page, rows in table.groupby("page", sort=False):
        own, others = fitted(rows), fitted(table[table["page"] != page])
        first = fitted(rows.nsmallest(1, "concurrency"))
        ends = [interval(row, others, spread) for row in cast(Any, rows.itertuples())]
        pages.append(
            rows.assign(
                shift=own,
                by_page=with_shift(rows, own),
                left_out=with_shift(rows, others),
                shape=with_shift(rows, first),
                low=[low for low, _ in ends],
                high=[high for _, high in ends],
            )
        )
    return pd.concat(pages)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("file", nargs="?", default=TABLE)
    table = judged(pd.read_csv(parser.parse_args().file, comment="#"))
    kinds = ["code", MIXTURE, "by_page", "left_out", "shape"]
    columns = ["page", "concurrency", "gain", "shift", "low", "high", "plain_error", *kinds]
    print(table[columns].to_string(index=False, float_format="{:.3f}".format))
    print(f"shift of all pages: {fitted(table):.3f}")
    for name, rows in (("all", table), ("measured", table[~table["is_extrapolated"]])):
        for kind in ("plain_error", *kinds):
            mean, bias = rows[kind].abs().mean(), rows[kind].mean()
            print(f"{name}, {kind}: {mean:.1%} in the mean of {len(rows)}, {bias:+.1%}")
        print(
            f"{name}: intervals hold {rows['gain'].between(rows['low'], rows['high']).mean():.0%}"
        )


if __name__ == "__main__":
    main()
