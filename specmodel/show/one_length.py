"""One draft length for all batch sizes: what it gives away, and what an engine is started with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from specmodel.prediction.table import Row

if TYPE_CHECKING:
    from specmodel.prediction.outcome import Prediction


def told(prediction: Prediction, rows: list[Row]) -> list[str]:
    """Say which length serves all rows best, and the options for it.

    Nothing where lengths were typed, contexts vary, or no row gains by a draft.
    """
    case = prediction.case
    drafts = {row["draft_length"] for row in rows if row["fits"]}
    has_one = np.unique(prediction.batch_size).size == prediction.speedup.size
    if case is None or case.draft_length is not None or not has_one or not any(drafts):
        return []
    length, lost, where = (max(drafts), 0.0, 0) if len(drafts) == 1 else _chosen(prediction)
    if not length:
        return []
    words = f"One length for all: {length}"
    if lost >= 0.005:
        words += f", {lost:.0%} less than each row's own, most at batch size {where}"
    return [f"{words}.{_options(prediction, length)}"]


def _chosen(prediction: Prediction) -> tuple[int, float, int]:
    """Return the length whose mean speedup is nearest to the best, what it gives away, and where.

    That is a share of the best speedup of each batch size, in the mean over those that fit [-].
    """
    from specmodel.prediction.predicting import at_all_lengths

    assert prediction.case is not None  # noqa: S101 - the caller has looked
    p = at_all_lengths(prediction.case, shortest=0)
    fits = p.fits.reshape(-1, p.fits.shape[-1])
    able = fits.any(axis=0)
    gains = np.where(fits, p.speedup.reshape(fits.shape), 0.0)[:, able]
    share = gains / gains.max(axis=0)
    place = int(share.mean(axis=1).argmax())
    sizes = np.ravel(prediction.batch_size)[able]
    lost = 1 - share[place]
    return place, float(lost.mean()), int(sizes[lost.argmax()])


def _options(prediction: Prediction, length: int) -> str:
    """Return what the engine is started with for a length, as a sentence of its own."""
    from specmodel.answers.config_formats import one_length
    from specmodel.drafters.by_name import drafter_kind

    d = prediction.deployment
    modules = max(len(d.drafter.parts), 1)
    options = one_length(d.engine.stack or "", drafter_kind(d.drafter, d.target), length, modules)
    return f" Paste: {options}" if options else ""
