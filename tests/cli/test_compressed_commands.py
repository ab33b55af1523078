"""DeepSeek-V4 on the command line: the curve of a verify pass, causes, and what does not fit."""

ON_B300 = "--target deepseek-v4-flash --hardware b300 --stack vllm --tensor-parallel 4"


def test_index_keys_are_a_cause_where_there_are_many(run):
    given = "--drafter mtp --draft-length 3 --acceptance-rate 0.7 --batch-size 32"
    text = run(f"predict --view terms {ON_B300} {given} --context-length 131072 --verbose")
    assert "\nindex " in text
    assert "compressed attention" in text


def test_degrees_that_do_not_cut_output_groups_are_refused(refuse):
    given = "--tensor-parallel 16 --drafter ngram --draft-length 3 --acceptance-rate 0.7"
    refuse(
        f"predict --target deepseek-v4-flash --hardware b300 --batch-size 1 {given}",
        "tensor-parallel: got 16; expected a degree that cuts the compressed attention",
    )


def test_trees_are_refused(refuse):
    given = "--drafter eagle3 --draft-length 3 --tokens-per-step 2 --batch-size 1"
    told = "verify-tokens: got 24; expected draft_length + 1, a chain: entries of DeepSeek"
    refuse(f"predict {ON_B300} {given} --verify-tokens 24", told)
