"""Rank alternatives at each batch size: the fastest, and those that are as fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

from specmodel.core.base.facts import Fact, known
from specmodel.core.base.ranges import among, ranges_text, runs, spans
from specmodel.core.cost.deployment import Deployment
from specmodel.core.prediction.best import as_good
from specmodel.core.prediction.table import Row


class Ranking:
    """Alternatives by batch size, in order of tokens per second and GPU.

    Parameters
    ----------
    best
        A row for each alternative and batch size, as in `compare`. Rows that fit in memory are
        ranked, or all if none fits.
    deployments
        Deployment of each alternative, which decides whether two alternatives share their errors.
    """

    def __init__(self, best: list[Row], deployments: Mapping[str, Deployment]) -> None:
        self.best, self.deployments = best, deployments
        self.kept = [row for row in best if row["fits"]] or [*best]
        self.numbers = {name: i for i, name in enumerate(deployments, 1)}
        self.by_size: dict[int, list[Row]] = {}
        for row in sorted(self.kept, key=lambda r: (r["batch_size"], -r["throughput_per_gpu"])):
            self.by_size.setdefault(row["batch_size"], []).append(row)

    def fastest(self, rows: Sequence[Row], by: str = "throughput_per_gpu") -> list[str]:
        """Return the name of the best row by column `by`, and the names within its error."""
        return as_good({row["alternative"]: row[by] for row in rows}, self.deployments)

    def close(self, rows: Sequence[Row]) -> str:
        """Return as text the numbers of the alternatives within the error of the fastest."""
        others = self.fastest(rows)[1:]
        return among(self.numbers.values(), (self.numbers[name] for name in others))

    def winners(self, by: str = "throughput_per_gpu") -> dict[str, list[str]]:
        """Return the names in `fastest` that each range of batch sizes has in common, by range."""
        found = list[tuple[int, int, list[str]]]()
        for size, rows in self.by_size.items():
            names = self.fastest(rows, by)
            both = [name for name in found[-1][2] if name in names] if found else []
            first = found.pop()[0] if both else size
            found.append((first, size, both or names))
        return {ranges_text([(first, last)]): names for first, last, names in found}

    def for_all(self) -> tuple[str, float, int] | None:
        """Return the alternative with the smallest maximal loss, that loss [-] and its batch size.

        The result is None if no alternative fits in memory at all batch sizes.
        """
        lags: dict[str, list[tuple[float, int]]] = {}
        for size, rows in self.by_size.items():
            for row in rows:
                lags.setdefault(row["alternative"], []).append((self.lag(row), size))
        worst = {name: max(own) for name, own in lags.items() if len(own) == len(self.by_size)}
        every = ((name, *lag) for name, lag in worst.items())
        return min(every, key=itemgetter(1, 2), default=None)

    @property
    def next_slower(self) -> list[tuple[float, float]]:
        """Least and largest lag of the second [-], if one alternative surely leads everywhere."""
        lags = [self.lag(rows[1]) for rows in self.by_size.values() if len(rows) > 1]
        is_sure = lags and not any(map(self.close, self.by_size.values()))
        return [(min(lags), max(lags))] if is_sure and len(self.winners()) == 1 else []

    def lag(self, row: Row) -> float:
        """Return by how much a token of a GPU needs longer than with the fastest [-]."""
        first = self.by_size[row["batch_size"]][0]
        return float(first["throughput_per_gpu"] / row["throughput_per_gpu"] - 1)

    def facts(self) -> dict[str, Fact]:
        """Return the fastest by batch size, the best for all sizes, and the gain of speculation."""
        winners, every, deployments = self.winners(), self.by_size.values(), self.deployments
        models = {d.target.name for d in deployments.values()}
        name, slower, at = (self.for_all() if len(winners) > 1 else None) or (None, None, None)
        top = max((row for rows in every for row in rows), key=itemgetter("speedup"))
        ends = (top.get(f"speedup_{end}") for end in ("low", "high"))
        unfit = {row["alternative"]: None for row in self.best if row["limited_by"] == "memory"}

        def where(holds: Callable[[Row], bool]) -> Fact:
            return Fact(spans([*self.by_size], (holds(rows[0]) for rows in every)), "request")

        facts = {
            "fastest": Fact(winners),
            "next_slower": Fact(self.next_slower),
            "one_for_all": Fact(name),
            "one_for_all_slower": Fact(slower),
            "one_for_all_at": Fact(at, "request"),
            "no_gain_at": where(lambda row: round(row["speedup"], 2) <= 1),
            "surely_pays_at": where(lambda row: (row.get("speedup_low") or 0) > 1),
            "most": Fact(top["speedup"], "-", *ends),
            "most_of": Fact(top["alternative"]),
            "most_at": Fact(top["batch_size"], "request"),
            "gains_most": Fact(self.winners("speedup") if len(models) > 1 else None),
            "without_room": Fact([*unfit]),
            "made_up_drafters": Fact([n for n, d in deployments.items() if d.drafter.is_made_up]),
        }
        return known(facts.items())


def carried_facts(
    rows: Sequence[Row], deployments: Mapping[str, Deployment], targets: Mapping[str, float]
) -> dict[str, Fact]:
    """Return which alternatives sustain most per GPU within `targets` [s], and how much.

    `rows` contain the throughput of a steady batch or, from a simulation, the rate of requests.
    """
    of = {"throughput_per_gpu_within": "token/s", "capacity_per_gpu": "request/s"}
    column = next(name for name in of if name in rows[0])
    rates = {row["alternative"]: row[column] or 0.0 for row in rows}
    names = as_good(rates, deployments)
    (best,) = (row for row in rows if row["alternative"] == names[0])
    facts = {f"{name}_target": Fact(targets.get(name), "s") for name in ("tpot", "ttft")}
    facts |= {
        "carries_most": Fact(names if best[column] else None),
        column: Fact(best[column], of[column]),
        "largest_batch_size": Fact(best.get("largest_batch_size"), "request"),
    }
    return known(facts.items())


def lengths_by_size(best: list[Row]) -> dict[str, tuple[int, int]]:
    """Return the shortest and the longest of the best lengths, by range of batch sizes [token]."""
    lengths: dict[int, list[int]] = {}
    for row in sorted(best, key=lambda row: int(row["batch_size"])):
        lengths.setdefault(row["batch_size"], []).append(row["draft_length"])
    sizes, ends = [*lengths], [(min(each), max(each)) for each in lengths.values()]
    return {ranges_text([(sizes[i], sizes[j])]): pair for i, j, pair in runs(ends)}
