"""Clusters of a vocabulary, of which an LM head scores only the best for each token.

A small matrix scores the clusters; the rows of the LM head that belong to the best of them are
copied for each token, and multiplied by.
"""

from specmodel.base.classes import dataclass
from specmodel.base.dtypes import BYTES_PER_ELEMENT
from specmodel.base.schemas import Size
from specmodel.layers.batch import Layout
from specmodel.layers.blocks import Tokens, between, linear
from specmodel.layers.extras import Around, Extra
from specmodel.layers.run import Pass
from specmodel.layers.work import Work

_ROW_MOVED = 3
"""Times that a row is read or written: read, its copy written, and read to be multiplied [-]."""

_LOGIT_MOVED = 2
"""Times that a logit is read or written: written, and read for the choice [-]."""

_KERNELS = 6
"""The best clusters, tokens of these, copies of rows, product, largest logit, its token [-]."""


@dataclass(frozen=True, kw_only=True)
class HeadClusters(Extra):
    """Equal clusters that share the vocabulary, of which a token has its best scored.

    As in vLLM (``gemma4_mtp.py``), where each GPU copies the whole LM head and scores all that is
    chosen; tokens are drawn of the scored ones alone. Rows that tokens share are copied for each.
    """

    num_clusters: Size
    clusters_per_token: Size

    def parameters(self, model: Around) -> int:
        """Return the weights of the matrix that scores clusters [-]."""
        return self.num_clusters * model.hidden_size

    def weight_bytes(self, model: Around, layout: Layout) -> float:
        """Return the bytes of the matrix, and of a copy of the LM head where it is cut [B]."""
        copied = model.vocabulary_size * model.hidden_size * (layout.tensor_parallel > 1)
        return (self.parameters(model) + copied) * BYTES_PER_ELEMENT[model.stream.outer_dtype]

    def work(self, run: Pass, model: Around) -> dict[str, Work]:
        """Return the work of the LM head, by component."""
        h, count = model.hidden_size, self.num_clusters
        tokens = Tokens(run.stream, run.replica.num_logits)
        scored = model.vocabulary_size * self.clusters_per_token / count
        moved = count + scored * (_ROW_MOVED * h + _LOGIT_MOVED)
        dtype = run.stream.outer_dtype
        clusters = linear(tokens, 1, weights=count * h, values=h + count, depth=h, dtype=dtype)
        return {"lm_head": clusters, "head_rows": between(tokens, 1, moved, kernels=_KERNELS)}
