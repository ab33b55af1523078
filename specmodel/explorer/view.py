"""What the explorer shows for one setting of its controls: a table, its sweet spot, words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specmodel.answers import SweetSpot, sweet_spot, sweet_spots
from specmodel.base.units import check
from specmodel.cli import sweet_spot as words
from specmodel.cli.answers import page
from specmodel.cli.report import why
from specmodel.cost.assembly import assemble
from specmodel.prediction.predict import predict
from specmodel.records.architecture import list_architectures, load_architecture

if TYPE_CHECKING:
    import pandas as pd

BATCH_SIZES = range(1, 513)
"""Batch sizes of the curves [request]."""

DEFAULTS: dict[str, Any] = {
    "target": "qwen2-57b-a14b",
    "drafter": "qwen2-0.5b",
    "hardware": "a800_sxm_80gb",
    "engine": "vllm",
    "tensor_parallel": 2,
    "acceptance_rate": 0.8,
    "draft_length": 4,
    "context_length": 1024,
    "proposal_rate": 0.5,
}
"""The controls and where they stand first: the machine and models of MoESD."""

SMALL = 0.25
"""Most parameters of a draft model, as a share of the target's active ones [-]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """What is shown for one setting of the controls.

    Parameters
    ----------
    table
        Columns of a `Prediction`, a row a batch size, and fits, whether it does in memory.
    spot
        Where speculation pays, of the batch sizes that fit; of all, if none fits.
    text
        What runs where, the verdict, warnings and what was assumed, of at most 80 columns.
    """

    table: pd.DataFrame
    spot: SweetSpot
    text: str


def view(values: Mapping[str, Any]) -> View:
    """Return what the explorer shows.

    Parameters
    ----------
    values
        Of the controls, by name, as `DEFAULTS` has them. The rate of proposals counts only under
        the drafter ngram.

    Returns
    -------
    View
        Over batch sizes from 1 to 512.

    Raises
    ------
    InputError
        Names the control at fault.

    Examples
    --------
    >>> shown = view(DEFAULTS)
    >>> shown.spot.peak_batch_size, round(shown.spot.peak_speedup, 1)
    (16, 1.6)
    """
    records = {name: values[name] for name in ("target", "drafter", "hardware", "engine")}
    is_lookup = values["drafter"] == "ngram"
    prediction = predict(
        **assemble(
            records
            | {"tensor_parallel": values["tensor_parallel"]}
            | {"proposal_rate": values["proposal_rate"] if is_lookup else None}
        ),
        acceptance=values["acceptance_rate"],
        draft_length=check("draft_length", values["draft_length"], minimum=1),
        context_length=values["context_length"],
        batch_size=BATCH_SIZES,
    )
    fits = prediction.batch_size <= prediction.max_batch_size
    kept = fits if fits.any() else ~fits
    spot = sweet_spot(prediction.batch_size[kept], prediction.speedup[kept])
    at_peak = prediction.rows()[BATCH_SIZES.index(spot.peak_batch_size)]
    verdict = words.verdict(sweet_spots(prediction), prediction)
    return View(
        table=prediction.to_frame().assign(fits=fits),
        spot=spot,
        text=page(prediction, f"{verdict} {why(at_peak, [at_peak], prediction)}"),
    )


def drafters_for(target: str) -> list[str]:
    """Return the drafters to choose from: look-up, heads, and small models that ship.

    Parameters
    ----------
    target
        Name or path of an architecture.

    Returns
    -------
    list of str
        Names; of models those of the target's vocabulary size and at most a quarter of its active
        parameters.

    Raises
    ------
    InputError
        If there is no such target.

    Examples
    --------
    >>> drafters_for("llama-3.1-70b")
    ['ngram', 'eagle', 'eagle3', 'mtp', 'llama-3.1-8b', 'llama-3.2-1b']
    """
    model = load_architecture(target)
    small = [
        name
        for name, other in ((name, load_architecture(name)) for name in list_architectures())
        if other.vocabulary_size == model.vocabulary_size
        and other.total_parameters <= SMALL * model.active_parameters
    ]
    return ["ngram", "eagle", "eagle3", "mtp", *small]
