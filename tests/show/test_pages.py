"""What pages say of an answer: how sure it is, what was read of it, what options would change."""

import json
import re
from pathlib import Path

import pytest
from rows import cases, each_row, values_of

import specmodel
from specmodel import deploy, predict
from specmodel.core.base.notes import Note
from specmodel.show import notes
from specmodel.show.behind import behind


@each_row(("asked", "kind"), values_of("shown.txt", "engines not modelled"))
def test_of_an_engine_that_is_not_modelled_no_answer_is_sure(asked, kind):
    """One note says so; no interval stands beside it, and no claim on published cases."""
    p = predict(**asked, acceptance=0.8)
    told = [note for note in p.notes if note.kind in ("other_engine", "sglang_triton")]
    assert [note.kind[: len(kind)] for note in told] == [kind] * bool(kind)
    views = [p.report(), *(str(p.view(name)) for name in ("peak", "lengths", "break-even"))]
    answers = [" ".join(text.split()) for text in (*views, json.dumps(p.to_dict()))]
    assert all(str(told[0]).split(":")[0] in text for text in answers if told)
    sure = [
        bool(re.search(r"\b[Ss]urely\b|On published runs|speedup_low", text)) for text in answers
    ]
    assert any(sure) != bool(kind)
    is_sure = not kind and p.facts["ground_kind"].value == "known"
    assert ("Turn speculation on" in views[0], "may pay: " in views[0]) == (is_sure, not is_sure)


def test_answers_say_what_was_read_and_the_tokens_of_the_other_way():
    where = {"target": "qwen3-30b-a3b", "hardware": "h100", "drafter": "eagle3", "draft_length": 3}
    for typed, tokens, other in (
        ("0.533,0.333,0.333", 2.2, "conditional:0.533,0.333,0.333 gives 1.77 tokens per step"),
        ("1.00,0.8,0.7,0.6", 3.1, "0.8,0.7,0.6 gives 2.70, cumulative:1,0.8,0.7,0.6 gives"),
        ([0.8, 0.7, 0.6], 2.696, "cumulative:0.8,0.7,0.6 gives 3.10 tokens per step"),
        ("cumulative:0.8,0.7,0.6", 3.1, "shares of all drafts, as in vLLM's logs)"),
    ):
        found = predict(**where, batch_size=1, acceptance_by_position=typed)
        assert found.tokens_per_step == pytest.approx(tokens, abs=0.002)
        assert other in " ".join(str(found).split())
        read = str(found.assumptions.get("acceptance_by_position", ""))
        assert (other in read) == (":" not in typed)


@pytest.mark.usefixtures("verbose")
def test_vllm_is_told_the_option_that_narrows_activations():
    def page(target, engine, **given):
        where = {"target": target, "hardware": "b200", "tensor_parallel": 8, "engine": engine}
        return behind(deploy(**where, **given)[0])[0]

    narrows = "option moe.activation, which computes experts in fp8: --set activation_dtype=mxfp8"
    assert narrows in page("gpt-oss-120b", "vllm")
    assert "option" not in page("gpt-oss-120b", "vllm", activation_dtype="mxfp8")
    assert "option" not in page("gpt-oss-120b", "sglang")
    assert "option" not in page("deepseek-v4-flash", "vllm")


GRAPHS = {"batch_sizes": (514, 514), "drafts": None, "count": 256, "unit": "request"}
GRAPHS |= {"default_of": "SGLang", "kernel_time": 1e-3, "needed": 257}
GRAPHS |= {"option": "--cuda-graph-max-bs-decode"}
WALKED = {"split_tokens": 8, "context": 90_000.0, "way_out": "split_tokens=64", "cache_helps": True}


@cases(
    "note words",
    (Note("beyond_graphs", GRAPHS), "at batch size 514, steps have more requests than the largest"),
    (Note("beyond_graphs", GRAPHS), "(256, SGLang's default)"),
    (Note("beyond_graphs", GRAPHS), "decode 257 (in specmodel: --graph-limit 257)"),
    (Note("walked_keys", WALKED), "an 8-bit KV cache (--kv-dtype fp8) or an engine"),
    (Note("dtypes", {"dtypes": ("fp8", "bf16")}), "fp8 and bf16"),
)
def test_notes_name_options(note, words):
    assert words in str(note)


def test_a_card_that_nobody_measured_is_not_sure_of_its_gain():
    asked = {"weight_dtype": "int4", "drafter": "mtp", "draft_length": 3, "tokens_per_step": 2.5}
    where = {"batch_size": [1, 5], "context_length": 400}
    p = predict("qwen3.8-27b", "1xr9700", **asked, **where)
    assert p.facts["how_sure"].value == "may"
    assert p.facts["ground_kind"].value == "few"
    assert "surely" not in str(p).lower()
    assert p.to_dict()["facts"]["ground_rows"]["value"] == p.facts["ground_rows"].value


SOURCES = [
    path.read_text(encoding="utf-8")
    for path in Path(specmodel.__file__).parent.rglob("*.py")
    if path != Path(notes.__file__)
]


def test_kinds_are_those_that_have_words():
    made = {kind for text in SOURCES for kind in re.findall(r'\bNote\(\s*"(\w+)"', text)}
    assert len(made) > 15
    assert made <= notes._WORDS.keys()
    assert all(any(f'"{kind}"' in text for text in SOURCES) for kind in notes._WORDS)
