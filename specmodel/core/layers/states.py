"""Describe how engines keep recurrent states during verification, in a pass and in memory.

A state cannot be truncated like a KV cache: the effect of a rejected token remains. Engines have
two methods. They write the state after each verified token, and continue from the state of the last
accepted token. Or they keep one state and short records of the tokens, and replay accepted tokens.
"""

from functools import cached_property
from typing import Literal

import numpy as np
from msgspec import Struct

from specmodel.core.base.units import FloatArray

Rollback = Literal["native", "replay"]
"""Method by which the state of the last accepted token is restored."""

Slots = Literal["chain", "aligned", "scratch", "single"]
"""Scheme by which an engine reserves states for a running request."""

REPLAY_RECORDS = 16.0
"""Minimum number of token records for which engines reserve memory [token]."""


class StateKeeping(Struct, frozen=True, dict=True):
    """Reads and writes of recurrent states in a pass, and memory reserved for states.

    `rollback` "native": a pass reads the state once and writes it after each verified token.
    "replay": it reads and writes the state once, when the accepted tokens are known. It also writes
    and reads a record of each token except the first, which is always accepted.

    `slots` "chain" reserves a state for each verified token: ``1 + K`` states with K drafted
    tokens, as vLLM 0.33 does without prefix caching. "aligned", vLLM's default with prefix caching,
    reserves one more state, for the last whole block of the prefix cache: ``2 + K``. Each state has
    a convolution's window of ``w - 1 + K`` tokens. "scratch" (SGLang 0.5.23) keeps one state and,
    during verification, one for each token, from which the accepted state is copied after the pass:
    ``2 + K`` states, and windows of ``w - 1`` and ``w - 1 + K``. "single" keeps only one state, and
    accepted tokens are computed again. All of this was read in the engines' sources.

    Replay is an option of SGLang for these layers, and of vLLM for Mamba-2. In a tree, each token
    except the first continues from its parent's state, which SGLang 0.5.23 reads again
    (``retrieve_parent_token`` of its kernels). vLLM 0.33 verifies no trees on these layers.

    `time_factor` is the time to move a state relative to the fitted kernels.
    """

    rollback: Rollback = "native"
    slots: Slots = "chain"
    is_tree: bool = False
    time_factor: float = 1.0

    @cached_property
    def takes_trees(self) -> bool:
        """Whether drafts may branch, because the state after each token is kept."""
        return self.slots == "scratch" and self.rollback == "native"

    def tokens(self, tokens: FloatArray) -> FloatArray:
        """Return the tokens themselves, each of which adds to a convolution's window [-]."""
        return tokens

    def moved(self, tokens: FloatArray) -> FloatArray:
        """Return the states that a sequence writes, or reads again, in a pass over tokens [-].

        These are the written states, one copied after the pass (read and written), and parents in a
        tree.
        """
        is_one = self.rollback == "replay" or self.slots == "single"
        written = np.ones_like(tokens) if is_one else tokens
        copied = np.clip(tokens - 1, 0, 1) if self.takes_trees else 0.0
        parents = np.maximum(tokens - 1, 0) if self.is_tree else 0.0
        return np.asarray(written + 2 * copied + parents)

    def recorded(self, tokens: FloatArray) -> FloatArray:
        """Return the token records that a pass writes and reads, 0 without replay [-]."""
        return tokens - 1 if self.rollback == "replay" else np.zeros_like(tokens)

    def states(self, tokens: FloatArray) -> FloatArray:
        """Return the states reserved for a request that verifies `tokens` tokens [-]."""
        is_one = self.rollback == "replay" or self.slots == "single"
        own = np.ones_like(tokens) if is_one else tokens
        if self.slots == "scratch":
            return np.where((tokens > 1) & (own > 1), own + 1, 1.0)
        return own + 1 if self.slots == "aligned" else own

    def past_tokens(self, tokens: FloatArray, needed: int) -> FloatArray:
        """Return the past tokens reserved for a convolution that needs `needed` [token]."""
        if self.slots == "scratch":
            return needed + np.where(tokens > 1, needed + tokens - 1, 0.0)
        return self.states(tokens) * (needed + tokens - 1)

    def records(self, tokens: FloatArray) -> FloatArray:
        """Return the token records reserved for a request [token]."""
        is_kept = (self.rollback == "replay") & (tokens > 1)
        return np.where(is_kept, np.maximum(tokens, REPLAY_RECORDS), 0.0)


NATIVE = StateKeeping()
"""State keeping that writes a state after each token."""
