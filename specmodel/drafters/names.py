"""Names of drafters that a target suffices for, in a module that help imports at no cost."""

NGRAM, SUFFIX = "ngram", "suffix"
LOOKUPS = (NGRAM, SUFFIX)
"""Names of look-ups, which have no architecture."""
BLOCKS = ("dflash", "dspark")
"""Names of drafters that draft at most one block of tokens."""

DRAFTERS = {
    "dflash": "head: 5 dense layers, one pass over up to 15 masks",
    "dspark": "head as dflash, up to 7 tokens, and a Markov step for each",
    "eagle": "head: 2h-to-h projection, one dense layer, the target's vocabulary",
    "eagle3": "head: 3h-to-h projection, one dense layer, 32000 draft tokens",
    "mtp": "head: 2h-to-h projection and a layer with attention like the target's",
    NGRAM: "prompt look-up on the host",
    "p-eagle": "head shaped as eagle3, one pass with masks",
    "pard": "small model of the target's family, one pass with masks",
    "parallel": "head shaped as eagle, one pass for all tokens",
    SUFFIX: "look-up in suffix trees on the host",
}
"""What each of them is, by name."""
