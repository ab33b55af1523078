"""Define groups of equal layers, and collect the kinds of parts that a layer may have.

Each part gets a stream whose `weight_dtype` is the dtype of the part's weights.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.base.bounds import Count, Size
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT, StorageDtype
from specmodel.core.base.records import Record
from specmodel.core.layers.batch import Layout
from specmodel.core.layers.blocks import linear
from specmodel.core.layers.parts import FeedForwardBlock, LayerPart, TokenMixer
from specmodel.core.layers.run import Pass
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Work


def _kinds_of(base: type[LayerPart]) -> Any:
    """Return the union of all records that derive from `base` and have a tag, from this folder."""
    room, _, own = __name__.rpartition(".")
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if file.stem not in (own, "__init__"):
            import_module(f"{room}.{file.stem}")
    found, seen = [], [base]
    for kind in seen:
        seen += kind.__subclasses__()
        if kind.__struct_config__.tag != kind.__name__:
            found.append(kind)
    return Union[tuple(sorted(found, key=lambda kind: kind.__module__))]  # noqa: UP007 - computed


if TYPE_CHECKING:
    Mixer: TypeAlias = TokenMixer
    FeedForward: TypeAlias = FeedForwardBlock
else:
    Mixer, FeedForward = _kinds_of(TokenMixer), _kinds_of(FeedForwardBlock)


class LayerGroup(Record, frozen=True, kw_only=True):
    """Equal layers, which have a mixer, a feed-forward block, or both.

    Parameters
    ----------
    count, num_norms
        Number of layers, and norms of the model's width in each; None for one before each part [-].
    mixer, feed_forward
        The part that mixes the tokens of a sequence, such as attention, and the part that processes
        each token separately.
    mixer_dtype, output_dtype, ffn_dtype
        Dtypes of weights, if they differ from the model's: of the mixer, of the matrix after its
        core, and of the feed-forward block without routed experts.
    """

    count: Size
    mixer: Mixer | None = None
    feed_forward: FeedForward | None = None
    mixer_dtype: StorageDtype | None = None
    output_dtype: StorageDtype | None = None
    ffn_dtype: StorageDtype | None = None
    num_norms: Count | None = None

    def __post_init__(self) -> None:
        has_part = self.mixer is not None or self.feed_forward is not None
        self.need(has_part, "mixer", "a mixer, a feed_forward, or both")
        parts = {"mixer_dtype": self.mixer, "output_dtype": self.mixer}
        for field, part in {**parts, "ffn_dtype": self.feed_forward}.items():
            fits = part is not None or not getattr(self, field)
            self.need(fits, field, "none, as these layers do not have this part")

    @property
    def norms(self) -> int:
        """Norms of all these layers [-]."""
        parts = int(self.mixer is not None) + int(self.feed_forward is not None)
        return self.count * (parts if self.num_norms is None else self.num_norms)


class Stored(Struct, frozen=True):
    """A mixer or feed-forward block, in the dtypes of its weights.

    `stream` is the model's stream, with the dtype of this part as `weight_dtype`. `output_dtype` is
    the dtype of the matrix after a mixer's core, None if it is the same.
    """

    part: TokenMixer | FeedForwardBlock
    stream: Stream
    output_dtype: str | None = None

    def weight_bytes(self, layout: Layout) -> float:
        """Return the bytes of one layer on each GPU [B]."""
        stream, size = self.stream, self.part.weight_bytes(self.stream, layout)
        if self.output_dtype is None:
            return size
        wider = BYTES_PER_ELEMENT[self.output_dtype] - BYTES_PER_ELEMENT[stream.weight_dtype]
        output = self.part.output_size * stream.hidden_size / layout.tensor_parallel
        return size + output * wider

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass with this part's stream, by component."""
        # A matrix after the core with another dtype is a separate component.
        found = self.part.work(run, layers)
        if self.output_dtype is None or not self.part.output_size:
            return found
        h, inputs = run.stream.hidden_size, self.part.output_size / run.layout.tensor_parallel
        product = partial(linear, run, layers, weights=inputs * h, values=inputs + h, depth=inputs)
        counted, output = product(), product(dtype=self.output_dtype)
        name = self.part.output_component
        both = found[name]
        summed = ("flop", "weight_bytes", "activation_bytes", "depth", "kernels")
        kept = replace(both, **{f: getattr(both, f) - getattr(counted, f) for f in summed})
        if both.kind != output.kind:  # whole layers were timed
            output = replace(output, kind=both.kind, stored_dtype=both.stored_dtype)
        others = {other: work for other, work in found.items() if other != name}
        return {name: kept, "output_projections": output} | others


def stored_parts(layers: Sequence[LayerGroup], stream: Stream, mixers: Stream) -> dict[Stored, int]:
    """Return the number of layers with each mixer and each feed-forward block, in its dtypes.

    `stream` is the stream of feed-forward blocks, `mixers` the stream of mixers.
    """
    counts = Counter[Stored]()
    parts: list[tuple[int, Mixer | FeedForward | None, Stream, str | None, str | None]] = []
    parts += [(g.count, g.mixer, mixers, g.mixer_dtype, g.output_dtype) for g in layers]
    parts += [(g.count, g.feed_forward, stream, g.ffn_dtype, None) for g in layers]
    for count, part, of, own, output in parts:
        if part is not None:
            dtype = own or of.weight_dtype
            apart = output if output != dtype else None
            counts[Stored(part, replace(of, weight_dtype=dtype), apart)] += count
    return counts
