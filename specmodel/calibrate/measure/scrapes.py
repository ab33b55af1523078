"""Read acceptance from the counters of a running vLLM, in saved scrapes of ``/metrics``."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
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
"""Counters may contradict each other by so much [-]: an engine of several processes can be
scraped while it raises one counter after another."""

RUNNING = "vllm:num_requests_running"
EMITTED, FIRST = "vllm:generation_tokens_total", "vllm:time_to_first_token_seconds_count"
"""Tokens of all answers, and how many had a first one, which prompts emit."""

Counts = dict[tuple[str, str], float]
"""Values by the labels of an engine, such as ``engine="0"``, and the counter with its position."""

Sums = dict[str, dict[str, float]]
"""Other values by model and name, summed over engines."""


class MeasuredAcceptance(Struct, frozen=True, kw_only=True, eq=False):
    """Acceptance as an engine counted it, over steps with a draft.

    Parameters
    ----------
    model_name, num_engines
        Label of the counters, and number of engines in the sums [-].
    num_drafts, num_draft_tokens, num_accepted_tokens
        Steps of a sequence with a draft, their drafted tokens, and accepted ones [-] [token].
    accepted_by_position
        Number of drafts with at least the first 1, 2, … tokens accepted [-].
    mean_draft_length, max_draft_length
        Mean number of drafted tokens per step, and number of positions counted: the engine's
        ``num_speculative_tokens`` [token].
    proposal_rate
        Share of steps with a draft; None if the scrape has no count of emitted tokens [-].
    acceptance_rate, acceptance_by_position
        Chance that a token is accepted if all before it were, solved at the mean draft length, and
        for each position [-].
    tokens_per_step, accepted_fraction
        Accepted tokens per step, plus the target's own one [token]; accepted over drafted [-].
    running_requests
        Requests running on all engines, as a mean of scrapes that had any; None if none had
        [request].
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

    @property
    def shares_by_position(self) -> FloatArray:
        """Shares of drafts with at least the first 1, 2, ... tokens accepted [-]."""
        return np.asarray(self.accepted_by_position / self.num_drafts)


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

    Notes ----- The engine counts steps with a draft. The number of steps without one, in which
    n-gram look-ups found nothing, follows from emitted tokens. If a scrape lacks these, tokens per
    step describe only steps with a draft, and are too high for a look-up.

    If drafts differ in length (n-gram look-up, draft-length schedules, the end of a request), the
    acceptance rate is solved at their mean. Tokens per step are concave in the draft length, so the
    result is at most the rate of the tokens, if that does not depend on the length. The rates by
    position are too low from position 2 on, because a draft that ended before a position counts as
    rejected there. The tokens per step computed from them are right at every length.
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
    totals: Counter[str] = Counter()
    for (_, counter), count in counts.items():
        totals[counter] += int(count)
    drafts, drafted, accepted = totals[DRAFTS], totals[DRAFTED], totals[ACCEPTED]
    reached = [totals[_at(i)] for i in range(len(totals) - 3)]
    _check_consistent(drafts, drafted, accepted, reached)
    by_position = np.minimum.accumulate(np.minimum(reached, drafts))
    mean_length = min(max(drafted / drafts, 1.0), float(len(reached)))
    share = proposal_share(drafts, accepted, emitted) if emitted > 0 else None
    fraction = accepted / drafted
    flat = acceptance.Acceptance(accepted_fraction=fraction, measured_draft_length=mean_length)
    return MeasuredAcceptance(
        model_name=name,
        num_engines=len({engine for engine, _ in counts}),
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
    """Return the model's name, the counters of its engines, each with all, and other sums."""
    where = f"scrape {path}"
    text = read_text(Path(path), "scrape", "text") if text is None else text
    found = list(samples(text, where))
    models: dict[str, Counts] = defaultdict(dict)
    others: Sums = defaultdict(lambda: defaultdict(float))
    for name, labels, value in found:
        if name in (RUNNING, EMITTED, FIRST) and value > 0:  # neither negative nor NaN
            others[labels.get("model_name", "")][name] += value
        if name in COUNTERS:
            model_name, series = _series(name, labels)
            if series in models[model_name]:
                raise InputError(f"{where} {series[1]}", labels, "each series once")
            models[model_name][series] = value
    if not models:
        is_vllm = any(name.startswith("vllm:") for name, _, _ in found)
        reason = "none found: speculation may be off" if is_vllm else "this is no vLLM scrape"
        raise InputError("scrape", str(path), f"counters vllm:spec_decode_* ({reason})")
    if model is None and len(models) > 1:
        raise InputError("model", None, f"one of {nearest('', models)}")
    chosen = next(iter(models)) if model is None else model
    if chosen not in models:
        raise InputError("model", chosen, nearest(chosen, models))
    _check_complete(models[chosen], where)
    return chosen, models[chosen], others[chosen]


def _series(name: str, labels: dict[str, str]) -> tuple[str, tuple[str, str]]:
    """Return the model, and the labels of the engine with the counter and its position."""
    others = dict(sorted(labels.items()))
    model = others.pop("model_name", None)
    if model is None:  # several models would be summed as if they were engines of one
        raise InputError(name, labels, "a label model_name, as vLLM writes it")
    if name == BY_POSITION:
        position = whole_of(others.pop("position", ""))
        if position is None:
            raise InputError(name, labels, "a label position that counts from 0")
        name = _at(position)
    return model, (", ".join(f'{label}="{text}"' for label, text in others.items()), name)


def _at(position: object) -> str:
    return f"{BY_POSITION} position {position}"


def _check_complete(counts: Counts, where: str) -> None:
    """Refuse an engine that lacks a counter or position, and values that are no counts."""
    engines = sorted({engine for engine, _ in counts})
    positions = Counter(engine for engine, counter in counts if counter not in COUNTERS)
    needed = [DRAFTS, DRAFTED, ACCEPTED, *map(_at, range(max(positions.values(), default=1)))]
    for engine, counter in itertools.product(engines, needed):
        if (engine, counter) not in counts:
            raise InputError(where, f"engine {engine}".strip(), f"the counter {counter} too")
        # beyond 2⁵³, a counter kept as a double no longer counts
        bounds = {"minimum": 0, "maximum": 2.0**53}
        check(f"{where} {counter}", counts[engine, counter], **bounds, whole=True)


def samples(text: str, where: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield name, labels and value [-] of each sample in a scrape; name the first line at fault."""
    from prometheus_client.parser import text_fd_to_metric_families

    lines = text.split("\n")
    numbers = iter(range(len(lines)))
    try:  # the parser does not say which line is at fault: it is the last one that it took
        for family in text_fd_to_metric_families(cast(Any, (lines[i] for i in numbers))):
            for sample in family.samples:
                yield sample.name, sample.labels, float(sample.value)
    except (ArithmeticError, LookupError, ValueError):
        number = next(numbers, len(lines))
        expected = "a line in Prometheus' text format"
        raise InputError(f"{where} line {number}", lines[number - 1], expected) from None


def _growth(earlier: Counts, later: Counts) -> Counts:
    """Return the counts added between two scrapes of the same engines."""
    for engine, counter in sorted(earlier.keys() ^ later.keys()):
        expected = "the same engines and positions in both scrapes"
        raise InputError(counter, engine, expected)
    for key, then in earlier.items():
        if later[key] < then:
            expected = f"at least {then:.0f}, the earlier count: the engine was"
            expected += " restarted, or the scrapes are in the wrong order"
            raise InputError(key[1], int(later[key]), expected)
    return {key: now - earlier[key] for key, now in later.items()}


def _check_consistent(drafts: int, drafted: int, accepted: int, reached: list[int]) -> None:
    """Refuse counters that no engine could have counted."""
    longest = len(reached)
    if drafts == 0:
        raise InputError(DRAFTS, 0, "at least 1 draft; wait for traffic, then scrape again")
    if not (1 - TORN) * drafts <= drafted <= (1 + TORN) * drafts * longest:
        raise InputError(DRAFTED, drafted, f"from 1 to {longest} for each of {drafts} drafts")
    if accepted > drafted:
        raise InputError(ACCEPTED, accepted, f"at most {drafted}, the number of drafted tokens")
    for position, (before, count) in enumerate(itertools.pairwise([drafts, *reached])):
        if count > (1 + TORN) * before:
            expected = f"at most {before}, the count of the previous position or of drafts"
            raise InputError(_at(position), count, expected)
    if abs(sum(reached) - accepted) > TORN * accepted:
        expected = f"the sum over positions to be {accepted}, as {ACCEPTED}"
        raise InputError(BY_POSITION, sum(reached), expected)
