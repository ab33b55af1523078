"""Define types of fields with bounds for users' files."""

from typing import Annotated

from msgspec import Meta

from specmodel.core.base.units import LARGEST_NUMBER

Size = Annotated[int, Meta(ge=1, le=10**7)]
Count = Annotated[int, Meta(ge=0, le=10**7)]
Finite = Annotated[float, Meta(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]
Spread = Annotated[float, Meta(ge=0, le=10)]

LEAST = 1e-4
"""Least factor, share or number that something is divided by: less is no machine's and nobody's,
and a quotient may be beyond all numbers [-]."""
Portion = Annotated[float, Meta(ge=LEAST, le=1)]
"""A share that something is divided by."""

Day = Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]
"""A day as 2026-11-21."""
