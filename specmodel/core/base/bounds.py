"""Define types of fields with bounds, for checks of users' files."""

from typing import Annotated

from msgspec import Meta

from specmodel.core.base.units import LARGEST_NUMBER

Size = Annotated[int, Meta(ge=1, le=10**7)]
Count = Annotated[int, Meta(ge=0, le=10**7)]
Finite = Annotated[float, Meta(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]
Spread = Annotated[float, Meta(ge=0, le=10)]

LEAST = 1e-4
"""Smallest valid divisor: a factor, share or number [-]. Smaller values are not realistic, and a
quotient could exceed all finite numbers."""
Portion = Annotated[float, Meta(ge=LEAST, le=1)]
"""A share that is used as a divisor."""

Day = Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]
"""A day, such as 2026-11-21."""
