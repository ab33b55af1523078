"""Architecture files of version 1: one set of numbers for all layers, with counts of exceptions."""

from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any, Literal, Self

from pydantic import model_validator

from specmodel.base.errors import InputError, nearest
from specmodel.base.records import Record, build
from specmodel.layers.attention import Count, Size


class _Shape(Record):
    """The fields of version 1 that became groups of layers."""

    schema_version: Literal[1]
    num_layers: Size
    num_heads: Size
    num_kv_heads: Size
    head_dim: Size
    has_gated_ffn: bool = True
    num_dense_layers: Count = 0
    dense_ffn_size: Count = 0
    num_experts: Size = 1
    experts_per_token: Size = 1
    expert_size: Count = 0
    num_shared_experts: Count = 0
    shared_expert_size: Count = 0
    sliding_window: Size | None = None
    num_sliding_layers: Count = 0
    latent: dict[str, int] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for layers in ("num_dense_layers", "num_sliding_layers"):
            if getattr(self, layers) > self.num_layers:
                expected = f"at most num_layers = {self.num_layers}"
                raise InputError(layers, getattr(self, layers), expected)
        for count, size in (
            (self.num_dense_layers, "dense_ffn_size"),
            (self.num_layers - self.num_dense_layers, "expert_size"),
        ):
            if count and not getattr(self, size):
                expected = f"a width above 0, as {count} of {self.num_layers} layers have it"
                raise InputError(size, getattr(self, size), expected)
        if bool(self.num_sliding_layers) != bool(self.sliding_window):
            expected = "both or neither of sliding_window and num_sliding_layers"
            raise InputError("sliding_window", self.sliding_window, expected)
        return self


def upgraded(data: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """Return the fields of an architecture of version 2 from those of version 1.

    Version 1 does not say which layers are dense or windowed: here they are the first ones, which
    changes no sum over layers.
    """
    known = {*fields, *_Shape.model_fields} - {"layers"}
    for key, value in data.items():
        if key not in known:
            raise InputError(key, value, f"a known field: {nearest(key, known)}")
    shape = build(_Shape, {key: data[key] for key in _Shape.model_fields if key in data}, "")
    ends = {0, shape.num_dense_layers, shape.num_sliding_layers, shape.num_layers}
    layers = [
        {
            "count": end - start,
            "mixer": _mixer(shape, is_windowed=start < shape.num_sliding_layers),
            "feed_forward": _feed_forward(shape, is_dense=start < shape.num_dense_layers),
        }
        for start, end in pairwise(sorted(ends))
    ]
    rest = {key: value for key, value in data.items() if key not in _Shape.model_fields}
    return rest | {"schema_version": 2, "layers": layers}


def _mixer(shape: _Shape, *, is_windowed: bool) -> dict[str, Any]:
    if shape.latent:
        kind = {"kind": "latent_attention", "num_heads": shape.num_heads}
        return kind | shape.latent
    return {
        "kind": "attention",
        "num_heads": shape.num_heads,
        "num_kv_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "window": shape.sliding_window if is_windowed else None,
    }


def _feed_forward(shape: _Shape, *, is_dense: bool) -> dict[str, Any]:
    kind: dict[str, Any] = {"kind": "dense", "ffn_size": shape.dense_ffn_size}
    if not is_dense:
        names = {name for name in _Shape.model_fields if "expert" in name}
        kind = {"kind": "experts"} | shape.model_dump(include=names)
    return kind | {"is_gated": shape.has_gated_ffn}
