"""Provide what does not depend on models or GPUs: errors, units, records, files and texts."""

from typing import TYPE_CHECKING

from specmodel.core.base.fronts import front

if TYPE_CHECKING:
    from specmodel.core.base.dtypes import BYTES_PER_ELEMENT as BYTES_PER_ELEMENT
    from specmodel.core.base.errors import InputError as InputError
    from specmodel.core.base.records import Record as Record, as_table as as_table, build as build
    from specmodel.core.base.units import check as check, format_si as format_si

__getattr__, __dir__ = front(__name__)
