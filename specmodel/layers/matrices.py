"""Matrices of some layers on the tokens of a pass, and the small kernels between them."""

from specmodel.layers import blocks
from specmodel.layers.run import Pass
from specmodel.layers.work import Work


def matrix_work(
    run: Pass,
    layers: int,
    *,
    weights: float,
    values: float,
    depth: float,
    kernels: int = 1,
    dtype: str | None = None,
) -> Work:
    """Return the work of matrices, numbers those of a layer, of `weight_dtype` unless told."""
    stream = run.stream
    stored = dtype or stream.weight_dtype
    return blocks.linear(
        run.num_tokens,
        weights=layers * weights,
        values=layers * values,
        value_bytes=stream.residual_bytes,
        depth=layers * depth,
        kernels=layers * kernels,
        dtype=stream.arithmetic_dtype(stored),
        stored_dtype=stored,
    )


def between_matrices(run: Pass, layers: int, values: float, *, kernels: int) -> Work:
    """Return the work of small kernels, which read and write `values` a token and layer."""
    return blocks.between(
        run.num_tokens,
        values=layers * values,
        value_bytes=run.stream.residual_bytes,
        kernels=layers * kernels,
        dtype=run.stream.activation_dtype,
    )
