"""Complete rules of engines; the package has only the parts that a replay or a server needs."""

from bisect import bisect_left

import numpy as np

from specmodel.simulate.policies import AdaptiveSteps
from specmodel.simulate.policies.sglang import adapt, read_slots, slot_of


class AdaptiveServer:
    """All slots of a server, each with a state that its requests share."""

    def __init__(self, config=None, num_steps=None, graph_sizes=()):
        self._sizes, self._graph_sizes = [*read_slots(config)], sorted(graph_sizes)
        self._slots = [AdaptiveSteps(255, config, num_steps, size) for size in self._sizes]

    def slot(self, batch_size):
        """Return the number of the slot of a batch [-]."""
        at = bisect_left(self._graph_sizes, batch_size)
        padded = self._graph_sizes[at] if at < len(self._graph_sizes) else batch_size
        return slot_of(self._sizes, padded)

    def propose(self, batch_size):
        """Return the draft length of a batch [token]."""
        return self._slots[self.slot(batch_size)].propose()

    def observe(self, accepted_tokens, batch_size):
        """Update the slot of a batch with the accepted tokens of each request [token]."""
        if accepted_tokens:
            mean = sum(accepted_tokens) / len(accepted_tokens)
            adapt(self._slots[self.slot(batch_size)], mean)


def verified_drafts(survival, requests, sampling, verify_times, tokens):
    """Return how many drafted tokens vLLM 0.33 verifies, for the most tokens per second.

    `survival` has, for each position, the probability that its token and all tokens before it are
    accepted; each of `requests` has a draft. `tokens` is the number of tokens in the pass that are
    not drafted, and `verify_times` the seconds of a pass by its number of tokens, from 0 on.
    """
    likeliest = np.repeat(survival, requests)[: len(verify_times) - 1 - tokens]
    expected = sampling + np.cumsum([0.0, *likeliest])
    return int(np.argmax(expected / verify_times[tokens : tokens + len(expected)]))
