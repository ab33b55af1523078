"""Show the answers of `calibrate`: measured acceptance, fits, and errors of predictions.

Commands import this module for their help too, so that it imports nothing heavy at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specmodel.calibrate import fit, measure
from specmodel.calibrate.fit import measured
from specmodel.core.base.naming import LLAMA_CPP
from specmodel.core.base.text import command_lines, wrap
from specmodel.core.prediction.table import Row
from specmodel.show import forms
from specmodel.show.behind import behind
from specmodel.show.columns import of_table
from specmodel.show.facts import Fact, known, lines
from specmodel.show.forms import Answer, plain_fields, records, text_table
from specmodel.show.glossary import PAGES

_ACCEPTED, _FITTED = PAGES["accepted"], PAGES["fitted"]
_UNITS = dict.fromkeys(("tokens_per_step", "mean_draft_length", "max_draft_length"), "token")
_UNITS |= {"draft_length": "token", "running_requests": "request"}
_ERRORS = ("num_points", "num_judged", "mean_error", "median_error", "percentile_90_error")
_MOST_ROWS = 20
"""Largest number of judged rows that are printed one by one [-]."""


def of_benchmarks(drafted: Sequence[measured.Run]) -> Answer:
    """Return the acceptance of runs that drafted, from the result files of a benchmark."""
    names = [column.name for column in of_table("benchmarks")[1:]]
    rows = [
        {"run": Path(run.source).name} | {name: getattr(run, name) for name in names}
        for run in drafted
    ]
    kinds: dict[Any, list[measured.Run]] = {}
    for run in drafted:
        kinds.setdefault((run.draft_length, run.topk, run.verify_tokens), []).append(run)
    predict, commands = list[str](), list[str]()
    for runs in kinds.values():
        counts = {run.num_gpus for run in runs}
        gpus = f"{counts.pop()}xGPU" if len(counts) == 1 and None not in counts else "GPU"
        options = [*map(as_options, measured.arguments_of_runs(runs))]
        predict += options
        model, sizes = measured.named_model(runs), [run.batch_size for run in runs]
        commands.append(_command(model, gpus, sizes, options))
    table = text_table(rows, "benchmarks")
    page = "\n\n".join([table, f"{_ACCEPTED['to_predict']}\n{commands[0]}", *commands[1:]])
    facts = {"tokens_per_step": Fact({r["run"]: r["tokens_per_step"] for r in rows}, "token")}
    fields = {"runs": rows, "predict": predict}
    return Answer(page=lambda: page, facts=facts, fields=fields, rows=rows)


def of_counts(found: measure.MeasuredAcceptance | measure.LoggedAcceptance) -> Answer:
    """Return the acceptance that a server counted, or printed, in all forms."""
    rates = [*found.acceptance_by_position]
    fields = plain_fields(found) | {"acceptance_by_position": rates}
    # scrapes count drafts by position, and logs contain shares of drafts
    shares = [float(n / fields.get("num_drafts", 1)) for n in found.accepted_by_position]
    tokens, name = found.tokens_per_step, fields.get("model_name", "")
    drafts: dict[str, Any] = {"longest": found.draft_length, "mean": found.mean_draft_length}
    drafts |= {"proposal_rate": fields.get("proposal_rate")}  # scrapes do not have it
    arguments = measure.acceptance_arguments(tokens, rates, **drafts)
    engine, ran = fields.get("engine"), found.running_requests
    if engine == LLAMA_CPP:
        arguments = [each | {"engine": LLAMA_CPP} for each in arguments]
    options = [*map(as_options, arguments)]
    model, sizes = measured.named_checkpoint(name)[0], [ran] if ran else []
    facts = known((name, Fact(value, _UNITS.get(name, "-"))) for name, value in fields.items())
    rows = [
        {"position": i, "share": share, "rate": rate}
        for i, (share, rate) in enumerate(zip(shares, rates, strict=True), 1)
    ]
    by_rates, warnings = 1 + sum(shares), list[str]()
    if rows and engine is not None and tokens > by_rates + 0.02:
        warnings.append(_ACCEPTED["cut"].format(len(rows), by_rates, tokens))
    warnings += [_ACCEPTED["short"]] if rows and "draft_length" in arguments[0] else []
    is_vllm = engine in (None, "vLLM")  # only vLLM is scraped
    warnings += [_ACCEPTED["by_draft"]] if is_vllm and drafts["proposal_rate"] is None else []

    def page() -> str:
        parts = [
            "\n".join(map(wrap, lines(_ACCEPTED["lines"], facts))),
            text_table(rows, "positions") if rows else "",
            *(wrap(f"Warning: {warning}.") for warning in warnings),
            f"{_ACCEPTED['to_predict']}\n{_command(model, 'GPU', sizes, options)}",
        ]
        return "\n\n".join(filter(None, parts))

    whole = fields | {"warnings": warnings, "predict": options}
    return Answer(page=page, facts=facts, fields=whole, rows=rows, warnings=warnings)


def of_lengths(tables: Mapping[str, Mapping[int, float]]) -> Answer:
    """Return tokens per step by draft length, and the acceptance rates that give them."""
    from specmodel.core.algebra import acceptance

    rows, predict, commands = list[Row](), list[str](), list[str]()
    for name, table in tables.items():
        rates = acceptance.acceptance_from_lengths([*table.values()], [*table])
        made = acceptance.expected_tokens_per_step_by_position(rates, [*table])
        rows += [
            {"table": name, "draft_length": n, "tokens_per_step": table[n], "by_rates": tokens}
            for n, tokens in zip(table, made.tolist(), strict=True)
        ]
        predict.append(as_options(measure.acceptance_arguments(made[-1], [*rates])[0]))
        model = measured.named_checkpoint(name.partition(" ")[0])[0]
        commands.append(f"{name}\n{_command(model, 'GPU', [], predict[-1:])}".strip())
    page = "\n\n".join([text_table(rows, "lengths"), _ACCEPTED["to_predict"], *commands])
    return Answer(page=lambda: page, fields={"rows": rows, "predict": predict}, rows=rows)


def _command(model: str, gpus: str, sizes: Sequence[float], options: Sequence[str]) -> str:
    """Return a predict command with the first form of an acceptance, and the other forms."""
    words = [f"specmodel predict {model or 'MODEL'} {gpus} --drafter DRAFTER"]
    whole = sorted({max(round(size), 1) for size in sizes})
    words += [f"--batch-size {','.join(map(str, whole))}"] if sizes else []
    first, *others = options
    or_this = [_ACCEPTED["look_up" if "proposal-rate" in other else "longer"] for other in others]
    return "\n".join([command_lines([*words, first]), *or_this, *others])


def as_options(arguments: Mapping[str, Any]) -> str:
    """Return arguments of predict as options; STEPS stands for a value that the user replaces."""
    typed = {n: "STEPS" if value is None else value for n, value in arguments.items()}
    values = {n: f"{v:g}" if isinstance(v, float) else v for n, v in typed.items()}
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in values.items())


def engine(update: fit.EngineUpdate) -> Answer:
    """Return an engine that was fitted to runs in all forms: runs, changes, likely causes."""
    from specmodel.show import report

    facts, runs, moved = fit.update_facts(update), fit.run_rows(update), fit.moved_rows(update)
    values = {name: fact.value for name, fact in facts.items()}
    is_refused, is_slow = values.get("is_refused"), values.get("is_slow")
    doubt = _FITTED["refused"] if is_refused else _FITTED["unlike"]
    warnings = [*values.get("notes", ()), *lines([doubt, _FITTED["excess"]], facts)]
    causes = () if is_slow is None else _FITTED["slow"] if is_slow else _FITTED["fast"]

    def page() -> str:
        parts = [
            text_table(runs, "runs"),
            "\n".join(lines(causes, facts)),
            "" if is_refused else text_table(moved, "moved"),
        ]
        d, words = update.deployment, lines(_FITTED["lines"], facts)
        notes = [_FITTED["open"]] * any(row["is_open"] for row in moved)
        above = report.heading(d), behind(d), update.assumptions, warnings, words
        return report.laid_out(*above, parts, notes)

    deployment = report.deployment_fields(update.deployment)
    fields = {"deployment": deployment, "warnings": warnings, "runs": runs, "moved": moved}
    return Answer(page=page, facts=facts, fields=fields, rows=runs, warnings=warnings)


def kernels(fits: Mapping[tuple[str, str], fit.KernelFitting]) -> Answer:
    """Return fitted kernels in all forms: errors, parameters and warnings by kind and dtype."""
    rows, warnings = list[Row](), list[str]()
    for (kind, dtype), fitting in fits.items():
        errors = {name: getattr(fitting.fit, name) for name in _ERRORS}
        parameters = fitting.result.parameters | {"sharpness": fitting.fit.sharpness}
        rows.append({"component": kind, "dtype": dtype, **errors, "parameters": parameters})
        warnings += [f"{kind} {dtype}: {warning}" for warning in fitting.result.warnings]

    def page() -> str:
        notes = [f"Warning: {warning}." for warning in warnings]
        for row in rows:
            values = [f"{name}\xa0=\xa0{value:.4g}" for name, value in row["parameters"].items()]
            notes.append(f"{row['component']} {row['dtype']}: {', '.join(values)}")
        return "\n".join([text_table(rows, "errors"), "", *(wrap(line, "  ") for line in notes)])

    return Answer(page=page, fields={"rows": rows}, rows=rows, warnings=warnings)


def judged(found: measured.JudgedEngines) -> Answer:
    """Return predictions of a table of measured engines, and their errors, in all forms."""
    facts = measured.judged_facts(found)
    rows, errors, hosts = map(records, (found.rows, found.errors, found.hosts))
    sizes = found.errors.groupby("group")["value"].transform("size")
    groups = records(found.errors[(found.errors["group"] == "all") | (sizes > 1)])

    few = rows if len(rows) <= _MOST_ROWS else []
    left = found.not_taken.items()
    not_taken = [{"reason": why, "count": len(named), "rows": named} for why, named in left]
    values = {name: fact.value for name, fact in facts.items()}
    fields: Row = {name: value for name, value in values.items() if isinstance(value, float)}
    known_values = [{name: v for name, v in row.items() if v is not None} for row in rows]
    fields |= {"groups": errors[1:], "hosts": hosts, "rows": known_values}
    fields |= {"not_taken": not_taken, "assumptions": dict(found.assumed)}

    def page() -> str:
        tables = [text_table(few, "judged")] if few else []
        tables += [text_table(part, "errors") for part in (groups, hosts) if part]
        texts = (PAGES["judged"]["lines"], PAGES["judged"]["notes"])
        words, notes = ("\n".join(map(wrap, lines(each, facts))) for each in texts)
        return "\n\n".join([words, *tables, notes])

    return Answer(page=page, facts=facts, fields=fields, rows=rows)


def judged_kernels(errors: forms.DataFrame, name: str) -> Answer:
    """Return the errors of the kernels of a profile in all forms."""
    rows = records(errors)
    fields = {"hardware": name, "rows": rows}
    return Answer(page=lambda: f"{name}\n\n{text_table(rows, 'errors')}", fields=fields, rows=rows)
