"""The table of drafters that a target suffices for, in a module that help imports at no cost.

A new one is a row here, a file with the function that makes it for a target (an architecture, and a
rule of `passes`), and that function in `by_name`.
"""

from typing import NamedTuple


class NamedDrafter(NamedTuple):
    """What a name of a drafter stands for.

    `words` tell it in help; `kind` is what `Drafter.kind` says, by which fits and measurements know
    it. A look-up has no architecture, and is its name alone; a block drafts all its tokens at once,
    as many as a name may say after a colon. `task_spread` is the standard deviation of the
    acceptance rate of one head between data sets, of 61 to 79 published values each as of November
    2026, or as of heads of all kinds (`algebra.acceptance.ACCEPTANCE_SPREAD`) [-].
    """

    words: str
    kind: str
    is_lookup: bool = False
    is_block: bool = False
    task_spread: float = 0.095


NGRAM, SUFFIX = "ngram", "suffix"

DRAFTERS = {
    "dflash": NamedDrafter(
        "head: 5 dense layers, one pass over up to 15 masks",
        "DFlash head",
        is_block=True,
        task_spread=0.081,
    ),
    "dspark": NamedDrafter(
        "head as dflash, up to 7 tokens, and a Markov step for each",
        "DSpark head",
        is_block=True,
        task_spread=0.111,
    ),
    "eagle": NamedDrafter(
        "head: 2h-to-h projection, one dense layer, the target's vocabulary",
        "EAGLE head",
    ),
    "eagle3": NamedDrafter(
        "head: 3h-to-h projection, one dense layer, 32000 draft tokens",
        "EAGLE-3 head",
        task_spread=0.108,
    ),
    "mtp": NamedDrafter(
        "head: 2h-to-h projection and a layer with attention like the target's",
        "MTP head",
        task_spread=0.087,
    ),
    NGRAM: NamedDrafter("prompt look-up on the host", "n-gram look-up", is_lookup=True),
    "ngram-gpu": NamedDrafter(
        "prompt look-up on the GPU, vLLM's ngram_gpu",
        "n-gram look-up on the GPU",
        is_lookup=True,
    ),
    "p-eagle": NamedDrafter("head shaped as eagle3, one pass with masks", "P-EAGLE head"),
    "pard": NamedDrafter(
        "small model of the target's family, one pass with masks",
        "PARD model",
    ),
    "parallel": NamedDrafter("head shaped as eagle, one pass for all tokens", "parallel head"),
    SUFFIX: NamedDrafter("look-up in suffix trees on the host", "suffix look-up", is_lookup=True),
}
"""By name."""

LOOKUPS = tuple(name for name, row in DRAFTERS.items() if row.is_lookup)
BLOCKS = tuple(name for name, row in DRAFTERS.items() if row.is_block)
