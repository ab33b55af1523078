"""``specmodel schedule --format cost-table``: what it prints in each form, and used wrong."""

import csv
import io
import json

from rows import each_row

from specmodel.show.columns import units

WHERE = " --target qwen3-30b-a3b --hardware h200_sxm --drafter parallel --max-draft-length 7"
TABLE = " --format cost-table"
SGLANG = "schedule --for sglang" + TABLE + WHERE
VLLM = "schedule --for vllm" + TABLE + WHERE
SMALL = " --batch-size 1,4,16"


def test_all_forms_tell_the_same(ended):
    status, fragment, err = ended(SGLANG + SMALL + " --fragment-only")
    assert status == 0
    costs = json.loads(fragment)
    document = json.loads(ended(SGLANG + SMALL + " --json")[1])
    assert json.loads(document["fragment"]) == costs
    assert err.splitlines() == [f"specmodel: warning: {text}" for text in document["warnings"]]
    (fitted,) = document["warnings"]
    assert fitted.startswith("the engine SGLang was not fitted on ")
    assert "bias_seconds" in costs
    assert document["units"] == units(document["rows"][0])
    table = list(csv.DictReader(io.StringIO(ended(SGLANG + SMALL + " --csv")[1])))
    assert {row.pop("fits") for row in table} == {"True"}
    numbers = [{k: v for k, v in row.items() if k != "fits"} for row in document["rows"]]
    assert [{k: float(v) for k, v in row.items()} for row in table] == numbers
    assert len(table) == 3 * 8
    told = ended(SGLANG + SMALL)[1]
    assert f"within {document['largest_error']:.1%}" in told
    assert "--speculative-dspark-sps-table-path FILE" in told
    assert max(map(len, told.splitlines())) <= 80


def test_what_was_not_given_is_told(ended):
    told = " ".join(ended(f"{SGLANG} --verbose")[1].split())
    assumed = told[told.index("Assumed:") :]
    for words in ("batch_size 1:256:x2", "context_length 1024"):
        assert words in assumed
    assert "engine sglang (fit engine takes your own runs)" in assumed
    assert "host_speed 1 (mean of published hosts)" in assumed
    given = " ".join(ended(SGLANG + SMALL + " --context-length 9 --verbose")[1].split())
    for name in ("batch_size", "context_length"):
        assert name not in given[given.index("Assumed:") :].replace("fits_at_bound", "")


def test_vllm_reads_no_file_and_is_told_so(ended):
    status, told, err = ended(VLLM + SMALL + " --context-length 1024,8192")
    assert (status, err) == (0, "")
    words = " ".join(told.split())
    assert "vLLM 0.33 reads no file" in words
    assert "VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN" in words
    document = json.loads(ended(VLLM + SMALL + " --context-length 1024,8192 --json")[1])
    assert (document["fragment"], document["largest_error"]) == (None, None)
    rows = {(r["context_length"], r["batch_size"], r["verify_tokens"]): r for r in document["rows"]}
    assert len(rows) == 2 * 3 * 8
    growth = max(
        row["step_time"] / rows[1024, *at]["step_time"]
        for (context, *at), row in rows.items()
        if context == 8192
    )
    assert f"From context 1024 to 8192 a step takes up to {growth:.2f}x as long" in words


def test_several_contexts_are_tables_but_no_file_of_sglang(ended):
    status, told, err = ended(SGLANG + SMALL + " --context-length 1,2")
    assert (status, err) == (0, "")
    assert "SGLang's table knows one context; --csv has all." in " ".join(told.split())


@each_row(
    ("command", "argument", "expected"),
    [
        (VLLM + " --fragment-only", "--fragment-only: got True", "expected --csv with"),
        (VLLM + " --tolerance 0.1", "--tolerance: got 0.1", "none with --format cost-table"),
        (VLLM + " --acceptance-rate 0.1", "--acceptance-rate: got 0.1", "none with --format"),
        (VLLM + " --for-load --tpot-target 9ms", "--for-load", "no --format cost-table"),
        (VLLM + " --tpot-target 9ms", "--tpot-target", "--for-load"),
        (
            SGLANG.replace(TABLE, "") + " --batch-size 4",
            "--batch-size: got '4'",
            "none of a schedule",
        ),
        (
            SGLANG + " --context-length 1,2 --fragment-only",
            "--context-length",
            "expected a single one",
        ),
        (SGLANG + " --json --csv", "--csv: got True", "one of --json"),
        (SGLANG + " --json --fragment-only", "--fragment-only", "one of --json"),
        (SGLANG + " --max-draft-length 2,3", "--max-draft-length", "'2,3'"),
        (SGLANG + " --max-draft-length 0", "--max-draft-length: got 0", "1"),
        (SGLANG + " --batch-size 0", "--batch-size", "1"),
        (SGLANG + " --batch-size 1:600", "--batch-size: got '600 of them'", "at most 512"),
        (SGLANG + " --batch-size 1:90000", "--batch-size", "at most 200000 points"),
        (SGLANG + " --context-length x", "--context-length", "x"),
        (SGLANG + " --drafter eagle3", "--drafter: got 'eagle3'", "DSPARK only"),
        (VLLM + " --drafter ngram", "--drafter", "a head or a model"),
        (VLLM.replace("vllm", "tensorrt-llm"), "--format", "tensorrt-llm"),
        ("schedule" + TABLE + WHERE, "--for", "Missing"),
        (SGLANG.replace("--max-draft-length 7", ""), "--max-draft-length", "none given"),
    ],
)
def test_used_wrong_it_says_so_in_one_line(refuse, command, argument, expected):
    refuse(command, argument, expected)


def test_batches_that_do_not_fit_are_marked_at_their_context(ended):
    command = VLLM + " --batch-size 1,200 --context-length 1024,8192"
    rows = json.loads(ended(command + " --json")[1])["rows"]
    beyond = [(row["context_length"], row["batch_size"]) for row in rows if not row["fits"]]
    assert beyond == [(8192, 200)] * 8
    told = ended(command)[1]
    assert {line.split()[0] for line in told.splitlines() if "*" in line} == {"200*", "*"}
    assert "at draft length 7 and context 8192." in " ".join(told.split())
