"""``specmodel cost-table``: what steps take by tokens verified, as adaptive engines read it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specmodel import answers
from specmodel.base.errors import InputError
from specmodel.base.ranges import parse_values
from specmodel.base.text import align_blocks, wrap
from specmodel.cli import settings
from specmodel.cli.answering import answering
from specmodel.cli.where import where_options
from specmodel.prediction.table import seconds
from specmodel.show import forms, report

_SIZES = "1:256:x2"
_FORMS = ("additive", "rates")
_FOR = "Whose adaptive verification."
_FORM = (
    "Of SGLang's table: times by requests and by tokens, or rates by tokens alone."
    "  [default: additive]"
)
_SGLANG_PLACE = (
    "a FILE, with --speculative-algorithm DSPARK --speculative-dspark-sps-table-path FILE and"
    " SGLANG_RAGGED_VERIFY_MODE=compact in the environment"
)
_CAVEATS = {
    "sglang": "SGLang 0.5.23 reads it for DSPARK only, and not at all in its default mode, static."
    " It looks up requests and tokens of one replica, pads them to CUDA graphs, and knows no"
    " context: make a table for the context that is usual. The head is taken to have one layer;"
    " --set drafter.num_layers=5 is one of five.",
    "vllm": "vLLM 0.33 reads no file: with enable_adaptive_verification it measures as it starts,"
    " at the one context that VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN gives (8192 if unset):"
    " drafting by requests, the target pass by tokens. --csv has both, to lay beside or to choose"
    " that context by.",
}
"""Where an engine departs from the table."""


@settings.command()
@settings.own("for", list(_CAVEATS), _FOR, to="dialect", required=True)
@settings.own("form", list(_FORMS), _FORM)
@where_options(engine="that of --for")
@settings.option("draft_length", words=settings.DRAFTED, required=True)
@settings.option("batch_size", f"  [default: {_SIZES}]")
@settings.option("context_length")
@settings.detail_options()
@answering(rows=", a row a step", fragment="Print SGLang's JSON only.")
def cost_table(**options: Any) -> forms.Answer:
    """Tabulate what a step takes by tokens verified.

    For engines that verify as much of a draft as pays: seconds by requests of one replica, tokens
    verified of each, and context, and the file of them that SGLang takes.

    \b
    Examples:
      specmodel cost-table --for sglang --target qwen3-30b-a3b \\
          --drafter parallel --hardware h200_sxm --engine sglang \\
          --draft-length 7 --context-length 4096 --fragment-only
      specmodel cost-table --for vllm --target qwen3-30b-a3b \\
          --drafter parallel --hardware h200_sxm --draft-length 7 \\
          --context-length 1024,8192,65536 --csv
    """
    dialect, needs_file = options["dialect"], options["fragment_only"]
    if dialect == "vllm" and (options["form"] or needs_file):
        argument, value = ("fragment_only", True) if needs_file else ("form", options["form"])
        expected = "none with --for vllm, which reads no table but measures its own; --csv has it"
        raise InputError(argument, value, expected)
    table, prediction = costs_from(options)
    fragment, error = "", None
    if dialect == "sglang" and (needs_file or options["form"] or table.context_length.size == 1):
        fragment, error = _for_sglang(table, options)
        if options["form"] is None:
            assumed = {**prediction.assumptions, "form": _FORMS[0]}
            prediction = replace(prediction, assumptions=assumed)

    def page() -> str:
        words, notes = verdict(table, error, prediction), _for_engine(dialect, fragment)
        return report.page(prediction, words, notes, steps_table(table, prediction))

    def rows() -> list[dict[str, Any]]:
        marks = prediction.fits.repeat(table.draft_length + 1).tolist()
        return [row | {"fits": fits} for row, fits in zip(table.rows(), marks, strict=True)]

    def fields() -> dict[str, Any]:
        from specmodel.answers.cost_tables import COLUMN_UNITS

        return report.case_fields(prediction) | {
            "for": dialect,
            "fragment": fragment or None,
            "place": _SGLANG_PLACE if fragment else None,
            "caveats": [_CAVEATS[dialect]],
            "largest_error": error,
            "draft_length": table.draft_length,
            "units": COLUMN_UNITS | {"fits": "-"},
            "rows": rows(),
        }

    return forms.Answer(
        page=page,
        fields=fields,
        rows=rows,
        warnings=prediction.warnings,
        fragment=fragment,
    )


def costs_from(options: dict[str, Any]) -> tuple[answers.CostTable, report.Prediction]:
    """Return the table that the options ask for, and a prediction at its points."""
    from specmodel.cli.options import check_points, deployment_from, with_its_engine
    from specmodel.prediction.predicting import DEFAULT_CONTEXT_LENGTH, predict_deployed

    lengths = parse_values("draft_length", options["draft_length"])
    if len(lengths) != 1:
        raise InputError("draft_length", options["draft_length"], "one, that of every step")
    usual = {"batch_size": _SIZES, "context_length": DEFAULT_CONTEXT_LENGTH}
    typed = usual | settings.given(options, usual)
    grid = {name: parse_values(name, str(values)) for name, values in typed.items()}
    sizes, contexts = map(len, grid.values())
    counts = {"batch sizes": sizes, "contexts": contexts, "tokens": lengths[0] + 1}
    check_points("batch_size", counts)
    options, told = with_its_engine(options)
    deployment, assumed = deployment_from(options)
    table = answers.cost_table(deployment, draft_length=lengths[0], **grid)
    prediction = predict_deployed(
        deployment,
        told | assumed | {name: value for name, value in usual.items() if options[name] is None},
        acceptance=0.0,  # which has no part in what a step takes
        draft_length=lengths[0],
        max_draft_length=lengths[0],
        batch_size=table.batch_size * deployment.layout.replicas,
        context_length=table.context_length[:, None],
    )
    return table, prediction


def _for_sglang(table: answers.CostTable, options: dict[str, Any]) -> tuple[str, float]:
    """Return SGLang's file, and its largest relative error over the steps of the table."""
    from specmodel.answers.cost_tables import costs_step_time, costs_text, sglang_costs
    from specmodel.drafters.by_name import drafter_kind

    if drafter_kind(options["drafter"], options["target"]) not in ("dspark", "parallel"):
        expected = "dspark or parallel with --for sglang, which reads a table for DSPARK only"
        raise InputError("drafter", options["drafter"], expected)
    costs = sglang_costs(table, options["form"] or _FORMS[0])
    error = costs_step_time(costs, table) / table.step_time[0] - 1
    return costs_text(costs), float(abs(error).max())


def verdict(table: answers.CostTable, error: float | None, p: report.Prediction) -> list[str]:
    """Say how a step grows with the tokens verified and with the context."""
    step, most = table.step_time, table.draft_length + 1
    told = []
    for place in sorted({0, table.batch_size.size - 1}):
        growth = step[0, place, -1] / step[0, place, 0]
        told.append(f"{growth:.2f}x at batch size {table.batch_size[place]}")
    words = [
        f"Verifying {most} tokens of each request takes, beside 1, {' and '.join(told)}: with"
        " drafting and rejection, at the first context."
    ]
    if error is not None:
        words.append(f"SGLang's table keeps each of these steps within {error:.1%}.")
    if table.context_length.size > 1:
        first, last = table.context_length[[0, -1]]
        growth = (step[-1] / step[0]).max()
        words.append(f"From context {first} to {last} a step takes up to {growth:.2f}x as long.")
    replicas = p.deployment.layout.replicas
    if replicas > 1:
        words.append(f"Batch sizes and tokens are those of one of {replicas} replicas, all alike.")
    return words


def _for_engine(dialect: str, fragment: str) -> str:
    """Say how the engine takes the table, and where it behaves differently."""
    if dialect == "vllm":
        return wrap(_CAVEATS[dialect])
    if not fragment:
        return wrap("SGLang's table knows one context; --csv has all.")
    return wrap(f"For SGLang, {_SGLANG_PLACE}. --fragment-only prints it. {_CAVEATS[dialect]}")


def steps_table(table: answers.CostTable, p: report.Prediction) -> str:
    """Return the times of steps, a table for each context; batches that do not fit are starred."""
    blocks = []
    for context, times, fits in zip(
        table.context_length.tolist(), table.step_time, p.fits, strict=True
    ):
        columns = [
            (f"verified\n{tokens}", [seconds(float(time)) for time in times[:, place]])
            for place, tokens in enumerate(table.verify_tokens.tolist())
        ]
        marks = zip(table.batch_size.tolist(), fits, strict=True)
        sizes = ("batch\nsize", [f"{size}{'' if inside else '*'}" for size, inside in marks])
        blocks.append(f"Step time at context {context}:\n{align_blocks(sizes, columns)}")
    return "\n\n".join(blocks if p.fits.all() else [*blocks, "* does not fit in memory"])
