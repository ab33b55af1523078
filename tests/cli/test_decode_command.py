"""Plain decoding as a view of predict, and lengths of prompts and outputs in predict."""

WHERE = "--target qwen3-30b-a3b --hardware h200_sxm --tensor-parallel 2"
PLAIN = f"predict --view plain {WHERE}"
LOAD = "--prompt-length 2048 --output-length 256"


def test_predict_takes_lengths_of_prompts_and_outputs(rows):
    words = f"predict {WHERE} --drafter eagle3 --acceptance-rate 0.7 --draft-length 3"
    words += " --batch-size 64 --context-length 2176"
    (idle,), (loaded,) = rows(words), rows(f"{words} {LOAD}")
    assert not {"prompt_length", "output_length", "prefill_time"} & idle.keys()
    grown = loaded["forward_time"] - idle["forward_time"]
    assert 0.8 < grown / (63 / 256 * loaded["prefill_time"]) <= 1  # launches go on beside both
    assert loaded["speedup"] < idle["speedup"]


def test_the_drafter_of_plain_decoding_may_be_none(run):
    plain = f"{PLAIN} --batch-size 8 --csv"
    assert run(f"{plain} --drafter none") == run(plain)
