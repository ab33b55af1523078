"""Fitted all-reduces of a serving stack on one GPU, and how far to trust them."""

from dataclasses import dataclass
from typing import Annotated

from specmodel.algebra.collectives import AllReduceParameters
from specmodel.base.records import Record
from specmodel.base.schemas import Setting

Latency = Annotated[float, Setting(ge=0, le=1)]
Efficiency = Annotated[float, Setting(gt=0, le=2)]
Error = Annotated[float, Setting(ge=0, le=10)]


@dataclass(frozen=True, kw_only=True)
class AllReduceFit(Record):
    """All-reduces of a stack inside a node, as `algebra.collectives` describes their numbers.

    `version` names several stacks where their rows are fitted together. Small messages run in one
    shot, large ones in two, whose efficiency exceeds 1 where a switch adds up and saves bytes.
    Errors are absolute, of predicted over measured less one, on sizes left out in turn [-].
    """

    version: str
    source: Annotated[str, Setting(min_length=3)]
    one_shot_latency: Latency
    one_shot_hop_latency: Latency
    one_shot_efficiency: Efficiency
    two_shot_latency: Latency
    two_shot_hop_latency: Latency
    two_shot_efficiency: Efficiency
    contention: Annotated[float, Setting(ge=0, le=4)] = 0.0
    num_points: Annotated[int, Setting(ge=0, le=10**9)]
    mean_error: Error
    median_error: Error

    @property
    def parameters(self) -> AllReduceParameters:
        """What `all_reduce_time` takes."""
        return AllReduceParameters(**{name: getattr(self, name) for name in _PARAMETERS})


_PARAMETERS = tuple(AllReduceParameters.__dataclass_fields__)
