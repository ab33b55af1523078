"""The time that a prompt adds to a plain step, in closed form."""

import numpy as np

from specmodel.core.cost import target_pass
from specmodel.core.cost.latency import launched
from specmodel.core.cost.prefill import read_by_drafter, whole_prompts
from specmodel.core.layers import sequence_group


def added_by_prompt(deployment, plain_time, tokens, batch_size, context):
    """Return the time of a step with a prompt, less that of the step without it [s].

    The step takes the root of the sum of squares of the GPU's time and of the launches. The GPU
    computes prompt and batch in one pass, at the clock that its power limit allows.
    """
    decoding = sequence_group(batch_size=batch_size, context_length=context)
    alone = target_pass(deployment, decoding)
    both = target_pass(deployment, (whole_prompts(deployment, tokens), decoding))
    computing = sum(part.compute_time for part in both.components.values())
    kept = deployment.hardware.sustained(deployment.target.activation_dtype)
    slower = both.gpu_time + computing * (1 / kept - 1)
    gpu = plain_time - alone.gpu_time + slower
    size = np.asarray(tokens * deployment.layout.replicas)
    how = {"in_pieces": deployment.target, "is_prompt": True}
    launching = launched(deployment, both, size, size, **how).launch_time
    return np.asarray(np.hypot(gpu, launching) - plain_time)


def draft_prefill_pass(deployment, tokens):
    """Return the drafter's pass over a prompt of each replica, or None if it has none."""
    return read_by_drafter(deployment, (whole_prompts(deployment, tokens),))
