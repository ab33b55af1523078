"""Speculation counters of a running vLLM, from saved scrapes of its ``/metrics``.

References
----------
.. [1] vLLM, "Production Metrics," vLLM documentation: the counters ``vllm:spec_decode_*``.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from specmodel.algebra.acceptance import (
    acceptance_rate_from_accepted_fraction,
    conditional_acceptance,
)
from specmodel.algebra.speculation import MAX_DRAFT_LENGTH
from specmodel.base.errors import InputError, nearest
from specmodel.base.records import read_text
from specmodel.base.units import FloatArray, check

NUM_DRAFTS = "vllm:spec_decode_num_drafts_total"
NUM_DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
NUM_ACCEPTED_TOKENS = "vllm:spec_decode_num_accepted_tokens_total"
ACCEPTED_BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
COUNTERS = {
    "num_drafts": NUM_DRAFTS,
    "num_draft_tokens": NUM_DRAFT_TOKENS,
    "num_accepted_tokens": NUM_ACCEPTED_TOKENS,
    "accepted_by_position": ACCEPTED_BY_POSITION,
}
"""Names in a scrape by field here."""

TORN = 0.01
"""Most that counters may contradict each other [-]: an engine of several processes can be scraped
while it raises one after another."""

_POSITIONS = {str(position): position for position in range(MAX_DRAFT_LENGTH)}
_MOST = 2.0**53  # beyond, a counter kept as a double no longer counts


@dataclass(frozen=True, kw_only=True, eq=False)
class SpeculationCounters:
    """What an engine counted of its drafts since it started, or between two scrapes.

    Parameters
    ----------
    model_name
        Label of the counters.
    engines
        The other labels of each series, such as ``engine="0"``; they are summed over.
    num_drafts
        Drafts verified: steps of a sequence that had a draft, shape (engines,) [-].
    num_draft_tokens, num_accepted_tokens
        Tokens drafted, and of these accepted, shape (engines,) [token].
    accepted_by_position
        Drafts of which at least the first 1, 2, … tokens were accepted, shape (engines,
        positions) [-].
    """

    model_name: str
    engines: tuple[str, ...]
    num_drafts: FloatArray
    num_draft_tokens: FloatArray
    num_accepted_tokens: FloatArray
    accepted_by_position: FloatArray

    def __sub__(self, earlier: "SpeculationCounters") -> "SpeculationCounters":
        """Return what was counted since an earlier scrape of the same engines.

        Raises
        ------
        InputError
            If models, engines or positions are not the same, or a counter went backwards.
        """
        if self.model_name != earlier.model_name:
            raise InputError("model_name", self.model_name, f"{earlier.model_name}, as earlier")
        if self.engines != earlier.engines:
            raise InputError("engines", self.engines, f"as earlier: {', '.join(earlier.engines)}")
        before, after = (c.accepted_by_position.shape[1] for c in (earlier, self))
        if before != after:
            raise InputError(ACCEPTED_BY_POSITION, f"{after} positions", f"{before}, as earlier")
        grown = {}
        for field, counter in COUNTERS.items():
            now, then = getattr(self, field), getattr(earlier, field)
            if (now < then).any():
                expected = (
                    f"at least {then[now < then][0]:.0f}, as earlier: it went backwards, so the"
                    " engine was restarted, or the scrapes are swapped"
                )
                raise InputError(counter, int(now[now < then][0]), expected)
            grown[field] = now - then
        return SpeculationCounters(model_name=self.model_name, engines=self.engines, **grown)


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredAcceptance:
    """Acceptance as an engine counted it, over the steps that had a draft.

    Parameters
    ----------
    model_name
        Label of the counters.
    num_engines
        Series summed [-].
    num_drafts
        Steps of a sequence that had a draft [-].
    num_draft_tokens, num_accepted_tokens
        Tokens drafted, and of these accepted [token].
    accepted_by_position
        Drafts of which at least the first 1, 2, … tokens were accepted [-].
    mean_draft_length
        Drafted tokens a draft; not whole where drafts differ in length [token].
    max_draft_length
        Positions counted: the engine's ``num_speculative_tokens`` [token].
    acceptance_rate
        P(token accepted, all before it were), solved at the mean draft length [-].
    acceptance_by_position
        The same per position [-].
    tokens_per_step
        Accepted tokens a draft, and the target's own [token].
    accepted_fraction
        Accepted over drafted tokens [-].
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

    @property
    def has_short_drafts(self) -> bool:
        """Whether some drafts were shorter than the longest."""
        return self.num_draft_tokens < self.num_drafts * self.max_draft_length


def read_scrape(path: str | Path, model: str | None = None) -> SpeculationCounters:
    """Return the speculation counters of a saved Prometheus scrape of vLLM.

    Parameters
    ----------
    path
        Text of the engine's ``/metrics``.
    model
        Which ``model_name``, where the scrape has several.

    Returns
    -------
    SpeculationCounters
        Of one model, an entry for each engine.

    Raises
    ------
    InputError
        In one line, if the file cannot be read or its counters do not do.
    """
    samples = list(_speculation_samples(Path(path)))
    names = sorted({labels["model_name"] for _, labels, _ in samples})
    if model is None and len(names) > 1:
        raise InputError("model", None, "one of " + ", ".join(names))
    if model is not None and model not in names:
        raise InputError("model", model, nearest(model, names))
    chosen = names[0] if model is None else model
    engines: dict[str, dict[tuple[str, int], float]] = {}
    for counter, labels, value in samples:
        if labels.pop("model_name") != chosen:
            continue
        position = labels.pop("position", None) if counter == ACCEPTED_BY_POSITION else "0"
        if position not in _POSITIONS:
            raise InputError(
                f"{counter} position", position, f"a whole number from 0 to {MAX_DRAFT_LENGTH - 1}"
            )
        counts = engines.setdefault(", ".join(f'{k}="{labels[k]}"' for k in sorted(labels)), {})
        if (counter, _POSITIONS[position]) in counts:
            raise InputError(f"scrape {path} {counter}", labels, "each series once")
        counts[counter, _POSITIONS[position]] = value
    return _assemble(chosen, engines, str(path))


def measured_acceptance(counters: SpeculationCounters) -> MeasuredAcceptance:
    """Return the acceptance that an engine counted, summed over its engines.

    Parameters
    ----------
    counters
        From `read_scrape`, or the difference of two.

    Returns
    -------
    MeasuredAcceptance
        Its rates by position are ready for `Acceptance`.

    Raises
    ------
    InputError
        If nothing was drafted, or the counters contradict each other.

    Notes
    -----
    The engine counts steps that had a draft, so that tokens per step is a mean over these; how
    many n-gram look-ups found nothing to propose is not in the counters.

    Where drafts differ in length (n-gram look-up, draft-length schedules, the end of a request),
    the acceptance rate is solved at their mean. Tokens per step are concave in the draft length,
    so this is at most the rate of the tokens if that does not depend on the length. The rates by
    position are too low likewise from position 2 on, as a draft that ended before a position
    counts as rejected there. The tokens per step computed from them are right at every length.

    Examples
    --------
    >>> measured = measured_acceptance(SpeculationCounters(
    ...     model_name="m", engines=("",), num_drafts=np.array([100.0]),
    ...     num_draft_tokens=np.array([200.0]), num_accepted_tokens=np.array([120.0]),
    ...     accepted_by_position=np.array([[80.0, 40.0]])))
    >>> measured.tokens_per_step, measured.acceptance_by_position.tolist()
    (2.2, [0.8, 0.5])
    """
    drafts, drafted, accepted = (
        int(total.sum())
        for total in (counters.num_drafts, counters.num_draft_tokens, counters.num_accepted_tokens)
    )
    by_position = counters.accepted_by_position.sum(axis=0).astype(np.int64)
    _check_consistent(drafts, drafted, accepted, by_position)
    by_position = np.minimum.accumulate(np.minimum(by_position, drafts))
    mean_length = min(max(drafted / drafts, 1.0), float(by_position.size))
    rate = acceptance_rate_from_accepted_fraction(accepted / drafted, mean_length)
    return MeasuredAcceptance(
        model_name=counters.model_name,
        num_engines=len(counters.engines),
        num_drafts=drafts,
        num_draft_tokens=drafted,
        num_accepted_tokens=accepted,
        accepted_by_position=by_position,
        mean_draft_length=mean_length,
        max_draft_length=by_position.size,
        acceptance_rate=float(rate),
        acceptance_by_position=conditional_acceptance(by_position / drafts),
        tokens_per_step=1 + accepted / drafts,
        accepted_fraction=accepted / drafted,
    )


def _check_consistent(
    drafts: int, drafted: int, accepted: int, by_position: NDArray[np.int64]
) -> None:
    """Refuse counters that no engine could have counted."""
    if drafts == 0:
        raise InputError(NUM_DRAFTS, 0, "at least 1: no drafts yet, or none between the scrapes")
    if not (1 - TORN) * drafts <= drafted <= (1 + TORN) * drafts * by_position.size:
        expected = f"from 1 to {by_position.size} for each of {drafts} drafts"
        raise InputError(NUM_DRAFT_TOKENS, drafted, expected)
    if accepted > drafted:
        expected = f"at most {drafted}, as many as were drafted"
        raise InputError(NUM_ACCEPTED_TOKENS, accepted, expected)
    before = drafts
    for position, count in enumerate(by_position.tolist()):
        if count > (1 + TORN) * before:
            expected = f"at most {before}, as at the position before or of drafts in all"
            raise InputError(f"{ACCEPTED_BY_POSITION} position {position}", count, expected)
        before = count
    total = int(by_position.sum())
    if abs(total - accepted) > TORN * accepted:
        expected = f"{accepted} over all positions, as many as {NUM_ACCEPTED_TOKENS}"
        raise InputError(ACCEPTED_BY_POSITION, total, expected)


def _assemble(
    model: str, engines: dict[str, dict[tuple[str, int], float]], path: str
) -> SpeculationCounters:
    names = tuple(sorted(engines))
    num_positions = 1 + max(position for counts in engines.values() for _, position in counts)
    needed = [(counter, 0) for counter in COUNTERS.values()]
    needed += [(ACCEPTED_BY_POSITION, position) for position in range(1, num_positions)]
    for name in names:
        for counter, position in needed:
            if (counter, position) not in engines[name]:
                of = f" of position {position}" if counter == ACCEPTED_BY_POSITION else ""
                raise InputError(
                    f"scrape {path}",
                    f"{model} {name}".strip(),
                    f"its counter {counter}{of} as well",
                )

    def table(counter: str, positions: int = 1) -> FloatArray:
        rows = [[engines[name][counter, p] for p in range(positions)] for name in names]
        return check(f"scrape {path} {counter}", rows, minimum=0, maximum=_MOST, whole=True)

    return SpeculationCounters(
        model_name=model,
        engines=names,
        num_drafts=table(NUM_DRAFTS)[:, 0],
        num_draft_tokens=table(NUM_DRAFT_TOKENS)[:, 0],
        num_accepted_tokens=table(NUM_ACCEPTED_TOKENS)[:, 0],
        accepted_by_position=table(ACCEPTED_BY_POSITION, num_positions),
    )


def _speculation_samples(path: Path) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield name, labels and value of the counters; there is at least one."""
    found = is_vllm = False
    for name, labels, value in _samples(path):
        is_vllm |= name.startswith("vllm:")
        if name in COUNTERS.values():
            if "model_name" not in labels:
                raise InputError(f"scrape {path} {name}", labels, "a label model_name")
            found = True
            yield name, dict(labels), value
    if not found:
        reason = "there are none, so speculation may be off" if is_vllm else "it is no vLLM scrape"
        raise InputError("scrape", str(path), f"counters vllm:spec_decode_* ({reason})")


class _CountedLines(io.StringIO):
    """Text that knows which of its lines was read last: the parser does not say."""

    last = 0

    def __next__(self) -> str:  # type: ignore[override] # of bytes, say its types
        self.last += 1
        return super().__next__()


def _samples(path: Path) -> Iterator[tuple[str, dict[str, str], float]]:
    from prometheus_client.parser import text_fd_to_metric_families

    text = read_text(path, "scrape", "text")
    lines = _CountedLines(text)
    try:
        for family in text_fd_to_metric_families(lines):
            for sample in family.samples:
                yield sample.name, sample.labels, sample.value
    except (ArithmeticError, LookupError, ValueError):
        culprit = text.split("\n")[lines.last - 1]
        expected = "a line in Prometheus' text format"
        raise InputError(f"scrape {path} line {lines.last}", culprit, expected) from None
