"""``specmodel schedule --format cost-table``: what it prints in each form."""

import json

SGLANG = "schedule --for sglang --format cost-table qwen3-30b-a3b h200 --drafter parallel"
SGLANG += " --max-draft-length 7 --batch-size 1,4,16"


def test_all_forms_tell_the_same(ended, document, rows):
    found = document(SGLANG)
    status, fragment, err = ended(f"{SGLANG} --fragment-only")
    assert (status, fragment) == (0, found["fragment"] + "\n")
    assert json.loads(fragment) == found["costs"]
    assert err == f"specmodel: note: {found['caveats'][0]}\n"
    told = ended(SGLANG)[1]
    assert told.startswith(found["fragment"])
    assert "--speculative-dspark-sps-table-path FILE" in told
