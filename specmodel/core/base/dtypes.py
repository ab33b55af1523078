"""Define dtypes of weights, caches and arithmetic: sizes, names, and kernels that read them."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from specmodel.core.base.errors import InputError
from specmodel.core.base.files import toml_tables

Dtype = Literal["fp32", "bf16", "fp16", "fp8", "int8", "fp4", "int4"]
"""Dtypes of arithmetic."""

_TABLES: dict[str, dict[str, Any]] = toml_tables(Path(__file__).parent / "data/dtypes.toml")
_OF_GGUF: dict[str, float] = _TABLES["gguf_bits"]

_BITS: dict[str, float] = _TABLES["bits"] | _OF_GGUF
BYTES_PER_ELEMENT = {name: bits / 8 for name, bits in _BITS.items()}
"""Size of one element, including its share of a scale [B]. fp4 (NVFP4) has a scale of 8 bits for 16
elements, mxfp4 and mxfp8 8 bits for 32 elements, and int4 16 bits and a 4-bit zero point for 128
elements. int4_g128 and other names with _g have 16 bits for a group of this size, without zero
points. fp8_block has 32 bits for a block of 128 x 128. Scales of fp8 and int8 per tensor or
channel, at most 0.1 %, are left out."""

_GROUPED = {name: name.partition("_g")[0] for name in BYTES_PER_ELEMENT if "_g" in name}
_KERNELS = {"fp8_block": "fp8", "mxfp8": "fp8", **_GROUPED}
_KERNELS |= {name: "int8" if bits > 8 else "int4" for name, bits in _OF_GGUF.items()}
"""Dtype whose kernels read a dtype. The two differ only in how many elements share a scale.
Kernels of the same width read dtypes of GGUF."""

_WITH_FP8 = {"mxfp4": "mxfp4_fp8", "int4": "int4_fp8"}
"""Weights of four bits that some kernels widen to 8 bits, and the names of the kernels' fits."""

if TYPE_CHECKING:
    StorageDtype: TypeAlias = str
    FitDtype: TypeAlias = str
else:
    StorageDtype = Literal[tuple(BYTES_PER_ELEMENT)]
    """Dtypes of weights and caches, the keys of `BYTES_PER_ELEMENT`."""
    FitDtype = Literal[(*BYTES_PER_ELEMENT, *_WITH_FP8.values())]
    """Names of dtypes in fits: of weights or caches, some with 8-bit activations in place of 16."""

_OTHER_NAMES: dict[str, str] = _TABLES["other_names"] | _TABLES["gguf_names"]
_MET_BY: dict[str, list[str]] = _TABLES["met_by"]
NEXT_WIDER: dict[str, list[str]] = _TABLES["next_wider"]
"""Dtypes in which a GPU without a peak for a dtype computes, the narrowest first."""

ARITHMETIC_BITS = {
    name: 4 if size < 1 else int(8 * size) for name, size in BYTES_PER_ELEMENT.items()
}
"""Width of the arithmetic on a dtype, without scales [-]."""


def kernel_dtype(dtype: str) -> str:
    """Return the dtype whose kernels read a dtype. It differs only in the size of groups."""
    return _KERNELS.get(dtype, dtype)


@cache
def names_of_fits(stored: str, arithmetic: str | None = None) -> tuple[str, ...]:
    """Return the names under which kernels of some dtypes may be fitted, the best first.

    These are the stored dtype and the dtype whose kernels read it. Weights of four bits with
    arithmetic in fp8 have another name.

    Examples
    --------
    >>> names_of_fits("int4_g32", "bf16"), names_of_fits("mxfp4", "fp8")
    (('int4_g32', 'int4'), ('mxfp4_fp8',))
    """
    kernels = kernel_dtype(stored)
    if arithmetic == "fp8" and kernels in _WITH_FP8:
        return (_WITH_FP8[kernels],)
    return tuple(dict.fromkeys((stored, kernels)))


def check_dtype(argument: str, dtype: object) -> str:
    """Return the dtype by its name here; an error lists known ones. Activations have no groups."""
    is_of_activations = argument == "activation_dtype"
    groups = {"mxfp4", *_KERNELS} if is_of_activations else set()
    known = [name for name in BYTES_PER_ELEMENT if name not in groups]
    plain = (name for name in known if name not in _OF_GGUF)
    names = ", ".join("nvfp4 (fp4)" if name == "fp4" else name for name in plain)
    ours = known_dtype(dtype)
    ours = kernel_dtype(ours) if ours and is_of_activations else ours
    if ours in known:
        return ours
    raise InputError(argument, dtype, f"one of {names}; for GGUF such as q8_0, q4_k_m, iq2_xxs")


def known_dtype(dtype: object) -> str | None:
    """Return a dtype by its name here, None if it is unknown."""
    ours = _OTHER_NAMES.get(name := _spelled(dtype), name)
    return ours if ours in BYTES_PER_ELEMENT else None


def _spelled(dtype: object) -> str:
    """Return a dtype in the spelling used here: Unsloth's UD-Q4_K_XL as q4_k_xl."""
    name = dtype.lower().replace("-", "_") if isinstance(dtype, str) else ""
    return name.removeprefix("ud_")


_SIZES_OF_GGUF = ("int4_g32", "int8_g32")
"""Dtypes of the size of q4_0 and q8_0, which on some GPUs only llama.cpp has."""


def is_of_gguf(dtype: object, *, by_size: bool) -> bool:
    """Return whether a dtype is one of llama.cpp's, by its name or, with `by_size`, its size."""
    names = _OF_GGUF.keys() | _TABLES["gguf_names"].keys()
    return _spelled(dtype) in (names | {*_SIZES_OF_GGUF} if by_size else names)


def check_activations(argument: str, activations: str, weights: str) -> None:
    """Refuse a dtype of activations that no kernel multiplies with the weights' dtype."""
    met = _MET_BY.get(kernel_dtype(weights), (activations,))
    if activations not in met:
        expected = f"one of {', '.join(met)}: no kernel multiplies {activations} with {weights}"
        raise InputError(argument, activations, f"{expected} weights")
