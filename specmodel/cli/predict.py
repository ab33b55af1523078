"""``specmodel predict``: whether speculation pays, and other views of that answer."""

from typing import Any

from msgspec.structs import replace

from specmodel.cli import settings
from specmodel.cli.helping import NAMES
from specmodel.cli.output import answering
from specmodel.cli.positionals import where_options
from specmodel.core.base.errors import refuse_given
from specmodel.show import forms
from specmodel.show.views import VIEWS, view as view_of

BATCH_SIZES = "1:256:x2"
"""Default batch sizes."""
_SIZES = {"lengths": "1:512:x2", "peak": "1:512", "terms": "1,16,128", "tasks": "1,8,32"}
"""Default batch sizes of views that have other ones."""
_HOW = {view: names.split() for view, names in NAMES["views"].items()}
"""Display options of each view."""
_SHOWN = [name for name in VIEWS if name != "break-even"]  # which is a command
_VIEW = f"What to print: {', '.join(f'{name} ({VIEWS[name][1]})' for name in _SHOWN)}."


@settings.command()
@where_options(has_start=True)
@settings.options_of("predict")
@settings.own("view", _SHOWN, _VIEW, default="verdict")
@settings.options_of("views")
@answering()
def predict(*, view: str, **options: Any) -> forms.Answer:
    """Predict whether speculation pays at each batch size.

    You only need to name a model and a GPU. By default, predict uses the fewest GPUs on which the
    model fits, the usual drafter of the model, and the best draft length at each batch size. If you
    give no acceptance and none is published for this model and drafter, predict prints the
    acceptance above which speculation pays. If you give --tokens-per-step, --step-efficiency or
    --accepted-fraction, also give --measured-draft-length, the draft length of that measurement.

    \b
    Examples:
      specmodel predict qwen3.5-397b h200
      specmodel predict qwen3-30b-a3b 2xh100 --drafter eagle3 \\
          --acceptance-rate 0.7 --batch-size 1:128:x2 --tpot-target 20ms
      specmodel predict ./config.json l40s --drafter ngram \\
          --proposal-rate 0.4 --batch-size 1 --draft-length 1:5 \\
          --tokens-per-step 1.4 --measured-draft-length 3 --json
    """
    from specmodel.cli.options import case_from
    from specmodel.core.base.units import parse_seconds
    from specmodel.core.prediction.predicting import predicted, priced

    how = _how(view, options)
    is_usual = options["batch_size"] is None
    options["batch_size"] = _SIZES.get(view, BATCH_SIZES) if is_usual else options["batch_size"]
    if view == "plain":
        return _plain(options, how)
    case, price = case_from(options), how.pop("gpu_hour_price", None)
    p = priced(predicted(case if view in ("verdict", "tasks") else case.drafting()), price)
    if view == "terms" and is_usual:
        p = replace(p, assumptions={"batch_size": options["batch_size"]} | p.assumptions)
    if "tpot_target" in how:
        how["tpot_target"] = parse_seconds("tpot_target", how["tpot_target"])
    return view_of(p, view, **how)


def _how(view: str, options: dict[str, Any]) -> dict[str, Any]:
    """Move a view's display options out of `options`; refuse those that only other views accept."""
    known = _HOW.get(view, ())
    others = [name for name in _HOW["verdict"] if name not in known]
    typed = {name: options.pop(name) for name in _HOW["verdict"]}
    refuse_given(
        {n: v for n, v in typed.items() if v}, others, f"It has no effect with --view {view}."
    )
    return {name: typed[name] for name in known if typed[name] is not None}


def _plain(options: dict[str, Any], how: dict[str, Any]) -> forms.Answer:
    """Return plain decoding, which drafts nothing."""
    from specmodel.cli.options import case_from
    from specmodel.core.prediction.accepted import ACCEPTANCE
    from specmodel.core.prediction.decoding import decoded
    from specmodel.core.prediction.predicting import priced, with_intervals

    drafts = ("draft_length", "verify_tokens", "tree_width", "max_draft_length", *ACCEPTANCE)
    drafts = (*drafts, "measured_draft_length", "acceptance_spread", "proposal_rate")
    drafts += () if options["drafter"] == "none" else ("drafter",)
    refuse_given(options, drafts, "Plain decoding drafts no tokens, so this has no effect.")
    case = case_from(options | {"drafter": None}, is_drafting=False)
    p = priced(decoded(case), how.pop("gpu_hour_price", None))
    p = with_intervals(p) if how.pop("interval", False) else p
    return view_of(p, "plain", **how)
