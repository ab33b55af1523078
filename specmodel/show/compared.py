"""The page of ``compare``: which alternative is fastest, where, by how much, how sure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError
from specmodel.base.ranges import among, ranges_text, spans
from specmodel.base.text import wrap
from specmodel.prediction.table import Form, Row
from specmodel.show import forms, loads, report, within
from specmodel.show.behind import CHANGES, FOR_PROGRAMS, assumed_text, behind, what_if_text
from specmodel.show.columns import chosen

if TYPE_CHECKING:
    from specmodel.answers.alternatives import Alternatives
    from specmodel.cost.deployment import Deployment

_FORMS: dict[str, Form] = {
    "tpot": "{tpot_plain:s}>{tpot:s}",
    "best_draft_length": lambda row: str(row["best_draft_length"] or "none"),
}
"""How cells read here, where rows are of the best draft length."""
_CELLS = "{tpot:s} {speedup:.2f} ({best_draft_length})"
_ALONE = (
    "Nothing to compare with: give a list, such as h100,h200, of models, GPUs, --drafter,"
    " --engine, --weight-dtype or --draft-length, or several GPUs, such as 8xh200, for their"
    " layouts."
)
"""What is said of one alternative that was asked for alone."""
_ENDS = ("speedup_low", "speedup_high")
_FASTEST = (
    *("batch_size", "fastest", "as_fast", "tpot", "throughput_per_gpu", "speedup", "speedup_low"),
    "best_draft_length",
)


def answer(found: Alternatives) -> forms.Answer:
    """Return a comparison in all forms."""
    from specmodel.answers.curves import compared_rows
    from specmodel.prediction.best import as_good

    predictions, notes = found.predictions, found.notes
    deployments = {name: p.deployment for name, p in predictions.items()}
    contexts = {context for p in predictions.values() for context in p.context_length.ravel()}
    if len(contexts) > 1:
        raise InputError("context_length", sorted(map(int, contexts)), "one context length")
    best = compared_rows(predictions)
    rows, told, part = found.carried, "", ""
    if rows:
        told, part = loads.of_alternatives(found)
        rates = {row["alternative"]: row["capacity_per_gpu"] for row in rows}
        _, *close = as_good(rates, deployments)
        told += f" Too close to tell apart: {'; '.join(close)}." if close else ""
    elif found.targets:
        rows, told, part = within.of_alternatives(found)
    for column in (name for name in (rows or [{}])[0] if name != "alternative"):
        told_of = {row["alternative"]: row[column] for row in rows}
        best = [row | {column: told_of.get(row["alternative"])} for row in best]
    asked = {f"{n}_target": found.targets[n] for n in ("tpot", "ttft") if found.targets.get(n)}
    best = _with_gains(predictions, [row | asked for row in best])

    def text() -> str:
        ranking = Ranking(best, deployments)
        counts = {p.deployment.layout.num_gpus for p in predictions.values()}
        models = {
            (p.deployment.target.name, p.assumptions.get(CHANGES)) for p in predictions.values()
        }
        kind = {"is_even": len(counts) == 1, "is_of_models": len(models) > 1}
        made_up = [name for name, p in predictions.items() if p.deployment.drafter.is_made_up]
        doubt = [f"No checkpoint has the drafter of {'; '.join(made_up)}."] if made_up else []
        is_asked_alone = len(ranking.numbers) == 1 and not any("Left out" in note for note in notes)
        words = [told, _ALONE if is_asked_alone else verdict(ranking, **kind), *doubt, *notes]
        rooms = {name: _room(p) for name, p in predictions.items()}
        parts = filter(None, [part, tables(ranking, rooms, _of_layouts(predictions))])
        return page(predictions, " ".join(filter(None, words)), _held(predictions, best), *parts)

    return report.comparison(predictions, best, text)


def _held(predictions: Mapping[str, report.Prediction], best: list[Row]) -> dict[str, str]:
    """Return by alternative a note on drafts ended by CUDA graphs, not by acceptance; else ""."""
    found = {}
    for name, p in predictions.items():
        rows = [row for row in report.fitting(best) if row["alternative"] == name]
        found[name] = report.ended(rows, p, "best_draft_length") if report.is_at_best(p) else ""
    return found


def _room(prediction: report.Prediction) -> int:
    """Return the requests that fit in memory with the given draft, or one of 1 token [request]."""
    memory = prediction.evaluation.memory
    memory = replace(memory, verify_tokens=2.0) if report.is_at_best(prediction) else memory
    return int(memory.max_batch_size.max())


def _of_layouts(predictions: Mapping[str, report.Prediction]) -> list[str]:
    """Return a sentence on vLLM's options for layouts; [] if all are alike or not all run vLLM."""
    layouts = {(p.deployment.layout, p.deployment.expert_parallel) for p in predictions.values()}
    engines = {p.deployment.engine.stack for p in predictions.values()}
    told = (
        "For vLLM, TP4 is -tp 4, DP2 -dp 2, EP8 --enable-expert-parallel. Batch sizes are of all"
        " replicas together."
    )
    return [told] if len(layouts) > 1 and engines == {"vllm"} else []


def _with_gains(predictions: Mapping[str, report.Prediction], rows: list[Row]) -> list[Row]:
    """Return the rows with the 80 % interval of each speedup, where all alternatives know theirs.

    None where nothing is drafted.
    """
    from specmodel.prediction.predicting import with_known_intervals

    points = [point for p in predictions.values() for point in with_known_intervals(p).rows()]
    if not all("speedup_low" in point for point in points):
        return rows
    return [
        row | {end: point[end] if point["draft_length"] else None for end in _ENDS}
        for row, point in zip(rows, points, strict=True)
    ]


class Ranking:
    """Alternatives by batch size, the fastest first: that of most tokens a second and GPU.

    Parameters
    ----------
    best
        A row for each alternative and batch size, as `answers.compare` returns it. Rows that fit in
        memory are ranked, all if none fits.
    deployments
        Of each, which tell whether two err alike.
    """

    def __init__(self, best: list[Row], deployments: Mapping[str, Deployment]) -> None:
        self.best, self.deployments = best, deployments
        self.kept = report.fitting(best)
        names = dict.fromkeys(row["alternative"] for row in best)
        self.numbers: dict[str, int] = {name: i for i, name in enumerate(names, 1)}
        self.by_size: dict[int, list[Row]] = {}
        for row in sorted(self.kept, key=lambda r: -r["throughput_per_gpu"]):
            self.by_size.setdefault(row["batch_size"], []).append(row)
        self.by_size = dict(sorted(self.by_size.items()))

    def fastest(self, rows: Sequence[Row], by: str = "throughput_per_gpu") -> list[str]:
        """Return the names of the best alternative by column `by`, and of those not told apart."""
        from specmodel.prediction.best import as_good

        return as_good({row["alternative"]: row[by] for row in rows}, self.deployments)

    def close(self, rows: Sequence[Row]) -> str:
        """Return as text the numbers of alternatives not told apart from the fastest."""
        others = self.fastest(rows)[1:]
        return among(self.numbers.values(), (self.numbers[name] for name in others))

    def winners(self, by: str = "throughput_per_gpu") -> dict[str, list[str]]:
        """Return the names of `fastest` that hold in each run of batch sizes, by these sizes."""
        found = list[tuple[int, int, list[str]]]()
        for size, rows in self.by_size.items():
            names = self.fastest(rows, by)
            both = [name for name in found[-1][2] if name in names] if found else []
            first = found.pop()[0] if both else size
            found.append((first, size, both or names))
        return {ranges_text([(first, last)]): names for first, last, names in found}

    def for_all(self) -> tuple[str, float, int] | None:
        """Return the alternative whose largest loss is least, that loss [-] and its batch size.

        None if no alternative fits in memory at all batch sizes.
        """
        lags: dict[str, list[tuple[float, int]]] = {}
        for size, rows in self.by_size.items():
            for row in rows:
                lags.setdefault(row["alternative"], []).append((_lag(row, rows), size))
        worst = {name: max(own) for name, own in lags.items() if len(own) == len(self.by_size)}
        return min(
            ((name, *lag) for name, lag in worst.items()), key=itemgetter(1, 2), default=None
        )


def _lag(row: Row, rows: Sequence[Row]) -> float:
    """Return how much longer an alternative takes for a token of a GPU than the first of rows."""
    return float(rows[0]["throughput_per_gpu"] / row["throughput_per_gpu"] - 1)


def verdict(ranking: Ranking, *, is_even: bool = True, is_of_models: bool = False) -> str:
    """Return sentences on the fastest alternative by batch size, and on the best one for all.

    `is_even` tells whether all are on as many GPUs, and `is_of_models` whether models differ, so
    that speedups come first.
    """
    sizes, winners = [*ranking.by_size], ranking.winners()
    told = "Fastest with speculation" if is_even else "Most tokens/s per GPU with speculation"
    is_tied = any(ranking.close(rows) for rows in ranking.by_size.values())
    told += ", or not told apart from it" if is_tied else ""
    if len(winners) == 1:
        (names,) = winners.values()
        told += f", {_at(sizes)}: {' or '.join(names)}{'' if is_tied else _lead(ranking)}."
    else:
        told += f", by batch size: {_by_size(winners)}."
        if one := ranking.for_all():
            told += f" One for all: {one[0]}, at most {one[1]:.0%} slower than that (at {one[2]})."
    idle = [round(rows[0]["speedup"], 2) <= 1 for rows in ranking.by_size.values()]
    if all(idle):
        told += " With none of them a draft gains."
    elif any(idle):
        told += f" No draft gains at batch size {ranges_text(spans(sizes, idle))}."
    told += _paying(ranking)
    gains = _gains(ranking, by_size=is_of_models)
    told = f"{gains} {told}" if is_of_models and gains else f"{told} {gains}".rstrip()
    told = f"{told}{_unfit(ranking.best)}"
    return told if any(row["fits"] for row in ranking.best) else report.if_it_fitted(told)


def _gains(ranking: Ranking, *, by_size: bool) -> str:
    """Return a sentence on the largest speedup, of all or by batch size; "" if at most 1."""
    every = (row for rows in ranking.by_size.values() for row in rows)
    top = max(every, key=lambda row: float(row["speedup"]))
    if top["speedup"] <= 1:
        return ""
    most = f"{top['speedup']:.2f}x"
    if not by_size:
        where = f"{top['alternative']} at batch size {top['batch_size']}"
        return f"Largest speedup: {most}, {where}."
    names = _by_size(ranking.winners("speedup"))
    return f"Largest speedup: {names}; most {most} at batch size {top['batch_size']}."


def _paying(ranking: Ranking) -> str:
    """Return a sentence on where the fastest surely gains by drafting; "" if nowhere or unknown."""
    if "speedup_low" not in ranking.best[0]:
        return ""
    sizes = [*ranking.by_size]
    pays = [(rows[0]["speedup_low"] or 0) > 1 for rows in ranking.by_size.values()]
    where = _at(sizes) if all(pays) else f"at {ranges_text(spans(sizes, pays))}"
    return f" With it speculation surely pays {where}." if any(pays) else ""


def _by_size(winners: Mapping[str, Sequence[str]]) -> str:
    """Return as text the best alternatives for each run of batch sizes."""
    told = [" or ".join(names) for names in winners.values()]
    at = (f"{each} at {sizes}" for each, sizes in zip(told, winners, strict=True))
    return told[0] if len(told) == 1 else "; ".join(at)


def _lead(ranking: Ranking) -> str:
    """Return as text how much slower the second-best alternative is; "" if there is none."""
    lags = [_lag(rows[1], rows) for rows in ranking.by_size.values() if len(rows) > 1]
    if not lags:
        return ""
    low, high = f"{min(lags):.0%}", f"{max(lags):.0%}"
    return f"; the next is {low if low == high else f'{low} to {high}'} slower"


def _at(sizes: Sequence[int]) -> str:
    return "at every batch size" if len(sizes) > 1 else f"at batch size {sizes[0]}"


def _unfit(best: list[Row]) -> str:
    """Return sentences on where alternatives, or their drafts, do not fit in memory; else ""."""
    sizes: dict[str, int] = {}
    held: dict[str, list[int]] = {}
    for row in best:
        name, size = row["alternative"], row["batch_size"]
        sizes[name] = max(sizes.get(name, 0), size * row["fits"])
        if row["limited_by"] == "memory":
            held.setdefault(name, []).append(size)
    largest = max(row["batch_size"] for row in best)
    told = [
        f"{name} up to {size}" if size else f"{name} nowhere"
        for name, size in sizes.items()
        if size != largest and len({*sizes.values()}) > 1  # what all lack is said below the table
    ]
    ends = [f"{name} at {ranges_text([(min(at), max(at))])}" for name, at in held.items()]
    words = {"In memory fit": told, "No draft fits in memory": ends}
    return "".join(f" {what}: {'; '.join(names)}." for what, names in words.items() if names)


def tables(ranking: Ranking, rooms: Mapping[str, int], notes: Sequence[str] = ()) -> str:
    """Return the legend, the fastest at each batch size, and all alternatives side by side.

    `rooms` are the requests that fit in memory with each [request]; `notes` follow the legend.
    """
    from specmodel.prediction.best import ALIKE, UNLIKE

    legend = [
        f"[{i}] {name}: {f'{rooms[name]} requests fit' if rooms[name] else 'nothing fits'}"
        for name, i in ranking.numbers.items()
    ]
    parts = ["\n".join([*legend, *map(wrap, notes)])] if len(legend) > 1 else []
    shown = [
        rows[0]
        | {"fastest": ranking.numbers[rows[0]["alternative"]], "as_fast": ranking.close(rows)}
        for rows in ranking.by_size.values()
    ]
    is_close = any(row["as_fast"] for row in shown)
    lacking = set() if len(legend) > 1 else {"fastest"}
    lacking |= set() if is_close else {"as_fast"}
    columns = [
        replace(column, form=_FORMS.get(column.name, column.form), spare=0)
        for column in chosen(_FASTEST, best_draft_length="draft\nlength")
        if column.name not in lacking
    ]
    told = forms.text_table(shown, columns, left=["as fast"])
    if is_close:
        note = (
            f"As fast: less than {ALIKE:.0%} slower ({UNLIKE:.0%} where model, drafter, GPU or"
            " engine differ), too little to tell them apart."
        )
        told += f"\n{wrap(note)}"
    parts.append(told + report.left_out(ranking.best))
    if len(legend) > 1:
        groups = {
            f"[{i}]": rows
            for name, i in ranking.numbers.items()
            if (rows := [row for row in ranking.kept if row["alternative"] == name])
        }
        cells = forms.by_batch_size(ranking.by_size, groups, _CELLS)
        parts.append(f"Each: TPOT, speedup (draft length):\n{cells}")
    return "\n\n".join(parts)


def page(
    predictions: Mapping[str, report.Prediction], words: str, notes: Mapping[str, str], *parts: str
) -> str:
    """Return the page; lines that do not hold for all alternatives are marked by number.

    `notes` are sentences on alternatives by their names.
    """
    warnings = {
        n: [f"Warning: {warning}." for warning in p.warnings] for n, p in predictions.items()
    }
    rests = {name: behind(p.deployment) for name, p in predictions.items()}
    assumed = [p.assumptions.items() for p in predictions.values()]
    warned, shared = _in_all(warnings.values()), _in_all(rests.values())
    common = dict(_in_all(assumed))
    hidden = {*common, *FOR_PROGRAMS}
    own = {}
    for name, p in predictions.items():
        rest = [f"{key}\xa0{told}" for key, told in p.assumptions.items() if key not in hidden]
        own[name] = [
            *(line for line in warnings[name] if line not in warned),
            *filter(None, [notes[name]]),
            *(line for line in rests[name] if line not in shared),
            *([f"Assumed: {', '.join(rest)}."] if rest else []),
        ]
    sections = [
        "\n".join(map(wrap, [words, *what_if_text(common)])),
        *map(wrap, warned),
        *parts,
        "\n".join(_by_number(own)),
        "\n".join([*map(wrap, shared), assumed_text(common)]),
    ]
    return "\n\n".join(filter(None, sections))


def _by_number(lines: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the lines, each after the [numbers] of the alternatives that it holds for.

    Of lines that differ only in figures the first is kept, and marked "(numbers of [1])".
    """
    owners: dict[str, dict[int, str]] = {}
    for number, of_one in enumerate(lines.values(), 1):
        for line in of_one:
            is_told_of = not line.startswith(("Assumed", "Kernels", "Dtypes"))
            skeleton = re.sub(r"[\d.,-]+", "#", line) if is_told_of else line
            owners.setdefault(skeleton, {})[number] = line
    told = []
    for of_each in owners.values():
        marks, line = "".join(f"[{number}]" for number in of_each), next(iter(of_each.values()))
        alike = "" if len({*of_each.values()}) == 1 else f" (numbers of [{next(iter(of_each))}])"
        told.append(wrap(f"{marks} {line}{alike}").replace("\xa0", " "))
    return told


def _in_all(items: Iterable[Collection[Any]]) -> list[Any]:
    """Return the items that all alternatives have."""
    first, *others = items
    return [item for item in first if all(item in other for other in others)]
