"""Models with recurrent layers on the command line: options, words, JSON, refusals."""

import json

import pandas as pd
import pytest
from hybrids import hybrid, toml_of

from specmodel.models.architecture import load_architecture

POINT = "--batch-size 1,128 --draft-length 3 --acceptance-rate 0.8"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    file = tmp_path_factory.mktemp("models") / "hybrid.toml"
    file.write_text(toml_of(hybrid("Qwen3.5-122B-A10B", expert_dtype="fp4")))
    assert load_architecture(file) == hybrid("Qwen3.5-122B-A10B", expert_dtype="fp4")
    return f"--target {file} --drafter mtp --hardware h200_sxm --tensor-parallel 2"


def test_prediction_names_state_and_says_what_was_assumed(run, model):
    text = run(f"predict {model} {POINT} --verbose").replace("\n", " ")
    assert " state " in text
    assert "state_rollback native" in text
    assert "state_slots draft_length + 2 states a request, as vLLM" in text


def test_replay_is_an_option_and_part_of_the_json(run, model):
    native, replay = (
        json.loads(run(f"predict {model} {POINT} --json --set state_rollback={how}"))
        for how in ("native", "replay")
    )
    assert native["deployment"]["state_rollback"] == "native"
    assert replay["deployment"]["state_rollback"] == "replay"
    assert "state_rollback" not in replay["assumptions"]
    assert native["rows"][1]["limited_by"] == "state"
    gain = replay["rows"][1]["target_efficiency"] / native["rows"][1]["target_efficiency"]
    assert gain > 1.1
    assert replay["rows"][1]["max_batch_size"] > 1.5 * native["rows"][1]["max_batch_size"]


def test_components_have_names_and_kinds(run, model):
    parts = json.loads(run(f"predict {model} {POINT} --components --json"))["rows"][1]["components"]
    names = {"recurrent_projections", "short_convolution", "recurrence"}
    assert names <= parts["forward"].keys() & parts["verify"].keys()
    assert not names & parts["draft pass"].keys()


def test_models_without_states_say_nothing_of_them(run):
    where = "--target mixtral-8x7b --drafter eagle --hardware h200_sxm"
    for form in ("--verbose", "--json", "--csv"):
        text = run(f"predict --view terms {where} {POINT} {form}")
        assert "state" not in text
        assert "index" not in text
    assert "state" not in run(f"predict {where} {POINT} --json")


def test_schedule_fits_the_states_of_its_longest_draft(run, model):
    """A state is 2.1 MB a layer on each of two GPUs: three more tokens cost 250 MB a request."""
    given = f"schedule {model} --acceptance-rate 0.8 --for sglang --json --max-draft-length"
    largest = [
        json.loads(run(f"{given} {length}"))["ranges"][-1]["last_batch_size"] for length in (1, 4)
    ]
    assert largest[0] > 1.5 * largest[1]


def test_schedule_to_what_fits_says_for_which_draft(run, model):
    given = f"schedule {model} --acceptance-rate 0.8 --for sglang --context-length 65536"
    text = " ".join(run(given).split())
    rows = json.loads(run(f"{given} --json"))["rows"]
    longest = max(row["draft_length"] for row in rows)
    told = f"at context 65536, with room for drafts of {longest} in each request"
    assert f"up to {len(rows)}, the largest that fits in memory {told}" in text
    point = f"--context-length 65536 --acceptance-rate 0.8 --draft-length {longest}"
    point += f" --engine sglang --batch-size {len(rows)},{len(rows) + 1} --json"
    marks = [row["fits"] for row in json.loads(run(f"predict {model} {point}"))["rows"]]
    assert marks == [True, False]


def test_sweep_takes_both_ways(run, model, tmp_path):
    file = tmp_path / "out.csv"
    run(f"sweep {model} {POINT} --set state_rollback=native,replay --output {file}")
    table = pd.read_csv(file)
    assert table["state_rollback"].unique().tolist() == ["native", "replay"]
    means = table.groupby("state_rollback")["target_efficiency"].mean()
    assert means["replay"] > means["native"]


@pytest.mark.parametrize(("options", "error"), [
    ("--verify-tokens 8", "--verify-tokens: got 8; expected draft_length + 1, a chain: "),
    ("--set state_rollback=undo", "--set state_rollback: got 'undo'; expected one of: native, r"),
    ("--tensor-parallel 32", "--tensor-parallel: got 32; expected a degree that cuts the gated "),
    ("--set target.state_dtype=fp8", "--set target.state_dtype: got 'fp8'; expected "),
    ("--set engine.state_slots=two", "--set engine.state_slots: got 'two'; expected "),
])  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(refuse, model, options, error):
    refuse(f"predict {model} {POINT} {options}", f"specmodel: error: {error}")


@pytest.mark.parametrize("engine", ["", " --engine sglang", " --engine vllm-moesd-2025"])
def test_a_schedule_has_the_states_of_the_engine_that_it_is_for(run, model, engine):
    """SGLang copies the accepted state after a pass, vLLM does not, whosever times are taken."""
    point = f"{model} --acceptance-rate 0.7 --max-draft-length 2 --max-batch-size 4 --json"
    told = {}
    for name, slots in (("vllm", "aligned"), ("sglang", "scratch")):
        own = json.loads(run(f"schedule --for {name} {point}{engine}"))
        said = f"schedule --for {name} {point}{engine} --set engine.state_slots={slots}"
        assert own["rows"] == json.loads(run(said))["rows"]
        told[name] = own
        who = {"vllm": "vLLM", "sglang": "SGLang"}[name]
        assert own["assumptions"]["state_slots"].endswith(f"as {who}")
        assert ("engine" in own["assumptions"]) == (engine == "")
    gains = [told[name]["rows"][-1]["best_speedup"] for name in ("vllm", "sglang")]
    assert gains[0] > gains[1]
