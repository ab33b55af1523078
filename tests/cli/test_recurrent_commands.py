"""Models with recurrent layers on the command line: options, words, JSON, refusals."""

import pytest
from hybrids import hybrid, toml_of

from specmodel import load_architecture

POINT = "--batch-size 1,128 --draft-length 3 --acceptance-rate 0.8"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    file = tmp_path_factory.mktemp("models") / "hybrid.toml"
    file.write_text(toml_of(hybrid("Qwen3.5-122B-A10B", expert_dtype="fp4")))
    assert load_architecture(file) == hybrid("Qwen3.5-122B-A10B", expert_dtype="fp4")
    return f"--target {file} --drafter mtp --hardware h200_sxm --tensor-parallel 2"


def test_prediction_names_state_and_says_what_was_assumed(run, model):
    text = run(f"predict {model} {POINT} --verbose", one_line=True)
    assert " state " in text
    assert "state_rollback native" in text
    assert "state_slots draft_length + 2 states a request, as vLLM" in text


def test_replay_is_an_option_and_part_of_the_json(document, model):
    point = f"predict {model} {POINT} --set state_rollback="
    native, replay = found = [document(point + how) for how in ("native", "replay")]
    assert [each["deployment"]["state_rollback"] for each in found] == ["native", "replay"]
    assert "state_rollback" not in replay["assumptions"]
    assert native["rows"][1]["limited_by"] == "state"
    for name, gain in (("target_efficiency", 1.1), ("max_batch_size", 1.5)):
        assert replay["rows"][1][name] > gain * native["rows"][1][name]


def test_models_without_states_say_nothing_of_them(run):
    where = "--target mixtral-8x7b --drafter eagle --hardware h200_sxm"
    for form in ("--view terms --verbose", "--json"):
        text = run(f"predict {where} {POINT} {form}")
        assert "state" not in text
        assert "index" not in text


def test_schedule_to_what_fits_says_for_which_draft(run, rows, model):
    given = f"schedule {model} --acceptance-rate 0.8 --for sglang --context-length 65536"
    lengths = [row["draft_length"] for row in rows(given)]
    told = f"at context 65536, with room for drafts of {max(lengths)} in each request"
    words = f"Ends: batch size {len(lengths)}, the largest that fits in memory {told}"
    assert words in run(given, one_line=True)
    point = f"--context-length 65536 --acceptance-rate 0.8 --draft-length {max(lengths)}"
    point += f" --engine sglang --batch-size {len(lengths)},{len(lengths) + 1}"
    assert [row["fits"] for row in rows(f"predict {model} {point}")] == [True, False]


@pytest.mark.parametrize("engine", ["", " --engine sglang", " --engine vllm-moesd-2025"])
def test_a_schedule_has_the_states_of_the_engine_that_it_is_for(document, model, engine):
    """SGLang copies the accepted state after a pass, vLLM does not, whosever times are taken."""
    point = f"{model} --acceptance-rate 0.7 --max-draft-length 2 --max-batch-size 4{engine}"
    gains = []
    for name, slots in (("vLLM", "aligned"), ("SGLang", "scratch")):
        command = f"schedule --for {name.lower()} {point}"
        own = document(command)
        assert own["rows"] == document(f"{command} --set engine.state_slots={slots}")["rows"]
        assert own["assumptions"]["state_slots"].endswith(f"as {name}")
        gains.append(own["rows"][-1]["best_speedup"])
    assert gains[0] > gains[1]
