"""``specmodel sweet-spot``: the batch sizes where speculation pays."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from specmodel import answers
from specmodel.base.errors import InputError
from specmodel.cli import settings
from specmodel.cli.answering import answering
from specmodel.cli.settings import flag, given
from specmodel.cli.taken import (
    TYPICAL,
    drafter_of,
    measured_or_none,
    typical_or_none,
    would_hold,
)
from specmodel.cli.where import where_options
from specmodel.cli.words import counted
from specmodel.show import compared, report
from specmodel.show.forms import Answer, records
from specmodel.show.sweet_spots import peaks, table, verdict, with_intervals

_LISTS = ("target", "drafter", "hardware")


@settings.command("sweet-spot")
@where_options(has_start=True)
@settings.option("batch_size", default="1:512")
@settings.option("draft_length", "  [default: the best of each batch size]", words=settings.DRAFTED)
@settings.acceptance_options()
@settings.spread_option()
@settings.options("context_length", "max_draft_length")
@settings.load_options()
@settings.detail_options()
@settings.own("interval/--no-interval", None, settings.INTERVAL, to="interval", default=None)
@answering()
def sweet_spot(**options: Any) -> Answer:
    """Find the batch sizes where speculation pays.

    And where it pays most, with the best draft length of each batch size, or with each of those
    typed throughout. Batch sizes that do not fit in memory are left out. Models, drafters and GPUs
    may be lists: then a row for each of their combinations, with typical acceptance of the
    drafter's kind where none is published of one.

    \b
    Examples:
      specmodel sweet-spot qwen3-30b-a3b,qwen3.5-397b h100,h200 --csv
      specmodel sweet-spot --target qwen3-30b-a3b --drafter eagle3 \\
          --hardware h200_sxm --engine sglang --draft-length 1,3,5 \\
          --acceptance-rate 0.7
    """
    cases = _cases(options)
    if len(cases) > 1:
        return _side_by_side(cases)
    p, spots = _found(options)
    at_best = options["draft_length"] is None
    return report.answer(p, spots, lambda: (verdict(spots, p, at_best=at_best), table(spots)))


def _cases(options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the options of each model with each drafter on each GPU."""
    lists = [(options[name] or "").split(",") for name in _LISTS]
    for name, values in zip(_LISTS, lists, strict=True):
        if len({*values}) < len(values):
            raise InputError(name, options[name], "names, each once")
    cases = []
    for target, drafter, hardware in itertools.product(*lists):
        num, gpu = counted(hardware)
        case = options | {"target": target, "drafter": drafter, "hardware": gpu}
        case |= {} if drafter else drafter_of(target)
        cases.append(case | {"num_gpus": num or options["num_gpus"]})
    return cases


def _predicted(options: dict[str, Any]) -> report.Prediction:
    """Return a prediction that does not warn of what does not fit where some points do."""
    from specmodel.cli.options import drafted_from

    p = drafted_from(options | {"interval": False})
    if not p.fits.any():
        return p
    unfit = p.evaluation.memory.warnings(p.batch_size, p.evaluation.points["draft_length"])
    kept = tuple(warning for warning in p.warnings if warning not in unfit)
    return replace(p, warn=lambda _: kept)


def _found(options: dict[str, Any]) -> tuple[report.Prediction, report.DataFrame]:
    """Return a prediction and the sweet spots of its curves."""
    p = _predicted(options)
    spots = answers.sweet_spots(p)
    if options["interval"] is False:
        return p, spots
    return p, with_intervals(spots, p, at_best=options["draft_length"] is None)


def _with_acceptance(case: dict[str, Any]) -> dict[str, Any]:
    """Return a case with typical acceptance where none is typed or published, if heads have one."""
    from specmodel.cli.options import typed_acceptance

    is_known = typed_acceptance(case) or measured_or_none(case) or not typical_or_none(case)
    return case if is_known else case | {"acceptance": "typical"}


def _source(p: report.Prediction, case: dict[str, Any]) -> str:
    """Say where the acceptance of a case is from, or what was typed of it."""
    from specmodel.algebra.acceptance import FORMS

    typed = "".join(f"{name} {value}" for name, value in given(case, FORMS).items())
    source = p.assumptions.get("acceptance") or typed
    return f"{case['acceptance']}: {source}" if case["acceptance"] in TYPICAL else source


def _warning_where_it_pays(p: report.Prediction, case: dict[str, Any]) -> report.Prediction:
    """Return a prediction that warns of no batch size beyond the last at which it pays."""
    paying = p.fits & (p.speedup > 1)
    last = p.batch_size[paying if paying.any() else p.fits].max()
    sizes = {int(size) for size in p.batch_size[p.batch_size <= last]}
    told = _predicted(case | {"batch_size": ",".join(map(str, sorted(sizes)))}).warnings
    return replace(p, warn=lambda _: told)


def _side_by_side(cases: list[dict[str, Any]]) -> Answer:
    """Return the sweet spots of the cases that have an answer, and why the others have none."""
    import pandas as pd

    predictions: dict[str, report.Prediction] = {}
    frames, refused = [], dict[str, InputError]()
    for case in cases:
        try:
            case = _with_acceptance(case)
            p, spots = _found(case)
            if not p.fits.any():
                expected = f"more GPUs, as nothing fits in memory.{would_hold(p)}".removesuffix(".")
                raise InputError("hardware", case["hardware"], expected)
        except InputError as error:
            refused["{target} with {drafter} on {hardware}".format_map(case)] = error
            continue
        named = {name: case[name] for name in _LISTS} | {"num_gpus": p.deployment.layout.num_gpus}
        heading = report.heading(p.deployment)
        predictions[heading] = _warning_where_it_pays(p, case)
        told = {"acceptance": _source(p, case), "case": heading}
        frames.append(pd.DataFrame([named | row | told for row in records(spots)]))
    if not frames:
        raise next(iter(refused.values()))
    found = pd.concat(frames, ignore_index=True)
    lacking = {name: f"{flag(e.argument)} needs {e.expected}" for name, e in refused.items()}
    notes = [
        f"Left out: {'; '.join(name for name in lacking if lacking[name] == why)}, as {why}."
        for why in dict.fromkeys(lacking.values())
    ]
    words = " ".join([peaks(found), *notes])
    answer = report.comparison(
        predictions, found, lambda: compared.page(predictions, words, table(found))
    )
    return replace(
        answer,
        fields=lambda: {**answer.fields(), "left_out": lacking},
        warnings=[*notes, *(f"{n}: {told}" for n, p in predictions.items() for told in p.warnings)],
    )
