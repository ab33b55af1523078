"""The walk through requests: written once, for Python as it stands and for numba, if it is there.

A step at a position of the output asks for a draft, verifies what of it the drafter offers, emits
what holds and one token more, and takes the time of the table, changed by luck. Policies of the
package are numbers and functions of them (`policies.kinds`), and the compiled walk takes them
along; any other policy is an object that is asked and told, in Python.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from specmodel.replay.machine_code import compiled_function
from specmodel.replay.policies.kinds import HOT, PARTS, PLANNED, react
from specmodel.replay.policies.policy import ASKED, TESTING


class Requests(NamedTuple):
    """What is known of each position, and of each request: where it ends and begins.

    What is accepted stands in rows, of which that of a draft length begins at `rows`. `context` is
    how much later than the first row of the table the first step of a request is [token];
    `experts` is the luck of a request [-].
    """

    proposed: Any
    accepted: Any
    rows: Any
    expert_draws: Any
    noise_draws: Any
    first: Any
    last: Any
    context: Any
    experts: Any


class Tables(NamedTuple):
    """Step and expert times by row of context and column of draft, and what luck stands for.

    There are `rows_per_token` rows to a token of context; with one row, times do not depend on it.
    """

    base: Any
    slope: Any
    columns: int
    rows_per_token: float
    expert_levels: Any
    noise_levels: Any


class States(NamedTuple):
    """The policy: its kind, states, what each begins with, and draft lengths that are planned.

    Request r is dealt to state r modulo their number, which begins anew unless it is kept.
    """

    kind: int
    whole: Any
    real: Any
    fresh_whole: Any
    fresh_real: Any
    keeps: bool
    plan: Any


class Sums(NamedTuple):
    """What is added up over the steps of each request; test steps are those in a phase "test" [-].

    Drafted tokens are those that were verified [token]; the expected time is without luck [s].
    """

    steps: Any
    test_steps: Any
    drafted_tokens: Any
    time: Any
    expected_time: Any


def walk(
    told: Any, number: int, states: States, requests: Requests, tables: Tables, sums: Sums
) -> None:
    """Replay all requests, of which the first has this number; `told` is a policy in Python."""
    for i in range(len(requests.first)):
        at = (number + i) % len(states.whole)
        whole, real = states.whole[at], states.real[at]
        if not states.keeps:
            for j in range(len(whole)):
                whole[j] = states.fresh_whole[j]
            for j in range(len(real)):
                real[j] = states.fresh_real[j]
        if told is not None:
            told.start(number + i)
        found = replay_request(told, whole, real, i, states, requests, tables)
        sums.steps[i], sums.test_steps[i], sums.drafted_tokens[i] = found[:3]
        sums.time[i], sums.expected_time[i] = found[3:]


def replay_request(
    told: Any,
    whole: list[int],
    real: list[float],
    request: int,
    states: States,
    requests: Requests,
    tables: Tables,
) -> tuple[int, int, int, float, float]:
    """Return steps, test steps, drafted tokens, time and expected time of one request."""
    proposed, accepted, rows, expert_draws, noise_draws, first, last, context, experts = requests
    base, slope, columns, rows_per_token, expert_levels, noise_levels = tables
    kind, plan = states.kind, states.plan
    position, end, of_request = first[request], last[request], experts[request]
    start, grows = context[request] - position, len(base) > columns
    steps = tested = drafted = 0
    total = expected = 0.0
    while position < end:
        if told is None:
            asked = int(plan[position]) if kind == PLANNED else whole[ASKED]
        else:
            asked = told.propose(position + start)
        offered, held, left = proposed[position], accepted[rows[asked] + position], end - position
        verified = asked if asked < offered else offered
        emitted = (asked if asked < held else held) + 1
        emitted = emitted if emitted < left else left  # min() is slower
        column = verified + 1 if asked > 0 else 0
        if grows:
            later = (position + start) * rows_per_token
            row = int(later)
            part, at = later - row, row * columns + column
            usual = base[at] + part * (base[at + columns] - base[at])
            more = slope[at] + part * (slope[at + columns] - slope[at])
        else:
            usual, more = base[column], slope[column]
        luck = of_request + expert_levels[expert_draws[position]]
        seconds = (usual + more * luck) * noise_levels[noise_draws[position]]
        steps += 1
        tested += whole[TESTING]
        drafted += verified
        total += seconds
        expected += usual
        position += emitted
        if told is None:
            react(kind, whole, real, emitted, seconds, verified)
        else:
            told.observe(emitted, seconds, verified)
    return steps, tested, drafted, total, expected


@cache
def compiled_walk() -> Callable[..., None] | None:
    """Return the walk as numba compiles it, or None where numba is not installed."""
    return compiled_function(walk, (*PARTS, replay_request, walk), HOT)
