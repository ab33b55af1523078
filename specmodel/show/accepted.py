"""Acceptance that was measured, in words and tables, and the command that predicts with it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from specmodel.base.text import command_lines, wrap
from specmodel.show.forms import Answer, plain_fields, table

if TYPE_CHECKING:
    from specmodel import measure
    from specmodel.fit.measured import Run

_COLUMNS = {
    "position": "{position}",
    "accepted": "{accepted}",
    "share of\nall drafts": "{share:.4f}",
    "rate, if all\nbefore were": "{rate:.4f}",
}
_RUNS = {
    "run": "{run}",
    "batch\nsize": "{batch_size:.3g}",
    "draft\nlength": "{draft_length}",
    "tokens\na step": "{tokens_per_step:.4g}",
    "acceptance\nrate": "{acceptance_rate:.4f}",
    "accepted\nfraction": "{accepted_fraction:.4f}",
}
_LOOK_UP = (
    "If the drafter is a look-up (ngram, suffix), steps without a draft are not counted here: give"
    " predict the rates by position below and the --proposal-rate, as it reads --tokens-per-step"
    " as a mean over all steps."
)
"""What is told where drafts differ in length, as those of look-ups do."""
_LOGGED = 'what vLLM\'s log calls "draft acceptance rate"'
_RUNNING = (
    "--batch-size is the mean of the requests that ran at the scrapes; without it, all batch sizes"
    " are predicted."
)

_TO_PREDICT = "To predict; words in capitals are yours to give, as no file tells them:"


def of_benchmarks(drafted: Sequence[Run], paths: Sequence[str]) -> Answer:
    """Return the acceptance of runs that drafted, from the result files of a benchmark."""
    rows = [_run_row(run) for run in drafted]
    alike: dict[Any, list[Run]] = {}
    for run in drafted:
        alike.setdefault((run.draft_length, run.topk, run.verify_tokens), []).append(run)
    told = [" ".join(words) for same in alike.values() for words in predict_options(same)]
    commands = [_of_runs(same) for same in alike.values()]
    files = " ".join(map(quote, paths if len(paths) > 1 else ["PLAIN.json", *paths]))
    beside = f"Beside what is predicted: specmodel fit engine {files} \\\n"
    beside += "    --drafter ... --hardware ..."
    parts = [table(rows, _RUNS, ["run"]), f"{_TO_PREDICT}\n{commands[0]}", *commands[1:], beside]
    return Answer(page=lambda: "\n\n".join(parts), fields=lambda: {"runs": rows, "predict": told})


def of_scrape(measured: measure.MeasuredAcceptance) -> Answer:
    """Return the acceptance that a running server counted."""
    # Not at the mean draft length: it need not be whole, and the engine is asked for the longest.
    options = [
        _by_position(measured.acceptance_by_position.tolist()),
        f"--tokens-per-step {round(measured.tokens_per_step, 4):g}"
        f" --measured-draft-length {measured.max_draft_length}",
    ]
    warning, figures = _warning(measured), plain_fields(measured)
    name = figures.pop("model_name")
    units = {f: "token" if "token" in f or f.endswith("length") else "-" for f in figures}
    fields = {
        "model_name": name,
        "warnings": [warning] if warning else [],
        "units": units | {"running_requests": "request"},
        **figures,
        "predict": options,
    }
    return Answer(page=lambda: _text(measured, warning, options), fields=lambda: fields)


def of_log(logged: measure.LoggedAcceptance) -> Answer:
    """Return the acceptance in a log, a printed result or a metrics gauge, in all forms."""
    from specmodel.algebra.acceptance import conditional_acceptance

    reached, length = logged.accepted_by_position, logged.draft_length
    rates = conditional_acceptance(sorted(reached, reverse=True)).tolist() if reached else []
    mean = f"--tokens-per-step {round(logged.tokens_per_step, 4):g}"
    options = [_by_position(rates)] if rates else []
    options += [f"{mean} --measured-draft-length {length or 'STEPS'}"]
    lines = f", {logged.num_lines} lines" if logged.num_lines > 1 else ""
    drafted = f" of {length} drafted" if length else ""
    told = f"{logged.engine}{lines}: {logged.tokens_per_step:.2f} tokens a step{drafted}."
    rows = [
        {"position": i, "share": share, "rate": rate}
        for i, (share, rate) in enumerate(zip(reached, rates, strict=True), 1)
    ]
    shown = {title: form for title, form in _COLUMNS.items() if title != "accepted"}
    sizes = [] if logged.running_requests is None else [logged.running_requests]
    command = _command("", "GPU", sizes, [[option] for option in options], length or 0)
    parts = [told, *([table(rows, shown)] if rows else []), f"{_TO_PREDICT}\n{command}"]
    fields = plain_fields(logged) | {"acceptance_by_position": rates, "predict": options}
    return Answer(page=lambda: "\n\n".join(parts), fields=lambda: fields)


def _of_runs(runs: Sequence[Run]) -> str:
    """Return the ``predict`` command for runs of one draft length, and for longer drafts."""
    from specmodel.fit.measured import named_model

    counts = {run.num_gpus for run in runs}
    gpus = f"{counts.pop()}xGPU" if len(counts) == 1 and None not in counts else "GPU"
    sizes, longest = [run.batch_size for run in runs], runs[0].draft_length or 0
    return _command(named_model(runs), gpus, sizes, predict_options(runs), longest)


def _command(
    model: str, gpus: str, sizes: Sequence[float], forms: Sequence[Sequence[str]], longest: int
) -> str:
    """Return a whole predict with the first form of an acceptance, and the form for longer drafts.

    `longest` is the longest draft measured [token].
    """
    words = [f"specmodel predict {model or 'MODEL'} {gpus} --drafter DRAFTER"]
    whole = sorted({max(round(size), 1) for size in sizes})
    words += [f"--batch-size {','.join(map(str, whole))}"] if sizes else []
    further = (
        f"Rates by position consider no draft longer than the {longest} measured; one rate"
        " throughout, in their place, does:"
    )
    lines = [command_lines([*words, *forms[0]])]
    for form in forms[1:]:
        lines += [wrap(further), " ".join(form)]
    return "\n".join(lines)


def _run_row(run: Run) -> dict[str, Any]:
    """Return the acceptance of one run as a row; values that its file lacks are None."""
    from specmodel.algebra.acceptance import Acceptance

    rate = fraction = None
    if run.draft_length is not None:
        found = Acceptance(
            tokens_per_step=run.tokens_per_step, measured_draft_length=run.draft_length
        )
        rate, fraction = float(found.rate()), (run.tokens_per_step - 1.0) / run.draft_length
    return {
        "run": Path(run.source).name,
        "batch_size": run.batch_size,
        "draft_length": run.draft_length,
        "tokens_per_step": run.tokens_per_step,
        "acceptance_rate": rate,
        "accepted_fraction": fraction,
    }


def predict_options(runs: Sequence[Run]) -> list[list[str]]:
    """Return forms of the acceptance of runs with one draft length, for ``specmodel predict``."""
    first, tokens = runs[0], sum(run.tokens_per_step for run in runs) / len(runs)
    rates = [run.acceptance_by_position for run in runs]
    told = [f"--tokens-per-step {round(tokens, 4):g}"]
    if first.draft_length is not None:
        told.append(f"--measured-draft-length {first.draft_length}")
    if first.topk is not None and first.topk > 1:
        told += [f"--draft-length {first.draft_length}", f"--tree-width {first.topk}"]
        told.append(f"--verify-tokens {first.verify_tokens}")
    by_position = [sum(at) / len(runs) for at in zip(*rates, strict=True)] if all(rates) else []
    return [[_by_position(by_position)], told] if by_position else [told]


def _by_position(rates: Sequence[float]) -> str:
    rises = any(later >= rate for rate, later in pairwise(rates))  # so that nothing is mistaken
    told = ",".join(f"{round(rate, 4):g}" for rate in rates)
    return f"--acceptance-by-position {'' if rises else 'conditional:'}{told}"


def _text(measured: measure.MeasuredAcceptance, warning: str, options: Sequence[str]) -> str:
    from specmodel.fit.measured.runs import named_checkpoint

    name = measured.model_name if measured.model_name.isprintable() else repr(measured.model_name)
    engines = f" of {measured.num_engines} engines" if measured.num_engines > 1 else ""
    summary = [
        ("acceptance rate", measured.acceptance_rate, "P(token accepted, all before it were)"),
        ("tokens per step", measured.tokens_per_step, "of the steps that had a draft"),
        ("accepted fraction", measured.accepted_fraction, _LOGGED),
        ("mean draft length", measured.mean_draft_length, f"at most {measured.max_draft_length}"),
    ]
    lines = [f"{title:17}  {value:.4f}  {meaning}" for title, value, meaning in summary]
    reached = zip(measured.accepted_by_position, measured.acceptance_by_position, strict=True)
    rows = [
        {"position": i, "accepted": count, "share": count / measured.num_drafts, "rate": rate}
        for i, (count, rate) in enumerate(reached, 1)
    ]
    sizes = [] if measured.running_requests is None else [measured.running_requests]
    model, forms = named_checkpoint(measured.model_name)[0], [[option] for option in options]
    command = _command(model, "GPU", sizes, forms, measured.max_draft_length)
    sections = [
        wrap(f"{name}: {measured.num_drafts} drafts{engines}"),
        "\n".join(lines),
        table(rows, _COLUMNS),
        *([wrap(f"Warning: {warning}."), wrap(_LOOK_UP)] if warning else []),
        "\n".join([_TO_PREDICT, command, *([wrap(_RUNNING)] if sizes else [])]),
    ]
    return "\n\n".join(sections)


def _warning(measured: measure.MeasuredAcceptance) -> str:
    """Return how drafts shorter than the longest one bias the figures; empty if there are none."""
    longest = measured.max_draft_length
    if measured.num_draft_tokens >= measured.num_drafts * longest:
        return ""
    return (
        f"the mean draft had {measured.mean_draft_length:.4g} tokens, of at most {longest}. The"
        " acceptance rate, solved at the mean, and the rates from position 2 on, which count what"
        " was not drafted as rejected, are too low. The lines below still give the tokens per step"
        f" at draft length {longest}; predict charges each step for a draft of full length"
    )
