"""DeepSeek-V4 on the command line: the curve of a verify pass, causes, and what does not fit."""

ON_B300 = "--target deepseek-v4-flash --hardware b300 --stack vllm --tensor-parallel 4"


def test_index_keys_are_a_cause_where_there_are_many(run):
    given = "--drafter mtp --draft-length 3 --acceptance-rate 0.7 --batch-size 32"
    text = run(f"predict --view terms {ON_B300} {given} --context-length 131072 --verbose")
    assert "\nindex " in text
    assert "compressed attention" in text
