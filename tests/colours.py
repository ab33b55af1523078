"""Differences of colours as people see them: in colour, in grey print, or colour-blind."""

import tomllib
from itertools import combinations
from pathlib import Path

import numpy as np

LEAST = 15.0
"""CIE 1976 colour difference from which people distinguish two areas at a glance [-]."""

_FILE = Path(__file__).parent / "data/colours_seen.toml"
_SEEN = {name: np.array(own) for name, own in tomllib.loads(_FILE.read_text()).items()}
# IEC 61966-2-1: linear red, green and blue to CIE XYZ, and its white
_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
_WHITE = _XYZ.sum(axis=1)


def lab(colour: tuple[float, ...], seen: str = "by all") -> np.ndarray:
    """Return CIE L*a*b* of red, green and blue from 0 to 1 for a kind of viewer."""
    rgb = np.asarray(colour[:3], dtype=float)
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(_SEEN[seen] @ linear, 0, 1)
    t = _XYZ @ linear / _WHITE
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(one: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, str]:
    """Return the smallest difference of two colours [-], and the kind of viewer who sees it."""
    return min((float(np.linalg.norm(lab(one, seen) - lab(other, seen))), seen) for seen in _SEEN)


def closest(colours: set[tuple[float, ...]]) -> tuple[float, str]:
    """Return the smallest difference of any two colours [-], and a text that names them."""
    found = [(*distance(a, b), a, b) for a, b in combinations(sorted(colours), 2)]
    if not found:
        return np.inf, ""
    least, seen, one, other = min(found)
    return least, f"{one} and {other} are {least:.1f} apart {seen}"
