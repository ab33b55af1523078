"""What a ``config.json`` says about modules for multi-token prediction, which no shape includes."""

from collections.abc import Mapping
from typing import Any

from specmodel.base.errors import InputError

_COUNTS = (
    "num_mtp_modules",
    "num_nextn_predict_layers",
    "mtp_num_hidden_layers",
    "num_mtp_layers",
)
"""Names of the number of modules, of which the first that a family gives is meant: MiniMax-M3 has
seven modules of one layer each, and says both."""
_MOST = 64


def mtp_fields(config: Mapping[str, Any], argument: str) -> dict[str, Any]:
    """Return the fields of an `Architecture` about its modules for multi-token prediction.

    Parameters
    ----------
    config
        Content of a ``config.json``, of the language model.
    argument
        Name that an error should carry.

    Returns
    -------
    dict
        Fields by name; none for a checkpoint with one module or without any, on which a head is
        made as if it had one.

    Raises
    ------
    InputError
        If a number is none, or a switch is not true or false.

    Examples
    --------
    >>> mtp_fields({"num_nextn_predict_layers": 3}, "config")
    {'num_mtp_modules': 3}
    """
    fields: dict[str, Any] = {}
    key = next((name for name in _COUNTS if config.get(name) is not None), None)
    if key:
        count = config[key]
        if type(count) is not int or not 0 <= count <= _MOST:
            raise InputError(f"{argument} {key}", count, f"a whole number from 0 to {_MOST}")
        fields |= {"num_mtp_modules": count} if count > 1 else {}
    shares = config.get("index_share_for_mtp_iteration", False)
    if not isinstance(shares, bool | None):
        raise InputError(f"{argument} index_share_for_mtp_iteration", shares, "true or false")
    return fields | ({"shares_mtp_index": True} if shares else {})
