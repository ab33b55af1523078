"""Products of quantised weights in torch, made of the rows of the table of operators."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pkgutil import resolve_name
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specmodel.measure.kernels.operators import BASE, Operator, extent

Take = Callable[..., Tensor]
"""Returns the next weights of a shape and dtype."""


def widened(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """Return the product with weights that a pass of its own widens, a scale a row."""
    return F.linear(x, weight.to(x.dtype)) * scales


def widened_blocks(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """Return the product with weights that a pass of its own widens, a scale for 128 x 128."""
    (n, k), (rows, columns) = weight.shape, scales.shape
    wide = weight.to(x.dtype).view(rows, n // rows, columns, k // columns)
    return F.linear(x, (wide * scales[:, None, :, None]).view(n, k))


class Product:
    """An operator on one shape: m activations of k values, matrices of n rows, on a device."""

    def __init__(self, row: Operator, x: Tensor, sizes: Mapping[str, int]) -> None:
        import_module(row.imports)
        self._call, self.row, self.sizes = resolve_name(row.operator), row, sizes
        self._keywords = {name: getattr(torch, dtype) for name, dtype in row.keywords.items()}
        self._scales = {
            name: torch.ones(shape, device=x.device).to(_dtype(dtype, x))
            for name, dtype, shape in self._inputs()
            if name not in "xw" and not name.startswith("w")
        }

    def _inputs(self) -> list[tuple[str, str, list[int]]]:
        of = self.row.inputs.items()
        return [(n, str(dtype), [extent(e, self.sizes) for e in dims]) for n, (dtype, *dims) in of]

    def weights(self, take: Take, *lead: int) -> dict[str, Tensor]:
        """Return the next stored weights and scales, of so many experts if `lead` says it."""
        stored = [i for i in self._inputs() if i[0].startswith("w")]
        return {name: take(*lead, *shape, dtype=dtype) for name, dtype, shape in stored}

    def activations(self, x: Tensor) -> Tensor:
        """Return activations in the dtype that the operator takes, as a pass over them makes it."""
        dtype, *dims = self.row.inputs["x"]
        if dtype == BASE:
            return x
        if str(dtype).startswith("float4"):  # which torch cannot cast to: bits stand for it
            return x[:, : x.shape[1] // 4].contiguous().view(_dtype(dtype, x))
        rows = extent(dims[0], {"m": len(x)})
        return F.pad(x, (0, 0, 0, rows - len(x))).to(_dtype(dtype, x))

    def __call__(
        self, x: Tensor, stored: Mapping[str, Tensor], ends: Tensor | None = None
    ) -> Tensor:
        """Return the product of activations, as `activations` returns them."""
        known = {**self._scales, **stored, "x": x, "ends": ends}
        made: Tensor = self._call(
            *(_argument(a, known) for a in self.row.arguments), **self._keywords
        )
        return made

    def grouped(self, rows: Tensor, stored: Mapping[str, Tensor], ends: Tensor) -> Tensor:
        """Return the product of each group of rows with the weights of its expert."""
        if self.row.kind == "experts":
            return self(self.activations(rows), stored, ends)
        out, start = rows.new_empty(len(rows), self.sizes["n"]), 0
        for expert, end in enumerate(ends.tolist()):
            if end > start:
                own = {name: values[expert] for name, values in stored.items()}
                out[start:end] = self(rows[start:end], own)
            start = end
        return out


def _argument(name: str | int, known: Mapping[str, Any]) -> Any:
    if isinstance(name, int):
        return name
    plain = name.removesuffix(".T")
    return known[name] if plain == name else known[plain].transpose(-1, -2)


def _dtype(name: str | int, like: Tensor) -> torch.dtype:
    return like.dtype if name == BASE else getattr(torch, str(name))
