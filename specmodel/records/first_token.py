"""What engines add to the time to the first token, fitted: a constant for each."""

from pathlib import Path

import pandas as pd

PATH = Path(__file__).parent / "data/first_token.csv"


def first_token_constants() -> dict[str, float]:
    """Return what each engine adds to a first token beside its passes, by stack [s].

    Returns
    -------
    dict
        Of stacks that were fitted; its table names rows, models and source.

    Examples
    --------
    >>> sorted(first_token_constants())
    ['sglang', 'trtllm', 'vllm']
    """
    table = pd.read_csv(PATH, comment="#")
    return dict(zip(table["stack"], table["constant_time"].astype(float), strict=True))
