"""Functions that make drafters for a target; those with a name have a row in ``drafters.toml``."""
