"""Compute a Markov head, which makes each token of a drafted block depend on the token before.

From the token just chosen, a small table and a small matrix compute a bias, which is added to the
logits of the next position. Tokens are therefore chosen one after another.
"""

from specmodel.core.base.bounds import Size
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.layers.batch import Layout
from specmodel.core.layers.blocks import between, linear
from specmodel.core.layers.extras import Around, Extra
from specmodel.core.layers.run import Pass
from specmodel.core.layers.work import Work

_LOGITS_MOVED = 4
"""Number of times that all logits of a position are read or written [-]: kernels read logits and
bias, write the sum, and read it to choose a token."""


class MarkovHead(Extra, frozen=True, kw_only=True):
    """Bias of low `rank` on the logits of a position, from the token before it (DSpark).

    The table has an entry for each of the target's `vocabulary_size` tokens. With `has_confidence`,
    a vector predicts the acceptance of a token from the state of its position and the table.

    Each GPU has a full copy, as in vLLM 0.33 (``qwen3_dspark.py``): if it were cut, each position
    would need messages. The vector is used only with adaptive verification; here it needs memory
    but no time. With `num_candidates`, the bias is computed only for this number of best logits
    (`dspark_draft_topk`, ``v1/worker/gpu/spec_decode/dspark/speculator.py``), and each sequence
    reads their rows of the matrix.
    """

    rank: Size
    vocabulary_size: Size
    has_confidence: bool = False
    num_candidates: Size | None = None

    def table_parameters(self, model: Around) -> int:
        """Return the weights of the table [-]."""
        return self.vocabulary_size * self.rank

    def parameters(self, model: Around) -> int:
        """Return the weights of the matrix and the vector [-]."""
        vector = model.hidden_size + self.rank if self.has_confidence else 0
        return model.vocabulary_size * self.rank + vector

    def weight_bytes(self, model: Around, layout: Layout) -> float:
        """Return the bytes of the table and the matrix, which each GPU has in full [B]."""
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
        chosen = between(run, 1, moved, kernels=4)  # row, sum, choice, storing the token
        return {"markov_bias": bias, "markov_choice": chosen}
