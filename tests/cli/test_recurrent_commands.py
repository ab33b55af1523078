"""Models with recurrent layers on the command line: options, words, JSON, refusals."""

import pytest

MODEL = "qwen3.5-122b-a10b 2xh200 --drafter mtp --set target.expert_dtype=fp4"


def test_schedule_to_what_fits_says_for_which_draft(run, rows):
    given = f"schedule {MODEL} --acceptance-rate 0.8 --for sglang --context-length 65536"
    lengths = [row["draft_length"] for row in rows(given)]
    told = f"at context 65536, with room for drafts of {max(lengths)} in each request"
    words = f"Last batch size: {len(lengths)}, the largest that fits in memory {told}"
    assert words in run(given, one_line=True)
    point = f"--context-length 65536 --acceptance-rate 0.8 --draft-length {max(lengths)}"
    point += f" --engine sglang --batch-size {len(lengths)},{len(lengths) + 1}"
    assert [row["fits"] for row in rows(f"predict {MODEL} {point}")] == [True, False]


@pytest.mark.parametrize("engine", ["", " --engine sglang", " --engine vllm-moesd-2025"])
def test_a_schedule_has_the_states_of_the_engine_that_it_is_for(document, engine):
    """SGLang copies the accepted state after a pass, vLLM does not, whosever times are taken."""
    point = f"{MODEL} --acceptance-rate 0.7 --max-draft-length 2 --max-batch-size 4{engine}"
    gains = []
    for name, slots in (("vLLM", "aligned"), ("SGLang", "scratch")):
        command = f"schedule --for {name.lower()} {point}"
        own = document(command)
        assert own["rows"] == document(f"{command} --set engine.state_slots={slots}")["rows"]
        assert own["assumptions"]["state_slots"].endswith(f"as {name}")
        gains.append(own["rows"][-1]["best_speedup"])
    assert gains[0] > gains[1]
