"""``specmodel simulate``: replay draft-length policies over an acceptance trace."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmodel import simulate as simulation
from specmodel.cli import settings
from specmodel.cli.output import answering, told_progress
from specmodel.cli.positionals import where_options
from specmodel.cli.settings import refuse_inputs
from specmodel.core.base.errors import InputError, given, refuse_given
from specmodel.core.base.text import Viewed

if TYPE_CHECKING:
    import pandas as pd

    from specmodel.simulate.replay_question import Replayed


@settings.command()
@where_options(required=False)
@settings.options_of("simulate")
@answering()
def simulate(**options: Any) -> Viewed:
    """Replay draft-length policies over an acceptance trace, at batch size 1.

    All policies get the same requests and the same random noise. Speedups are relative to decoding
    without speculation. The table shows the speedup of the whole workload with its 95 % interval,
    and the 5th percentile and minimum for single requests. The policies oracle and best-fixed know
    the requests in advance, so they are upper bounds and not ranked. To simulate larger batches,
    use specmodel load.

    \b
    Examples:
      specmodel simulate --target mixtral-8x7b --weight-dtype fp8 \\
          --drafter ngram --hardware rtx_6000_ada --memory-utilization 0.95 \\
          --trace code-ngram
      specmodel simulate --target olmoe-1b-7b --drafter eagle --hardware l4 \\
          --trace code-eagle+chat-eagle --requests 50 \\
          --policy none,cascade,cascade:backoff_factor=1,goodput,oracle --json
      specmodel simulate --step-times ./times.csv --trace ./trace.jsonl \\
          --policy none,my_module:MyPolicy --timeline ./request.png

    \b
    Your own policy is a class, here in my_module.py of the current folder:
      class MyPolicy:
          def propose(self):  # returns the next draft length, 0 for no draft
              return 3
          def observe(self, emitted_tokens, step_time):
              pass  # emitted_tokens: accepted tokens + 1; step_time: seconds
    Your class's __init__ may have the parameters step_time, max_draft_length,
    draft_lengths and generator, which specmodel passes in. __init__ may also
    have settings of your own, as in my_module:MyPolicy:window=20.
    To see all policies, run specmodel list policies.
    """
    from specmodel.cli.options import manner_from, where_from
    from specmodel.core.base.files import write_text
    from specmodel.simulate.replay_question import OF_REPLAYS, replay_question

    _check_files(options)
    if options["trace"] is not None and options["timeline"] is None:
        refuse_given(options, ["request"], "This needs --timeline FILE, which plots one request.")
    arguments = where_from(options) | given(options, OF_REPLAYS)
    question = replay_question(arguments, manner_from(options, is_drafting=False))
    if options["timeline"]:
        from specmodel.show.plots.figures import TWO_COLUMNS, save_figure
        from specmodel.show.simulated import replay_heading

        steps = _steps(question, options).assign(case=replay_heading(question))
    with told_progress(question.source.num_requests, "requests", "Replaying") as tell:
        found = question.answered(workers=options["workers"], progress=tell)
    if options["timeline"]:
        save_figure("timeline", steps, options["timeline"], "timeline", width=TWO_COLUMNS)
    if options["records"] is not None:
        write_text(options["records"], found.records.to_csv(index=False), "records")
    return found


def _check_files(options: dict[str, Any]) -> None:
    """Refuse files that cannot be written before anything is computed."""
    from specmodel.core.base.files import check_writable
    from specmodel.show.plots.figures import check_figure

    if options["timeline"] is not None:
        check_figure("timeline", options["timeline"])
    if options["records"] is not None:
        if Path(options["records"]).suffix != ".csv":
            raise InputError("records", options["records"], "a .csv file")
        check_writable(options["records"], "records")
        read = [options["trace"], options["step_times"], *options["changes"]]
        read += (options["policies"] or "").split(",")
        refuse_inputs("records", options["records"], *read)


def _steps(question: Replayed, options: dict[str, Any]) -> pd.DataFrame:
    """Return the steps of the request to draw."""
    from specmodel.simulate.choices import HINDSIGHT, choose

    single = [name for name in question.policies if name not in HINDSIGHT]
    chosen = "cascade" if "cascade" in single else (single or question.policies)[-1]
    drawn = partial(
        simulation.timeline, question.source, question.times, choose(chosen, Path.cwd())
    )
    return drawn(request=options["request"] or 0, **question.sampling)
