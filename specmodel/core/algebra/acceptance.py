"""Describe the acceptance of drafted tokens, given in one of six measured forms."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.algebra import speculation
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import NORMAL_80, FloatArray, Numeric, check, single, unwrap

TYPICAL_PROPOSAL_RATE = 0.2
"""Assumed share of steps in which an n-gram look-up proposes tokens [-]: the median of recorded
math, chat, summaries and code (0.154, 0.183, 0.218, 0.321; look-up of 3 to 7 tokens, 3 drafted,
Llama-3.1-8B). The share of *positions* with a proposal is larger (0.27 to 0.61), because a step
skips all positions of a copied run."""

PLAUSIBLE_PROPOSAL_RATES = (0.15, 0.43)
"""Plausible range of this share [-]. Mathematical problems have the fewest steps with a proposal.
Code whose answers repeat until the length limit has the most."""

ACCEPTANCE_SPREAD = 0.095
"""Standard deviation of one head's acceptance rate between data sets [-]. It is from 308 published
values: 23 runs of 13 heads on three to 23 data sets each, as of November 2026."""


def between_tasks(acceptance_rate: float, spread: float = ACCEPTANCE_SPREAD) -> tuple[float, float]:
    """Return the interval with a head's acceptance rates on 80 % of data sets, not clipped [-].

    >>> between_tasks(0.7)
    (0.578..., 0.821...)
    """
    reach = NORMAL_80 * spread
    return acceptance_rate - reach, acceptance_rate + reach


def conditional_acceptance(cumulative_acceptance: Numeric) -> FloatArray:
    """Return the conditional acceptance by position, from cumulative rates [-].

    `cumulative_acceptance` is P(at least i tokens accepted), i = 1, 2, … on the last axis. The
    result is 0 for positions that no draft reaches.
    """
    checked = check("cumulative_acceptance", cumulative_acceptance, minimum=0, maximum=1)
    reached = np.atleast_1d(checked)
    if (np.diff(reached, axis=-1) > 0).any():
        raise InputError("cumulative_acceptance", cumulative_acceptance, "rates that never rise")
    before = np.concatenate([np.ones_like(reached[..., :1]), reached[..., :-1]], axis=-1)
    return np.asarray(np.divide(reached, before, out=np.zeros_like(reached), where=before > 0))


KINDS_OF_RATES = ("cumulative", "conditional")
"""Kinds of rates by position: share of all drafts, as vLLM prints, or of drafts that got there."""
_PRINTED = 3
"""Decimals of a share that programs print; people usually type fewer [-]."""


def readings(typed: Any, draft_length: Numeric | None = None) -> dict[str, list[float]]:
    """Return conditional rates by position [-] for each reading of a text, the likeliest first.

    A key is the text that selects one reading: it starts with ``cumulative:`` or ``conditional:``.
    A text without such a prefix is read as follows. Rates that never rise are cumulative, as vLLM
    prints them. Rates of fewer than three decimals are conditional, as people type them, if all
    are equal, or if all are tenths above 0. A first rate of 1 before lower rates belongs to the
    token that each step emits in any case (vLLM's eagle.py of April 2025 and NVIDIA's specdec_bench
    print it). It counts as a drafted token if it has three decimals, as in vLLM's log, or if
    `draft_length` includes it. With a number above 2, all numbers are per cent. Rates that are
    numbers instead of a text are conditional.

    Examples
    --------
    >>> (read, rates), other = readings("0.844,0.599,0.385,0.271").items()
    >>> read, float(expected_tokens_per_step_by_position(rates, 4).round(3))
    ('cumulative:0.844,0.599,0.385,0.271', 3.099)
    >>> next(iter(readings("1.00,0.74,0.54")))
    'cumulative:0.74,0.54'
    >>> readings("conditional:80%, 70%")
    {'conditional:0.8,0.7': [0.8, 0.7]}
    """
    is_text, text = isinstance(typed, str), ",".join(map(str, np.atleast_1d(typed)))
    kind, decimals, rates = _parsed(text)
    never_rise = not (np.diff(rates) > 0).any()
    lists = [rates, rates[1:]] if rates.size > 1 and rates[0] == 1 > rates[1] else [rates]
    is_counted = draft_length is not None and np.max(draft_length) >= rates.size
    if is_text and not (kind or is_counted or decimals[0] >= _PRINTED):
        lists.reverse()
    is_round = np.ptp(rates) == 0 or (rates.all() and (rates == rates.round(1)).all())
    is_printed = is_text and (not is_round or max(decimals) >= _PRINTED or len(lists) > 1)
    kinds = [kind] if kind else KINDS_OF_RATES[:: 1 if is_printed and never_rise else -1]
    if kind == "cumulative" and not never_rise:
        raise InputError("acceptance_by_position", text, "cumulative rates, which never rise")
    ways: dict[tuple[float, ...], str] = {}
    for listed, name in [*product(lists[:1], kinds), *product(lists[1:], kinds[:1])]:
        if name == "conditional" or never_rise:
            found = conditional_acceptance(listed) if name == "cumulative" else listed
            ways.setdefault(tuple(found), f"{name}:{','.join(f'{rate:g}' for rate in listed)}")
    return {way: [*map(float, rates)] for rates, way in ways.items()}


def typed_rates(text: str, draft_length: Numeric | None = None) -> list[float]:
    """Return the likeliest conditional rates by position in `text` [-]."""
    return next(iter(readings(text, draft_length).values()))


def _parsed(text: str) -> tuple[str, list[int], FloatArray]:
    """Return the typed kind ("" for none), the decimals of each rate, and the rates [-]."""
    kind, _, listed = text.rpartition(":")
    words = listed.replace("%", "").strip(" []()").replace(" / ", ",").split(",")
    try:
        rates = np.array([float(word) for word in words])
    except ValueError:
        rates = np.array([np.nan])
    decimals = [len(word.strip().partition(".")[2]) for word in words]
    if "%" in listed or rates.max() > 2:
        rates, decimals = rates / 100, [places and places + 2 for places in decimals]
    if kind.strip() not in ("", *KINDS_OF_RATES) or not ((rates >= 0) & (rates <= 1)).all():
        expected = "rates such as 0.8,0.7, cumulative:0.8,0.56 or conditional:80%,70%"
        raise InputError("acceptance_by_position", text, expected)
    return kind.strip(), decimals, rates


def typed_contexts(text: str) -> list[tuple[float, float]]:
    """Return the pairs of context and tokens per step that `text` lists [token] [token].

    >>> typed_contexts("2048:3.2, 32768:2.1")
    [(2048.0, 3.2), (32768.0, 2.1)]
    """
    try:
        pairs = (pair.split(":") for pair in text.split(","))
        return [(float(context), float(tokens)) for context, tokens in pairs]
    except ValueError:
        expected = "pairs of context and tokens per step, such as 2048:3.2,32768:2.1"
        raise InputError(_BY_CONTEXT, text, expected) from None


def acceptance_from_lengths(tokens_per_step: Numeric, lengths: Sequence[int] = ()) -> FloatArray:
    """Return the acceptance by position that yields `tokens_per_step` at draft lengths 1, 2, … [-].

    Use it for drafters that draft one token after another. The acceptance of the first tokens then
    does not depend on the number of further tokens. The gain from one length to the next is the
    probability that this number of tokens is accepted, which never rises with position. Measured
    gains may rise, because of their errors; neighbours in the wrong order are replaced by their
    mean, which is the least-squares fit.

    If `lengths` have gaps, rates in a gap are equal, and a loss counts as no gain.

    Examples
    --------
    >>> acceptance_from_lengths([1.8, 2.4], [1, 3]).round(3).tolist()
    [0.8, 0.5, 0.5]
    >>> rates = acceptance_from_lengths([1.8, 2.4, 2.3, 2.6])  # less with three than with two
    >>> expected_tokens_per_step_by_position(rates, [1, 2, 3, 4]).round(3).tolist()
    [1.8, 2.4, 2.5, 2.6]
    """
    tokens = _checked_lengths(tokens_per_step, lengths)
    if lengths and [*lengths] != [*range(1, len(lengths) + 1)]:
        return _between(lengths, tokens)
    pools: list[list[float]] = []
    for gain in np.diff(tokens, prepend=1.0).tolist():
        pools.append([gain])
        while len(pools) > 1 and np.mean(pools[-1]) > np.mean(pools[-2]):
            pools[-2:] = [pools[-2] + pools[-1]]
    reached = np.concatenate([np.full(len(pool), np.mean(pool)) for pool in pools])
    return conditional_acceptance(np.clip(reached, 0.0, 1.0))


def _between(lengths: Sequence[int], tokens: Any) -> FloatArray:
    """Return rates by position that reproduce `tokens` at `lengths`, equal rates in a gap [-]."""
    reached, rates = 1.0, list[float]()
    for (first, before), (last, after) in pairwise([(0, 1.0), *zip(lengths, tokens, strict=True)]):
        count = last - first
        gain = min(max((after - before) / reached, 0.0), float(count)) if reached else 0.0
        rate = float(speculation.solve_acceptance_rate(1.0 + gain, count))
        rates += [rate] * count
        reached *= rate**count
    return np.array(rates)


def _checked_lengths(tokens_per_step: Numeric, lengths: Sequence[int] = ()) -> FloatArray:
    """Check the tokens per step at draft lengths, by default 1, 2, …; return an array [token]."""
    tokens = check("tokens_per_step", tokens_per_step, minimum=1)
    if tokens.ndim != 1 or not tokens.size:
        raise InputError("tokens_per_step", tokens.tolist(), "a list: one for each draft length")
    drafted = np.array(lengths or range(1, tokens.size + 1))
    if drafted.shape != tokens.shape:
        expected = f"{drafted.size} numbers, one for each draft length"
        raise InputError("tokens_per_step", tokens.tolist(), expected)
    if (tokens > drafted + 1).any():
        raise InputError("tokens_per_step", tokens.tolist(), "numbers of at most draft length + 1")
    return tokens


def acceptance_of_blocks(tokens_per_step: Numeric) -> FloatArray:
    """Return the acceptance by position of block drafters, one row for each block length [-].

    Use it for drafters that draft all tokens at once. One length then does not determine another.
    Only the mean is known, so all positions have the same rate.
    """
    tokens = _checked_lengths(tokens_per_step)
    rates = speculation.solve_acceptance_rate(tokens, np.arange(1, tokens.size + 1))
    return np.repeat(rates[:, None], tokens.size, axis=1)


def expected_tokens_per_step_by_position(
    acceptance_by_position: Numeric, draft_length: Numeric
) -> FloatArray:
    r"""Return the tokens per step with acceptance by position [token].

    .. math:: 1 + \sum_{j=1}^{\gamma} \prod_{i=1}^{j} a_i

    `acceptance_by_position` is one list, or a square table whose row n has the rates of drafts of n
    tokens. Draft lengths are whole numbers, at most the length of the list.
    """
    rates = check("acceptance_by_position", acceptance_by_position, minimum=0, maximum=1)
    most = rates.shape[-1] if rates.ndim else 0
    if rates.shape not in ((most,), (most, most)):
        expected = "one list of rates, or one list of equal length for each draft length"
        raise InputError("acceptance_by_position", rates.tolist(), expected)
    gamma = speculation.check_draft_length(draft_length, whole=True)
    if gamma.max() > most:
        expected = f"at least draft_length = {gamma.max():g} rates"
        raise InputError("acceptance_by_position", rates.tolist(), expected)
    gained = np.cumsum(np.cumprod(rates, axis=-1), axis=-1)
    tokens = 1 + np.concatenate([[0.0], gained if rates.ndim == 1 else np.diagonal(gained)])
    return unwrap(tokens[gamma.astype(int)])


def mean_tokens_per_step(tokens_where_proposed: Numeric, proposal_rate: Numeric) -> FloatArray:
    """Return the mean tokens per step if only a share of steps has a proposal [token].

    .. math:: 1 + r (x - 1)

    A step without a proposal is a decode step and emits one token.
    """
    return np.asarray(1 + np.asarray(proposal_rate) * (np.asarray(tokens_where_proposed) - 1))


def proposals(
    proposal_rate: FloatArray | float, batch_size: FloatArray
) -> tuple[FloatArray, FloatArray]:
    r"""Return the probability that any sequence has a proposal, and the share with one then [-].

    .. math:: 1 - (1 - r)^B, \qquad \frac{r}{1 - (1 - r)^B}

    Sequences propose independently.
    """
    if np.ndim(proposal_rate) == 0 and proposal_rate == 1:
        return np.ones(()), np.ones(())
    with np.errstate(divide="ignore"):
        chance = -np.expm1(batch_size * np.log1p(-proposal_rate))
    share = np.divide(proposal_rate, chance, out=np.zeros_like(chance), where=chance > 0)
    return chance, np.minimum(share, 1.0)


_BY_CONTEXT = "acceptance_by_context"
_MEASURED = ("tokens_per_step", "step_efficiency", "accepted_fraction", _BY_CONTEXT)
"""Forms that are valid only at the draft length at which they were measured."""
ONE_FOR_ALL = ("acceptance_by_position", _BY_CONTEXT)
"""Forms whose numbers describe one acceptance for all points."""


class Acceptance(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Acceptance of drafted tokens, given in exactly one of six forms.

    Parameters
    ----------
    acceptance_rate
        Chance that a token is accepted if all before it were, any shape [-].
    tokens_per_step, step_efficiency, accepted_fraction, measured_draft_length
        Values, and the draft length at which they were measured. The acceptance rate follows from
        them [token] [-] [-] [token].
    acceptance_by_position
        Conditional rates of positions 1, 2, …: one list. For drafters that draft a block at once, a
        square table whose row n has the rates of drafts of n tokens [-].
    acceptance_by_context
        Tokens per step by context, measured at `measured_draft_length`: a dict or pairs, the
        shortest context first. `at_context` interpolates in the logarithm of the context [token].
    source
        Source of published numbers.
    spread
        Standard deviation of the rate, the same at all points, such as `ACCEPTANCE_SPREAD`.
        Intervals add it to the errors of times [-].
    measured_by_context
        Pairs between which `at_context` interpolated, empty otherwise [token].

    Examples
    --------
    >>> measured = Acceptance(tokens_per_step=3.3616, measured_draft_length=4)
    >>> float(measured.expected_tokens_per_step(2).round(2))
    2.44
    """

    acceptance_rate: Numeric | None = None
    tokens_per_step: Numeric | None = None
    step_efficiency: Numeric | None = None
    accepted_fraction: Numeric | None = None
    acceptance_by_position: Numeric | None = None
    acceptance_by_context: Mapping[float, float] | Sequence[tuple[float, float]] | None = None
    measured_draft_length: Numeric | None = None
    source: str = ""
    spread: float = 0.0
    measured_by_context: Sequence[Sequence[float]] = ()

    def __post_init__(self) -> None:
        if self.form not in _MEASURED and self.measured_draft_length is not None:
            expected = (
                f"With {self.form}, all draft lengths are alike. Remove `measured_draft_length`."
            )
            raise InputError("measured_draft_length", self.measured_draft_length, expected)

    @cached_property
    def form(self) -> str:
        """Name of the form that was given."""
        given = [name for name in FORMS if getattr(self, name) is not None]
        if len(given) != 1:
            raise InputError("acceptance", given or None, "exactly one of " + ", ".join(FORMS))
        return given[0]

    def continued(self, draft_length: int) -> "Acceptance":
        """Return the acceptance extended to `draft_length` tokens by repeating the last rate.

        The result is an upper bound if rates fall with position. `source` names the assumption.

        >>> known = Acceptance(acceptance_by_position=[0.8, 0.6], source="a paper")
        >>> known.continued(4).acceptance_by_position, known.continued(4).source
        ([0.8, 0.6, 0.6, 0.6], 'a paper; beyond draft length 2, the last measured rate is assumed')
        """
        if self.acceptance_by_position is None or draft_length <= self.max_draft_length:
            return self
        rates = np.asarray(self.acceptance_by_position, dtype=float)
        known = rates.shape[-1]
        wider = np.full((draft_length,) * rates.ndim, rates.flat[-1])
        wider[tuple(slice(known) for _ in rates.shape)] = rates
        source = f"{self.source}; beyond draft length {known}, the last measured rate is assumed"
        return replace(self, acceptance_by_position=wider.tolist(), source=source)

    @property
    def max_draft_length(self) -> float:
        """Longest draft with known acceptance [token]."""
        if self.acceptance_by_position is None:
            return float(speculation.MAX_DRAFT_LENGTH)
        rates = check("acceptance_by_position", self.acceptance_by_position)
        return float(np.atleast_1d(rates).shape[-1])

    def at_context(self, context_length: Numeric) -> "Acceptance":
        """Return the acceptance at some contexts: interpolated, or that of the nearest context.

        >>> tokens = {2048: 3.2, 32768: 2.1}
        >>> falling = Acceptance(acceptance_by_context=tokens, measured_draft_length=3)
        >>> falling.at_context([512, 8192]).expected_tokens_per_step(3).round(2).tolist()
        [3.2, 2.65]
        """
        if self.acceptance_by_context is None:
            return self
        known = np.log(np.maximum(self._pairs[:, 0], 1))
        asked = np.log(np.maximum(context_length, 1))
        return replace(
            self,
            acceptance_by_context=None,
            tokens_per_step=np.interp(asked, known, self._pairs[:, 1]),
            measured_by_context=self._pairs.tolist(),
        )

    @cached_property
    def _pairs(self) -> FloatArray:
        """Pairs of measured context and tokens per step, one pair per row [token]."""
        given, length = self.acceptance_by_context, self.measured_draft_length
        pairs = check(_BY_CONTEXT, [*given.items()] if isinstance(given, Mapping) else given)
        if length is None:
            raise self._unmeasured()
        most = 1 + single("measured_draft_length", length, "one, of all contexts")
        is_table = pairs.shape[1:] == (2,) and (np.diff(pairs[:, 0]) > 0).all()
        if not is_table or (pairs < [0, 1]).any() or pairs[:, 1].max() > most:
            expected = f"rising contexts from 0, each with tokens per step from 1 to {most:g}"
            raise InputError(_BY_CONTEXT, pairs.tolist(), expected)
        return pairs

    def where_proposed(self, proposal_rate: float) -> "Acceptance":
        """Return the acceptance of steps with a proposal, from means over all steps.

        Tokens per step and step efficiency are means over all steps, in which a step without a
        proposal counts as one token. The other forms describe drafted tokens and do not change.
        """
        if proposal_rate in (0, 1) or self.form not in ("tokens_per_step", "step_efficiency"):
            return self
        tokens, length = self._measured_tokens()
        most = mean_tokens_per_step(length + 1, proposal_rate)
        if (tokens > most * (1 + 1e-12)).any():
            bound = (most / (length + 1) if self.form == "step_efficiency" else most).min()
            share = f"{proposal_rate:g} of the steps have a proposal (proposal_rate)"
            expected = f"at most {bound:.4g}, as only {share}"
            name = _BY_CONTEXT if self.measured_by_context else self.form
            raise InputError(name, np.max(getattr(self, self.form)).item(), expected)
        proposed = np.minimum(1 + (tokens - 1) / proposal_rate, length + 1)
        return replace(self, tokens_per_step=proposed, step_efficiency=None, source="")

    def moved(self, draft_length: FloatArray, by: FloatArray) -> "Acceptance":
        """Return the acceptance as one rate per draft length plus `by`, clipped to [0, 1]."""
        length = np.maximum(draft_length, 1.0)
        rate = speculation.solve_acceptance_rate(self.expected_tokens_per_step(length), length)
        return Acceptance(acceptance_rate=np.clip(rate + by, 0.0, 1.0))

    def measured_at(self, draft_length: Numeric) -> "Acceptance":
        """Return the acceptance with `measured_draft_length`, if its form needs one.

        If the form needs one, several draft lengths are an error.
        """
        if self.form not in _MEASURED or self.measured_draft_length is not None:
            return self
        lengths = np.unique(np.asarray(draft_length, dtype=float))
        asked = lengths[lengths > 0] if lengths.size > 1 else lengths
        if asked.size != 1 or not asked.all():
            raise self._unmeasured(", as draft_length is 0" if asked.size == 1 else "")
        return replace(self, measured_draft_length=asked.item())

    def rate(self) -> FloatArray:
        """Return the acceptance rate, given or computed. The form by position has none [-]."""
        return self._rate

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the points with their own rates, () if all points have the same acceptance."""
        return () if self.form in ONE_FOR_ALL else np.shape(self._rate)

    @cached_property
    def _rate(self) -> FloatArray:
        if self.form == "acceptance_rate":
            return check("acceptance_rate", self.acceptance_rate, minimum=0, maximum=1)
        return speculation.solve_acceptance_rate(*self._measured_tokens())

    def expected_tokens_per_step(self, draft_length: Numeric) -> FloatArray:
        """Return the expected tokens per step at draft lengths, any shape [token]."""
        if self.acceptance_by_position is not None:
            rates = self.acceptance_by_position
            longest, most = float(np.max(draft_length)), self.max_draft_length
            if self.source and longest > most:
                expected = f"at most {most:g}, the longest measured draft: {self.source}"
                raise InputError("draft_length", f"{longest:g}", expected)
            return expected_tokens_per_step_by_position(rates, draft_length)
        return speculation.expected_tokens_per_step(self._rate, draft_length)

    def _measured_tokens(self) -> tuple[FloatArray, FloatArray]:
        """Return the measured tokens per step and their draft length [token]."""
        form, most = self.form, speculation.MAX_DRAFT_LENGTH
        if self.measured_draft_length is None:
            raise self._unmeasured()
        length = check("measured_draft_length", self.measured_draft_length, minimum=1, maximum=most)
        if form == "tokens_per_step":
            return check(form, self.tokens_per_step, minimum=1), length
        if form == _BY_CONTEXT:
            raise InputError("context_length", None, f"With {form}, call at_context first.")
        if form == "accepted_fraction":
            fraction = check(form, self.accepted_fraction, minimum=0, maximum=1)
            return np.minimum(1 + fraction * length, length + 1), length
        sigma, lowest = check(form, self.step_efficiency), 1 / (length + 1)
        is_outside = (sigma < lowest * (1 - 1e-12)) | (sigma > 1)
        if is_outside.any():
            expected = f"numbers from 1/(draft_length + 1) = {lowest.max():.4g} to 1"
            first = np.broadcast_to(sigma, is_outside.shape)[is_outside][0]
            raise InputError(form, first, expected)
        return np.maximum(sigma * (length + 1), 1), length

    def _unmeasured(self, why: str = "") -> InputError:
        expected = f"the draft length at which {self.form} was measured{why}"
        return InputError("measured_draft_length", None, expected)


FORMS = Acceptance.__struct_fields__[:-4]
"""Names of the six forms."""
