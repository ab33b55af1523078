"""What a prompt adds to a plain step, in closed form."""

from typing import Any

import numpy as np

from specmodel.cost.deployment import Deployment
from specmodel.cost.prefill import prompt_pass


def added_by_prompt(deployment: Deployment, plain_time: Any, tokens: float) -> np.ndarray:
    """Return the root of the squares of GPU and launches, less the step without [s]."""
    read = prompt_pass(deployment, tokens)
    return np.asarray(np.hypot(plain_time + read.gpu_time, read.launch_time) - plain_time)
