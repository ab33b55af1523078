"""The controls of the explorer, its picture and its words, as widgets of Jupyter."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError, nearest
from specmodel.explorer.picture import png
from specmodel.explorer.view import DEFAULTS, drafters_for, view
from specmodel.records.architecture import list_architectures
from specmodel.records.engine import list_engines
from specmodel.records.hardware import list_hardware

if TYPE_CHECKING:
    import ipywidgets

DEGREES = (1, 2, 4, 8, 16)
CONTEXTS = tuple(2**power for power in range(8, 18))
LONGEST = 10
"""Longest draft offered [token]."""

FALLBACK = "eagle3"
"""Drafter taken where the one chosen before does not suit a new target."""

_STYLE = "line-height: 1.35; margin: 0; white-space: pre-wrap; word-break: normal"
_TEXT = f"<pre style='{_STYLE}{{}}'>{{}}</pre>"


def explorer(**start: Any) -> ipywidgets.VBox:
    """Return controls, two curves over the batch size and the verdict, redrawn on every move.

    Parameters
    ----------
    **start
        Where controls stand first, by their names in `DEFAULTS`. Target, drafter, hardware and
        engine may be paths; these are offered beside what ships.

    Returns
    -------
    ipywidgets.VBox
        Shown by Jupyter if it is the last value of a cell. An input that cannot be used is told
        in one line in the place of the picture.

    Raises
    ------
    InputError
        If no such control exists, a value cannot be used, or ipywidgets or matplotlib is not
        installed.
    """
    values = _start(start)
    try:
        import ipywidgets
        import matplotlib  # noqa: F401 - is it there?
    except ImportError as error:
        expected = "it to be installed: pip install 'specmodel[notebooks]'"
        raise InputError("explorer", f"no package {error.name}", expected) from None
    view(values)
    controls = _controls(values)
    # widgets have a margin of 2 pixels, which would make a narrow page scroll
    image = ipywidgets.Image(layout={"width": "920px", "max_width": "calc(100% - 4px)"})
    words = ipywidgets.HTML()

    def redraw(_: object = None) -> None:
        drafter = controls["drafter"]
        # a target may move it, which is no move of its own
        drafter.unobserve(redraw, "value")
        _offer(controls, start.get("drafter"))
        drafter.observe(redraw, "value")
        _show({name: control.value for name, control in controls.items()}, image, words)

    for control in controls.values():
        control.observe(redraw, "value")
    redraw()
    return ipywidgets.VBox([_columns(controls), image, words], layout={"max_width": "940px"})


def _start(given: dict[str, Any]) -> dict[str, Any]:
    """Return where the controls stand first; a drafter that was not given suits the target."""
    for name, value in given.items():
        if name not in DEFAULTS:
            raise InputError(name, value, f"a control: {nearest(name, DEFAULTS)}")
    values = DEFAULTS | given
    if "drafter" not in given and values["drafter"] not in drafters_for(values["target"]):
        values["drafter"] = FALLBACK
    return values


def _controls(values: dict[str, Any]) -> dict[str, Any]:
    """Return a control for each value, by name."""
    import ipywidgets as widgets

    shares = {"min": 0.0, "max": 1.0, "step": 0.01, "readout_format": ".2f"}
    made = {
        "target": _choice(list_architectures(), values["target"]),
        "drafter": _choice(drafters_for(values["target"]), values["drafter"]),
        "proposal_rate": widgets.FloatSlider(**shares),
        "hardware": _choice(list_hardware(), values["hardware"]),
        "engine": _choice(list_engines(), values["engine"]),
        "tensor_parallel": _steps(DEGREES, values["tensor_parallel"]),
        "acceptance_rate": widgets.FloatSlider(**shares),
        "draft_length": widgets.IntSlider(min=1, max=max(LONGEST, values["draft_length"])),
        "context_length": _steps(CONTEXTS, values["context_length"]),
    }
    for name, control in made.items():
        control.value = values[name]
        control.description = name.replace("_", " ")
        control.style.description_width = "110px"
        control.layout.width, control.layout.height = "300px", "30px"
    return made


def _columns(controls: dict[str, Any]) -> Any:
    """Return the controls in three columns that stand below each other on a narrow page."""
    import ipywidgets as widgets

    held = list(controls.values())
    columns = [widgets.VBox(held[i : i + 3]) for i in range(0, len(held), 3)]
    return widgets.HBox(columns, layout={"flex_flow": "row wrap"})


def _choice(names: list[str], given: Any) -> Any:
    import ipywidgets

    return ipywidgets.Dropdown(options=_with(names, given))


def _steps(values: tuple[int, ...], given: int) -> Any:
    import ipywidgets

    return ipywidgets.SelectionSlider(options=sorted({*values, given}))


def _with(choices: list[str], given: Any) -> list[Any]:
    return choices if given in choices else [given, *choices]


def _offer(controls: dict[str, Any], given: Any) -> None:
    """Offer the drafters that suit the target, and the rate of proposals only under n-gram."""
    target, drafter = controls["target"], controls["drafter"]
    offered = drafters_for(target.value)
    offered = offered if given is None else _with(offered, given)
    if list(drafter.options) != offered:
        kept = drafter.value if drafter.value in offered else FALLBACK
        drafter.options, drafter.value = offered, kept
    is_lookup = drafter.value == "ngram"
    controls["proposal_rate"].layout.visibility = "visible" if is_lookup else "hidden"


def _show(values: dict[str, Any], image: Any, words: Any) -> None:
    """Show picture and words of the values, or the one line that says why there are none."""
    try:
        found = view(values)
    except InputError as error:
        image.layout.display = "none"
        words.value = _TEXT.format("; color: var(--jp-error-color1, #b00020)", escape(str(error)))
        return
    image.value = png(found)
    image.layout.display = ""
    heading, _, rest = escape(found.text).partition("\n")
    words.value = _TEXT.format("", f"<b>{heading}</b>\n{rest}")
