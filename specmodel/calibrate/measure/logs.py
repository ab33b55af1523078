"""Read acceptance from pasted text: log lines of engines, printed results, answers, gauges.

Also read tables of tokens per step by draft length, such as InferenceX's YAML.
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
"""Words by which the program that printed a text is recognised."""
_ENDS: dict[str, str] = {
    f" {end}": name for name, ends in _TABLES["figures"].items() for end in ends
}
"""Ends of the names that engines and benchmarks give to a figure, with the name used here."""
_POSITION = re.compile(r".*\b(?:pos|position|token) *([0-9]{1,2})(?: accept[a-z]*(?: rate)?)?")
"""Name of the share of drafts at a position, which counts from 0 or 1."""
_HUMP, _SPACES = re.compile("(?<=[a-z])(?=[A-Z])"), str.maketrans("#_-", "   ")
"""A capital and the signs that separate the words of a name."""

_VALUE = r"[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?"
_FIGURE = re.compile(
    r"(?P<name>[\w#/. -]++)(?:(?:\((?!server)[\w/. ]+\))?[\"']?\s*+[:=|│┃]\s*+[(\[]?\s*+"
    rf"(?P<values>{_VALUE}%?(?:,\s*{_VALUE}%?)*))?"
)
"""A possible name, and one or several numbers that follow it in a line, a table or JSON."""
_EMPTY = re.compile(r"(?m)^[^0-9:=|│┃\n]*\n")
"""Lines without a figure."""
_IN_TABLES = re.compile(r"(?m)^ *[|│┃║]")
_TOTAL = re.compile(r"(?:statistics +(?=\S+: )|\[(?=MTP Stats))(\S+) .*")
"""Counts over all requests: of one drafter in llama.cpp, of all drafters in ATOM."""

_WHOLE = 0.02
"""Share by which the mean draft may be shorter than the longest, because requests end [-]."""
_MOST = 1e15
"""Limit of figures: larger ones are read as this number [-]."""
_ENTRY = re.compile(r"([^\s{}:,\"'][^{}:,\"']{0,99}+)[\"']? *:(?: +([^\s{},]+))?(?=[\s{},]|$)")
"""A key, and its value if it is on the same line."""
_LEAST_KEPT = 0.9
"""Least tokens per step of a draft, relative to shorter drafts: measurement errors can make them
fall [-]."""


class LoggedAcceptance(Struct, frozen=True, kw_only=True):
    """Acceptance that an engine or a benchmark printed, over all its lines.

    Parameters
    ----------
    engine, num_lines
        Program that printed the text, "" if unknown, and number of lines or results read [-].
    tokens_per_step
        Tokens emitted per request and step: accepted tokens and one more. The mean over lines is
        weighted by their drafts if known, else by running requests [token].
    draft_length
        Number of positions counted: the longest draft. None if unknown [token].
    mean_draft_length
        Tokens drafted per step; None if unknown. It is below the longest draft if drafts end early,
        or if some steps have no draft [token].
    proposal_rate
        Share of steps with a draft; None if unknown [-].
    accepted_by_position
        Shares of drafts with at least the first 1, 2, ... tokens accepted; empty if unknown. Later
        positions may be missing [-].
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
    def acceptance_by_position(self) -> list[float]:
        """Chance at each position that a token is accepted if all tokens before it were [-]."""
        shares = sorted(self.accepted_by_position, reverse=True)
        return conditional_acceptance(shares).tolist() if shares else []


def logged_acceptance(text: str | Iterable[str], where: str) -> LoggedAcceptance | None:
    """Return the acceptance in a text; None if the text has no figure of a known kind.

    Known texts are log lines, printed results and answers to requests of vLLM, SGLang, llama.cpp,
    TensorRT-LLM and ATOM, and gauges of SGLang. vLLM counts steps with a draft. The number of steps
    without a draft follows from vLLM's lines of throughput, if the text has them. llama.cpp counts
    by request and over all requests. Its counts over all requests are used if they include steps
    without a draft, or if the text has no others. ATOM counts since its start, so that its last
    count is used. Figures that contradict each other raise an InputError.

    Parameters
    ----------
    text, where
        The text, or blocks of whole lines of a long text, and its name in an InputError.

    Examples
    --------
    >>> logged_acceptance("Decode batch. #running-req: 1, accept len: 2.53", "log").tokens_per_step
    2.53
    """
    engines, totals, sums = set[str](), dict[str, str](), Counter[Any]()

    def plain() -> Iterator[str]:
        """Yield blocks without totals. Keep the last total of each drafter."""
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
        if sums["drafted"] and sums["accepted"] <= sums["drafted"]:
            fraction = f"{sums['accepted'] / sums['drafted']:.4g}"
            expected = "The log has no number of drafts and no mean length. Give predict"
            expected += f" `accepted_fraction={fraction}` and `measured_draft_length` instead."
            raise InputError(where, f"an accepted fraction of {fraction} alone", expected)
        return None
    printed_by = " and ".join(name for name in _ENGINES if name in engines)
    if not sums["of"] and (not sums["lines"] or of_all["proposed"] < (1 - _WHOLE) * of_all["of"]):
        sums = of_all
    return _logged(sums, sums if sums["of"] else of_all, printed_by, where)


def _logged(
    sums: Mapping[Any, float], of_all: Mapping[Any, float], engine: str, where: str
) -> LoggedAcceptance:
    """Return the acceptance from sums over lines; `of_all` contains the steps with a draft."""
    lengths = sorted(key[1] for key in sums if key[0] == "length")
    if len(lengths) > 1:
        found = f"drafts of {', '.join(map(str, lengths))} positions"
        raise InputError(where, found, "lines that all have the same draft length")
    if not (weight := sums["weight"]):
        raise InputError(where, "lines without a draft", "lines of steps that drafted tokens")
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
    """Yield records of values by name. A name that occurs again begins a new record."""
    record: dict[str, list[float]] = {}
    for text in blocks:
        for row in _TABLES["rewritten"]:
            text = re.sub(row["looks"], row["read"], text) if row["word"] in text else text
        text = _by_row(text) if _IN_TABLES.search(text) else text
        for figure in _FIGURE.finditer(_EMPTY.sub("", text)):
            name, values = figure.groups()
            if not values or not (name := _known(name)):
                continue
            if name in record:
                yield record
                record = {}
            if "," in values and name not in ("reached", "histogram"):
                values = re.sub(r",(?=[0-9]{3}\b)", "", values)  # of thousands
            each = ((value.rstrip("%"), 100 if "%" in value else 1) for value in values.split(","))
            record[name] = [min(float(value), _MOST) / by for value, by in each]
    yield record


def _by_row(text: str) -> str:
    """Return a text in which each cell of a table with means has its own line and name."""
    return "".join(
        "".join(f"{name}: {cell}\n" for name, cell in row.items())
        if "tokens" in map(_known, row)
        else f"{line}\n"
        for line, row in with_tables(text)
    )


@lru_cache(maxsize=4096)
def _known(name: str) -> str:
    """Return the name used here for a figure, with its position; "" for an unknown figure."""
    words = f" {_HUMP.sub(' ', name.strip()).lower()}".translate(_SPACES)
    if at := _POSITION.fullmatch(words):
        return f"position {at[1]}"
    return _ENDS.get(max((end for end in _ENDS if words.endswith(end)), key=len, default=""), "")


def _line(record: dict[str, list[float]], where: str) -> dict[Any, float]:
    """Return what a record adds to the sums over lines; only counts if it has no mean."""
    one = {name: values[0] for name, values in record.items()}
    accepted, drafted, steps, proposed = map(one.get, ("accepted", "drafted", "drafts", "proposed"))
    tokens, reached, length = _mean(one, _shares(record, where), where)
    gained = (tokens or 1) - 1
    if steps is None and accepted and gained:
        steps = accepted / gained
    if accepted is not None and {"looped", "made"} & one.keys():
        # in a server, the prompt emits the first token
        every = max(one.get("looped", one.get("made", 1) - 1) - accepted, 0.0)
        # llama-speculative counts the prompt's token, as runs with only whole drafts show
        every -= drafted == (every - 1) * one.get("length", -1)
        few = steps is None or every > (1 + _WHOLE) * steps + 1  # few steps have a draft
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
    if gained > 0 and one.get("gained") and "generated" in one:  # of vLLM, both per second
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
    """Return the tokens of a step with a draft, the shares of drafts, and the positions, if known.

    A first share of 1 may belong to the token that each step emits anyway.
    """
    tokens, accepted, steps, length = map(one.get, ("tokens", "accepted", "drafts", "length"))
    if steps and accepted is not None:
        counted = 1 + accepted / steps
        # the mean may be over requests, and include the prompt's token
        if tokens and abs(counted - tokens) > 0.05 * counted + 1 / steps:
            _refuse(where, f"counts that make {counted:.4g} tokens", f"a mean of {tokens:.4g}")
        tokens = tokens or counted
    by_rates = 1 + sum(shares)
    mean = by_rates if tokens is None and shares and len(shares) >= (length or 0) else tokens
    for each in (shares, shares[1:]) if shares[:1] == (1,) else (shares,):
        if mean and shares and abs(1 + sum(each) - mean) <= 0.01 + 0.005 * len(each):  # decimals
            return 1 + sum(each), each, max(len(each), length or 0)
    if shares and by_rates > (mean or 0):
        other = f"drafts of {length:g}" if mean is None else f"a mean of {mean:.4g}"
        _refuse(where, f"rates of {len(shares)} positions, which make {by_rates:.4g} tokens", other)
    return tokens, shares, length


def _sum(kinds: Sequence[dict[str, list[float]]]) -> dict[str, list[float]]:
    """Return the sums of llama.cpp's counts by drafter, or else the last counts.

    The counts of one drafter include the number of steps.
    """
    names = ("accepted", "drafted", "proposed")
    sums = {name: sum(kind.get(name, [0.0])[0] for kind in kinds) for name in names}
    steps = [kind[name][0] for kind in kinds for name in ("calls", "proposed") if name in kind]
    if not (sums["drafted"] and steps):
        return kinds[-1] if sums["drafted"] else {}
    own = [kind for kind in kinds if any(kind.get("drafted", ()))]
    sums["looped"] = sums["accepted"] + max(steps)
    return (own[0] if len(own) == 1 else {}) | {name: [value] for name, value in sums.items()}


def _shares(record: dict[str, list[float]], where: str) -> tuple[float, ...]:
    """Return the shares of drafts with at least the first 1, 2, ... tokens accepted [-]."""
    if any(record.get("histogram", ())):
        return tuple(shares_reached(record["histogram"]))
    at = {int(n[8:]): values[0] for n, values in record.items() if n.startswith("position")}
    if at and sorted(at) != [*range(first := min(min(at), 1), first + len(at))]:
        raise InputError(where, f"rates at {', '.join(map(str, at))}", "rates at all positions")
    percent = 100 if max(at.values(), default=0) > 1 else 1
    return tuple(record.get("reached", ())) or tuple(at[i] / percent for i in sorted(at))


def _refuse(where: str, one: str, other: str) -> NoReturn:
    """Refuse figures that contradict each other."""
    raise InputError(where, f"{one}, but {other}", "the complete figures of one run")


def _gauges(text: str) -> Iterator[dict[str, list[float]]]:
    """Yield a record of SGLang's gauge for each engine in a scrape of its metrics."""
    labelled = rf"(\{{[^\n]*\}})? ({_VALUE})"
    running = dict(re.findall(rf"(?m)^sglang:num_running_reqs{labelled}", text))
    for labels, tokens in re.findall(rf"(?m)^sglang:spec_accept_length{labelled}", text):
        if float(tokens):
            requests = float(running.get(labels, 0))
            yield {"tokens": [float(tokens)]} | ({"running": [requests]} if requests else {})


def lengths_by_table(text: str, where: str) -> dict[str, dict[int, float]]:
    """Return tokens per step by draft length for each table, named by its headings.

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
    for line in re.sub(r"(?m)#.*|^.{1000,}", "", text).splitlines():  # no line of a table is longer
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
    """Return a table in the order of lengths. Refuse tokens that no draft of a length can make."""
    least = 1.0
    for length, tokens in sorted(table.items()):
        if not least <= tokens <= length + 1:
            expected = "tokens per step that rise with the draft length, from 1 to draft length + 1"
            raise InputError(where, f"{length}: {tokens:g}", expected)
        least = max(least, _LEAST_KEPT * tokens)
    return dict(sorted(table.items()))
