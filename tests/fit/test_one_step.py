"""One formula of a step: what is added to the overheads moves every answer, and fits by as much."""

import pytest
from made_traces import make_trace

from specmodel import Acceptance, EngineProfile, deploy, load, load_engine, predict
from specmodel.calibrate.fit.measured.tables import Served
from specmodel.calibrate.fit.steps import measured_steps
from specmodel.core.machines.engine import FACTORS, OVERHEADS, Overheads
from specmodel.simulate import replay_times, simulate

WHERE = {"target": "qwen3-30b-a3b", "hardware": "h100_sxm", "drafter": "eagle3"}
POINT = {"batch_size": 8.0, "draft_length": 3.0, "context_length": 1000.0}
LOAD = {"prompt_length": 512.0, "output_length": 256.0}
SYNC = 2e-3
"""Seconds of the overhead that is added, for each pass of the target [s]."""


class Synced(Overheads):
    """Overheads with one more, `sync_time`, as a new field would act."""

    sync_time = SYNC

    def host_time(self, passes, draft_passes=0.0):
        return super().host_time(passes, draft_passes) + self.sync_time * passes


@pytest.mark.parametrize("name", ["vllm", "sglang-v1"])
@pytest.mark.parametrize("drafter", ["mtp", "ngram", "p-eagle", "dflash", "dspark", "qwen3-0.6b"])
def test_fits_take_what_predictions_say_of_every_way_to_draft(name, drafter):
    """Passes that the host takes no time for, look-ups, and steps without a proposal included."""
    other = load_engine(name).with_changes("engine", {"host_speed": 0.7, "gpu_time_factor": 1.1})
    tree = {"tree_width": 3} if drafter == "mtp" else {}
    for more in (tree, {"sync_scheduling": True}, {"graph_limit": 0}, {"engine": other}):
        where = {**WHERE, "drafter": drafter, "engine": load_engine(name), **more}
        tokens = Acceptance(tokens_per_step=1.5)
        run = Served(
            row="a", labels={}, deployment=where, points=POINT, tokens_per_step=1.5,
            quantity="speedup", measured=1.0,
        )  # fmt: skip
        found = float(measured_steps([run]).predicted(where["engine"].overheads)[0])
        expected = float(predict(**where, **POINT, acceptance=tokens).speedup)
        assert found == pytest.approx(expected, rel=1e-9)


def test_a_step_between_whole_numbers_of_requests_lies_between_theirs():
    where, engine = WHERE | {"engine": "vllm"}, load_engine("vllm")
    run = Served(
        row="a", labels={}, deployment=where, points=POINT | {"batch_size": 8.5},
        tokens_per_step=2.2, quantity="step_time", measured=1.0,
    )  # fmt: skip
    found = float(measured_steps([run]).predicted(engine.overheads)[0])
    few, many = predict(**where, **POINT | {"batch_size": [8, 9]}, tokens_per_step=2.2).step_time
    assert few < found < many


def answers(engine: EngineProfile) -> dict[str, float]:
    """Seconds by each way to ask for them: a step, of requests under load, of one replayed."""
    where = {**WHERE, "engine": engine}
    deployment, _ = deploy(**where)
    alone = replay_times(deployment, max_draft_length=3, context_length=1024)
    trace = make_trace([[0, 3, 3, 3]], [[0, 2, 0, 3]], 3)
    found = {"simulate": simulate(trace, alone, ["fixed:3"], seed=0)["time"].sum()}
    found["load"] = load(
        **where, prompt_length=512, output_length=256, request_rate=[1.0], requests=50
    ).rows[0]["tpot"]
    for name, more in (("step", {}), ("loaded step", LOAD)):
        points, tokens = POINT | more, Acceptance(tokens_per_step=2.5)
        found[name] = float(predict(**where, **points, acceptance=tokens).step_time)
        run = Served(
            row=name, labels={}, deployment=where, points=points, tokens_per_step=2.5,
            quantity="step_time", measured=1.0,
        )  # fmt: skip
        found[f"fit to {name}"] = float(measured_steps([run]).predicted(engine.overheads)[0])
    return found


@pytest.mark.parametrize("name", ["sglang-v1", "vllm", "sglang"])
def test_a_new_overhead_of_a_pass_moves_predictions_loads_replays_and_fits(name, monkeypatch):
    engine = load_engine(name)
    before = answers(engine)

    def overheads(profile: EngineProfile) -> Overheads:
        return Synced(**{name: getattr(profile, name) for name in (*OVERHEADS, *FACTORS)})

    monkeypatch.setattr(EngineProfile, "overheads", property(overheads))
    after = answers(engine.with_changes("engine", {"source": "with another overhead"}))
    for asked, seconds in before.items():
        assert after[asked] > seconds, asked
    for found in (before, after):
        for step in ("step", "loaded step"):
            assert found[f"fit to {step}"] == pytest.approx(found[step], rel=1e-9)
    if engine.hides_host == "plain":  # a step with a draft waits for all of it
        assert after["step"] - before["step"] == pytest.approx(SYNC, rel=1e-9)
