"""The explorer: controls to a table and words, the picture, and the widgets moved as by hand."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows import each_row, slow

from specmodel import (
    InputError,
    list_architectures,
    load_architecture,
    load_drafter,
    predict,
)
from specmodel.show.explorer import DEFAULTS, drafters_for, explorer, view

MOVED = {
    "target": "qwen3-30b-a3b",
    "drafter": "eagle",
    "hardware": "h100_sxm",
    "engine": "sglang",
    "host_speed": 0.5,
    "tensor_parallel": 4,
    "acceptance_rate": 0.6,
    "draft_length": 2,
    "context_length": 4096,
}
NOTHING_FITS = {"target": "deepseek-v3", "drafter": "mtp", "tensor_parallel": 1}
FITS_UP_TO_119 = {
    "target": "qwen3-30b-a3b", "drafter": "eagle3", "hardware": "h100_sxm", "engine": "sglang",
    "tensor_parallel": 1, "draft_length": 3, "context_length": 2048,
}  # fmt: skip


def directly(values: dict[str, Any]) -> Any:
    """The prediction that the controls stand for."""
    given = {name: value for name, value in values.items() if name != "proposal_rate"}
    rate = given.pop("acceptance_rate")
    return predict(**given, acceptance=rate, batch_size=np.arange(1, 513))


@pytest.mark.parametrize("name", [None, *MOVED])
def test_each_control_is_the_argument_of_its_name(name: str | None) -> None:
    values = DEFAULTS | ({name: MOVED[name]} if name else {})
    shown = view(values)
    expected = directly(values)
    assert shown.table["speedup"].tolist() == expected.speedup.tolist()
    assert shown.table["target_efficiency"].tolist() == expected.target_efficiency.tolist()
    if name:
        assert shown.table["speedup"].tolist() != view(DEFAULTS).table["speedup"].tolist()


def test_the_rate_of_proposals_counts_under_look_up_alone() -> None:
    alpha, gamma, share = 0.6, 3, 0.25
    values = DEFAULTS | {"acceptance_rate": alpha, "draft_length": gamma, "proposal_rate": share}
    per_proposal = (1 - alpha ** (gamma + 1)) / (1 - alpha)
    assert np.allclose(view(values).table["tokens_per_step"], per_proposal)
    tokens = view(values | {"drafter": "ngram"}).table["tokens_per_step"]
    assert np.allclose(tokens, 1 + share * (per_proposal - 1))


def test_the_speed_of_the_host_counts_under_engines_with_overheads_alone() -> None:
    slow, fast = (view(DEFAULTS | {"engine": "ideal", "host_speed": s}).table for s in (0.5, 2))
    assert slow["speedup"].tolist() == fast["speedup"].tolist()
    slow, fast = (view(DEFAULTS | {"engine": "vllm", "host_speed": s}).table for s in (0.5, 2))
    assert (slow["tpot"] > fast["tpot"]).all()


def test_the_sweet_spot_and_the_words_are_about_what_fits() -> None:
    shown = view(DEFAULTS | FITS_UP_TO_119)
    table = shown.table
    fits = int(table["max_batch_size"].iloc[0])
    assert table["batch_size"][table["fits"]].tolist() == list(range(1, fits + 1))
    assert fits < 512
    gains = table["speedup"][:fits]
    assert shown.spot.peak_speedup == gains.max()
    assert shown.spot.peak_batch_size == 1 + int(gains.argmax())
    paying = {size for low, high in shown.spot.paying for size in range(low, high + 1)}
    assert paying == set(table["batch_size"][:fits][gains > 1].astype(int))
    assert "\nQwen3-30B-A3B + EAGLE-3 head on NVIDIA H100 SXM\n" in shown.text
    assert f"most at batch size {shown.spot.peak_batch_size}: {gains.max():.2f}x" in shown.text
    assert f"Considered: up to {fits}." in shown.text.replace("\n", " ")
    assert "Warning: batch size 512 needs" in shown.text
    assert "Assumed: no prefill, routing 0.18, more" in shown.text
    assert max(map(len, shown.text.splitlines())) <= 80


def test_nothing_is_said_to_pay_where_nothing_fits() -> None:
    shown = view(DEFAULTS | NOTHING_FITS)
    assert not shown.table["fits"].any()
    assert "Nothing fits in memory. If it did: speculation" in shown.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hardware": "l4", "tensor_parallel": 16}, "tensor_parallel: got 16"),
        ({"target": "mixtral"}, "target: got 'mixtral'"),
        ({"acceptance_rate": 1.5}, "acceptance_rate: got 1.5"),
        ({"draft_length": 0}, "draft_length: got 0"),
    ],
)
def test_what_cannot_be_used_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        view(DEFAULTS | changes)


@each_row("target", list_architectures())
def test_drafters_suit_their_target(target: str) -> None:
    offered = drafters_for(target)
    assert offered[:4] == ["ngram", "eagle", "eagle3", "mtp"]
    model = load_architecture(target)
    assert target not in offered
    for name in offered:
        drafter = load_drafter(name, model)
        if drafter.architectures and not drafter.is_head:
            assert drafter.architectures[0].vocabulary_size == model.vocabulary_size
            assert 4 * drafter.architectures[0].total_parameters <= model.active_parameters


@pytest.mark.parametrize("step", [12, *slow(1)])
def test_what_is_offered_is_drawn(step: int) -> None:
    for place, target in enumerate(list_architectures()[::step]):
        offered = drafters_for(target)
        name = offered[place % len(offered)]  # each target once, and each drafter several times
        values = DEFAULTS | {"target": target, "drafter": name, "tensor_parallel": 1}
        assert np.isfinite(view(values).table["speedup"]).all()


def test_published_pairs_are_offered() -> None:
    assert "qwen2-0.5b" in drafters_for("qwen2-57b-a14b")  # MoESD
    assert "opt-350m" in drafters_for("opt-30b")  # MoESD
    assert "qwen2-0.5b" not in drafters_for("mixtral-8x7b")  # another tokenizer


def spans(ax: Any, label: str) -> list[tuple[float, float]]:
    """Ends of the shaded ranges of a label."""
    return [
        (patch.get_x(), patch.get_x() + patch.get_width())
        for patch in ax.patches
        if patch.get_label() == label
    ]


@pytest.mark.parametrize("changes", [{}, FITS_UP_TO_119, NOTHING_FITS, {"acceptance_rate": 0.3}])
def test_the_picture_shows_the_curves_and_shades_the_sweet_spot(changes: dict[str, Any]) -> None:
    pytest.importorskip("matplotlib")
    from specmodel.show.explorer import draw

    shown = view(DEFAULTS | changes)
    table, spot = shown.table, shown.spot
    figure = draw(shown)
    fits, paying = table["fits"], spot.paying if table["fits"].any() else ()
    for ax, name in zip(figure.axes, ("speedup", "target_efficiency"), strict=True):
        drawn = [line.get_xydata().tolist() for line in ax.lines]
        assert table.loc[fits, ["batch_size", name]].to_numpy().tolist() in drawn or not fits.any()
        assert ax.get_ylabel().split(" (")[0] == name.replace("_", " ")
        assert ax.get_xlabel() == "batch size (requests)"
        assert ax.get_ylim()[0] == 0
        assert ax.get_ylim()[1] > table[name].max()
        assert spans(ax, "pays") == list(paying)
        for low, high in spans(ax, "pays, and above 0.71 of the peak"):
            inside = table["speedup"][int(low) - 1 : int(high)]
            assert (inside >= max(1, spot.peak_speedup / 2**0.5)).all()
        hatched = [(table["batch_size"][~fits].min(), 512)] if not fits.all() else []
        assert spans(ax, "does not fit in memory") == hatched
    points = [line.get_xydata().tolist() for line in figure.axes[0].lines]
    assert [[spot.peak_batch_size, spot.peak_speedup]] in points
    (note,) = figure.axes[0].texts
    assert note.get_text() == f"{spot.peak_speedup:.2f}x at {spot.peak_batch_size}"
    told = {text.get_text() for text in figure.legends[0].get_texts()}
    assert ("pays" in told) == bool(paying)
    assert ("does not fit in memory" in told) == (not fits.all())


class Shown:
    """The widgets, as a user has them before the eyes."""

    def __init__(self, **start: Any) -> None:
        box = explorer(**start)
        controls, self.image, self.words = box.children
        self.controls = {control.description: control for control in controls.children}

    def move(self, name: str, value: Any) -> None:
        self.controls[name].value = value


@pytest.fixture
def widgets() -> Callable[..., Shown]:
    pytest.importorskip("ipywidgets")
    pytest.importorskip("matplotlib")
    return Shown


@pytest.mark.parametrize("name", [*MOVED, "proposal_rate"])
def test_a_moved_control_changes_picture_and_words(name: str, widgets) -> None:
    shown = widgets(**({"drafter": "ngram"} if name == "proposal_rate" else {}))
    before = shown.image.value, shown.words.value
    assert bytes(before[0]).startswith(b"\x89PNG")
    shown.move(name.replace("_", " "), MOVED.get(name, 0.9))
    assert shown.image.value != before[0]
    assert shown.words.value != before[1]
    assert not shown.image.layout.display


def test_an_input_error_is_one_line_and_the_picture_comes_back(widgets) -> None:
    shown = widgets()
    before = shown.image.value, shown.words.value
    shown.move("tensor parallel", 8)
    assert "tensor_parallel: got 8; expected a degree that cuts the attention" in shown.words.value
    assert "\n" not in shown.words.value
    assert shown.image.layout.display == "none"
    shown.move("tensor parallel", 2)
    assert (shown.image.value, shown.words.value) == before
    assert not shown.image.layout.display


def test_each_move_is_drawn_once(widgets, monkeypatch) -> None:
    shown = widgets()
    drawn = []

    def png(found: Any) -> bytes:
        drawn.append(found)
        return b""

    monkeypatch.setattr("specmodel.show.explorer.png", png)
    shown.move("target", "mixtral-8x7b")  # which also moves the drafter
    shown.move("draft length", 2)
    assert len(drawn) == 2


def test_drafters_follow_the_target_and_proposals_the_drafter(widgets) -> None:
    shown = widgets()
    drafter, rate = shown.controls["drafter"], shown.controls["proposal rate"]
    assert drafter.value == "qwen2-0.5b"
    assert rate.layout.visibility == "hidden"
    shown.move("target", "mixtral-8x7b")
    assert list(drafter.options) == drafters_for("mixtral-8x7b")
    assert drafter.value == "eagle3"
    assert "Mixtral-8x7B + EAGLE-3 head" in shown.words.value
    shown.move("drafter", "ngram")
    assert rate.layout.visibility == "visible"
    shown.move("target", "qwen3-30b-a3b")
    assert drafter.value == "ngram"


def test_records_of_ones_own_are_offered(widgets, tmp_path) -> None:
    from specmodel import load_hardware
    from specmodel.base.records import toml_text

    path = tmp_path / "mine.toml"
    name = "NVIDIA A800 SXM 80 GB"
    path.write_text(toml_text(load_hardware("a800_sxm_80gb")).replace(name, "My <GPU>"))
    shown = widgets(hardware=str(path), acceptance_rate=0.66, draft_length=12, context_length=700)
    values = {name: control.value for name, control in shown.controls.items()}
    assert values["hardware"] == str(path)
    assert values["acceptance rate"] == 0.66
    assert values["draft length"] == 12
    assert values["context length"] == 700
    assert "on 2 x My &lt;GPU&gt;" in shown.words.value
    shown.move("hardware", "h100_sxm")
    assert "on 2 x NVIDIA H100 SXM" in shown.words.value


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"acceptance": 0.7}, "acceptance: got 0.7; expected a control: acceptance_rate"),
        ({"acceptance_rate": 1.5}, "acceptance_rate: got 1.5"),
        ({"hardware": "h900"}, "hardware: got 'h900'"),
        ({"tensor_parallel": 3}, "tensor_parallel: got 3"),
    ],
)
def test_a_start_that_cannot_be_used_is_named(start, message, widgets) -> None:
    with pytest.raises(InputError, match=message):
        widgets(**start)


@pytest.mark.parametrize("package", ["ipywidgets", "matplotlib"])
def test_a_missing_package_is_named(package: str, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    if package == "matplotlib":
        pytest.importorskip("ipywidgets")
    with pytest.raises(InputError, match=rf"no package {package}.*pip install '\.\[notebooks\]"):
        explorer()
