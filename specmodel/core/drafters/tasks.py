"""Kinds of tasks that acceptance depends on, mixtures of them, and how heads differ between them.

``data/task_shifts.csv`` contains the logit of the acceptance rate on each data set and kind of
task, less its mean over code, chat, maths and prose. The acceptance of a head on a kind that was
not measured follows from the difference to a measured kind. ``calibration/tasks.py`` fits the
shifts to heads that were measured on several kinds.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from specmodel.core.base.errors import InputError, nearest
from specmodel.core.base.units import check
from specmodel.core.drafters.published import rows_of

MIXTURE = "mixture"
"""Mixed use: equal shares of generated tokens on each of `MIXED`."""
MIXED = ("code", "chat", "maths", "prose")
TASKS = (*MIXED, "agents", "random")
"""Kinds of tasks; "random" means prompts of random tokens, as in benchmarks."""
_SUM_TO = 1e-6


class TaskShift(NamedTuple):
    """Difference between the acceptance on a kind of task and on others.

    `shift` is the logit of the acceptance rate less its mean over `MIXED`; `data_sets` contains the
    same by data set. `spread` is the standard deviation of the rate between data sets of one head,
    and `derived_spread` the deviation of a rate that is derived from another kind [-].
    """

    shift: float
    spread: float
    derived_spread: float
    data_sets: dict[str, float]

    def of(self, data_sets: Sequence[str]) -> float:
        """Return the mean shift of some data sets; unknown ones have the shift of the kind [-]."""
        return sum(self.data_sets.get(name, self.shift) for name in data_sets) / len(data_sets)


@cache
def task_shifts() -> dict[str, TaskShift]:
    """Return the shift of each kind of task, and of the mixture.

    >>> shifts = task_shifts()
    >>> shifts["code"].shift > shifts["mixture"].shift > shifts["chat"].shift
    True
    """
    found: dict[str, TaskShift] = {}
    for row in rows_of("task_shifts.csv"):
        if row["data_set"]:
            found[row["task"]].data_sets[row["data_set"]] = float(row["shift"])
        else:
            shift, spread, derived = (float(row[name] or 0) for name in TaskShift._fields[:3])
            found[row["task"]] = TaskShift(shift, spread, derived, {})
    return found


def task_text(task: str | Mapping[str, float]) -> str:
    """Return a task as text; shares by kind may be a mapping.

    >>> task_text({"code": 0.6, "chat": 0.4})
    'code=0.6,chat=0.4'
    """
    if isinstance(task, Mapping):
        return ",".join(f"{kind}={share}" for kind, share in task.items())
    return str(task).strip().lower()


@cache
def shares_of(task: str) -> dict[str, float]:
    """Return the share of generated tokens on each kind of task.

    Parameters
    ----------
    task
        A kind of task, "mixture", or shares by kind such as ``code=0.6,chat=0.4``.

    Returns
    -------
    dict
        Shares that sum to 1, by kind; an InputError for an unknown kind or other sums.

    Examples
    --------
    >>> shares_of("chat"), shares_of("code=0.75, prose=0.25")
    ({'chat': 1.0}, {'code': 0.75, 'prose': 0.25})
    """
    if task == MIXTURE:
        return dict.fromkeys(MIXED, 1 / len(MIXED))
    given = _typed(task)
    for kind in given:
        if kind not in TASKS:
            expected = f"{nearest(kind, [*TASKS, MIXTURE])}, or shares such as code=0.6,chat=0.4"
            raise InputError("task", kind, expected)
    shares = {kind: float(check("task", share, minimum=0)) for kind, share in given.items()}
    if abs(sum(shares.values()) - 1) > _SUM_TO:
        raise InputError("task", task, f"shares that sum to 1, not to {sum(shares.values()):g}")
    return {kind: share for kind, share in shares.items() if share}


def _typed(text: str) -> dict[str, float]:
    """Return typed shares by kind of task; a single kind has the share 1."""
    if "=" not in text:
        return {text: 1.0}
    pairs = (pair.split("=") for pair in text.split(","))
    try:
        return {kind.strip(): float(share) for kind, share in pairs}
    except ValueError:
        raise InputError("task", text, "shares such as code=0.6,chat=0.4") from None
