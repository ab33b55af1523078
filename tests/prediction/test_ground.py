"""The ground of a prediction: which published runs are like it, and what they allow to be said."""

import numpy as np
from msgspec.structs import replace
from rows import each_listed

from specmodel import load_engine, predict
from specmodel.core.prediction import ground
from specmodel.core.prediction.ground import Cell, Ground, Place, Shares, place_of, spread_of_ground

HEADS = Cell("short", "NVIDIA", "head", "HBM", "vllm")
ALL_CAME = Shares(surely=1.0, likely=1.0, may=1.0, loss=1.0)


def deployed(**changes):
    asked = {"target": "qwen3-30b-a3b", "hardware": "h200", "drafter": "eagle3"}
    return predict(**(asked | {"acceptance": 0.7} | changes)).deployment


def test_every_cell_of_the_table_stands_within_those_around_it():
    known = ground.grounds()
    for cell, own in known.items():
        for wider in cell.around():
            assert known[wider].rows >= own.rows
            assert known[wider].hosts >= own.hosts
    assert known[Cell()].is_enough


@each_listed
def test_a_deployment_stands_on_the_cell_of_its_engine_gpu_and_drafter(changes, cell, kind):
    place = place_of(deployed(**changes), 1000)
    assert (place.cell, place.kind) == (Cell(*cell), kind)
    assert place.judged.is_enough
    assert place.judged.cell in place.cell.around()


def test_long_contexts_are_a_ground_of_their_own():
    deployment, contexts = deployed(), np.array([[1000], [ground.LONG_CONTEXT + 1]])
    short, long = (place_of(deployment, context) for context in contexts.ravel())
    assert (short.cell.context, long.cell.context) == ("short", "long")
    assert spread_of_ground(deployment, contexts).tolist() == [[short.spread], [long.spread]]


def test_an_engine_of_ones_own_host_stands_on_it_and_one_of_nothing_on_all():
    engine = load_engine("vllm")
    own = replace(engine, fit=replace(engine.fit, left_out_error={}))
    assert place_of(deployed(engine=own), 1000).kind == "own"
    assert place_of(deployed(engine=own), 1000).spread == 0
    assert place_of(deployed(engine=own, hardware="a100_sxm_80gb"), 1000).kind != "own"
    moesd = {"target": "qwen2-57b-a14b", "drafter": "qwen2-0.5b", "engine": "vllm-moesd-2025"}
    assert place_of(deployed(hardware="a800_sxm_80gb", **moesd), 1000).kind == "own"
    place = place_of(deployed(engine=replace(engine, fit=None)), 1000)
    assert (place.kind, place.judged.cell) == ("unfitted", Cell())


def test_an_engine_fitted_to_nothing_has_the_widest_interval():
    def width(engine):
        asked = {"drafter": "eagle3", "acceptance": 0.7, "draft_length": 3, "batch_size": 8}
        p = predict("qwen3-30b-a3b", "h200", engine=engine, interval=True, **asked)
        return float((p.intervals["speedup"].high / p.intervals["speedup"].low).item())

    engine = load_engine("vllm")
    own = replace(engine, fit=replace(engine.fit, left_out_error={}))
    assert width(replace(engine, fit=None)) > max(width(engine), width(own))


def judged(given, **changes):
    shares = {"given": given, "published": Shares(0.9, 0.7, 0.6, 0.6)}
    counts = {"rows": 40, "hosts": 4, "error": 0.1, "bias": 0.0, "spread": 0.0}
    own = Ground(cell=HEADS, **counts, **shares)
    place = {"cell": HEADS, "nearest": own, "judged": own, "kind": "known", "spread": 0.0}
    return Place(**(place | changes))


@each_listed
def test_words_that_left_out_hosts_bore_out(came, kind, chance, is_published, word, share):
    place = judged(ALL_CAME._replace(**came), kind=kind)
    assert place.word(chance, is_published=is_published) == word
    assert place.share_held(chance, is_published=is_published) == share
