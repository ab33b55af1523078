"""A Markov head, which makes the tokens of a block that was drafted at once depend on each other.

A small table and a small matrix make a bias from the token that was just chosen, which is added to
the logits of the next position: positions are chosen one after another.
"""

from specmodel.core.base.bounds import Size
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.layers.batch import Layout
from specmodel.core.layers.blocks import between, linear
from specmodel.core.layers.extras import Around, Extra
from specmodel.core.layers.run import Pass
from specmodel.core.layers.work import Work

_LOGITS_MOVED = 4
"""Times that all logits of a position are read or written: logits and bias read, the sum written,
and read for the choice [-]."""


class MarkovHead(Extra, frozen=True, kw_only=True):
    """Bias of low `rank` on the logits of a position, from the token before it (DSpark).

    The table has an entry for each of `vocabulary_size` tokens that may come before, those of the
    target. With `has_confidence`, a vector tells from the state of a position and from the table
    how likely the token will be accepted.

    As in vLLM 0.33 (``qwen3_dspark.py``), each GPU has all of it: cutting it would take messages at
    each position. The vector's dot products, which run only with adaptive verification, take memory
    here but no time. With `num_candidates`, the bias is computed for so many of the best logits of
    a position (`dspark_draft_topk`, ``v1/worker/gpu/spec_decode/dspark/speculator.py``): their rows
    of the matrix are read by each sequence.
    """

    rank: Size
    vocabulary_size: Size
    has_confidence: bool = False
    num_candidates: Size | None = None

    def table_parameters(self, model: Around) -> int:
        """Return the weights of the table [-]."""
        return self.vocabulary_size * self.rank

    def parameters(self, model: Around) -> int:
        """Return the weights that are multiplied by [-]."""
        vector = model.hidden_size + self.rank if self.has_confidence else 0
        return model.vocabulary_size * self.rank + vector

    def weight_bytes(self, model: Around, layout: Layout) -> float:
        """Return the bytes of the table and the matrix, which each GPU holds whole [B]."""
        weights = self.table_parameters(model) + self.parameters(model)
        return weights * BYTES_PER_ELEMENT[model.stream.outer_dtype]

    def step(self, run: Pass, draft_vocabulary_size: int) -> dict[str, Work]:
        """Return the work of one position of all sequences, by component."""
        size, rank, dtype = draft_vocabulary_size, self.rank, run.stream.outer_dtype
        if self.num_candidates:
            moved = (2 + self.num_candidates) * rank + (_LOGITS_MOVED - 1) * size
            return {"markov_choice": between(run, 1, moved, kernels=4)}
        bias = linear(run, 1, weights=size * rank, values=rank + size, depth=rank, dtype=dtype)
        moved = 2 * rank + _LOGITS_MOVED * size
        chosen = between(run, 1, moved, kernels=4)  # row, sum, choice, keeping it
        return {"markov_bias": bias, "markov_choice": chosen}
