"""``specmodel decode``: plain decoding at operating points."""

from __future__ import annotations

from typing import Any

from specmodel.cli import settings
from specmodel.cli.answering import answering, screen_width
from specmodel.cli.predict import BATCH_SIZES
from specmodel.cli.where import where_options
from specmodel.prediction.table import Row, seconds
from specmodel.show import forms, report
from specmodel.show.components import answer


@settings.command()
@where_options(has_drafter=False)
@settings.option("batch_size", default=BATCH_SIZES)
@settings.options("context_length", "prompt_length", "output_length")
@settings.detail_options(has_drafter=False)
@settings.price_option()
@settings.own("interval", bool, "Add central 80 % intervals.")
@settings.own("components", bool, "Add the breakdown of each pass; CSV has it alone.")
@answering()
def decode(*, components: bool, gpu_hour_price: float | None, **options: Any) -> forms.Answer:
    """Predict decoding without speculation: TPOT, throughput, memory.

    With the lengths of prompts and outputs, each step carries its share of the prefill of other
    requests, and the time of a prompt's prefill is printed.

    \b
    Examples:
      specmodel decode --target deepseek-r1 --hardware b200 \\
          --tensor-parallel 8 --batch-size 4:256:x2
      specmodel decode --target llama-3.1-70b --hardware h100_sxm \\
          --tensor-parallel 8 --batch-size 64 --prompt-length 8192 \\
          --output-length 1024 --components
    """
    from specmodel.cli.options import decode_from
    from specmodel.prediction.priced import priced

    decoded = priced(decode_from(options), gpu_hour_price)
    width = screen_width()
    return answer(decoded, verdict(decoded), with_components=components, width=width)


def verdict(decoded: report.Prediction) -> list[str]:
    """Say how long a token takes, the largest throughput, and what limits both."""
    rows = decoded.rows()
    fitting = [row for row in rows if row["batch_size"] <= row["max_batch_size"]]
    opening = "" if fitting else "Nothing fits in memory. If it did: "
    rows = fitting or rows
    most = max(rows, key=lambda row: row["throughput"])
    told = [_at(most, rows)]
    least = min(rows, key=lambda row: row["tpot"])
    if least is not most:
        told.insert(0, _at(least, rows))
    return [f"{opening}{'; '.join(told)}."]


def _at(row: Row, rows: list[Row]) -> str:
    rate = f"{row['throughput']:.0f} tokens/s of all requests"
    place = f"{seconds(row['tpot'])} a token at {report.place(row, rows)}"
    return f"{place}, {rate}, limited by {row['limited_by']}"
