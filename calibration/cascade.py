"""Print our evaluation of Cascade next to the figures of the paper.

Usage: python calibration/cascade.py [--requests N] [--workers N] [--json | --csv]. Without options
it prints the text of results/cascade/table.txt. It needs two minutes on two cores.
"""

import sys
from collections.abc import Sequence
from typing import Any

import click
import numpy as np
import pandas as pd
from msgspec.structs import asdict

import cascade_suite as suite
from cascade_suite import DEFAULT_FIRST, PAPER, SuiteSettings
from program import carry_out
from specmodel.cli.output import answering, told_progress
from specmodel.cli.settings import SETTINGS
from specmodel.core.base.text import Columns, align, wrap
from specmodel.core.base.units import check
from specmodel.show.forms import Answer, records
from specmodel.simulate.sources import MOST

REQUESTS = 200
"""Of a task, in what is kept in results/cascade."""


@click.command("cascade", context_settings=SETTINGS)
@click.option("--requests", type=int, default=REQUESTS, show_default=True, help="A task's.")
@click.option(
    "--engine",
    default=SuiteSettings().engine,
    show_default=True,
    metavar="NAME|PATH",
    help="Whose host overheads.",
)
@click.option("--host-speed", type=float, help="How many times as fast its host is.")
@click.option(
    "--context-length",
    type=int,
    default=SuiteSettings().context_length,
    show_default=True,
    help="KV entries before a step.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of all that is drawn.")
@click.option("--workers", type=int, default=1, show_default=True, help="Processes.")
@answering()
def main(*, requests: int, workers: int, **options: Any) -> Answer:
    """Redo Cascade's evaluation: 5 MoEs, 7 workloads, fixed draft lengths against the policy."""
    check("requests", requests, minimum=1, maximum=MOST, whole=True)
    named = {*SuiteSettings.__struct_fields__}
    given = {name: value for name, value in options.items() if name in named}
    settings = suite.SuiteSettings(num_requests=requests, **given)
    with told_progress(settings.num_cases, "cases", "Replaying") as tell:
        pairs = suite.cascade_suite(settings, workers=workers, progress=tell)
    claims, choices = suite.suite_claims(pairs), suite.suite_choices(pairs)
    terms = suite.suite_terms(pairs)
    tables = {"pairs": pairs, "claims": claims, "choices": choices, "terms": terms}

    def page() -> str:
        drawn = [look_up for look_up in settings.look_ups if look_up not in suite.ANSWERS]
        exact = [look_up for look_up in settings.look_ups if look_up in suite.ANSWERS]
        texts = [_opening(settings)]
        texts += [_claims_table(settings, claims, group) for group in (drawn, exact) if group]
        texts += [_terms_text(settings, terms)] if exact else []
        texts += [_choices_table(choices, group) for group in (drawn, exact) if group]
        return "\n\n".join(texts)

    return Answer(
        page=page,
        fields={"settings": asdict(settings), "paper": PAPER}
        | {name: records(table) for name, table in tables.items()},
        rows=records(claims),
    )


def _opening(settings: SuiteSettings) -> str:
    """Return a description of the runs."""
    correlation, length = settings.centre
    speed = settings.host_speed
    engine = settings.engine + ("" if speed is None else f" on a host {speed:g} times as fast")
    return wrap(
        "Cascade's evaluation, redone: 5 MoEs, 7 workloads, n-gram drafting on an RTX 6000 Ada,"
        f" batch size 1, {settings.num_requests} requests a task, engine {engine}, context"
        f" {settings.context_length}. Acceptance is that of presets for code edits, math and"
        " summaries by a dense 8B model, step times are predicted. Figures in %: ours at routing"
        f" correlation {correlation:g}, outputs of {length:g} tokens and a first draft length of"
        f" {DEFAULT_FIRST}, and the range over routing correlations"
        f" {_list(settings.routing_correlations)}, outputs of {_list(settings.output_tokens)}"
        f" tokens and first draft lengths {_list(settings.first_draft_lengths)}. Look-up of 1 to 3"
        " last tokens, the likeliest reading of the paper: the presets, with what exact look-ups of"
        " so few tokens add to them and lose of them; of 3 to 7, as in the presets; or, a bound, of"
        " 1 to 3 with all that is added wrong. Look-ups in answers: exact, of 1 to 3 tokens, as"
        " vLLM 0.6.6 made them, in Mixtral's answers to GSM8K, Mistral-7B's to MT-bench's"
        " extraction, and HumanEval's own solutions behind their prompt, as chats answer, or bare."
    )


def _claims_table(settings: SuiteSettings, claims: pd.DataFrame, look_ups: Sequence[str]) -> str:
    """Return the paper's figures and ours: at the centre, and the range over all settings."""
    correlation, length = settings.centre
    is_middle = (
        (claims["routing_correlation"] == correlation)
        & (claims["output_tokens"] == length)
        & (claims["first_draft_length"] == DEFAULT_FIRST)
    )
    worst = [str(name) for name in claims if str(name).startswith("worst")]
    shown = list(dict.fromkeys([*PAPER, *worst]))
    columns: Columns = [("claim", shown), ("paper", [PAPER.get(name, "-") for name in shown])]
    for look_up in look_ups:
        part = claims[claims["look_up"] == look_up]
        middle = part[is_middle[part.index]].iloc[0]
        cells = [_claim(name, middle[name], part[name].min(), part[name].max()) for name in shown]
        title = "look-ups in" if look_up in suite.ANSWERS else "look-up of"
        columns.append((f"{title}\n{look_up}", cells))
    return align(columns, left=("claim",))


def _terms_text(settings: SuiteSettings, terms: pd.DataFrame) -> str:
    """Return gains and costs of fixed lengths in published answers, and those of the paper."""
    _, length = settings.centre
    part = terms[terms["look_up"].isin([*suite.ANSWERS]) & (terms["output_tokens"] == length)]
    names, rows = [], []
    for name, (look_up, task) in suite.TEXTS.items():
        own = part[(part["look_up"] == look_up) & (part["task"] == task)]
        for draft_length, each in own.groupby("draft_length"):
            names.append(name)
            rows.append(_term_cells(int(str(draft_length)), each))
    intro = wrap(
        "Fixed lengths in these answers, term by term: share of steps with a proposal, tokens a"
        " step, and the cost of a step with a proposal in plain steps: Mixtral's, the dearest of"
        " the five, and what the paper's worst slowdown of that length would take here. Last the"
        " mean cost of Mixtral's steps, 2.3 to 3 at 7 in the paper. Ranges are over routing"
        f" correlations, the lowest of which costs most; outputs of {length:g} tokens."
    )
    titles = [
        "drafted", "finding", "tokens", "Mixtral's\nverify", "dearest", "needed", "Mixtral's\nstep",
    ]  # fmt: skip
    columns: Columns = [("answers", names)]
    columns += [
        (title, list(cells)) for title, cells in zip(titles, zip(*rows, strict=True), strict=True)
    ]
    return intro + "\n\n" + align(columns, left=("answers",))


def _term_cells(draft_length: int, terms: pd.DataFrame) -> tuple[str, ...]:
    """Return the cells of a draft length; costs from the highest correlation to the lowest."""

    def cost(column: str, part: pd.DataFrame) -> str:
        each = part.groupby("routing_correlation")[column].max()
        return f"{each.min():.2f}..{each.max():.2f}"

    mixtral = terms[terms["model"] == "mixtral-8x7b"]
    proposing, tokens = mixtral[["proposing_steps", "tokens_per_step"]].mean()
    worst = suite.WORST_FIXED.get(draft_length)
    needed = "-" if worst is None else f"{1 + ((1 + worst) * tokens - 1) / proposing:.2f}"
    return (
        str(draft_length), f"{proposing:.0%}", f"{tokens:.2f}", cost("verify_cost", mixtral),
        cost("verify_cost", terms), needed, cost("relative_step_time", mixtral),
    )  # fmt: skip


def _choices_table(choices: pd.DataFrame, look_ups: Sequence[str]) -> str:
    """Return the worst slowdown and the mean speedup under each choice that the paper leaves."""
    title = "left open by the paper"
    parts = [choices[choices["look_up"] == look_up] for look_up in look_ups]
    columns: Columns = [(title, parts[0]["choice"].astype(str).tolist())]
    for look_up, part in zip(look_ups, parts, strict=True):
        columns.append((f"{look_up}:\nworst", [f"{value:.1%}" for value in part["worst_slowdown"]]))
        columns.append(("mean\nspeedup", [f"{value:.3f}" for value in part["mean_speedup"]]))
    return align(columns, left=(title,))


def _claim(name: str, value: float, low: float, high: float) -> str:
    if np.isnan(value):
        return "-"
    if "times" in name:
        return f"{value:.1f} {low:.1f}..{high:.1f}"
    scale = 1 if name.startswith("pairs") else 100
    return f"{scale * value:.0f} {scale * low:.0f}..{scale * high:.0f}"


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


if __name__ == "__main__":
    sys.exit(carry_out(main))
