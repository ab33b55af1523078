"""Read acceptance from the counters of a running vLLM, in saved scrapes of ``/metrics``."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from specmodel.calibrate.measure.arguments import proposal_share
from specmodel.core.algebra import acceptance
from specmodel.core.base.errors import InputError, nearest
from specmodel.core.base.ranges import whole_of
from specmodel.core.base.records import read_text
from specmodel.core.base.units import FloatArray, check

DRAFTS, DRAFTED, ACCEPTED, BY_POSITION = COUNTERS = tuple(
    f"vllm:spec_decode_num_{counted}_total"
    for counted in ("drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos")
)

TORN = 0.01
"""Largest contradiction of counters that is accepted [-]. A scrape of an engine with several
processes may fall between the updates of two counters."""

RUNNING = "vllm:num_requests_running"
EMITTED, FIRST = "vllm:generation_tokens_total", "vllm:time_to_first_token_seconds_count"
"""Tokens of all answers, and the number of answers with a first token, which prompts emit."""

Counts = dict[str, dict[str, int]]
"""Counts by engine (its labels, such as ``engine="0"``), and by counter with its position."""


class MeasuredAcceptance(Struct, frozen=True, kw_only=True, eq=False):
    """Acceptance that an engine counted over steps with a draft.

    Parameters
    ----------
    model_name, num_engines
        Label of the counters, and number of engines in the sums [-].
    num_drafts, num_draft_tokens, num_accepted_tokens
        Steps of a sequence with a draft, their drafted tokens, and accepted tokens [-] [token].
    accepted_by_position
        Number of drafts with at least the first 1, 2, … tokens accepted [-].
    mean_draft_length, max_draft_length
        Mean number of drafted tokens per step, and number of counted positions: the engine's
        ``num_speculative_tokens`` [token].
    proposal_rate
        Share of steps with a draft; None if the scrape has no count of emitted tokens [-].
    acceptance_rate, acceptance_by_position
        Chance that a token is accepted if all tokens before it were: one rate, solved at the mean
        draft length, and a rate for each position [-].
    tokens_per_step, accepted_fraction
        Accepted tokens per step, plus the target's own token [token]; accepted over drafted tokens
        [-].
    running_requests
        Requests running on all engines: the mean over scrapes with running requests, None without
        such a scrape [request].
    """

    model_name: str
    num_engines: int
    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    accepted_by_position: NDArray[np.int64]
    mean_draft_length: float
    max_draft_length: int
    acceptance_rate: float
    acceptance_by_position: FloatArray
    tokens_per_step: float
    accepted_fraction: float
    proposal_rate: float | None = None
    running_requests: float | None = None

    @property
    def draft_length(self) -> int:
        """The longest draft [token]."""
        return self.max_draft_length


def scraped_acceptance(
    path: str | Path,
    later: str | Path | None = None,
    model: str | None = None,
    *,
    text: str | None = None,
) -> MeasuredAcceptance:
    """Return the acceptance that a running vLLM counted, from saved Prometheus scrapes.

    Parameters
    ----------
    path, later
        Text of the engine's ``/metrics``. With a later scrape, the counts are those in between.
    model
        The ``model_name`` to use, if a scrape has several.
    text
        Content of the first scrape, if already read.

    Returns
    -------
    MeasuredAcceptance
        Sums over the engines of the model, with rates by position for `Acceptance`. Raise an
        InputError if nothing was drafted, or if the counters contradict each other.

    Notes
    -----
    The engine counts steps with a draft. The number of steps without a draft, in which n-gram
    look-ups found nothing, follows from emitted tokens. If a scrape has no count of emitted tokens,
    tokens per step describe only steps with a draft, and are too high for a look-up.

    If drafts differ in length (n-gram look-up, draft-length schedules, the end of a request), the
    acceptance rate is solved at their mean. Tokens per step are concave in the draft length. The
    result is therefore at most the true rate, if the rate does not depend on the length. The rates
    by position are too low from position 2 on, because a draft that ended before a position counts
    as rejected there. The tokens per step computed from them are right at every length.
    """
    name, counts, gauges = _read_scrape(path, model, text)
    ran, emitted = [gauges[RUNNING]], gauges[EMITTED] - gauges[FIRST]
    if later is not None:
        name_later, counts_later, gauges = _read_scrape(later, model)
        ran.append(gauges[RUNNING])
        emitted = gauges[EMITTED] - gauges[FIRST] - emitted
        if name_later != name:
            raise InputError("model_name", name_later, f"{name}, as in the earlier scrape")
        counts = _growth(counts, counts_later)
    of_engines = [[*own.values()] for own in counts.values()]
    drafts, drafted, accepted, *reached = map(sum, zip(*of_engines, strict=True))
    _check_consistent(drafts, drafted, accepted, reached)
    by_position = np.minimum.accumulate(np.minimum(reached, drafts))
    mean_length = min(max(drafted / drafts, 1.0), float(len(reached)))
    share = proposal_share(drafts, accepted, emitted) if emitted > 0 else None
    fraction = accepted / drafted
    flat = acceptance.Acceptance(accepted_fraction=fraction, measured_draft_length=mean_length)
    return MeasuredAcceptance(
        model_name=name,
        num_engines=len(counts),
        num_drafts=drafts,
        num_draft_tokens=drafted,
        num_accepted_tokens=accepted,
        accepted_by_position=by_position,
        mean_draft_length=mean_length * (share or 1.0),
        max_draft_length=len(reached),
        acceptance_rate=float(flat.rate()),
        acceptance_by_position=acceptance.conditional_acceptance(by_position / drafts),
        tokens_per_step=float(acceptance.mean_tokens_per_step(1 + accepted / drafts, share or 1.0)),
        accepted_fraction=fraction,
        proposal_rate=share,
        running_requests=float(np.mean(some)) if (some := [n for n in ran if n > 0]) else None,
    )


def _read_scrape(
    path: str | Path, model: str | None, text: str | None = None
) -> tuple[str, Counts, Mapping[str, float]]:
    """Return the model's name, the counts of its engines, and sums of other series by name."""
    where = f"scrape {path}"
    text = read_text(Path(path), "scrape", "text") if text is None else text
    models: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    others: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    reason = "this is no vLLM scrape"
    for name, labels, value in samples(text, where):
        if name.startswith("vllm:"):
            reason = "none found: speculation may be off"
        if name in (RUNNING, EMITTED, FIRST) and 0 < value < math.inf:  # not NaN
            others[labels.get("model_name", "")][name] += value
        if name in COUNTERS:
            model_name, engine, counter = _series(name, labels)
            if counter in models[model_name][engine]:
                raise InputError(f"{where} {counter}", labels, "each series once")
            models[model_name][engine][counter] = value
    if not models:
        raise InputError("scrape", str(path), f"counters vllm:spec_decode_* ({reason})")
    if model is None and len(models) > 1:
        raise InputError("model", None, f"one of {nearest('', models)}")
    chosen = next(iter(models)) if model is None else model
    if chosen not in models:
        raise InputError("model", chosen, nearest(chosen, models))
    return chosen, _complete(models[chosen], where), others[chosen]


def _series(name: str, labels: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the model, the other labels of the engine, and the counter with its position."""
    others = dict(sorted(labels.items()))
    model = others.pop("model_name", None)
    if model is None:  # counts of several models would be added up as if of one
        raise InputError(name, labels, "a label model_name, as vLLM writes it")
    if name == BY_POSITION:
        position = whole_of(others.pop("position", ""))
        if position is None:
            raise InputError(name, labels, "a label position that counts from 0")
        name = _at(position)
    return model, ", ".join(f'{label}="{text}"' for label, text in others.items()), name


def _at(position: object) -> str:
    return f"{BY_POSITION} position {position}"


def _complete(engines: Mapping[str, Mapping[str, float]], where: str) -> Counts:
    """Return the counts of each engine in one order. Refuse missing counters and invalid counts."""
    positions = max(len(own.keys() - {*COUNTERS}) for own in engines.values())
    needed = [DRAFTS, DRAFTED, ACCEPTED, *map(_at, range(max(positions, 1)))]
    for engine, counter in itertools.product(sorted(engines), needed):
        if counter not in engines[engine]:
            raise InputError(where, engine or "one engine", f"Counter {counter} is missing.")
        # beyond 2⁵³, a counter that is a double no longer counts
        bounds = {"minimum": 0, "maximum": 2.0**53}
        check(f"{where} {counter}", engines[engine][counter], **bounds, whole=True)
    return {engine: {name: int(own[name]) for name in needed} for engine, own in engines.items()}


def samples(text: str, where: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield name, labels and value [-] of each sample. Errors name the first bad line."""
    from prometheus_client.parser import text_fd_to_metric_families

    lines = text.split("\n")
    numbers = iter(range(len(lines)))
    try:  # the parser does not name the bad line: it is the last line that the parser read
        for family in text_fd_to_metric_families(cast(Any, (lines[i] for i in numbers))):
            for sample in family.samples:
                yield sample.name, sample.labels, float(sample.value)
    except (ArithmeticError, LookupError, ValueError):
        number = next(numbers, len(lines))
        expected = "a line in Prometheus' text format"
        raise InputError(f"{where} line {number}", lines[number - 1], expected) from None


def _growth(earlier: Counts, later: Counts) -> Counts:
    """Return the counts added between two scrapes of the same engines."""
    for engine in sorted(earlier.keys() | later.keys()):
        then, now = earlier.get(engine, {}), later.get(engine, {})
        if then.keys() != now.keys():
            raise InputError("later", engine, "the same engines and positions in both scrapes")
        for counter, count in then.items():
            if now[counter] < count:
                expected = f"at least {count}, the earlier count: the engine was"
                expected += " restarted, or the scrapes are in the wrong order"
                raise InputError(counter, now[counter], expected)
    return {
        engine: {counter: count - earlier[engine][counter] for counter, count in own.items()}
        for engine, own in later.items()
    }


def _check_consistent(drafts: int, drafted: int, accepted: int, reached: Sequence[int]) -> None:
    """Refuse counts that no engine can produce."""
    longest = len(reached)
    if drafts == 0:
        raise InputError(DRAFTS, 0, "at least 1 draft; wait for traffic, then scrape again")
    if not (1 - TORN) * drafts <= drafted <= (1 + TORN) * drafts * longest:
        raise InputError(DRAFTED, drafted, f"1 to {longest} tokens for each of the {drafts} drafts")
    if accepted > drafted:
        raise InputError(ACCEPTED, accepted, f"at most {drafted}, the number of drafted tokens")
    for position, (before, count) in enumerate(itertools.pairwise([drafts, *reached])):
        if count > (1 + TORN) * before:
            expected = f"at most {before}, the count of the previous position or of drafts"
            raise InputError(_at(position), count, expected)
    if abs(sum(reached) - accepted) > TORN * accepted:
        expected = f"{accepted} accepted tokens over all positions, as {ACCEPTED} counts"
        raise InputError(BY_POSITION, sum(reached), expected)
