"""Published acceptance is of short prompts, which is said where the context is long."""

import specmodel


def told(**more):
    found = specmodel.predict("qwen3-30b-a3b", "h100", drafter="eagle3", batch_size=1, **more)
    return [warning for warning in found.warnings if "prompts of some thousand" in warning]


def test_published_acceptance_at_long_context_warns_and_ones_own_does_not():
    (warning,) = told(context_length=131_072)
    assert "131,072" in warning
    assert not told(context_length=8192)
    assert not told(context_length=131_072, acceptance=0.7)
