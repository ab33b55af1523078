"""Fitted all-reduces of a serving stack on one GPU, and how far to trust them."""

from typing import Annotated

from pydantic import Field

from specmodel.algebra.collectives import AllReduceParameters
from specmodel.base.records import Record

Latency = Annotated[float, Field(ge=0, le=1)]
Efficiency = Annotated[float, Field(gt=0, le=2)]
Error = Annotated[float, Field(ge=0, le=10)]


class AllReduceFit(Record):
    """All-reduces of a stack inside a node: parameters, what they were fitted to, and errors.

    Parameters
    ----------
    version
        Version of the stack; several where their rows are fitted together.
    source
        Data set, and the devices it was measured on.
    one_shot_latency, one_shot_hop_latency, one_shot_efficiency
        Of small messages, as `AllReduceParameters` describes them [s] [-].
    two_shot_latency, two_shot_hop_latency, two_shot_efficiency
        Of large ones; above 1 where a switch adds up and saves bytes [s] [-].
    contention
        Exponent by which bandwidth falls with the GPUs that share it [-].
    num_points
        Points fitted [-].
    mean_error, median_error
        Of predicted over measured less one, absolute, on sizes left out in turn [-].
    """

    version: str
    source: Annotated[str, Field(min_length=3)]
    one_shot_latency: Latency
    one_shot_hop_latency: Latency
    one_shot_efficiency: Efficiency
    two_shot_latency: Latency
    two_shot_hop_latency: Latency
    two_shot_efficiency: Efficiency
    contention: Annotated[float, Field(ge=0, le=4)] = 0.0
    num_points: Annotated[int, Field(ge=0, le=10**9)]
    mean_error: Error
    median_error: Error

    @property
    def parameters(self) -> AllReduceParameters:
        """What `all_reduce_time` takes."""
        return AllReduceParameters(**{name: getattr(self, name) for name in _PARAMETERS})


_PARAMETERS = tuple(AllReduceParameters.__dataclass_fields__)
