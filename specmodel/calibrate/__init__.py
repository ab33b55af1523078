"""Measure kernels and servers, and fit profiles to the measurements."""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.calibrate import fit as fit, measure as measure

__getattr__, __dir__ = front(__name__)
