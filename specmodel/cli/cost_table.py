"""``specmodel cost-table``: what steps take by tokens verified, as adaptive engines read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError
from specmodel.base.ranges import parse_values
from specmodel.base.text import align_blocks, wrap
from specmodel.cli import settings
from specmodel.cli.answering import answering
from specmodel.prediction.table import seconds
from specmodel.show import report
from specmodel.show.forms import Answer

if TYPE_CHECKING:
    from specmodel.answers.cost_tables import CostTable
    from specmodel.prediction.outcome import Prediction

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
_SGLANG_CAVEATS = (
    "SGLang 0.5.23 reads it for DSPARK only, and not at all in its default mode, static. It looks"
    " up requests and tokens of one replica, pads them to CUDA graphs, and knows no context: make"
    " a table for the context that is usual. The head is taken to have one layer; --set"
    " drafter.num_layers=5 is one of five."
)
_VLLM_CAVEATS = (
    "vLLM 0.33 reads no file: with enable_adaptive_verification it measures as it starts, at the"
    " one context that VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN gives (8192 if unset):"
    " drafting by requests, the target pass by tokens. --csv has both, to lay beside or to choose"
    " that context by."
)


@settings.command()
@settings.own("for", ["sglang", "vllm"], _FOR, to="dialect", required=True)
@settings.own("form", list(_FORMS), _FORM)
@settings.where_options(engine="that of --for")
@settings.option("draft_length", words=settings.DRAFTED, required=True)
@settings.option("batch_size", f"  [default: {_SIZES}]")
@settings.option("context_length")
@settings.detail_options()
@answering(rows=", a row a step", fragment="Print SGLang's JSON only.")
def cost_table(**options: Any) -> Answer:
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
    costs = costs_from(options)
    return Answer(
        page=lambda: report.page(
            costs.prediction, verdict(costs), _for_engine(costs), steps_table(costs.table)
        ),
        fields=lambda: _fields(costs),
        rows=costs.table.rows,
        warnings=costs.prediction.warnings,
        fragment=costs.fragment,
    )


@dataclass(frozen=True, eq=False, repr=False)
class Costs:
    """Times of steps, and the file for SGLang with its largest error.

    The file is empty for another engine and at several contexts.
    """

    dialect: str
    table: CostTable
    fragment: str
    largest_error: float | None
    prediction: Prediction


def costs_from(options: dict[str, Any]) -> Costs:
    """Return the table that the options ask for, with SGLang's file where there is one."""
    from specmodel.answers.cost_tables import cost_table
    from specmodel.cli.options import deployment_from, with_engine_of_dialect
    from specmodel.prediction.predicting import predict_deployed

    name, needs_file = options["dialect"], options["fragment_only"]
    if name == "vllm" and (options["form"] or needs_file):
        argument, value = ("fragment_only", True) if needs_file else ("form", options["form"])
        expected = "none with --for vllm, which reads no table but measures its own; --csv has it"
        raise InputError(argument, value, expected)
    draft_length, sizes, contexts = _axes(options)
    options, told = with_engine_of_dialect(options)
    deployment, assumed = deployment_from(options)
    grid = {"batch_size": sizes, "context_length": contexts}
    table = cost_table(deployment, draft_length=draft_length, **grid)
    fragment, error = "", None
    if name == "sglang" and (needs_file or options["form"] or len(contexts) == 1):
        fragment, error = _for_sglang(table, options)
    usual = {"batch_size": _SIZES, "context_length": contexts[0]}
    usual |= {"form": _FORMS[0]} if fragment else {}
    prediction = predict_deployed(
        deployment,
        told | assumed | {key: value for key, value in usual.items() if options[key] is None},
        acceptance=0.0,  # which has no part in what a step takes
        draft_length=draft_length,
        max_draft_length=draft_length,
        batch_size=table.batch_size * deployment.layout.replicas,
        context_length=table.context_length[:, None],
    )
    return Costs(name, table, fragment, error, prediction)


def _axes(options: dict[str, Any]) -> tuple[int, list[int], list[int]]:
    """Return the draft length, batch sizes and contexts; refuse too many points."""
    from specmodel.cli.options import MAX_POINTS
    from specmodel.prediction.predicting import DEFAULT_CONTEXT_LENGTH

    lengths = parse_values("draft_length", options["draft_length"])
    if len(lengths) != 1:
        raise InputError("draft_length", options["draft_length"], "one, that of every step")
    typed = {"batch_size": _SIZES, "context_length": str(DEFAULT_CONTEXT_LENGTH)}
    sizes, contexts = (
        parse_values(key, typed[key] if options[key] is None else options[key]) for key in typed
    )
    points = len(sizes) * len(contexts) * (lengths[0] + 1)
    if points > MAX_POINTS:
        given = {"batch sizes": len(sizes), "contexts": len(contexts), "tokens": lengths[0] + 1}
        raise InputError("batch_size", given, f"at most {MAX_POINTS} points in all, not {points}")
    return lengths[0], sizes, contexts


def _for_sglang(table: CostTable, options: dict[str, Any]) -> tuple[str, float]:
    """Return SGLang's file, and its largest relative error over the steps of the table."""
    from specmodel.answers.cost_tables import costs_step_time, costs_text, sglang_costs
    from specmodel.drafters.by_name import drafter_kind

    if drafter_kind(options["drafter"], options["target"]) not in ("dspark", "parallel"):
        expected = "dspark or parallel with --for sglang, which reads a table for DSPARK only"
        raise InputError("drafter", options["drafter"], expected)
    costs = sglang_costs(table, options["form"] or _FORMS[0])
    error = costs_step_time(costs, table) / table.step_time[0] - 1
    return costs_text(costs), float(abs(error).max())


def verdict(costs: Costs) -> list[str]:
    """Say how a step grows with the tokens verified and with the context."""
    table = costs.table
    step, most = table.step_time, table.draft_length + 1
    told = []
    for place in sorted({0, table.batch_size.size - 1}):
        growth = step[0, place, -1] / step[0, place, 0]
        told.append(f"{growth:.2f}x at batch size {table.batch_size[place]}")
    words = [
        f"Verifying {most} tokens of each request takes, beside 1, {' and '.join(told)}: with"
        " drafting and rejection, at the first context."
    ]
    if costs.largest_error is not None:
        words.append(f"SGLang's table keeps each of these steps within {costs.largest_error:.1%}.")
    if table.context_length.size > 1:
        first, last = table.context_length[[0, -1]]
        growth = (step[-1] / step[0]).max()
        words.append(f"From context {first} to {last} a step takes up to {growth:.2f}x as long.")
    replicas = costs.prediction.deployment.layout.replicas
    if replicas > 1:
        words.append(f"Batch sizes and tokens are those of one of {replicas} replicas, all alike.")
    return [*words, *report.behind(costs.prediction.deployment)]


def _for_engine(costs: Costs) -> str:
    """Say how the engine takes the table, and where it behaves differently."""
    if costs.dialect == "vllm":
        return wrap(_VLLM_CAVEATS)
    if not costs.fragment:
        return wrap("SGLang's table knows one context; --csv has all.")
    return wrap(f"For SGLang, {_SGLANG_PLACE}. --fragment-only prints it. {_SGLANG_CAVEATS}")


def steps_table(table: CostTable) -> str:
    """Return the times of steps, a table for each context."""
    blocks = []
    for context, times in zip(table.context_length.tolist(), table.step_time, strict=True):
        columns = [
            (f"verified\n{tokens}", [seconds(float(time)) for time in times[:, place]])
            for place, tokens in enumerate(table.verify_tokens.tolist())
        ]
        sizes = ("batch\nsize", [str(size) for size in table.batch_size.tolist()])
        blocks.append(f"Step time at context {context}:\n{align_blocks(sizes, columns)}")
    return "\n\n".join(blocks)


def _fields(costs: Costs) -> dict[str, Any]:
    """Return the fields of JSON, in SI units."""
    from specmodel.answers.cost_tables import COLUMN_UNITS

    is_sglang = costs.dialect == "sglang"
    own = {
        "for": costs.dialect,
        "fragment": costs.fragment or None,
        "place": _SGLANG_PLACE if costs.fragment else None,
        "caveats": [_SGLANG_CAVEATS if is_sglang else _VLLM_CAVEATS],
        "largest_error": costs.largest_error,
        "draft_length": costs.table.draft_length,
        "units": COLUMN_UNITS,
        "rows": costs.table.rows(),
    }
    return report.case_fields(costs.prediction) | own
