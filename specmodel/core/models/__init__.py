"""Describe served models: their architectures, and how to read their ``config.json``."""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.core.models.architecture import (
        Architecture as Architecture,
        list_architectures as list_architectures,
        load_architecture as load_architecture,
    )

__getattr__, __dir__ = front(__name__)
