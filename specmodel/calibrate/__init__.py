"""Calibration: measuring kernels and servers, and fitting profiles to what was measured."""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.calibrate import fit as fit, measure as measure

__getattr__, __dir__ = front(__name__)
