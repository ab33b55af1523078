"""Published acceptance of heads: each met at its own lengths, and quartiles over targets."""

import re

import numpy as np
import pytest
from rows import each_row

from specmodel import list_architectures, load_architecture
from specmodel.drafters.names import DRAFTERS
from specmodel.drafters.published import taken_drafter, usual_drafter
from specmodel.drafters.typical import (
    QUARTILES_FROM,
    measured_acceptance,
    published_acceptance,
    published_heads,
    typical_heads,
)

HEADS = published_heads()
BY_KIND = {kind: [head for head in HEADS if head.drafter == kind] for kind in DRAFTERS}


def test_the_table_has_one_entry_for_each_target_and_drafter_with_a_source():
    assert len({(head.target, head.drafter) for head in HEADS}) == len(HEADS) > 50
    assert {kind: len(BY_KIND[kind]) for kind in ("eagle3", "mtp", "dflash", "dspark")} == {
        "eagle3": 21, "mtp": 14, "dflash": 8, "dspark": 6,
    }  # fmt: skip
    for head in HEADS:
        assert re.fullmatch(
            rf"{head.target} with {head.drafter}: .+, 202\d-\d\d\S*, .+", head.source
        )
        assert list(head.lengths) == sorted({*head.lengths})
        assert all(1 <= t <= n + 1 for n, t in zip(head.lengths, head.tokens_per_step, strict=True))


@each_row("head", HEADS)
def test_a_head_gives_the_tokens_that_were_measured(head):
    """Exactly where these rise by less with each length; else by what rising again would take."""
    found = [float(head.acceptance.expected_tokens_per_step(n)) for n in head.lengths]
    off = np.abs(np.array(found) - head.tokens_per_step)
    gains = np.diff(head.tokens_per_step) / np.diff(head.lengths)
    falls = bool((np.diff(gains) <= 1e-9).all() and (gains >= 0).all())
    assert off.max() < (0.02 if falls or len(head.lengths) == 1 else 0.25)


def test_beyond_what_was_measured_tokens_never_fall():
    for head in HEADS:
        if not DRAFTERS[head.drafter].is_block:
            tokens = head.tokens_at(12)
            assert (np.diff(tokens) >= -1e-12).all()
            assert tokens[0] <= 2


@each_row("kind", [kind for kind, heads in BY_KIND.items() if len(heads) > 1])
def test_levels_are_the_quartiles_of_targets(kind):
    found = typical_heads(kind)
    longest = found.max_draft_length
    tokens = np.stack([head.tokens_at(longest) for head in BY_KIND[kind]])
    has_quartiles = len(BY_KIND[kind]) >= QUARTILES_FROM
    assert (found.levels[0] == "lower quartile") == has_quartiles
    shares = (0.25, 0.5, 0.75) if has_quartiles else (0, 0.5, 1)
    for share, acceptance in zip(shares, found.acceptance, strict=True):
        ours = [float(acceptance.expected_tokens_per_step(n + 1)) for n in range(longest)]
        # gains that would rise again with length are levelled out
        assert ours == pytest.approx(np.quantile(tokens, share, axis=0), abs=0.06)
    measured = [max(head.lengths) for head in BY_KIND[kind]]
    assert np.mean([most >= longest for most in measured]) >= 0.5


def test_too_few_heads_have_no_levels():
    assert typical_heads("pard") is None
    assert typical_heads("ngram") is None


def test_the_published_acceptance_of_a_target_goes_before_the_table():
    preset = next(one for one in published_acceptance() if one.name == "glm-5.2-mtp")
    assert measured_acceptance("GLM-5.2", "mtp").source == preset.acceptance.source
    assert measured_acceptance("Qwen3-30B-A3B", "eagle3").source.startswith("qwen3-30b-a3b with")
    assert measured_acceptance("Qwen3-30B-A3B", "mtp") is None
    assert measured_acceptance("DeepSeek-V3.1", "mtp") is None, "not that of DeepSeek-V3"


def test_every_target_has_a_drafter_that_can_be_made():
    for name in list_architectures():
        drafter, why = taken_drafter(load_architecture(name))
        assert drafter in DRAFTERS
        assert why


@each_row(("name", "drafter"), [
    ("minimax-m2.7", "eagle3"),  # three modules in its file, which no engine loads
    ("step-3.7-flash", "mtp"),
    ("hy4-preview", "mtp"),
    ("inkling-2-small", ""),  # no module in its class: not the eight of Inkling
])  # fmt: skip
def test_a_usual_drafter_is_one_that_engines_run(name, drafter):
    target = load_architecture(name)
    assert usual_drafter(target).partition(",")[0] == drafter
    assert taken_drafter(target)[0] == (drafter or "eagle3")
