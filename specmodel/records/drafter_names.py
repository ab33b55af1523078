"""Names of drafters that follow from their target, apart so that help needs nothing heavy."""

NGRAM = "ngram"
"""Name of the look-up, which has no architecture."""

DRAFTERS = {
    "eagle": "head: 2h-to-h projection, one dense layer, the target's vocabulary",
    "eagle3": "head: 3h-to-h projection, one dense layer, 32000 draft tokens",
    "mtp": "head: 2h-to-h projection and a layer with attention like the target's",
    NGRAM: "prompt look-up on the host",
    "parallel": "head shaped as eagle, one pass for all tokens",
}
"""What each of them is, by name."""
