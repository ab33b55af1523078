"""Return views of a prediction by name; each view is an answer in all forms."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from specmodel.core.base.errors import InputError, nearest

if TYPE_CHECKING:
    from specmodel.core.prediction.case import Case
    from specmodel.core.prediction.outcome import Prediction
    from specmodel.show.forms import Answer

VIEWS = {
    "verdict": ("verdict", "whether speculation pays at each batch size"),
    "lengths": ("points:lengths", "the speedup of each draft length"),
    "peak": ("points:peak", "at which batch sizes speculation pays, and its largest speedup"),
    "terms": ("terms", "how much each cost reduces target efficiency and speedup"),
    "break-even": ("points:break_even", "the acceptance that speculation needs to pay"),
    "tasks": ("points:tasks", "the best draft length for each kind of task, such as code or chat"),
    "plain": ("points:plain", "TPOT, throughput and memory without speculation"),
}
"""Module of each view, its function if that is not `answer`, and a description."""


def view(prediction: Prediction, name: str = "", **how: Any) -> Answer:
    """Return a view of a prediction in all forms.

    Parameters
    ----------
    prediction
        Result of `specmodel.predict` or `specmodel.decode`.
    name
        One of `VIEWS`; by default, the verdict or plain decoding.
    **how
        Settings of the view, such as `tpot_target` of the verdict [s].
    """
    is_plain = "speedup" not in prediction.units()
    name = name or ("plain" if is_plain else "verdict")
    if name not in VIEWS or is_plain != (name == "plain"):
        known = ["plain"] if is_plain else [each for each in VIEWS if each != "plain"]
        raise InputError("view", name, f"one of {nearest(name, known)}")
    has_lengths = prediction.case is not None and prediction.case.draft_length is not None
    if has_lengths and name in ("peak", "terms", "break-even"):
        # with given lengths, the longest draft to consider is not an assumption
        assumed = {k: v for k, v in prediction.assumptions.items() if k != "max_draft_length"}
        prediction = replace(prediction, assumptions=assumed)
    return answer(VIEWS[name][0], prediction, **how)


def answer(room: str, shown: object, **how: Any) -> Answer:
    """Return the view of a result in all forms.

    Parameters
    ----------
    room
        The module of `show`, or module:function.
    shown
        The result, such as a schedule.
    **how
        Settings of the view.
    """
    module, _, function = room.partition(":")
    show = getattr(import_module(f"specmodel.show.{module}"), function or "answer")
    found: Answer = show(shown, **how)
    return found


def case(prediction: Prediction) -> Case:
    """Return the case of a prediction; an InputError if the prediction has none."""
    if prediction.case is None:
        expected = "a prediction from specmodel.predict or specmodel.decode"
        raise InputError("prediction", "of a deployment", expected)
    return prediction.case
