"""Plain and speculative decoding with `decoder`: draft, verify, reject, for a batch of sequences.

With the real test of acceptance (greedy: a drafted token must be the target's own choice),
speculation emits exactly what plain decoding does. With a script, how many are accepted is given,
so that random weights decode at any acceptance rate at the cost of real ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specmodel.calibrate.measure import layers
from specmodel.calibrate.measure.decoder import Decoder

Routing = Callable[[int], Tensor | None]
"""Experts forced in a pass of so many tokens a sequence; None leaves the choice to the router."""


def free_routing(_: int) -> None:
    """Force nothing."""


class Pass:
    """Passes of one decoder over a batch, of a fixed number of tokens; a CUDA graph on a GPU.

    Parameters
    ----------
    decoder
        The model.
    cache
        Its KV cache.
    count
        Tokens of each sequence [token].
    routing
        Where experts are forced.
    wanted
        Tokens of each whose next is asked for, from the last; all if None [token].
    """

    def __init__(
        self,
        decoder: Decoder,
        cache: list[Tensor],
        count: int,
        routing: Routing = free_routing,
        wanted: int | None = None,
    ) -> None:
        self._decoder, self._cache, self._routing, self._count = decoder, cache, routing, count
        self._wanted = wanted
        batch, device = cache[0].shape[1], decoder.device
        self._graph: torch.cuda.CUDAGraph | None = None
        is_dense = not decoder.architecture.is_moe
        if device.type != "cuda" or not (is_dense or layers.has_grouped_kernel(device)):
            return
        self._tokens = torch.zeros((batch, count), dtype=torch.int64, device=device)
        self._first = torch.zeros(batch, dtype=torch.int64, device=device)
        forced = routing(count)
        self._forced = None if forced is None else forced.clone()
        for _ in range(3):
            self._run(self._tokens, self._first, self._forced)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._out = self._run(self._tokens, self._first, self._forced)

    def _run(self, tokens: Tensor, first: Tensor, forced: Tensor | None) -> Tensor:
        return self._decoder.forward(tokens, first, self._cache, forced, self._wanted)

    def __call__(self, tokens: Tensor, first: Tensor) -> Tensor:
        """Return the most likely next tokens, shape (batch, wanted)."""
        forced = self._routing(self._count)
        if self._graph is None:
            return self._run(tokens, first, forced)
        self._tokens.copy_(tokens)
        self._first.copy_(first)
        if self._forced is not None and forced is not None:
            self._forced.copy_(forced)
        self._graph.replay()
        return self._out.clone()


@dataclass(eq=False)
class State:
    """Sequences while they are decoded.

    Parameters
    ----------
    tokens
        The last two tokens of each sequence, shape (batch, 2); the last is not in the cache.
    positions
        Position of the last, shape (batch,).
    emitted
        Tokens emitted by each pass or step, one tensor of shape (batch, up to count) each, -1
        where a sequence emitted fewer.
    """

    tokens: Tensor
    positions: Tensor
    emitted: list[Tensor] = field(default_factory=list)

    def sequences(self) -> list[list[int]]:
        """Return the tokens emitted for each sequence."""
        rows = torch.cat(self.emitted, dim=1).tolist()
        return [[token for token in row if token >= 0] for row in rows]


def decode(plain: Pass, state: State, steps: int) -> None:
    """Decode one token a pass.

    Parameters
    ----------
    plain
        Pass of one token.
    state
        Sequences; moved on.
    steps
        Passes [-].
    """
    for _ in range(steps):
        following = plain(state.tokens[:, 1:], state.positions)
        state.tokens = torch.cat([state.tokens[:, 1:], following], dim=1)
        state.positions = state.positions + 1
        state.emitted.append(following)


@dataclass(frozen=True, eq=False)
class Speculator:
    """Passes of a draft-and-verify step.

    Parameters
    ----------
    verify
        Target pass of ``draft_length + 1`` tokens.
    catch_up, draft
        Drafter passes of two tokens of which the last's next is wanted, the first of a step, and
        of one. The first writes the token before the last too: after a step whose drafts were
        all accepted it is not in the cache.
    draft_length
        Tokens drafted [token].
    """

    verify: Pass
    catch_up: Pass
    draft: Pass
    draft_length: int

    def propose(self, state: State) -> Tensor:
        """Return the tokens that the drafter proposes, shape (batch, draft_length)."""
        last = self.catch_up(state.tokens, state.positions - 1)
        drafted = [last]
        for i in range(1, self.draft_length):
            last = self.draft(last, state.positions + i)
            drafted.append(last)
        return torch.cat(drafted, dim=1)

    def step(self, state: State, script: Tensor | None = None) -> None:
        """Draft, verify and reject once.

        Parameters
        ----------
        state
            Sequences; moved on by the tokens accepted and the target's own.
        script
            How many tokens each sequence accepts, shape (batch,); by the real test if None.
        """
        drafted = self.propose(state)
        chosen = self.verify(torch.cat([state.tokens[:, 1:], drafted], dim=1), state.positions)
        agreed = (drafted == chosen[:, :-1]).int().cumprod(dim=1).sum(dim=1)
        accepted = agreed if script is None else script
        place = torch.arange(self.draft_length + 1, device=drafted.device)
        # what is emitted: the drafts accepted, which a script may take against the target's word
        padded = torch.cat([drafted, chosen[:, -1:]], dim=1)
        own = chosen.gather(1, accepted[:, None])
        emitted = torch.where(place < accepted[:, None], padded, own)
        state.emitted.append(torch.where(place <= accepted[:, None], emitted, -1))
        before = torch.cat([state.tokens[:, 1:], emitted], dim=1)
        state.tokens = torch.cat([before.gather(1, accepted[:, None]), own], dim=1)
        state.positions = state.positions + accepted + 1


def speculate(step: Speculator, state: State, scripts: Sequence[Tensor | None]) -> None:
    """Decode by draft-and-verify steps.

    Parameters
    ----------
    step
        Passes of a step.
    state
        Sequences; moved on.
    scripts
        For each step, as `Speculator.step` takes it.
    """
    for script in scripts:
        step.step(state, script)
