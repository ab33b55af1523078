"""An explorer for Jupyter: controls, two curves over the batch size, and the verdict below."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from specmodel.base.errors import InputError, nearest
from specmodel.drafters.names import LOOKUPS
from specmodel.machines.engine import list_engines
from specmodel.machines.hardware import list_hardware
from specmodel.models.architecture import list_architectures
from specmodel.show.explorer_view import DEFAULTS, View, drafters_for, png, view

if TYPE_CHECKING:
    import ipywidgets

__all__ = ["DEFAULTS", "View", "drafters_for", "explorer", "view"]

DEGREES = (1, 2, 4, 8, 16)
HOST_SPEEDS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
CONTEXTS = tuple(2**power for power in range(8, 18))
LONGEST = 10
"""Longest draft offered [token]."""

FALLBACK = "eagle3"
"""Drafter that replaces one that does not suit a new target."""

_STYLE = "line-height: 1.35; margin: 0; white-space: pre-wrap; word-break: normal"
_TEXT = f"<pre style='{_STYLE}{{}}'>{{}}</pre>"


def explorer(**start: Any) -> ipywidgets.VBox:
    """Return controls, two curves over the batch size and the verdict, redrawn on every move.

    Parameters
    ----------
    **start
        First values of controls, by their names in `DEFAULTS`. Target, drafter, hardware and
        engine may be paths, which are then offered beside what the package has.

    Returns
    -------
    ipywidgets.VBox
        Shown by Jupyter if it is the last value of a cell. Where a value cannot be used, one line
        in place of the picture says why.

    Raises
    ------
    InputError
        If there is no such control, a value cannot be used, or ipywidgets or matplotlib is
        missing.
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
        # a new target may change the drafter, which must not draw a second time
        drafter.unobserve(redraw, "value")
        _offer(controls, start.get("drafter"))
        drafter.observe(redraw, "value")
        _show({name: control.value for name, control in controls.items()}, image, words)

    for control in controls.values():
        control.observe(redraw, "value")
    redraw()
    held = list(controls.values())
    columns = [ipywidgets.VBox(held[i : i + 4]) for i in range(0, len(held), 4)]
    # which stand below each other on a narrow page
    wrapped = ipywidgets.HBox(columns, layout={"flex_flow": "row wrap"})
    return ipywidgets.VBox([wrapped, image, words], layout={"max_width": "940px"})


def _start(given: dict[str, Any]) -> dict[str, Any]:
    """Return the first values of all controls; the drafter suits the target unless given."""
    for name, value in given.items():
        if name not in DEFAULTS:
            raise InputError(name, value, f"a control: {nearest(name, DEFAULTS)}")
    values = DEFAULTS | given
    if "drafter" not in given and values["drafter"] not in drafters_for(values["target"]):
        values["drafter"] = FALLBACK
    return values


def _controls(values: dict[str, Any]) -> dict[str, Any]:
    """Return a control for each value, by its name."""
    import ipywidgets as widgets

    def choice(names: list[str], name: str) -> Any:
        return widgets.Dropdown(options=_with(names, values[name]))

    def steps(numbers: tuple[float, ...], name: str) -> Any:
        return widgets.SelectionSlider(options=sorted({*numbers, values[name]}))

    shares = {"min": 0.0, "max": 1.0, "step": 0.01, "readout_format": ".2f"}
    made = {
        "target": choice(list_architectures(), "target"),
        "drafter": choice(drafters_for(values["target"]), "drafter"),
        "proposal_rate": widgets.FloatSlider(**shares),
        "hardware": choice(list_hardware(), "hardware"),
        "engine": choice(list_engines(), "engine"),
        "host_speed": steps(HOST_SPEEDS, "host_speed"),
        "tensor_parallel": steps(DEGREES, "tensor_parallel"),
        "acceptance_rate": widgets.FloatSlider(**shares),
        "draft_length": widgets.IntSlider(min=1, max=max(LONGEST, values["draft_length"])),
        "context_length": steps(CONTEXTS, "context_length"),
    }
    for name, control in made.items():
        control.value = values[name]
        control.description = name.replace("_", " ")
        control.style.description_width = "110px"
        control.layout.width, control.layout.height = "300px", "30px"
    return made


def _with(choices: list[str], given: Any) -> list[Any]:
    """Return choices with a record of one's own in front."""
    return choices if given in choices else [given, *choices]


def _offer(controls: dict[str, Any], given: Any) -> None:
    """Offer the drafters that suit the target, and the rate of proposals only with n-gram."""
    target, drafter = controls["target"], controls["drafter"]
    offered = drafters_for(target.value)
    offered = offered if given is None else _with(offered, given)
    if list(drafter.options) != offered:
        kept = drafter.value if drafter.value in offered else FALLBACK
        drafter.options, drafter.value = offered, kept
    is_lookup = drafter.value in LOOKUPS
    controls["proposal_rate"].layout.visibility = "visible" if is_lookup else "hidden"


def _show(values: dict[str, Any], image: Any, words: Any) -> None:
    """Show picture and words for the values, or the one line that says why there are none."""
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
