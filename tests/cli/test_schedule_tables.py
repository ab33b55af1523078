"""``specmodel schedule --format cost-table``: what it prints in each form, and used wrong."""

import json

from specmodel.show.columns import units

WHERE = " --target qwen3-30b-a3b --hardware h200_sxm --drafter parallel --max-draft-length 7"
TABLE = " --format cost-table"
SGLANG = "schedule --for sglang" + TABLE + WHERE
VLLM = "schedule --for vllm" + TABLE + WHERE
SMALL = " --batch-size 1,4,16"


def test_all_forms_tell_the_same(ended, document):
    found = document(SGLANG + SMALL)
    status, fragment, err = ended(SGLANG + SMALL + " --fragment-only")
    assert (status, fragment) == (0, found["fragment"] + "\n")
    assert "bias_seconds" in json.loads(fragment)
    assert err.splitlines() == [f"specmodel: warning: {text}" for text in found["warnings"]]
    assert found["units"] == units(found["rows"][0])
    assert len(found["rows"]) == 3 * 8
    told = ended(SGLANG + SMALL)[1]
    assert f"within {found['largest_error']:.1%}" in told
    assert "--speculative-dspark-sps-table-path FILE" in told
    assert max(map(len, told.splitlines())) <= 80


def test_vllm_reads_no_file_and_is_told_so(run, document):
    words = run(VLLM + SMALL + " --context-length 1024,8192", one_line=True)
    assert "vLLM 0.33 reads no file" in words
    assert "VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN" in words
    found = document(VLLM + SMALL + " --context-length 1024,8192")
    assert (found["fragment"], found["largest_error"]) == (None, None)
    short, long = (
        [row["step_time"] for row in found["rows"] if row["context_length"] == context]
        for context in (1024, 8192)
    )
    growth = max(more / less for less, more in zip(short, long, strict=True))
    assert f"Contexts 1024-8192: a step takes up to {growth:.2f}x as long" in words


def test_batches_that_do_not_fit_are_marked_at_their_context(run, rows):
    command = VLLM + " --batch-size 1,200 --context-length 1024,8192"
    beyond = [row for row in rows(command) if not row["fits"]]
    assert [(row["context_length"], row["batch_size"]) for row in beyond] == [(8192, 200)] * 8
    told = run(command)
    assert {line.split()[0] for line in told.splitlines() if "*" in line} == {"200", "*"}
    assert "at draft length 7 and context 8192." in " ".join(told.split())
