"""Where the shipped GPUs are, for those that list them without reading them."""

from pathlib import Path

_PACKAGED = Path(__file__).parent / "data/hardware"
HARDWARE = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "hw_profiles"
"""In the package when installed, beside it in a checkout."""
