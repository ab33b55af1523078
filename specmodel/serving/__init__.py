"""Serving under load: requests, a simulator of continuous batching, steady states in closed form.

What cannot be used is refused with an `InputError` that names argument, value and remedy.
"""

from typing import TYPE_CHECKING

from specmodel.base.fronts import front

if TYPE_CHECKING:
    from specmodel.serving.requests import (
        Arrivals as Arrivals,
        Lengths as Lengths,
        Requests as Requests,
        draw_requests as draw_requests,
        read_requests as read_requests,
    )

__all__, __getattr__, __dir__ = front(__name__)
