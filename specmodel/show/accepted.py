"""Acceptance that was measured, in words and tables, and the command that predicts with it."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmodel.base.text import command_lines, wrap
from specmodel.prediction.table import Column, Row
from specmodel.show.facts import Fact, known, lines
from specmodel.show.forms import Answer, plain_fields, text_table

if TYPE_CHECKING:
    from specmodel import measure
    from specmodel.fit.measured import Run

_POSITIONS = (
    Column("position", "-", "in a draft", "position"),
    Column("share", "-", "drafts accepted so far", "share of\nall drafts", ".4f"),
    Column("rate", "-", "of those accepted so far before", "rate, if all\nbefore were", ".4f"),
)
_RUNS = (
    Column("run", "-", "file and line", "run"),
    Column("batch_size", "request", "that ran together", "batch\nsize"),
    Column("draft_length", "token", "drafted in a step", "draft\nlength"),
    Column("tokens_per_step", "token", "emitted in a step", "tokens\na step", ".4g"),
    Column("acceptance_rate", "-", "the same at each position", "acceptance\nrate", ".4f"),
    Column("accepted_fraction", "-", "accepted over drafted", "accepted\nfraction", ".4f"),
)
_FACTS = {
    "model_name": ("-", "Model: {model_name}."),
    "engine": ("-", "Printed by: {engine}."),
    "num_drafts": ("-", "Drafts: {num_drafts}."),
    "num_engines": ("-", "Engines: {num_engines}."),
    "num_lines": ("-", "Lines: {num_lines}."),
    "tokens_per_step": ("token", "Tokens per step: {tokens_per_step:.4g}."),
    "mean_draft_length": ("token", "Drafted on average: {mean_draft_length:.3g}."),
    "draft_length": ("token", "Longest draft: {draft_length}."),
    "max_draft_length": ("token", "Longest draft: {max_draft_length}."),
    "proposal_rate": ("-", "Steps with a draft: {proposal_rate:.2%}."),
    "acceptance_rate": ("-", "Acceptance rate: {acceptance_rate:.4f}."),
    "accepted_fraction": (
        "-",
        'Accepted of drafted ("draft acceptance rate"): {accepted_fraction}.',
    ),
    "running_requests": ("request", "Requests that ran: {running_requests:.3g}."),
}
"""What measured acceptance tells beside rates by position: its unit, and its line."""
_LONGER = "Or, for drafts longer than those measured, one rate throughout:"
_LOOK_UP = "Or, of a look-up (ngram, suffix), with the share of steps that have a draft:"
"""What stands before another form of an acceptance."""
_SHORT = "rates by position take what was not drafted as rejected; the options take the mean draft"
_CUT = "{} rates make {:.4g} tokens a step, the mean is {:.4g}: later positions are missing"
_NOT_MODELLED = "llama.cpp is not modelled: with these options predict answers for vLLM"
_TO_PREDICT = "To predict; words in capitals are yours to give, as no file tells them:"


def of_benchmarks(drafted: Sequence[Run]) -> Answer:
    """Return the acceptance of runs that drafted, from the result files of a benchmark."""
    from specmodel.fit.measured import named_model

    names = [column.name for column in _RUNS[1:]]
    rows = [
        {"run": Path(run.source).name} | {name: getattr(run, name) for name in names}
        for run in drafted
    ]
    kinds: dict[Any, list[Run]] = {}
    for run in drafted:
        kinds.setdefault((run.draft_length, run.topk, run.verify_tokens), []).append(run)
    forms, commands = list[str](), list[str]()
    for runs in kinds.values():
        counts = {run.num_gpus for run in runs}
        gpus = f"{counts.pop()}xGPU" if len(counts) == 1 and None not in counts else "GPU"
        options = forms_of_runs(runs)
        forms += options.values()
        commands.append(_command(named_model(runs), gpus, [r.batch_size for r in runs], options))
    table = text_table(rows, _RUNS, left=("run",))
    page = "\n\n".join([table, f"{_TO_PREDICT}\n{commands[0]}", *commands[1:]])
    return Answer(page=lambda: page, fields=lambda: {"runs": rows, "predict": forms})


def of_scrape(measured: measure.MeasuredAcceptance) -> Answer:
    """Return the acceptance that a running server counted."""
    from specmodel.fit.measured.runs import named_checkpoint

    m, rates = measured, measured.acceptance_by_position.tolist()
    longest, mean = m.max_draft_length, m.mean_draft_length
    mean = longest if mean > 0.98 * longest else mean  # requests end
    forms = predict_forms(m.tokens_per_step, longest, mean, None, rates)
    shares = (m.accepted_by_position / m.num_drafts).tolist()
    return _answer(plain_fields(m), shares, forms, named_checkpoint(m.model_name)[0])


def of_log(logged: measure.LoggedAcceptance) -> Answer:
    """Return the acceptance in a log, a printed result or a metrics gauge, in all forms."""
    shares, rates, tokens = (
        *(logged.accepted_by_position, logged.acceptance_by_position),
        logged.tokens_per_step,
    )
    drafts = (logged.draft_length, logged.mean_draft_length, logged.proposal_rate)
    warnings = [_NOT_MODELLED] if logged.engine == "llama.cpp" else []
    if rates and tokens > (by_rates := 1 + sum(shares)) + 0.02:
        warnings += [_CUT.format(len(rates), by_rates, tokens)]
    fields = plain_fields(logged) | {"acceptance_by_position": rates, "warnings": warnings}
    return _answer(fields, shares, predict_forms(tokens, *drafts, rates))


def _answer(fields: Row, shares: Sequence[float], forms: dict[str, str], model: str = "") -> Answer:
    """Return what was read, rates by position, warnings, and the command that predicts with it."""
    options = [*forms.values()]
    facts = known((n, Fact(fields[n], unit)) for n, (unit, _) in _FACTS.items() if n in fields)
    rates = fields["acceptance_by_position"]
    rows = [
        {"position": i, "share": share, "rate": rate}
        for i, (share, rate) in enumerate(zip(shares, rates, strict=True), 1)
    ]
    is_short = rows and options[0].startswith("--draft-length")
    warnings = [*fields.get("warnings", ()), *([_SHORT] if is_short else [])]
    ran = [fields["running_requests"]] if fields["running_requests"] else []

    def page() -> str:
        parts = [
            "\n".join(map(wrap, lines((line for _, line in _FACTS.values()), facts))),
            text_table(rows, _POSITIONS) if rows else "",
            *(wrap(f"Warning: {warning}.") for warning in warnings),
            f"{_TO_PREDICT}\n{_command(model, 'GPU', ran, forms)}",
        ]
        return "\n\n".join(filter(None, parts))

    whole = fields | {"warnings": warnings, "predict": options}
    return Answer(page=page, facts=facts, fields=lambda: whole, warnings=warnings)


def _command(model: str, gpus: str, sizes: Sequence[float], forms: dict[str, str]) -> str:
    """Return a whole predict with the first form of an acceptance, and the other form."""
    words = [f"specmodel predict {model or 'MODEL'} {gpus} --drafter DRAFTER"]
    whole = sorted({max(round(size), 1) for size in sizes})
    words += [f"--batch-size {','.join(map(str, whole))}"] if sizes else []
    first, *others = forms.items()
    return "\n".join([command_lines([*words, first[1]]), *(f"{a}\n{b}" for a, b in others)])


def predict_forms(
    tokens: float,
    longest: int | None,
    mean: float | None,
    proposals: float | None,
    rates: Sequence[float],
) -> dict[str, str]:
    """Return forms of the options for predict, by what stands before each.

    Where drafts vary in length, predict is asked for the mean one, as it charges what it is asked.
    """
    told = f"--tokens-per-step {round(tokens, 4):g}"
    if mean is None or mean == longest:
        one = f"{told} --measured-draft-length {longest or 'STEPS'}"
        by_position = ",".join(f"{round(rate, 4):g}" for rate in rates)
        if not rates:
            return {"": one}
        return {"": f"--acceptance-by-position conditional:{by_position}", _LONGER: one}
    share = float(f"{proposals or 1.0:.4g}")
    # whole tokens near the mean, at least as many as were accepted
    every, own = (max(round(mean / by), ceil((tokens - 1) / by - 1e-6), 1) for by in (1.0, share))
    looked_up = f"--draft-length {own} {told} --proposal-rate {share:g}"
    if share == 1:
        return {"": looked_up}
    return {"": f"--draft-length {every} {told}", _LOOK_UP: looked_up}


def forms_of_runs(runs: Sequence[Run]) -> dict[str, str]:
    """Return forms of the acceptance of runs with one draft length, as `predict_forms` does."""
    first, rates = runs[0], [run.acceptance_by_position for run in runs]
    tokens = sum(run.tokens_per_step for run in runs) / len(runs)
    by_position = [sum(at) / len(runs) for at in zip(*rates, strict=True)] if all(rates) else []
    forms = predict_forms(tokens, first.draft_length, None, None, by_position)
    if (first.topk or 1) == 1:
        return forms
    tree = f"--draft-length {first.draft_length} --tree-width {first.topk}"
    tree += f" --verify-tokens {first.verify_tokens}"
    return {before: f"{form} {tree}" for before, form in forms.items()}
