"""Implement published formulas as pure functions: speculation, acceptance, experts, roofline."""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.core.algebra import (
        collectives as collectives,
        experts as experts,
        moesd as moesd,
        ranks as ranks,
        roofline as roofline,
        routing as routing,
        speculation as speculation,
    )
    from specmodel.core.algebra.acceptance import Acceptance as Acceptance

__getattr__, __dir__ = front(__name__)
