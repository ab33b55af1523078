"""``specmodel load``: simulate a server under load, or find the largest rate within targets."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

from specmodel.cli import settings
from specmodel.cli.output import answering, echo_warnings, told_progress
from specmodel.cli.positionals import where_options
from specmodel.core.base.errors import given, install, refuse_given
from specmodel.core.base.text import Viewed

FOR_LOAD = ("traffic", "search")
"""Tables of options of a load that other commands accept with --for-load."""
_WITH_LOAD = (
    "This needs --for-load, which simulates requests that arrive and wait. For a steady batch, use"
    " --tpot-target in predict or compare."
)
_RATES_TRIED = 11
"""Number of rates that are tried for a policy, roughly [-]."""


def refuse_without_load(options: Mapping[str, Any], *spared: str) -> None:
    """Refuse the options of `FOR_LOAD`, except `spared` ones, if no load is simulated."""
    if not options["for_load"]:
        names = chain(*(settings.TABLES[table] for table in FOR_LOAD))
        refuse_given(options, [name for name in names if name not in spared], _WITH_LOAD)


@settings.command()
@where_options(has_start=True)
@settings.options_of("load", "traffic", "largest", "search", "server")
@answering(rows=", with a row for each rate that was simulated", figure="load, capacity or drain")
def load(**options: Any) -> Viewed:
    """Simulate a server under load, or find the highest rate within latency targets.

    With --request-rate or --users, the table shows the running requests, TPOT and TTFT of each
    draft-length policy. With a latency target instead, the table shows the highest request rate
    that each policy sustains.

    Requests arrive at random, wait in a queue, and are served with continuous batching as in vLLM
    0.33. All policies get the same requests and the same random noise. If the queue grows without
    end, the table says that the server does not sustain the load.

    The search for the highest rate simulates each rate several times. The search raises the rate by
    a quarter until too few requests meet the targets, and then refines the rate. The answer has
    one interval for the spread between simulations, and one for the error of predicted times.

    With --drain, all prompts are submitted at the start, as in rollouts and offline batches. The
    table for --drain shows the time until all answers are complete, and the time that speculation
    saves.

    \b
    Examples:
      specmodel load qwen3-30b-a3b h100 --request-rate 1,2,4
      specmodel load qwen3.5-397b 8xb200 --request-rate 2:16:x2 \\
          --workload code --policy none,fixed:1,fixed:3,sglang \\
          --ttft-target 1s --tpot-target 20ms
      specmodel load gpt-oss-120b h200 --users 32 --prompt-length 1000 \\
          --output-length 500
      specmodel load qwen3-30b-a3b h100 --tpot-target 20ms
      specmodel load qwen3.5-397b 8xb200 --tpot-target 20ms \\
          --workload code --for-rate 40 --gpu-hour-price 4.5
      specmodel load qwen3-30b-a3b h200 --drain 64 --samples 4 \\
          --prompt-length 200 --output-length lognormal:1000:0.8
      specmodel load h200 --request-rate 4 \\
          --from-command 'vllm serve Qwen/Qwen3-30B-A3B -tp 2'
    """
    from specmodel.cli.options import manner_from
    from specmodel.simulate.load_question import FOR_LARGEST, load_question

    question = load_question(arguments_of_load(options), manner_from(options))
    if question.trial is not None:
        with searching(options, len(question.policies)) as how:
            return question.answered(**how)
    refuse_given(options, ("workers", "scheduler"), FOR_LARGEST)
    with told_progress(max(len(question.loads), 1) * len(question.policies), "runs") as tell:
        return question.answered(progress=tell)


@contextmanager
def searching(options: Mapping[str, Any], pieces: int) -> Iterator[dict[str, Any]]:
    """Yield workers, client and progress bar for `pieces` searches; warn if numba is missing."""
    from specmodel.simulate.machine_code import has_numba

    if not has_numba():
        usual = "2 short runs at each rate by default, rates 3 % apart, results up to 10 % too high"
        echo_warnings([f"without numba the search is coarse, with {usual}: {install('fast')}"])
    workers = 1 if options["workers"] is None else options["workers"]
    with told_progress(_RATES_TRIED * pieces, "rates tried") as tell:
        yield {"workers": workers, "client": options["scheduler"], "progress": tell}


def arguments_of_load(options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a case and a load from options, by name."""
    from specmodel.cli.options import arguments_from

    if not options.get("for_load", True):
        return arguments_from(options) | given(options, ["tpot_target"])
    from specmodel.simulate.load_question import OF_LOADS

    typed = given(options, ("prompt_length", "output_length"))
    laws = {name: value for name, value in typed.items() if ":" in str(value)}
    told = arguments_from(options | dict.fromkeys(laws))
    return told | given(options, (*OF_LOADS, "for_load")) | laws
