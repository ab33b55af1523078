"""How often tokens are drafted and accepted, in the one of five forms that was measured."""

from dataclasses import dataclass, fields, replace

import numpy as np

from specmodel.algebra import speculation
from specmodel.base.errors import InputError
from specmodel.base.units import FloatArray, Numeric, check, unwrap

TYPICAL_PROPOSAL_RATE = 0.44
"""Share of the steps in which a look-up is assumed to have a proposal if nothing is known [-]: the
median of four kinds of text (`specmodel list presets`)."""

PLAUSIBLE_PROPOSAL_RATES = (0.28, 0.63)
"""Where these are: solutions of mathematical problems have the fewest, code the most [-]."""


def conditional_acceptance(cumulative_acceptance: Numeric) -> FloatArray:
    """Return per-position acceptance given all before, from the cumulative rates papers publish.

    Parameters
    ----------
    cumulative_acceptance
        P(at least i tokens accepted), i = 1, 2, … on the last axis, not rising [-].

    Returns
    -------
    FloatArray
        Conditional rates of the same shape; 0 after a position never reached [-].

    Raises
    ------
    InputError
        If a rate is outside [0, 1] or rises along the last axis.

    Examples
    --------
    >>> conditional_acceptance([0.8, 0.6, 0.3]).round(3).tolist()
    [0.8, 0.75, 0.5]
    """
    reached = np.atleast_1d(
        check("cumulative_acceptance", cumulative_acceptance, minimum=0, maximum=1)
    )
    if (np.diff(reached, axis=-1) > 0).any():
        raise InputError("cumulative_acceptance", cumulative_acceptance, "rates that never rise")
    before = np.concatenate([np.ones_like(reached[..., :1]), reached[..., :-1]], axis=-1)
    return np.asarray(np.divide(reached, before, out=np.zeros_like(reached), where=before > 0))


def acceptance_from_lengths(tokens_per_step: Numeric) -> FloatArray:
    """Return the acceptance by position that gives the tokens per step measured at each length.

    A drafter that makes one token after another drafts the first ones alike, however long it goes
    on: then the gain from one length to the next is the chance that so many tokens are accepted.
    Chances never rise from one position to the next; where measured gains do, by their errors,
    they are replaced by the closest that do not.

    Parameters
    ----------
    tokens_per_step
        Mean tokens emitted per step with 1, 2, … tokens drafted; one list [token].

    Returns
    -------
    FloatArray
        P(token i accepted, all before it were), of the same length [-].

    Raises
    ------
    InputError
        If there is no list, or a number is below 1 or above the draft length + 1.

    Notes
    -----
    Least squares over the gains by pooling neighbours that are in the wrong order, whose mean
    stands in for each, and 0 for what is below it: exact where gains fall and are positive.

    Examples
    --------
    >>> acceptance_from_lengths([1.8, 2.4, 2.7]).round(3).tolist()
    [0.8, 0.75, 0.5]
    >>> rates = acceptance_from_lengths([1.8, 2.4, 2.3, 2.6])  # less with three than with two
    >>> expected_tokens_per_step_by_position(rates, [1, 2, 3, 4]).round(3).tolist()
    [1.8, 2.4, 2.5, 2.6]
    """
    tokens = _checked_lengths(tokens_per_step)
    pools: list[list[float]] = []
    for gain in np.diff(tokens, prepend=1.0).tolist():
        pools.append([gain])
        while len(pools) > 1 and np.mean(pools[-1]) > np.mean(pools[-2]):
            pools[-2:] = [pools[-2] + pools[-1]]
    reached = np.concatenate([np.full(len(pool), np.mean(pool)) for pool in pools])
    return conditional_acceptance(np.clip(reached, 0.0, 1.0))


def _checked_lengths(tokens_per_step: Numeric) -> FloatArray:
    """Return tokens per step by draft length, which must be a list of such [token]."""
    tokens = check("tokens_per_step", tokens_per_step, minimum=1)
    if tokens.ndim != 1 or not tokens.size:
        raise InputError("tokens_per_step", tokens.tolist(), "a list, for 1, 2, ... drafted tokens")
    if (tokens > np.arange(2, tokens.size + 2)).any():
        raise InputError("tokens_per_step", tokens.tolist(), "at most the draft length + 1 each")
    return tokens


def acceptance_of_blocks(tokens_per_step: Numeric) -> FloatArray:
    """Return the acceptance that gives the tokens per step measured with blocks of each length.

    A drafter that makes all tokens at once drafts the first ones the better or worse for how many
    follow, so that lengths say nothing of each other: more tokens may be accepted of fewer. Of
    each length the mean is known and not how it falls by position, so one rate holds at all.

    Parameters
    ----------
    tokens_per_step
        Mean tokens emitted per step with blocks of 1, 2, … tokens; one list [token].

    Returns
    -------
    FloatArray
        A table with the rates of blocks of i tokens in row i [-].

    Raises
    ------
    InputError
        If there is no list, or a number is below 1 or above the draft length + 1.

    Examples
    --------
    >>> table = acceptance_of_blocks([1.8, 2.4, 2.3])  # less with three than with two
    >>> expected_tokens_per_step_by_position(table, [1, 2, 3]).round(3).tolist()
    [1.8, 2.4, 2.3]
    """
    tokens = _checked_lengths(tokens_per_step)
    rates = speculation.solve_acceptance_rate(tokens, np.arange(1, tokens.size + 1))
    return np.repeat(rates[:, None], tokens.size, axis=1)


def expected_tokens_per_step_by_position(
    acceptance_by_position: Numeric, draft_length: Numeric
) -> FloatArray:
    """Return the expected tokens per step when acceptance differs by position.

    Parameters
    ----------
    acceptance_by_position
        P(token i accepted, all before it were) for i = 1, 2, …: one list, or a square table with
        those of drafts of n tokens in row n [-].
    draft_length
        Whole draft lengths, none beyond the list, any shape [token].

    Returns
    -------
    FloatArray
        ``1 + Σ_j Π_{i<=j} a_i``, of the shape of `draft_length` [token].

    Raises
    ------
    InputError
        If the list is shorter than a draft length.

    Examples
    --------
    >>> float(expected_tokens_per_step_by_position([0.5, 0.5, 0.0], 2))
    1.75
    """
    rates = check("acceptance_by_position", acceptance_by_position, minimum=0, maximum=1)
    most = rates.shape[-1] if rates.ndim else 0
    if rates.shape not in ((most,), (most, most)):
        expected = "one list of rates, or one of as many for each draft length"
        raise InputError("acceptance_by_position", rates.tolist(), expected)
    gamma = speculation.check_draft_length(draft_length, whole=True)
    if gamma.max() > most:
        expected = f"at least draft_length = {gamma.max():g} rates"
        raise InputError("acceptance_by_position", rates.tolist(), expected)
    gained = np.cumsum(np.cumprod(rates, axis=-1), axis=-1)
    tokens = 1 + np.concatenate([[0.0], gained if rates.ndim == 1 else np.diagonal(gained)])
    return unwrap(tokens[gamma.astype(int)])


def accepted_tokens_pmf(acceptance_by_position: Numeric) -> FloatArray:
    """Return the probability of each number of tokens accepted in a step.

    Parameters
    ----------
    acceptance_by_position
        P(token i accepted, all before it were), positions on the last axis [-].

    Returns
    -------
    FloatArray
        Probabilities of 0, 1, …, n accepted on a last axis one longer than the input's [-].

    Examples
    --------
    >>> accepted_tokens_pmf([0.5, 0.0]).tolist()
    [0.5, 0.5, 0.0]
    """
    rates = np.asarray(acceptance_by_position, dtype=float)
    if rates.size:
        rates = check("acceptance_by_position", rates, minimum=0, maximum=1)
    one = np.ones((*rates.shape[:-1], 1))
    reached = np.concatenate([one, np.cumprod(rates, axis=-1)], axis=-1)
    rejected = np.concatenate([1 - rates, one], axis=-1)
    return np.asarray(reached * rejected)


def mean_tokens_per_step(tokens_where_proposed: Numeric, proposal_rate: Numeric) -> FloatArray:
    """Return the tokens per step over all steps, of which only some have a proposal.

    An n-gram look-up often finds nothing to propose; the step is then a plain pass, which emits
    one token.

    Parameters
    ----------
    tokens_where_proposed
        Tokens emitted per sequence in a step with a proposal [token].
    proposal_rate
        Share of the steps with a proposal [-].

    Returns
    -------
    FloatArray
        ``r x + (1 - r)``, written so that it is exact at x = 1 [token].

    Examples
    --------
    >>> float(mean_tokens_per_step(3.0, 0.25))
    1.5
    """
    return np.asarray(1 + np.asarray(proposal_rate) * (np.asarray(tokens_where_proposed) - 1))


def proposals(
    proposal_rate: FloatArray | float, batch_size: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return how a batch speculates whose sequences propose independently of each other.

    Parameters
    ----------
    proposal_rate
        Share of the steps of a sequence that have a proposal [-].
    batch_size
        Sequences in the batch [request].

    Returns
    -------
    tuple of FloatArray
        The chance that any sequence has a proposal, ``1 - (1 - r)^B``, and the mean share of the
        sequences that have one when any does, r over that chance [-].
    """
    if np.ndim(proposal_rate) == 0 and proposal_rate == 1:
        return np.ones(()), np.ones(())
    with np.errstate(divide="ignore"):
        chance = -np.expm1(batch_size * np.log1p(-proposal_rate))
    share = np.divide(proposal_rate, chance, out=np.zeros_like(chance), where=chance > 0)
    return chance, np.minimum(share, 1.0)


_MEASURED = ("tokens_per_step", "step_efficiency", "accepted_fraction")
"""Forms that hold at the draft length at which they were measured."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Acceptance:
    """Acceptance of drafted tokens in exactly one of five forms.

    Parameters
    ----------
    acceptance_rate
        P(token accepted, all before it were), any shape [-].
    tokens_per_step, step_efficiency, accepted_fraction
        As measured at `measured_draft_length`, from which the rate is solved [token] [-] [-].
    acceptance_by_position
        Conditional rates of positions 1, 2, …: one list, or a square table with those of drafts of
        n tokens in row n, as of drafters that make a block at once [-].
    measured_draft_length
        Draft length at which the middle three were measured [token].
    source
        Where the numbers are from, if they are published ones.

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
    measured_draft_length: Numeric | None = None
    source: str = ""

    def __post_init__(self) -> None:
        given = [name for name in FORMS if getattr(self, name) is not None]
        if len(given) != 1:
            raise InputError("acceptance", given or None, "exactly one of " + ", ".join(FORMS))
        if given[0] not in _MEASURED and self.measured_draft_length is not None:
            expected = f"none, as {given[0]} holds at every draft length"
            raise InputError("measured_draft_length", self.measured_draft_length, expected)

    @property
    def form(self) -> str:
        """Name of the form that was given."""
        return next(name for name in FORMS if getattr(self, name) is not None)

    @property
    def max_draft_length(self) -> float:
        """Longest draft that it says anything about [token]."""
        if self.acceptance_by_position is None:
            return float(speculation.MAX_DRAFT_LENGTH)
        return float(np.atleast_1d(self.acceptance_by_position).shape[-1])

    def where_proposed(self, proposal_rate: float) -> "Acceptance":
        """Return the acceptance of the steps with a proposal, from means over all steps.

        Tokens per step and step efficiency are such means, in which a step without a proposal
        counts with one token; the other forms are about drafted tokens and stay.

        Parameters
        ----------
        proposal_rate
            Share of the steps with a proposal [-].

        Returns
        -------
        Acceptance
            Ready for `expected_tokens_per_step`; tokens per step if it was a mean.
        """
        if proposal_rate in (0, 1) or self.form not in ("tokens_per_step", "step_efficiency"):
            return self
        tokens, length = self._measured_tokens()
        most = mean_tokens_per_step(length + 1, proposal_rate)
        if (tokens > most * (1 + 1e-12)).any():
            bound = (most / (length + 1) if self.form == "step_efficiency" else most).min()
            expected = f"at most {bound:.4g}, as {proposal_rate:g} of the steps have a proposal"
            raise InputError(self.form, np.max(getattr(self, self.form)).item(), expected)
        proposed = np.minimum(1 + (tokens - 1) / proposal_rate, length + 1)
        return Acceptance(tokens_per_step=proposed, measured_draft_length=length)

    def measured_at(self, draft_length: Numeric) -> "Acceptance":
        """Return the acceptance as measured at the only draft length there is, if none was given.

        Parameters
        ----------
        draft_length
            Draft lengths asked for [token].

        Returns
        -------
        Acceptance
            Ready for `expected_tokens_per_step`.

        Raises
        ------
        InputError
            If the form needs a measured draft length and several lengths are asked for.
        """
        if self.form not in _MEASURED or self.measured_draft_length is not None:
            return self
        lengths = np.unique(np.asarray(draft_length, dtype=float))
        asked = lengths[lengths > 0] if lengths.size > 1 else lengths
        if asked.size != 1 or not asked.all():
            raise self._unmeasured(", as draft_length is 0" if asked.size == 1 else "")
        return replace(self, measured_draft_length=asked.item())

    def rate(self) -> FloatArray:
        """Return the acceptance rate, given or solved; there is none by position [-]."""
        if self.form == "acceptance_rate":
            return check("acceptance_rate", self.acceptance_rate, minimum=0, maximum=1)
        return speculation.solve_acceptance_rate(*self._measured_tokens())

    def expected_tokens_per_step(self, draft_length: Numeric) -> FloatArray:
        """Return the expected tokens per step at draft lengths of any shape [token]."""
        if self.acceptance_by_position is not None:
            rates = self.acceptance_by_position
            longest, most = float(np.max(draft_length)), self.max_draft_length
            if self.source and longest > most:
                expected = f"at most {most:g}, the longest measured: {self.source}"
                raise InputError("draft_length", f"{longest:g}", expected)
            return expected_tokens_per_step_by_position(rates, draft_length)
        return speculation.expected_tokens_per_step(self.rate(), draft_length)

    def _measured_tokens(self) -> tuple[FloatArray, FloatArray]:
        """Return tokens per step as they were measured, and at which draft length."""
        form, most = self.form, speculation.MAX_DRAFT_LENGTH
        if self.measured_draft_length is None:
            raise self._unmeasured()
        length = check("measured_draft_length", self.measured_draft_length, minimum=1, maximum=most)
        if form == "tokens_per_step":
            return check(form, self.tokens_per_step, minimum=1), length
        if form == "accepted_fraction":
            fraction = check(form, self.accepted_fraction, minimum=0, maximum=1)
            return np.minimum(1 + fraction * length, length + 1), length
        sigma, lowest = check(form, self.step_efficiency), 1 / (length + 1)
        if ((sigma < lowest * (1 - 1e-12)) | (sigma > 1)).any():
            expected = f"numbers from 1/(draft_length + 1) = {lowest.max():.4g} to 1"
            raise InputError(form, self.step_efficiency, expected)
        return np.maximum(sigma * (length + 1), 1), length

    def _unmeasured(self, why: str = "") -> InputError:
        expected = f"the draft length at which {self.form} was measured{why}"
        return InputError("measured_draft_length", None, expected)


FORMS = tuple(field.name for field in fields(Acceptance)[:-2])
"""Names of the forms, of which exactly one is given."""
