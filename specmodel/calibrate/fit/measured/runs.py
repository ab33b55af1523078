"""Describe runs of a benchmark: what ran, the batch size, and the measured times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.calibrate.fit.measured.aliases import TABLES, shipped_model
from specmodel.calibrate.fit.measured.tables import DEFAULT_CONTEXT, Served
from specmodel.calibrate.measure.arguments import acceptance_arguments
from specmodel.core.algebra.speculation import solve_acceptance_rate
from specmodel.core.base.errors import InputError
from specmodel.core.base.naming import is_id
from specmodel.core.base.records import is_path
from specmodel.core.base.units import LARGEST_NUMBER, check
from specmodel.core.models.architecture import list_architectures
from specmodel.core.models.checkpoints import checkpoint

MOST_APART = 0.1  # share by which the requests that ran may exceed the concurrency [-]
MOST_PER_EVENT = 1.2  # most tokens of an event of a stream, on average, without a draft [token]
SAME_LOAD = 1.05  # largest ratio of lengths of runs with the same load [-]
_BOUNDS: dict[str, dict[str, Any]] = TABLES["runs"]["bounds"]
"""Bounds of the fields of a run."""


class Run(Struct, frozen=True, kw_only=True):
    """One run of a benchmark, with or without speculation. An InputError names an invalid number.

    Parameters
    ----------
    source
        The file, with a line or row if it has several runs. Messages and tables show it.
    engine, version, model
        Engine such as vllm or sglang, its version, and the model's name; "" if not in the file.
    quantity, value
        The measured quantity and its value. step_time is the time of an engine step for a running
        request, with the prefill for other requests [s]. speedup is the time without speculation
        over the time with speculation [-].
    tokens_per_step
        Tokens emitted per request and step: accepted tokens and one more; 1 without speculation
        [token].
    proposal_rate
        Share of steps with a draft; below 1 for a look-up [-].
    draft_length, topk, verify_tokens
        Depth of a draft (0 without speculation), branches of a tree per level (1 for a chain), and
        tokens per request that the target verifies (for a chain, draft_length + 1). All are None
        if the run drafted and the file does not contain them [token] [-].
    batch_size, concurrency
        Requests in the batch of a step, as a request sees it, and the limit of requests at once,
        None without a limit [request].
    prompt_length, output_length
        Means per request; None if not in the file [token].
    noise
        Standard error of the value, from repeats of the run; 0 if unknown [-].
    acceptance_by_position
        P(token accepted | all tokens before it were) of positions 1, 2, ...; empty if not in the
        file [-].
    place
        Names and values of the place as far as they are in the file: hardware (the name of a
        profile), num_gpus, and degrees of parallelism [-].
    context_length
        KV entries of a sequence if steps were timed without prompts of other requests. None if it
        follows from the lengths of requests [token].
    assumed
        Assumption about the drafts; "" without one.
    tokens_per_event
        Tokens of one event of a stream: about `tokens_per_step` if the run drafted. 1 if events are
        not timed [token].
    """

    source: str
    engine: str = ""
    version: str = ""
    model: str = ""
    quantity: Literal["step_time", "speedup"]
    value: float
    tokens_per_step: float = 1.0
    proposal_rate: float = 1.0
    draft_length: int | None = 0
    topk: int | None = 1
    verify_tokens: int | None = 1
    batch_size: float
    concurrency: float | None = None
    prompt_length: float | None = None
    output_length: float | None = None
    noise: float = 0.0
    acceptance_by_position: tuple[float, ...] = ()
    place: tuple[tuple[str, Any], ...] = ()
    context_length: float | None = None
    assumed: str = ""
    tokens_per_event: float = 1.0

    def __post_init__(self) -> None:
        for name, bounds in _BOUNDS.items():
            if (number := getattr(self, name)) is not None:
                named = self.quantity if name == "value" else name
                check(f"{self.source} {named}", number, maximum=LARGEST_NUMBER, **bounds)
        most, length, verified = math.inf, self.draft_length, self.verify_tokens
        if length is not None:
            if self.topk is None or verified is None:
                expected = "verify_tokens and topk (tree width), as this run drafts trees"
                raise InputError(f"{self.source} verify_tokens", verified, expected)
            if self.topk == 1 and verified != length + 1:
                expected = f"draft_length + 1 = {length + 1} for a chain,"
                expected += " or a topk above 1 for a tree"
                raise InputError(f"{self.source} verify_tokens", verified, expected)
            most = min(length + 1, verified)
        if not 1.0 <= self.tokens_per_step <= most:
            bound = "" if length is None else f" = {most:g}"
            expected = "1 + the accepted tokens per request and step: from 1 to draft_length + 1"
            raise InputError(
                f"{self.source} tokens_per_step", self.tokens_per_step, expected + bound
            )

    @property
    def num_gpus(self) -> int | None:
        """Number of GPUs of the server; None if not in the file [-]."""
        return dict(self.place).get("num_gpus")

    @property
    def is_speculative(self) -> bool:
        """Whether the engine drafted."""
        return self.draft_length != 0

    @property
    def may_draft(self) -> bool:
        """Whether the run has no counts of drafts, but events of several tokens."""
        return not self.is_speculative and self.tokens_per_event > MOST_PER_EVENT

    @property
    def draft_note(self) -> str:
        """A note for a run that may have drafted."""
        tokens = f"{self.tokens_per_event:.3g} tokens per event, which suggests drafts"
        return f"{self.source} has {tokens}, but the file counts no drafts"

    @property
    def acceptance_rate(self) -> float | None:
        """P(token accepted | all tokens before it were), one rate; None if unknown [-]."""
        length, of_draft = self.draft_length, 1 + (self.tokens_per_step - 1) / self.proposal_rate
        return float(solve_acceptance_rate(of_draft, length)) if length else None

    @property
    def accepted_fraction(self) -> float | None:
        """Accepted over drafted tokens; None if unknown [-]."""
        drafted = (self.draft_length or 0) * self.proposal_rate
        return (self.tokens_per_step - 1.0) / drafted if drafted else None

    def drafting(
        self, draft_length: int, *, topk: int = 1, verify_tokens: int | None = None
    ) -> Run:
        """Return the run with a draft length and tree that its file does not contain [token].

        If the file has no drafts at all, an event of the stream counts as a step.
        """
        verified = draft_length + 1 if verify_tokens is None and topk == 1 else verify_tokens
        tokens = self.tokens_per_step if self.is_speculative else self.tokens_per_event
        return replace(
            self,
            value=self.value / self.tokens_per_step * tokens,
            tokens_per_step=tokens,
            draft_length=draft_length,
            topk=topk,
            verify_tokens=verified,
            assumed="",
        )


def arguments_of_runs(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the mean acceptance of runs of one draft length as arguments of predict.

    Parameters
    ----------
    runs
        Runs that drafted, with the same draft length and tree.

    Returns
    -------
    list of dict
        One form or two, as `acceptance_arguments` returns them, with the tree if there is one.
    """
    first, rates = runs[0], [run.acceptance_by_position for run in runs]
    tokens = sum(run.tokens_per_step for run in runs) / len(runs)
    by_position = [sum(at) / len(runs) for at in zip(*rates, strict=True)] if all(rates) else []
    share = sum(run.proposal_rate for run in runs) / len(runs)
    mean = share * first.draft_length if first.draft_length and share < 1 else None
    drafts: dict[str, Any] = {"longest": first.draft_length, "mean": mean, "proposal_rate": share}
    forms = acceptance_arguments(tokens, by_position, **drafts)
    if (first.topk or 1) == 1:
        return forms
    tree = {"tree_width": first.topk, "verify_tokens": first.verify_tokens}
    return [form | {"draft_length": first.draft_length} | tree for form in forms]


def seen_batch(decoding: float, most: float) -> float:
    """Return the mean batch in which a decoding request runs, from 1 to `most` [request].

    `decoding` is the mean number of decoding requests. By Little's law (J. D. C. Little, "A Proof
    for the Queuing Formula: L = λW," Oper. Res., vol. 9, no. 3, pp. 383-387, 1961), it is the rate
    of tokens after the first x TPOT. That mean includes times in which few requests are left, or
    requests wait for their first token. A decoding request, however, always sees itself. It sees
    each other request in the share ``decoding / most`` of time in which that request decodes.
    """
    return 1.0 + min(decoding, most) * (1.0 - 1.0 / most)


@cache
def mean_range(count: float) -> float:
    """Return the mean range of `count` normal draws, in standard deviations [-].

    L. H. C. Tippett, "On the extreme individuals and the range of samples taken from a normal
    population," Biometrika, vol. 17, no. 3/4, 1925.
    """
    x = np.linspace(-8.0, 8.0, 1601)
    below = np.array([NormalDist().cdf(value) for value in x])
    return float(np.trapezoid(1.0 - below**count - (1.0 - below) ** count, x))


def placed(
    runs: Sequence[Run], typed: Mapping[str, Any]
) -> tuple[tuple[Run, ...], dict[str, Any], str]:
    """Return the runs of one place, the arguments for that place, and a note on runs left out.

    Files that name their GPUs, such as InferenceX's, may have runs of many models and places. Runs
    of the model and place that the user typed are kept. Other files must not contradict that place.
    """
    target, told = shipped_name(str(typed.get("target") or "")), dict[str, Any]()
    kept = [run for run in runs if shipped_name(run.model) in ("", target)]
    is_list = any("hardware" in dict(run.place) for run in runs)
    kept = kept if is_list and target and kept else list(runs)
    for name, _ in kept[0].place:
        value, found = typed.get(name), [dict(run.place).get(name) for run in kept]
        values = {*found} - {None}
        if name == "hardware" and value and is_path(value):  # a user's own profile
            continue
        is_unclear = value is None and is_list and len(values) != 1
        fitting = [n for n, own in enumerate(found) if value is None or own in (None, value)]
        if is_unclear or len(fitting) < (1 if is_list else len(kept)):
            others = " or ".join(sorted(map(str, values - {value})))
            argument, unit = ("hardware", " GPUs") if name == "num_gpus" else (name, "")
            shown = f"{value}{unit}" if unit and value else value
            raise InputError(argument, shown, f"{others}, as in these files")
        kept = [kept[n] for n in fitting]
        told |= {name: values.pop()} if value is None and len(values) == 1 else {}
    out = len(runs) - len(kept)
    note = f"{out} of {len(runs)} runs have another model, GPU or layout and are left out"
    return tuple(kept), told, note if out else ""


def named_model(runs: Sequence[Run]) -> str:
    """Return the name by which to load the model of benchmarks; "" without one common name.

    If only some names contain a dtype of weights, all runs have that dtype. An InputError refuses
    runs with several dtypes.
    """
    named = [named_checkpoint(run.model) for run in runs]
    dtypes = {dtype: name for name, dtype in named if dtype}
    if len(dtypes) > 1:
        expected = "runs whose weights have the same dtype"
        raise InputError("benchmarks", ", ".join(dtypes.values()), expected)
    found = {shipped_name(run.model) for run in runs}
    return "".join(dtypes.values()) or found.pop() if len(found) == 1 else ""


def named_checkpoint(name: str) -> tuple[str, str]:
    """Return the name by which to load a model, and the dtype of weights in this name, or "".

    Without a dtype, it is the name of the shipped architecture; "" for unknown models.

    >>> named_checkpoint("/models/Qwen3-30B-A3B-Instruct-2507-FP8")
    ('Qwen3-30B-A3B-Instruct-2507-FP8', 'fp8_block')
    >>> named_checkpoint("Qwen/Qwen3-30B-A3B")
    ('qwen3-30b-a3b', '')
    """
    own = name if is_id(name) else Path(name).name
    dtype = (checkpoint(own, list_architectures()) or ("", ""))[1]
    return (own, dtype) if dtype else (shipped_name(name), "")


def check_model(runs: Sequence[Run], target: str) -> None:
    """Refuse a benchmark of another shipped architecture than the target.

    Unknown names are ignored, because checkpoints are renamed and folders have any name.
    """
    named = shipped_name(target)
    for run in runs:
        found = shipped_name(run.model)
        if named and found and found != named:
            expected = f"a benchmark of {named}. To use this one, give {found} as the target"
            raise InputError(f"{run.source} model", run.model, expected)


def served_runs(runs: Sequence[Run], deployment: Mapping[str, Any]) -> list[Served]:
    """Return runs of one deployment as rows that an engine can be fitted to.

    `deployment` contains the arguments of `cost.deploying.resolve`. Its context_length is needed if
    the context does not follow from the lengths of prompts and outputs [token].
    """
    rows = [_served(run, deployment) for run in runs]
    if all(run.is_speculative and run.quantity == "step_time" for run in runs):
        note = "no run without speculation: the fit learns nothing about gain and drafting time;"
        note += " add the same benchmark without speculation"
        rows[:1] = [replace(row, notes=(*row.notes, note)) for row in rows[:1]]
    return rows


def _served(run: Run, deployment: Mapping[str, Any]) -> Served:
    if run.draft_length is None or run.verify_tokens is None:
        expected = f"the draft length of {run.source}, which the file does not contain"
        raise InputError("draft_length", None, expected)
    context = deployment.get("context_length") or run.context_length
    prompt, output = run.prompt_length, run.output_length
    lengths: dict[str, float] = {}
    if prompt is not None and output is not None:
        context = prompt + output / 2 if context is None else context
        lengths = {"prompt_length": max(prompt, 1.0), "output_length": max(output, 1.0)}
    looked_up = {"proposal_rate": run.proposal_rate} if run.proposal_rate < 1 else {}
    return Served(
        row=run.source,
        labels={"model": str(deployment["target"])},
        deployment={**deployment, **looked_up, "tree_width": run.topk or 1},
        points={
            "batch_size": run.batch_size,
            "draft_length": run.draft_length,
            "verify_tokens": run.verify_tokens,
            "context_length": DEFAULT_CONTEXT if context is None else context,
            **(lengths if run.quantity == "step_time" else {}),
        },
        tokens_per_step=run.tokens_per_step,
        quantity=run.quantity,
        measured=run.value,
        noise=run.noise,
        notes=tuple(filter(None, (run.draft_note if run.may_draft else "", run.assumed))),
    )


def shipped_name(name: str) -> str:
    """Return the shipped architecture of a name or a folder; "" if there is none."""
    try:
        return shipped_model(name.rstrip("/"))
    except InputError:
        return ""
