"""Compute embeddings: tables for the model, for each layer (PLE), or for n-grams (Engram).

A pass reads one row of a table for each token: tables need memory, but hardly any bandwidth. An LM
head that scores clusters of the vocabulary also reads some rows of its table for each token.
"""

from typing import Annotated

from msgspec import Meta

from specmodel.core.base.bounds import Size
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT, StorageDtype
from specmodel.core.base.errors import InputError
from specmodel.core.layers.batch import Layout
from specmodel.core.layers.blocks import Tokens, between, linear
from specmodel.core.layers.extras import Around, Extra
from specmodel.core.layers.run import Pass
from specmodel.core.layers.work import Work

Rows = Annotated[int, Meta(ge=1, le=10**12)]
"""Number of rows of tables, which is large for n-grams [-]."""


def look_up(run: Pass, *, width: int, made: int, dtype: str) -> Work:
    """Return the work of reading a row of `width` elements and writing `made` for each token."""
    row = width * BYTES_PER_ELEMENT[run.stream.outer_dtype] + made * run.stream.residual_bytes
    return Work(activation_bytes=run.num_tokens * row, kernels=1, kind="elementwise", dtype=dtype)


class LayerInputs(Extra, frozen=True, kw_only=True):
    """An embedding of each token for each layer (PLE), in addition to the shared embedding.

    One matrix computes the same number of values from the shared embedding, which are added. After
    each layer, a matrix computes a gate from the layer's output, and another matrix projects the
    gated embedding to the model's width. All weights have the dtype of the shared embedding. GPUs
    split the table and the first matrix, and each has a copy of the other matrices, as in vLLM 0.33
    (``gemma4.py``).
    """

    vocabulary_size: Size
    size: Size

    is_embedding = True

    def table_parameters(self, model: Around) -> int:
        """Return the weights of the table [-]."""
        return self.vocabulary_size * model.num_layers * self.size

    def parameters(self, model: Around) -> int:
        """Return the weights that every token is multiplied by [-]."""
        return sum(self._matrices(model))

    def weight_bytes(self, model: Around, layout: Layout) -> float:
        """Return the bytes of `parameters` on each GPU, without the table [B]."""
        (cut, copied), stream = self._matrices(model), model.stream
        return (cut / layout.tensor_parallel + copied) * BYTES_PER_ELEMENT[stream.outer_dtype]

    def work(self, run: Pass, model: Around) -> dict[str, Work]:
        """Return the work in a pass, by component."""
        stream, n, num_layers = run.stream, run.layout.tensor_parallel, model.num_layers
        h, made = stream.hidden_size, num_layers * self.size
        cut, copied = self._matrices(model)
        weights, depth = cut / n + copied, h + num_layers * (h + self.size)
        values = h + made / n + num_layers * 2 * (h + self.size)
        return {
            "embedding": look_up(run, width=made, made=made, dtype=stream.activation_dtype),
            "layer_inputs": linear(
                run, 1, weights, values, depth, kernels=1 + 2 * num_layers, dtype=stream.outer_dtype
            ),
            # sum and norm; multiplication by gates
            "elementwise": between(run, 1, made * (3 + 3), kernels=1 + num_layers),
        }

    def reduced(self, model: Around) -> tuple[int, int]:
        """Return the elements of a token that GPUs all-reduce, and that they gather [-]."""
        made = model.num_layers * self.size
        return made, made

    def _matrices(self, model: Around) -> tuple[int, int]:
        """Return the weights of matrices that GPUs split, and of matrices that each GPU has [-]."""
        one = model.num_layers * model.hidden_size * self.size
        return one, 2 * one + self.size


class NgramInputs(Extra, frozen=True, kw_only=True):
    """Embeddings of the last few tokens together, in addition to each token's embedding.

    Each of `num_tables` tables has a narrow row for a hash of the last tokens. The widths of all
    tables sum to the model's width, and they have `num_rows` rows in total. For each table, a
    matrix projects the row to the model's width. Layers read the mean of these rows and the token's
    embedding. GPUs split the tables, and each has all matrices, as in vLLM 0.33
    (``longcat_flash_ngram.py``). All weights have the dtype of the shared embedding.
    """

    num_tables: Size
    num_rows: Rows

    is_embedding = True

    def table_parameters(self, model: Around) -> int:
        """Return the weights of the tables [-]."""
        return self.num_rows * self._width(model.hidden_size)

    def parameters(self, model: Around) -> int:
        """Return the weights that every token is multiplied by [-]."""
        return self.num_tables * self._width(model.hidden_size) * model.hidden_size

    def work(self, run: Pass, model: Around) -> dict[str, Work]:
        """Return the work in a pass, by component."""
        stream, h = run.stream, run.stream.hidden_size
        narrow, weights, dtype = self._width(h), self.parameters(model), stream.outer_dtype
        found = self.num_tables * narrow
        values = found + self.num_tables * h
        return {
            "embedding": look_up(run, width=found, made=found, dtype=stream.activation_dtype),
            "ngram_projections": linear(run, 1, weights, values, narrow, dtype=dtype),
            # hashes and mean
            "elementwise": between(run, 1, (self.num_tables + 2) * h, kernels=2),
        }

    def reduced(self, model: Around) -> tuple[int, int]:
        """Return the elements of a token that GPUs all-reduce, and that they gather: none [-]."""
        return model.hidden_size, 0

    def _width(self, hidden_size: int) -> int:
        return hidden_size // self.num_tables


class NgramMemory(Extra, frozen=True, kw_only=True):
    """Tables in which some layers look up n-grams of the last tokens (Engram).

    `num_rows` has the rows of each of these layers. In each layer, a token reads `num_lookups`
    rows, one for each hash of each n-gram length. From these rows, a matrix computes a key for each
    residual stream, and a value: `num_outputs` model widths in total. The value is added in
    proportion to the agreement between key and stream.

    With `is_on_gpu`, the GPUs split the tables. Otherwise the tables are on the host, the default
    of vLLM 0.33 (``config/engram.py``): they need no GPU memory, and rows are fetched in advance.
    Rows have the dtype `row_dtype`, by default 8 bits with a scale for 32 elements. Not counted:
    norms, the gate between them, a convolution over the last tokens (in Qwen3.8), and gathering the
    outputs of the matrix.
    """

    num_rows: Annotated[tuple[Rows, ...], Meta(min_length=1)]
    row_size: Size
    num_lookups: Size
    num_outputs: Size
    row_dtype: StorageDtype = "mxfp8"
    is_on_gpu: bool = False

    def table_parameters(self, model: Around) -> int:
        """Return the weights of the tables [-]."""
        return sum(self.num_rows) * self.row_size

    @property
    def table_bytes(self) -> float:
        """Size of the tables, on GPUs or on the host [B]."""
        return sum(self.num_rows) * self.row_size * BYTES_PER_ELEMENT[self.row_dtype]

    def parameters(self, model: Around) -> int:
        """Return the weights that every token is multiplied by [-]."""
        read = self.num_lookups * self.row_size
        return len(self.num_rows) * read * self.num_outputs * model.hidden_size

    def weight_bytes(self, model: Around, layout: Layout) -> float:
        """Return the bytes of the matrices, and of tables in GPU memory, on each GPU [B]."""
        matrices = self.parameters(model) * BYTES_PER_ELEMENT[model.stream.weight_dtype]
        tables = self.table_bytes if self.is_on_gpu else 0
        return (matrices + tables) / layout.tensor_parallel

    def work(self, run: Pass, model: Around) -> dict[str, Work]:
        """Return the work in a pass, by component."""
        stream, n, layers = run.stream, run.layout.tensor_parallel, len(self.num_rows)
        read, made = self.num_lookups * self.row_size, self.num_outputs * stream.hidden_size
        looked_up = run.num_tokens * (layers * read / n * BYTES_PER_ELEMENT[self.row_dtype])
        weights = self.parameters(model) / layers / n
        matrices = linear(run, layers, weights=weights, values=read + made / n, depth=read)
        gates = between(run, layers, 2 * made, kernels=1)
        return {"ngram_memory": matrices + Work(activation_bytes=looked_up), "elementwise": gates}


_ROWS_MOVED = 3
"""Number of times that rows of an LM head are moved: read, copied, and read again [-]."""


class HeadClusters(Extra, frozen=True, kw_only=True):
    """Equal clusters of the vocabulary. The LM head scores only the best clusters of a token.

    A small matrix scores clusters. For each token, a kernel copies the LM head's rows in the best
    clusters, even if tokens share clusters, and another multiplies by them. The next token is from
    these clusters. As in vLLM (``gemma4_mtp.py``), each GPU has a full copy of the LM head if it is
    cut, and scores all selected clusters.
    """

    num_clusters: Size
    clusters_per_token: Size

    def __post_init__(self) -> None:
        if self.clusters_per_token > self.num_clusters:
            expected = f"at most num_clusters = {self.num_clusters}"
            raise InputError("clusters_per_token", self.clusters_per_token, expected)

    def parameters(self, model: Around) -> int:
        """Return the weights of the matrix that scores clusters [-]."""
        return self.num_clusters * model.hidden_size

    def weight_bytes(self, model: Around, layout: Layout) -> float:
        """Return the bytes of the matrix, and of the copy of the LM head if it is cut [B]."""
        copied = model.vocabulary_size * model.hidden_size * (layout.tensor_parallel > 1)
        return (self.parameters(model) + copied) * BYTES_PER_ELEMENT[model.stream.outer_dtype]

    def work(self, run: Pass, model: Around) -> dict[str, Work]:
        """Return the work in a pass, by component."""
        h, count, dtype = model.hidden_size, self.num_clusters, run.stream.outer_dtype
        tokens = Tokens(run.stream, run.replica.num_logits)
        scored = model.vocabulary_size * self.clusters_per_token / count
        # kernels read the scores of clusters, write logits, and read them to choose a token
        moved = count + scored * (_ROWS_MOVED * h + 2)
        clusters = linear(tokens, 1, weights=count * h, values=h + count, depth=h, dtype=dtype)
        # best clusters, their tokens, rows of these tokens, product, best logit, its token
        return {"lm_head": clusters, "head_rows": between(tokens, 1, moved, kernels=6)}
