"""Models that are served: architectures, and what is read of their ``config.json``."""

from typing import TYPE_CHECKING

from specmodel.base.fronts import front

if TYPE_CHECKING:
    from specmodel.models.architecture import (
        Architecture as Architecture,
        list_architectures as list_architectures,
        load_architecture as load_architecture,
    )

__getattr__, __dir__ = front(__name__)
