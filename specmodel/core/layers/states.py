"""How engines keep recurrent states while drafted tokens are verified, in a pass and in memory.

A state cannot be cut back as a KV cache can: what a rejected token did to it stays. Engines either
write the state after each verified token, to go on from that of the last accepted one, or keep one
state and short records of the tokens, of which they then replay those that were accepted.
"""

from functools import cached_property
from typing import Literal

import numpy as np
from msgspec import Struct

from specmodel.core.base.units import FloatArray

Rollback = Literal["native", "replay"]
"""How a state gets back to the last accepted token."""

Slots = Literal["chain", "aligned", "scratch", "single"]
"""What an engine reserves of states for a running request."""

REPLAY_RECORDS = 16.0
"""Records of tokens that engines keep room for, even if a pass verifies fewer tokens [token]."""


class StateKeeping(Struct, frozen=True, dict=True):
    """What a pass does with recurrent states, and what is reserved for them.

    `rollback` "native" reads the state once and writes it after each verified token. "replay" reads
    and writes it once, when the accepted tokens are known; a record of each token but the first,
    which is always accepted, is written and read.

    `slots` "chain" reserves a state for each verified token: vLLM 0.33 without prefix caching,
    ``1 + K`` states at K drafted tokens. "aligned", its default with prefix caching, reserves one
    more, that of the last whole block of the prefix cache: ``2 + K``; each has a convolution's
    window of ``w - 1 + K`` tokens. "scratch" (SGLang 0.5.23) keeps one state and, while drafts are
    verified, one for each token besides, from which the accepted one is copied after the pass:
    ``2 + K`` states, and windows of ``w - 1`` and ``w - 1 + K``. "single" keeps one state alone,
    and whoever does so computes accepted tokens again. As read in the engines' sources.
    Replay is an option of SGLang for these layers, and of vLLM for Mamba-2. In a tree each token
    but the first goes on from the state of its parent, which SGLang 0.5.23 reads again
    (``retrieve_parent_token`` of its kernels); vLLM 0.33 verifies no trees on these layers.

    `time_factor` says how many times as long a state takes to move as the kernels that were fitted
    take.
    """

    rollback: Rollback = "native"
    slots: Slots = "chain"
    is_tree: bool = False
    time_factor: float = 1.0

    @cached_property
    def takes_trees(self) -> bool:
        """Whether drafts may branch: a state is kept for each token, to go on from any."""
        return self.slots == "scratch" and self.rollback == "native"

    def tokens(self, tokens: FloatArray) -> FloatArray:
        """Return the tokens themselves: each adds to a convolution's window [-]."""
        return tokens

    def moved(self, tokens: FloatArray) -> FloatArray:
        """Return the states that a sequence writes, or reads again, in a pass over tokens [-].

        Those written, one copied after the pass (read and written), and those of parents in a tree.
        """
        is_one = self.rollback == "replay" or self.slots == "single"
        written = np.ones_like(tokens) if is_one else tokens
        copied = np.clip(tokens - 1, 0, 1) if self.takes_trees else 0.0
        parents = np.maximum(tokens - 1, 0) if self.is_tree else 0.0
        return np.asarray(written + 2 * copied + parents)

    def recorded(self, tokens: FloatArray) -> FloatArray:
        """Return the records of tokens that a pass writes and reads again, 0 without replay [-]."""
        return tokens - 1 if self.rollback == "replay" else np.zeros_like(tokens)

    def states(self, tokens: FloatArray) -> FloatArray:
        """Return the states reserved for a request that verifies `tokens` tokens [-]."""
        is_one = self.rollback == "replay" or self.slots == "single"
        own = np.ones_like(tokens) if is_one else tokens
        if self.slots == "scratch":
            return np.where((tokens > 1) & (own > 1), own + 1, 1.0)
        return own + 1 if self.slots == "aligned" else own

    def past_tokens(self, tokens: FloatArray, needed: int) -> FloatArray:
        """Return the past tokens reserved for a convolution that needs `needed` of them [token]."""
        if self.slots == "scratch":
            return needed + np.where(tokens > 1, needed + tokens - 1, 0.0)
        return self.states(tokens) * (needed + tokens - 1)

    def records(self, tokens: FloatArray) -> FloatArray:
        """Return the records of tokens reserved for a request [token]."""
        is_kept = (self.rollback == "replay") & (tokens > 1)
        return np.where(is_kept, np.maximum(tokens, REPLAY_RECORDS), 0.0)


NATIVE = StateKeeping()
"""A state after each token."""
