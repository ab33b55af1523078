"""What must hold at any operating point of any deployment; more by hand, `random_points`."""

import random_points


def test_nothing_is_violated_at_random_points():
    assert list(random_points.violations(seed=20, count=250)) == []
