"""Show measured acceptance in words and tables, and the command that predicts with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specmodel.calibrate import measure
from specmodel.calibrate.fit import measured
from specmodel.core.base.naming import LLAMA_CPP
from specmodel.core.base.text import command_lines, wrap
from specmodel.show.columns import of_table
from specmodel.show.facts import Fact, known, lines
from specmodel.show.forms import Answer, plain_fields, text_table
from specmodel.show.glossary import PAGES

_TEXTS = PAGES["accepted"]
_UNITS = dict.fromkeys(("tokens_per_step", "mean_draft_length", "max_draft_length"), "token")
_UNITS |= {"draft_length": "token", "running_requests": "request"}


def of_benchmarks(drafted: Sequence[measured.Run]) -> Answer:
    """Return the acceptance of runs that drafted, from the result files of a benchmark."""
    names = [column.name for column in of_table("benchmarks")[1:]]
    told = [{name: getattr(run, name) for name in names} for run in drafted]
    rows = [{"run": Path(run.source).name} | own for run, own in zip(drafted, told, strict=True)]
    kinds: dict[Any, list[measured.Run]] = {}
    for run in drafted:
        kinds.setdefault((run.draft_length, run.topk, run.verify_tokens), []).append(run)
    forms, commands = list[str](), list[str]()
    for runs in kinds.values():
        counts = {run.num_gpus for run in runs}
        gpus = f"{counts.pop()}xGPU" if len(counts) == 1 and None not in counts else "GPU"
        options = [*map(as_options, measured.arguments_of_runs(runs))]
        forms += options
        model, sizes = measured.named_model(runs), [run.batch_size for run in runs]
        commands.append(_command(model, gpus, sizes, options))
    table = text_table(rows, "benchmarks")
    page = "\n\n".join([table, f"{_TEXTS['to_predict']}\n{commands[0]}", *commands[1:]])
    facts = {"tokens_per_step": Fact({r["run"]: r["tokens_per_step"] for r in rows}, "token")}
    fields = {"runs": rows, "predict": forms}
    return Answer(page=lambda: page, facts=facts, fields=fields, rows=rows)


def of_counts(found: measure.MeasuredAcceptance | measure.LoggedAcceptance) -> Answer:
    """Return the acceptance that a server counted, or printed, in all forms."""
    rates = [*found.acceptance_by_position]
    fields = plain_fields(found) | {"acceptance_by_position": rates}
    # scrapes count drafts by position, and logs contain shares of drafts
    shares = [float(n / fields.get("num_drafts", 1)) for n in found.accepted_by_position]
    tokens, name = found.tokens_per_step, fields.get("model_name", "")
    drafts: dict[str, Any] = {"longest": found.draft_length, "mean": found.mean_draft_length}
    drafts |= {"proposal_rate": fields.get("proposal_rate")}  # of scrapes it is not known
    forms = measure.acceptance_arguments(tokens, rates, **drafts)
    if fields.get("engine") == LLAMA_CPP:
        forms = [form | {"engine": LLAMA_CPP} for form in forms]
    options, ran = [*map(as_options, forms)], found.running_requests
    model, sizes = measured.named_checkpoint(name)[0], [ran] if ran else []
    facts = known((name, Fact(value, _UNITS.get(name, "-"))) for name, value in fields.items())
    rows = [
        {"position": i, "share": share, "rate": rate}
        for i, (share, rate) in enumerate(zip(shares, rates, strict=True), 1)
    ]
    by_rates, engine = 1 + sum(shares), fields.get("engine")
    warnings = list[str]()
    if rows and engine is not None and tokens > by_rates + 0.02:
        warnings.append(_TEXTS["cut"].format(len(rows), by_rates, tokens))
    warnings += [_TEXTS["short"]] if rows and "draft_length" in forms[0] else []
    is_vllm = engine in (None, "vLLM")  # scrapes are of vLLM
    warnings += [_TEXTS["by_draft"]] if is_vllm and drafts["proposal_rate"] is None else []

    def page() -> str:
        parts = [
            "\n".join(map(wrap, lines(_TEXTS["lines"], facts))),
            text_table(rows, "positions") if rows else "",
            *(wrap(f"Warning: {warning}.") for warning in warnings),
            f"{_TEXTS['to_predict']}\n{_command(model, 'GPU', sizes, options)}",
        ]
        return "\n\n".join(filter(None, parts))

    whole = fields | {"warnings": warnings, "predict": options}
    return Answer(page=page, facts=facts, fields=whole, rows=rows, warnings=warnings)


def of_lengths(tables: Mapping[str, Mapping[int, float]]) -> Answer:
    """Return tokens per step by draft length, of each table, and the rates that make them."""
    from specmodel.core.algebra import acceptance

    rows, forms, commands = list[dict[str, Any]](), list[str](), list[str]()
    for name, table in tables.items():
        rates = acceptance.acceptance_from_lengths([*table.values()], [*table])
        made = acceptance.expected_tokens_per_step_by_position(rates, [*table])
        rows += [
            {"table": name, "draft_length": n, "tokens_per_step": table[n], "by_rates": tokens}
            for n, tokens in zip(table, made.tolist(), strict=True)
        ]
        forms.append(as_options(measure.acceptance_arguments(made[-1], [*rates])[0]))
        model = measured.named_checkpoint(name.partition(" ")[0])[0]
        commands.append(f"{name}\n{_command(model, 'GPU', [], forms[-1:])}".strip())
    page = "\n\n".join([text_table(rows, "lengths"), _TEXTS["to_predict"], *commands])
    return Answer(page=lambda: page, fields={"rows": rows, "predict": forms}, rows=rows)


def _command(model: str, gpus: str, sizes: Sequence[float], options: Sequence[str]) -> str:
    """Return a whole predict with the first form of an acceptance, and the other form."""
    words = [f"specmodel predict {model or 'MODEL'} {gpus} --drafter DRAFTER"]
    whole = sorted({max(round(size), 1) for size in sizes})
    words += [f"--batch-size {','.join(map(str, whole))}"] if sizes else []
    first, *others = options
    or_this = [_TEXTS["look_up" if "proposal-rate" in other else "longer"] for other in others]
    return "\n".join([command_lines([*words, first]), *or_this, *others])


def as_options(arguments: Mapping[str, Any]) -> str:
    """Return arguments of predict as it is typed; STEPS for a value that is yours to give."""
    told = {n: "STEPS" if value is None else value for n, value in arguments.items()}
    values = {n: f"{v:g}" if isinstance(v, float) else v for n, v in told.items()}
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in values.items())
