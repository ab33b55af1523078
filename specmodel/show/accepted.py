"""Acceptance that was measured, in words and tables, and the command that predicts with it."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
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
_LONGER = "Rates by position go no further than the {} measured; one rate throughout does:"
_LOOK_UP = "A look-up (ngram, suffix) takes these, with the share of steps that have a draft:"
_EVERY = (
    "If only a share R of steps had a draft: --proposal-rate R and 1 + {:.4g} R tokens per step."
)
"""What stands after a form of an acceptance, before another or alone."""
_SHORT = "rates by position take what was not drafted as rejected; the options take the mean draft"
_CUT = "{} rates make {:.4g} tokens a step, the mean is {:.4g}: later positions are missing"
_NOT_MODELLED = "llama.cpp is not modelled: with these options predict answers for vLLM"
_LOGGED = 'what vLLM\'s log calls "draft acceptance rate"'
_RUNNING = "--batch-size is the mean of the requests that ran; without it, all are predicted."
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
    from specmodel.fit.measured.runs import named_checkpoint

    m = measured
    name = m.model_name if m.model_name.isprintable() else repr(m.model_name)
    engines = f" of {m.num_engines} engines" if m.num_engines > 1 else ""
    summary = [
        ("acceptance rate", m.acceptance_rate, "P(token accepted, all before it were)"),
        ("tokens per step", m.tokens_per_step, "of the steps that had a draft"),
        ("accepted fraction", m.accepted_fraction, _LOGGED),
        ("mean draft length", m.mean_draft_length, f"at most {m.max_draft_length}"),
    ]
    lines = [f"{title:17}  {value:.4f}  {meaning}" for title, value, meaning in summary]
    figures = plain_fields(m)
    fields = {"model_name": figures.pop("model_name")}
    units = {f: "token" if "token" in f or f.endswith("length") else "-" for f in figures}
    fields |= {"units": units | {"running_requests": "request"}, **figures}
    counts, rates = m.accepted_by_position.tolist(), m.acceptance_by_position.tolist()
    rows = [
        {"position": i, "accepted": count, "share": count / m.num_drafts, "rate": rate}
        for i, (count, rate) in enumerate(zip(counts, rates, strict=True), 1)
    ]
    head = [wrap(f"{name}: {m.num_drafts} drafts{engines}"), "\n".join(lines)]
    longest, mean = m.max_draft_length, m.mean_draft_length
    mean = longest if mean > 0.98 * longest else mean  # requests end
    options = _options(m.tokens_per_step, longest, mean, None, rates)
    return _answer(head, rows, options, fields, named_checkpoint(m.model_name)[0])


def of_log(logged: measure.LoggedAcceptance) -> Answer:
    """Return the acceptance in a log, a printed result or a metrics gauge, in all forms."""
    from specmodel.algebra.acceptance import conditional_acceptance

    reached, tokens = logged.accepted_by_position, logged.tokens_per_step
    rates = conditional_acceptance(sorted(reached, reverse=True)).tolist() if reached else []
    drafts = (logged.draft_length, logged.mean_draft_length, logged.proposal_rate)
    who = [logged.engine] if logged.engine else []
    who += [f"{logged.num_lines} lines"] if logged.num_lines > 1 else []
    told = f"{', '.join(who)}{': ' if who else ''}{tokens:.2f} tokens a step{_drafted(*drafts)}."
    rows = [{"position": i, "share": reached[i - 1], "rate": r} for i, r in enumerate(rates, 1)]
    fields = plain_fields(logged) | {"acceptance_by_position": rates}
    fields["warnings"] = [_NOT_MODELLED] if logged.engine == "llama.cpp" else []
    if rows and tokens > (by_rates := 1 + sum(reached)) + 0.02:
        fields["warnings"] += [_CUT.format(len(rows), by_rates, tokens)]
    return _answer([wrap(told)], rows, _options(tokens, *drafts, rates), fields)


def _answer(
    head: list[str],
    rows: list[dict[str, Any]],
    options: tuple[list[str], str],
    fields: dict[str, Any],
    model: str = "",
) -> Answer:
    """Return what was read, rates by position, warnings, and the command that predicts with it."""
    forms, further = options
    is_short = rows and forms[0].startswith("--draft-length")
    warnings = [*fields.get("warnings", ()), *([_SHORT] if is_short else [])]
    sizes = [size for size in [fields["running_requests"]] if size]
    shown = {t: form for t, form in _COLUMNS.items() if rows and (t != "accepted" or t in rows[0])}
    command = _command(model, "GPU", sizes, forms, further)
    sections = [*head, *([table(rows, shown)] if rows else [])]
    sections += [wrap(f"Warning: {warning}.") for warning in warnings]
    sections += ["\n".join([_TO_PREDICT, command, *([wrap(_RUNNING)] if sizes else [])])]
    told = fields | {"warnings": warnings, "predict": forms}
    return Answer(page=lambda: "\n\n".join(sections), fields=lambda: told)


def _drafted(longest: int | None, mean: float | None, proposals: float | None) -> str:
    """Return as text what was drafted in a step, after its tokens."""
    if mean is None or mean == longest:
        return f" of {longest} drafted" if longest else ""
    told = f" of {round(mean, 2):g} drafted on average"
    if proposals and proposals < 1:
        told += f" ({100 * proposals:.2g}% of steps have a draft, of {mean / proposals:.2g} tokens)"
    return told + (f", at most {longest}" if longest else "")


def _options(
    tokens: float,
    longest: int | None,
    mean: float | None,
    proposals: float | None,
    rates: Sequence[float],
) -> tuple[list[str], str]:
    """Return forms of the options for predict, and what stands before the second.

    Where drafts vary in length, predict is asked for the mean one, as it charges what it is asked.
    """
    if mean is None or mean == longest:
        one = f"--tokens-per-step {round(tokens, 4):g} --measured-draft-length {longest or 'STEPS'}"
        return ([_by_position(rates), one], _LONGER.format(len(rates))) if rates else ([one], "")
    share = float(f"{proposals or 1.0:.4g}")
    # whole tokens near the mean, at least as many as were accepted
    every, own = (max(round(mean / by), ceil((tokens - 1) / by - 1e-6), 1) for by in (1.0, share))
    told = f"--tokens-per-step {round(tokens, 4):g}"
    looked_up = f"--draft-length {own} {told} --proposal-rate {share:g}"
    if share == 1:
        return [looked_up], _EVERY.format(tokens - 1)
    return [f"--draft-length {every} {told}", looked_up], _LOOK_UP


def _of_runs(runs: Sequence[Run]) -> str:
    """Return the ``predict`` command for runs of one draft length, and for longer drafts."""
    from specmodel.fit.measured import named_model

    counts = {run.num_gpus for run in runs}
    gpus = f"{counts.pop()}xGPU" if len(counts) == 1 and None not in counts else "GPU"
    sizes, forms = [run.batch_size for run in runs], [*map(" ".join, predict_options(runs))]
    further = _LONGER.format(runs[0].draft_length) if len(forms) > 1 else ""
    return _command(named_model(runs), gpus, sizes, forms, further)


def _command(
    model: str, gpus: str, sizes: Sequence[float], forms: Sequence[str], further: str
) -> str:
    """Return a whole predict with the first form of an acceptance, a text, and the other form."""
    words = [f"specmodel predict {model or 'MODEL'} {gpus} --drafter DRAFTER"]
    whole = sorted({max(round(size), 1) for size in sizes})
    words += [f"--batch-size {','.join(map(str, whole))}"] if sizes else []
    told = [wrap(further)] if further else []
    return "\n".join([command_lines([*words, forms[0]]), *told, *forms[1:]])


def _run_row(run: Run) -> dict[str, Any]:
    """Return the acceptance of one run as a row; values that its file lacks are None."""
    from specmodel.algebra.speculation import solve_acceptance_rate

    length, tokens = run.draft_length, run.tokens_per_step
    told = {"batch_size": run.batch_size, "draft_length": length, "tokens_per_step": tokens}
    rates = {
        "acceptance_rate": float(solve_acceptance_rate(tokens, length)) if length else None,
        "accepted_fraction": (tokens - 1.0) / length if length else None,
    }
    return {"run": Path(run.source).name} | told | rates


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
    told = ",".join(f"{round(rate, 4):g}" for rate in rates)
    return f"--acceptance-by-position conditional:{told}"
