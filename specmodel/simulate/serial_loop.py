"""The serial loop over requests and their steps: written once, for Python and for numba.

A step at a position of the output asks for a draft, verifies what of it the drafter offers, emits
what holds and one token more, and takes the time of the table, changed by noise. A policy is an
object, or a record for numba, with `draft_length` and `is_test`, and a rule that changes both.
"""

from typing import Any, NamedTuple

from specmodel.simulate.machine_code import Function
from specmodel.simulate.times_alone import StepTable


class Requests(NamedTuple):
    """Which requests are replayed in order, by places in a trace, and whose policies they have.

    `plan` has draft lengths by position, empty if the policy decides; `context` is how much later
    than the first row of the table the first step of each request is [token].
    """

    places: Any
    owners: Any
    plan: Any
    context: Any


class Positions(NamedTuple):
    """What is known of each output position before it is replayed.

    Request i starts at `first[i]` and has `lengths[i]` positions. At each stand the tokens that the
    drafter proposes, and those that are accepted, in rows, of which that of a draft length begins
    at `rows` [token]. Noise is how far the experts that a pass loads change, beyond `experts` of
    the request, and the factor on the time of a step, both by levels of what was drawn [-].
    """

    proposed: Any
    accepted: Any
    rows: Any
    first: Any
    lengths: Any
    experts: Any
    expert_draws: Any
    noise_draws: Any
    expert_levels: Any
    noise_levels: Any


class RequestTotals(NamedTuple):
    """What is added up over the steps of each request; test steps are those in a phase "test" [-].

    Drafted tokens are those that were verified [token]; the expected time is without noise [s].
    """

    steps: Any
    test_steps: Any
    drafted_tokens: Any
    time: Any
    expected_time: Any


def serial_loop(
    rule: Function,
    policies: Any,
    requests: Requests,
    known: Positions,
    table: StepTable,
    totals: RequestTotals,
) -> None:
    """Replay requests one after another, each with the policy of its owner."""
    for i in requests.places:
        policy, start = policies[requests.owners[i]], requests.context[i] - known.first[i]
        found = replay_request(rule, policy, i, requests.plan, start, known, table)
        totals.steps[i], totals.test_steps[i], totals.drafted_tokens[i] = found[:3]
        totals.time[i], totals.expected_time[i] = found[3:]


def replay_request(
    rule: Function,
    policy: Any,
    request: int,
    plan: Any,
    start: int,
    known: Positions,
    table: StepTable,
) -> tuple[int, int, int, float, float]:
    """Return steps, test steps, drafted tokens, time and expected time of one request."""
    proposed, accepted, rows, first, lengths, experts = known[:6]
    expert_draws, noise_draws, expert_levels, noise_levels = known[6:]
    base, slope, width, rows_per_token = table
    position, of_request = first[request], experts[request]
    end, grows, is_planned = position + lengths[request], rows_per_token > 0, len(plan) > 0
    steps = tested = drafted = 0
    total = expected = 0.0
    while position < end:
        asked = int(plan[position]) if is_planned else policy.draft_length
        offered, held, left = proposed[position], accepted[rows[asked] + position], end - position
        verified = asked if asked < offered else offered
        emitted = (asked if asked < held else held) + 1
        emitted = emitted if emitted < left else left  # min() is slower
        at = (verified + 1 if asked > 0 else 0) * width
        if grows:
            later = (position + start) * rows_per_token
            row = int(later)
            part, at = later - row, at + row
            usual = base[at] + part * (base[at + 1] - base[at])
            more = slope[at] + part * (slope[at + 1] - slope[at])
        else:
            usual, more = base[at], slope[at]
        noise = of_request + expert_levels[expert_draws[position]]
        seconds = (usual + more * noise) * noise_levels[noise_draws[position]]
        steps += 1
        tested += policy.is_test
        drafted += verified
        total += seconds
        expected += usual
        position += emitted
        rule(policy, emitted, seconds, verified)
    return steps, tested, drafted, total, expected
