"""Read acceptance from pasted text: log lines of engines, printed results, answers, gauges.

Also read tokens per step by draft length, as InferenceX lists them in YAML.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct

from specmodel.calibrate.measure.arguments import proposal_share, shares_reached
from specmodel.calibrate.measure.lines import with_tables
from specmodel.core.algebra.acceptance import conditional_acceptance, mean_tokens_per_step
from specmodel.core.algebra.speculation import MAX_DRAFT_LENGTH
from specmodel.core.base.errors import InputError
from specmodel.core.base.files import toml_tables

_TABLES = toml_tables(Path(__file__).parent / "data/logs.toml")
_ENGINES: dict[str, list[str]] = _TABLES["engines"]
"""What tells who printed a text."""
_ENDS: dict[str, str] = {
    f" {end}": name for name, ends in _TABLES["figures"].items() for end in ends
}
"""How engines and benchmarks end the name of a figure, and what it is here."""
_POSITION = re.compile(r".*\b(?:pos|position|token) *([0-9]{1,2})(?: accept[a-z]*(?: rate)?)?")
"""The name of a share of drafts by its position, which counts from 0 or 1."""
_HUMP, _SPACES = re.compile("(?<=[a-z])(?=[A-Z])"), str.maketrans("#_-", "   ")
"""What parts the words of a name: a capital, or a sign."""

_VALUE = r"[0-9]*\.?[0-9]+"
_FIGURE = re.compile(
    r"(?P<name>[\w#/. -]++)(?:(?:\((?!server)[\w/. ]+\))?[\"']?\s*+[:=|│┃]\s*+[(\[]?\s*+"
    rf"(?P<values>{_VALUE}%?(?:,\s*{_VALUE}%?)*))?"
)
"""What may be a name, and a number or several where they follow as in a line, a table or JSON."""
_GROUPS, _EMPTY = re.Match.groups, re.compile(r"(?m)^[^0-9:=|│┃\n]*\n")
"""What a match has, and lines without a figure, which are skipped at once."""
_IN_TABLES = re.compile(r"(?m)^ *[|│┃║]")
_TOTAL = re.compile(r"(?:statistics +(?=\S+: )|\[(?=MTP Stats))(\S+) .*")
"""What llama.cpp counted of one drafter, or ATOM of all, over all requests."""

_WHOLE = 0.02
"""By so much the mean draft may be shorter than all others, as requests end [-]."""
_MOST = 1e15
"""Largest figure that is read."""
_ENTRY = re.compile(r"([^\s{}:,\"'][^{}:,\"']{0,99}+)[\"']? *:(?: +([^\s{},]+))?(?=[\s{},]|$)")
"""A key and its value, if that stands beside it."""
_LEAST_KEPT = 0.9
"""Share of the tokens of a shorter draft that a longer one has at least, as errors make some fall
[-]."""


class LoggedAcceptance(Struct, frozen=True, kw_only=True):
    """Acceptance as an engine or a benchmark printed it, over all such lines.

    Parameters
    ----------
    engine, num_lines
        Program that printed it, "" if unknown, and number of lines or results read [-].
    tokens_per_step
        Tokens emitted per request and step: accepted ones and one more. Mean over lines, weighted
        by their drafts if known, else by running requests [token].
    draft_length
        Number of positions counted, the longest draft; None if unknown [token].
    mean_draft_length
        Tokens drafted per step, fewer than the longest draft if drafts end early or steps have
        none; None if unknown [token].
    proposal_rate
        Share of steps with a draft; None if unknown [-].
    accepted_by_position
        Shares of drafts with at least the first 1, 2, ... tokens accepted, perhaps of the first
        positions only; empty if unknown [-].
    running_requests
        Mean number of running requests over lines; None if unknown [request].
    """

    engine: str
    num_lines: int
    tokens_per_step: float
    draft_length: int | None
    mean_draft_length: float | None = None
    proposal_rate: float | None = None
    accepted_by_position: tuple[float, ...] = ()
    running_requests: float | None = None

    @property
    def shares_by_position(self) -> tuple[float, ...]:
        """The same as `accepted_by_position` [-]."""
        return self.accepted_by_position

    @property
    def acceptance_by_position(self) -> list[float]:
        """Chance that a token is accepted if all before it were, at each position [-]."""
        shares = sorted(self.accepted_by_position, reverse=True)
        return conditional_acceptance(shares).tolist() if shares else []


def logged_acceptance(text: str | Iterable[str], where: str) -> LoggedAcceptance | None:
    """Return the acceptance in a text; None if it has no figure of a known kind.

    It reads log lines, printed results and answers to requests of vLLM, SGLang, llama.cpp,
    TensorRT-LLM and ATOM, and gauges of SGLang. vLLM counts steps with a draft. The number of steps
    without one follows from its lines of throughput, if the text has them. llama.cpp's counts over
    all requests are used if they include steps without a draft, or if there are none by request. Of
    ATOM's counts, the last one is used. Contradicting figures raise an InputError.

    Parameters
    ----------
    text, where
        The text, or blocks of whole lines of a long one, and its name in an InputError.

    Examples
    --------
    >>> logged_acceptance("Decode batch. #running-req: 1, accept len: 2.53", "log").tokens_per_step
    2.53
    """
    engines, totals, sums = set[str](), dict[str, str](), Counter[Any]()

    def plain() -> Iterator[str]:
        """Yield blocks without totals, of which the last of each drafter is kept."""
        for block in [text] if isinstance(text, str) else text:
            engines.update(name for name in _ENGINES if any(map(block.count, _ENGINES[name])))
            totals.update((each[1], each[0]) for each in _TOTAL.finditer(block))
            for gauge in _gauges(block) if "sglang:" in block else ():
                sums.update(_line(gauge, where))
            yield _TOTAL.sub("", block)

    for record in _records(plain()):
        sums.update(_line(record, where))
    of_all = Counter(_line(_sum([*_records(totals.values())]), where))
    if not (sums["lines"] or of_all["lines"]):
        _refuse_fraction(sums["accepted"], sums["drafted"], where)
        return None
    told = " and ".join(name for name in _ENGINES if name in engines)
    if not sums["of"] and (not sums["lines"] or of_all["proposed"] < (1 - _WHOLE) * of_all["of"]):
        sums = of_all
    return _logged(sums, sums if sums["of"] else of_all, told, where)


def _logged(
    sums: Mapping[Any, float], of_all: Mapping[Any, float], engine: str, where: str
) -> LoggedAcceptance:
    """Return sums over lines as acceptance, checked; `of_all` tells steps with a draft."""
    lengths = sorted(key[1] for key in sums if key[0] == "length")
    if len(lengths) > 1:
        told = f"drafts of {', '.join(map(str, lengths))} positions"
        raise InputError(where, told, "lines with one draft length")
    if not (weight := sums["weight"]):
        raise InputError(where, "lines without a draft", "lines of steps that drafted")
    longest, tokens = next(iter(lengths), None), sums["tokens"] / weight
    alike = (key[1] for key in sums if key[0] == "shares" and sums[key] == sums["lines"])
    reached = tuple(sums["share", i] / sums["drafts"] for i in range(next(alike, 0)))
    mean = sums["all drafted"] / sums["steps"] if sums["steps"] else None
    proposals = of_all["proposed"] / of_all["of"] if of_all["of"] else None
    whole = longest or max(round(mean or 0), 1)
    if mean and abs(whole - mean) <= _WHOLE * mean and (proposals or 1) > 1 - _WHOLE:
        longest, mean = whole, float(whole)
    if not 1 <= tokens <= 1 + (longest or MAX_DRAFT_LENGTH) or max(reached, default=0) > 1:
        expected = "tokens per step from 1 to draft length + 1, and accepted shares of at most 1"
        raise InputError(where, round(tokens, 4), expected)
    if longest and (mean or 1) > (1 + _WHOLE) * longest:
        _refuse(where, f"{longest} positions", f"{mean:.4g} drafted a step")
    return LoggedAcceptance(
        engine=engine,
        num_lines=int(sums["lines"]),
        tokens_per_step=tokens,
        draft_length=longest,
        mean_draft_length=mean,
        proposal_rate=proposals,
        accepted_by_position=reached,
        running_requests=sums["running"] / sums["ran"] if sums["ran"] else None,
    )


def _records(blocks: Iterable[str]) -> Iterator[dict[str, list[float]]]:
    """Yield records: dicts of values by name; a name that occurs again begins a new record."""
    told: dict[str, list[float]] = {}
    for text in blocks:
        for row in _TABLES["rewritten"]:
            text = re.sub(row["looks"], row["read"], text) if row["word"] in text else text
        text = _by_row(text) if _IN_TABLES.search(text) else text
        for name, values in map(_GROUPS, _FIGURE.finditer(_EMPTY.sub("", text))):
            if not values or not (name := _known(name)):
                continue
            if name in told:
                yield told
                told = {}
            if "," in values and name not in ("reached", "histogram"):
                values = re.sub(r",(?=[0-9]{3}\b)", "", values)  # of thousands
            each = ((value.rstrip("%"), 100 if "%" in value else 1) for value in values.split(","))
            told[name] = [min(float(value), _MOST) / by for value, by in each]
    yield told


def _by_row(text: str) -> str:
    """Return a text with rows of tables that have a column of means as lines of one figure each."""
    return "".join(
        "".join(f"{name}: {cell}\n" for name, cell in row.items())
        if "tokens" in map(_known, row)
        else f"{line}\n"
        for line, row in with_tables(text)
    )


@lru_cache(maxsize=4096)
def _known(name: str) -> str:
    """Return the name here of a figure, with its position if it has one; "" if it is unknown."""
    words = f" {_HUMP.sub(' ', name.strip()).lower()}".translate(_SPACES)
    if at := _POSITION.fullmatch(words):
        return f"position {at[1]}"
    return _ENDS.get(max((end for end in _ENDS if words.endswith(end)), key=len, default=""), "")


def _line(told: dict[str, list[float]], where: str) -> dict[Any, float]:
    """Return what a record adds to the sums over lines; only shares if it tells no mean."""
    one = {name: values[0] for name, values in told.items()}
    accepted, drafted, steps, proposed = map(one.get, ("accepted", "drafted", "drafts", "proposed"))
    tokens, reached, length = _mean(one, _shares(told, where), where)
    gained = (tokens or 1) - 1
    if steps is None and accepted and gained:
        steps = accepted / gained
    if accepted is not None and {"looped", "made"} & one.keys():  # a server's first is the prompt's
        every = max(one.get("looped", one.get("made", 1) - 1) - accepted, 0.0)
        # llama-speculative counts the prompt's token: seen where no draft is cut short
        every -= drafted == (every - 1) * one.get("length", -1)
        few = steps is None or every > (1 + _WHOLE) * steps + 1  # steps have a draft
        tokens, proposed = (None, proposed or steps) if few else (tokens, proposed or every)
        steps = every
    if steps is None and length and drafted is not None:
        steps = drafted / length
    if tokens is None and steps and accepted is not None:
        tokens = one.get("emitted", accepted + steps) / steps
    if tokens is None:
        if not drafted or accepted is None:
            accepted, drafted = one.get("fraction", 0.0), float("fraction" in one)
        return {"accepted": accepted, "drafted": drafted}
    weight = drafts = one.get("running", 1.0) if steps is None else steps
    if gained > 0 and {"generated", "gained"} <= one.keys():  # vLLM's, both a second
        by_draft = one["gained"] / gained
        share = proposal_share(by_draft, one["gained"], one["generated"])
        proposed, weight = drafts, drafts / share
        tokens = float(mean_tokens_per_step(1 + gained, share))
        steps = weight if steps else None
    if drafted is None and one.get("fraction"):
        drafted, steps = weight * gained / one["fraction"], weight
    return {
        "lines": 1,
        "weight": weight,
        "drafts": drafts,
        "tokens": weight * tokens,
        ("shares", len(reached)): 1,
        **{("share", i): drafts * share for i, share in enumerate(reached)},
        **({("length", int(length)): 1} if length else {}),
        **({"all drafted": drafted, "steps": steps} if drafted is not None and steps else {}),
        **({"proposed": proposed, "of": steps or 0} if proposed is not None else {}),
        **({"running": one["running"], "ran": 1} if one.get("running") else {}),
    }


def _mean(one: Mapping[str, float], shares: tuple[float, ...], where: str) -> tuple[Any, ...]:
    """Return tokens of a step that drafts, shares of drafts, and positions, where they are told.

    A first share of 1 may be that of the token that each step emits anyway.
    """
    tokens, accepted, steps, length = map(one.get, ("tokens", "accepted", "drafts", "length"))
    if steps and accepted is not None:
        counted = 1 + accepted / steps
        # may be a mean over requests, with the prompt's token
        if tokens and abs(counted - tokens) > 0.05 * counted + 1 / steps:
            _refuse(where, f"counts that make {counted:.4g} tokens", f"a mean of {tokens:.4g}")
        tokens = tokens or counted
    by_rates = 1 + sum(shares)
    mean = by_rates if tokens is None and shares and len(shares) >= (length or 0) else tokens
    for each in (shares, shares[1:]) if shares[:1] == (1,) else (shares,):
        if mean and shares and abs(1 + sum(each) - mean) <= 0.01 + 0.005 * len(each):  # decimals
            return 1 + sum(each), each, max(len(each), length or 0)
    if shares and by_rates > (mean or 0):
        told = f"a mean of {mean:.4g}" if mean else f"drafts of {length:g}"
        _refuse(where, f"rates of {len(shares)} positions, which make {by_rates:.4g} tokens", told)
    return tokens, shares, length


def _sum(kinds: Sequence[dict[str, list[float]]]) -> dict[str, list[float]]:
    """Return the counts of all drafters of llama.cpp, whose first has a step; else the last."""
    names = ("accepted", "drafted", "proposed")
    sums = {name: sum(kind.get(name, [0.0])[0] for kind in kinds) for name in names}
    steps = [kind[name][0] for kind in kinds for name in ("calls", "proposed") if name in kind]
    if not (sums["drafted"] and steps):
        return kinds[-1] if sums["drafted"] else {}
    own = [kind for kind in kinds if any(kind.get("drafted", ()))]
    sums["looped"] = sums["accepted"] + max(steps)
    return (own[0] if len(own) == 1 else {}) | {name: [value] for name, value in sums.items()}


def _shares(told: dict[str, list[float]], where: str) -> tuple[float, ...]:
    """Return the shares of drafts of which the first 1, 2, ... tokens were accepted [-]."""
    if any(told.get("histogram", ())):
        return tuple(shares_reached(told["histogram"]))
    at = {int(name[8:]): values[0] for name, values in told.items() if name.startswith("position")}
    if at and sorted(at) != [*range(first := min(min(at), 1), first + len(at))]:
        raise InputError(where, f"rates at {', '.join(map(str, at))}", "rates at all positions")
    percent = 100 if max(at.values(), default=0) > 1 else 1
    return tuple(told.get("reached", ())) or tuple(at[i] / percent for i in sorted(at))


def _refuse(where: str, one: str, other: str) -> NoReturn:
    """Refuse figures that contradict each other."""
    raise InputError(where, f"{one}, but {other}", "the complete figures of one run")


def _refuse_fraction(accepted: float, drafted: float, where: str) -> None:
    """Refuse a fraction of the drafted tokens alone, and name the options that take it."""
    if drafted and accepted <= drafted:
        fraction = f"{accepted / drafted:.4g}"
        expected = "the number of drafts or a mean length too. Or give predict"
        expected += f" `accepted_fraction={fraction}` and `measured_draft_length`"
        raise InputError(where, f"an accepted fraction of {fraction} alone", expected)


def _gauges(text: str) -> Iterator[dict[str, list[float]]]:
    """Yield records of SGLang's gauge, one of each engine that a scrape of its metrics has."""
    labelled = rf"(\{{[^\n]*\}})? ({_VALUE})"
    running = dict(re.findall(rf"(?m)^sglang:num_running_reqs{labelled}", text))
    for labels, tokens in re.findall(rf"(?m)^sglang:spec_accept_length{labelled}", text):
        if float(tokens):
            requests = float(running.get(labels, 0))
            yield {"tokens": [float(tokens)]} | ({"running": [requests]} if requests else {})


def lengths_by_table(text: str, where: str) -> dict[str, dict[int, float]]:
    """Return tokens per step by draft length, by headings of a table; empty without a table.

    Parameters
    ----------
    text, where
        The text, and its name in an InputError.

    Examples
    --------
    >>> lengths_by_table("some-model: {thinking_on: {1: 1.8, 2: 2.4}}", "text")
    {'some-model thinking_on': {1: 1.8, 2: 2.4}}
    """
    tables = defaultdict[str, dict[int, float]](dict)
    headings: list[tuple[tuple[int, int], str]] = []
    for line in re.sub(r"(?m)#.*|^.{1000,}", "", text).splitlines():  # lines of tables are short
        for entry in _ENTRY.finditer(line):
            key, value, before = entry[1].strip(), entry[2] or "", line[: entry.start()]
            level = len(line) - len(line.lstrip()), before.count("{") - before.count("}")
            headings = [heading for heading in headings if heading[0] < level]
            if re.fullmatch(r"[1-9][0-9]{0,2} [0-9]*\.?[0-9]+", f"{key} {value}"):
                tables[" ".join(name for _, name in headings)][int(key)] = float(value)
            else:
                headings.append(((-1, 0), value) if key == "model" else (level, key))
    return {name: _lengths(table, f"{where} {name}".strip()) for name, table in tables.items()}


def _lengths(table: dict[int, float], where: str) -> dict[int, float]:
    """Return a table by length; refuse tokens that no draft of a length can make."""
    least = 1.0
    for length, tokens in sorted(table.items()):
        if not least <= tokens <= length + 1:
            expected = "tokens per step that rise with the draft length, from 1 to draft length + 1"
            raise InputError(where, f"{length}: {tokens:g}", expected)
        least = max(least, _LEAST_KEPT * tokens)
    return dict(sorted(table.items()))
