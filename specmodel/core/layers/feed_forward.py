"""Compute feed-forward blocks with routed and shared experts."""

from math import ceil
from typing import Annotated, Self

import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from specmodel.core.algebra import experts, ranks, routing as popularity
from specmodel.core.base.bounds import Count, Size, Spread
from specmodel.core.base.dtypes import BYTES_PER_ELEMENT
from specmodel.core.base.errors import InputError
from specmodel.core.base.units import FloatArray
from specmodel.core.layers import messages
from specmodel.core.layers.batch import ONE, ZERO, Batch, Carried, Layout, Routing
from specmodel.core.layers.blocks import BlockSizes, Tokens, between, linear, routed
from specmodel.core.layers.dense import dense_block
from specmodel.core.layers.forms import Form, Measure, measured
from specmodel.core.layers.parts import FeedForwardBlock, check_divisor
from specmodel.core.layers.run import Pass
from specmodel.core.layers.stream import Stream
from specmodel.core.layers.work import Work

Choice = Annotated[int, Meta(ge=2, le=10**7)]
"""Number of experts to choose from; a single expert would be a dense block [-]."""

_TINY = 1e-300


class RoutedExperts(FeedForwardBlock, frozen=True, kw_only=True, tag="experts"):
    """Routed experts, from which tokens choose, and shared experts, which every token uses.

    Parameters
    ----------
    num_experts, experts_per_token, expert_size
        Routed experts, the number of routed and zero experts that a token chooses, and the width of
        a routed expert [-].
    popularity_spread
        Inequality in the use of experts by the requests of a server: the standard deviation of
        their popularity over its mean, 0 if all are equally popular [-].
    num_zero_experts
        Experts without weights, which a token may also choose and which return their input. A token
        then uses fewer routed experts; the mean assumes that all are equally popular [-].
    expert_groups, groups_per_token
        Groups of experts, and the number of groups from which a token chooses its experts [-].
    num_shared_experts, shared_expert_size
        Experts that every token uses, and the width of one [-].
    is_gated, is_shared_apart
        Whether an expert has three matrices (gate, up, down) instead of two. Whether shared experts
        are a dense block with its own norms, so that GPUs sum each output before they add both.
    latent_size
        Width that routed experts read and write if it differs from the model's, 0 if not: one
        matrix projects each token to it, and another projects the experts' sum back. Router and
        shared experts keep the model's width [-].
    """

    num_experts: Choice
    experts_per_token: Size
    expert_size: Size
    popularity_spread: Spread = 0.0
    num_shared_experts: Count = 0
    shared_expert_size: Count = 0
    is_gated: bool = True
    is_shared_apart: bool = False
    latent_size: Count = 0
    num_zero_experts: Count = 0
    expert_groups: Size = 1
    groups_per_token: Size = 1

    def __post_init__(self) -> None:
        is_part = self.experts_per_token <= self.num_experts
        self.need(is_part, "experts_per_token", f"at most num_experts = {self.num_experts}")
        check_divisor(self, "expert_groups", "num_experts")
        is_part = self.groups_per_token <= min(self.expert_groups, self.experts_per_token)
        expected = "at most expert_groups, and at most experts_per_token"
        self.need(is_part, "groups_per_token", expected)
        has_size = self.shared_expert_size or not self.num_shared_experts
        expected = f"a width above 0, as num_shared_experts = {self.num_shared_experts}"
        self.need(has_size, "shared_expert_size", expected)

    @property
    def experts(self) -> Self:
        """The block itself, because it has experts."""
        return self

    @property
    def activation_ratio(self) -> float:
        """Share of the routed experts that a token uses, MoESD's ρ [-]."""
        return self.experts_per_token / (self.num_experts + self.num_zero_experts)

    @property
    def mean_experts_per_token(self) -> float:
        """Mean number of experts with weights that a token uses [-]."""
        if not self.num_zero_experts:
            return self.experts_per_token
        return self.activation_ratio * self.num_experts

    def parameters(self, hidden_size: int) -> int:
        """Return the weights of one layer [-]."""
        experts = self.num_experts * self.expert_parameters(hidden_size)
        return experts + self.shared_parameters(hidden_size) + self._copied(hidden_size)

    def active_parameters(self, hidden_size: int) -> int:
        """Return the mean number of weights of one layer that multiply a token [-]."""
        experts = self.mean_experts_per_token * self.expert_parameters(hidden_size)
        return round(experts) + self.shared_parameters(hidden_size) + self._copied(hidden_size)

    def expert_parameters(self, hidden_size: int) -> int:
        """Return the weights of one routed expert [-]."""
        return (2 + self.is_gated) * self.routed_width(hidden_size) * self.expert_size

    def routed_width(self, hidden_size: int) -> int:
        """Return the width that routed experts read and write [-]."""
        return self.latent_size or hidden_size

    def latent_parameters(self, hidden_size: int) -> int:
        """Return the weights of one layer that project to the experts' width and back [-]."""
        return 2 * hidden_size * self.latent_size

    def shared_parameters(self, hidden_size: int) -> int:
        """Return the weights of the shared experts of one layer [-]."""
        return (2 + self.is_gated) * hidden_size * self._shared_size

    def router_parameters(self, hidden_size: int) -> int:
        """Return the weights of the router of one layer [-]."""
        return hidden_size * self._choices

    def weight_bytes(self, stream: Stream, layout: Layout) -> float:
        """Return the bytes of one layer on each GPU [B]."""
        # each GPU has the router and latent projections, in 16 bits or more
        h, n = stream.hidden_size, layout.tensor_parallel
        width, sliced = self.routed_width(h), self.expert_size / layout.expert_tensor_parallel
        if stream.expert_dtype == "mxfp4":
            sizes = zip((width, sliced), layout.mxfp4_multiples, strict=True)
            width, sliced = (ceil(size / multiple) * multiple for size, multiple in sizes)
        routed = self.num_experts / layout.expert_parallel * (2 + self.is_gated) * width * sliced
        routed *= 1 - layout.host_share
        return (
            routed * BYTES_PER_ELEMENT[stream.expert_dtype]
            + self.shared_parameters(h) / n * BYTES_PER_ELEMENT[stream.weight_dtype]
            + self._copied(h) * BYTES_PER_ELEMENT[stream.outer_dtype]
        )

    def reductions(self, layout: Layout) -> int:
        """Return the all-reduces that follow one layer [-]."""
        # With data-parallel attention and whole experts, the all-to-all sums over experts, and only
        # shared experts, which are cut, need an all-reduce. With cut experts, a reduce-scatter sums
        # over replicas, and an all-reduce over the GPUs of each replica.
        is_whole = layout.replicas > 1 and not layout.gathers_tokens
        of_routed = int(not is_whole)
        of_shared = int(bool(self.num_shared_experts) and (is_whole or self.is_shared_apart))
        return (of_routed + of_shared) * int(layout.tensor_parallel > 1)

    def active_experts(self, batch: Batch, routing: Routing) -> FloatArray:
        """Return the distinct experts that a pass loads in each layer [-]."""
        # If a group does not speculate in every pass, its share of speculating sequences is a mean
        # over the passes in which some speculate. The union over all passes is a weighted mean of
        # these passes and decode steps. The union of these passes follows from the other two.
        uncertain = [group for group in batch.groups if not group.always_speculates]
        if not uncertain:
            return self._union(batch, routing, ONE)
        if len(uncertain) > 1:
            expected = "1 in all groups of a pass except one"
            raise InputError("speculating_chance", uncertain[1].speculating_chance, expected)
        chance = uncertain[0].speculating_chance
        plain = self._union(batch, routing, ZERO)
        some = self._union(batch, routing, chance) - (1 - chance) * plain
        return np.where(chance > 0, some / np.maximum(chance, _TINY), 0.0)

    def work(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of some layers in a pass, by component."""
        width = self._shared_size / run.layout.tensor_parallel
        shared = dense_block("shared_experts", run, width, layers, self.is_gated)
        found = {"router": self._router(run, layers)}
        if self.latent_size:
            found["latent_projections"] = self._latents(run, layers)
        on_host = run.layout.host_share
        if on_host < 1:
            found["routed_experts"] = self._routed(run, layers * (1 - on_host))
        if on_host:
            own = self._routed(run, layers * on_host)
            found["host_experts"] = replace(own, kind="host_experts")
        if self.num_zero_experts:
            # Tokens are scaled, then added to the other experts' output. In vLLM 0.33
            # (``zero_expert_router.py``), expert 0 also computes these choices without need. This
            # work is left out: it loads at most one more expert.
            values = (2 + 3) * run.stream.hidden_size
            found["zero_experts"] = between(run, layers, values, kernels=2)
        return found | self._beside(shared, run) | self._exchanged(run, layers)

    def _beside(self, shared: dict[str, Work], run: Pass) -> dict[str, Work]:
        """Return the work of shared experts, on a second CUDA stream if the engine uses one."""
        # Engines run blocks with their own norms separately from experts (``models/gemma4.py``).
        code = run.code
        if not shared or not code.beside or self.is_shared_apart:
            return shared
        # their activation function also runs on the second stream
        both = shared["shared_experts"] + shared["elementwise"]
        both = replace(both, beside=code.beside, beside_tokens=code.beside_tokens)
        return {"shared_experts": both}

    @property
    def _choices(self) -> int:
        return self.num_experts + self.num_zero_experts

    @property
    def _shared_size(self) -> int:
        return self.num_shared_experts * self.shared_expert_size

    def _copied(self, hidden_size: int) -> int:
        return self.router_parameters(hidden_size) + self.latent_parameters(hidden_size)

    def _inclusion(self, routing: Routing) -> FloatArray:
        """Return the probability that a token uses an expert: one for all, or one for each [-]."""
        if routing.popularity is None:
            return np.asarray(self.activation_ratio)
        return popularity.check_popularity(
            routing.popularity, self.num_experts, self.mean_experts_per_token
        )

    def _spread(self, routing: Routing) -> FloatArray | float | None:
        """Return the spread of popularity, None if 0 or if `routing.popularity` is given [-]."""
        spread = self.popularity_spread if routing.spread is None else routing.spread
        is_equal = isinstance(spread, float) and spread == 0
        return None if is_equal or routing.popularity is not None else spread

    def _union(self, batch: Batch, routing: Routing, chance: FloatArray) -> FloatArray:
        """Return the expected distinct experts if groups speculate with the given chance [-]."""
        if layers := routing.layers:
            return np.asarray(
                np.mean([self._union(batch, each, chance) for each in layers], axis=0)
            )
        by_expert, total = routing.popularity is not None, batch.num_sequences
        inclusion, spread = self._inclusion(routing), self._spread(routing)
        wide = (..., None) if by_expert else (...,)  # index that adds an axis for the experts
        correlation = np.asarray(routing.correlation)[wide]
        if spread is not None:  # tokens of one sequence share at least as many experts as others
            p = float(inclusion)
            variance, _ = popularity.moments_of(p, spread)
            correlation = np.maximum(correlation, variance / max(p * (1 - p), _TINY))
        rate = np.zeros(())  # of use by a mean sequence, of any expert or of each
        for group in batch.groups:
            share = group.speculating_share * (ONE if group.always_speculates else chance)
            used = experts.expert_use(group.tokens_per_sequence[wide], inclusion, correlation)
            used = np.minimum(inclusion + share[wide] * (used - inclusion), 1.0)
            rate = rate + (group.batch_size / total)[wide] * popularity.rate_of(used, spread)
        if by_expert:
            return popularity.union_by_expert(total, popularity.use_of(rate, None))
        return self.num_experts * popularity.use_of(total * rate, spread)

    def _router(self, run: Pass, layers: int) -> Work:
        """Return the work of scoring all experts and selecting the top k, done on every GPU."""
        h, dtype = run.stream.hidden_size, run.stream.outer_dtype
        weights, values = self.router_parameters(h), h + 3 * self._choices
        return linear(run, layers, weights, values, h, dtype=dtype)

    def _latents(self, run: Pass, layers: int) -> Work:
        """Return the work of projecting to the experts' width and back, done on every GPU."""
        # As the second matrix is linear, GPUs sum after it, together with the shared experts (vLLM
        # 0.33: ``models/nemotron_h.py``, ``reduce_commutative``).
        h, dtype = run.stream.hidden_size, run.stream.outer_dtype
        weights, both = self.latent_parameters(h), h + self.latent_size
        return linear(run, layers, weights, 2 * both, both, kernels=2, dtype=dtype)

    def _routed(self, run: Pass, layers: float) -> Work:
        """Return the work of routed experts, including permutation of their tokens."""
        layout, stream, k = run.layout, run.stream.expert_stream, self.mean_experts_per_token
        active, pairs = Form({active_experts_of(self): 1.0}), run.everything.num_tokens * k
        if layout.expert_parallel > 1:
            active = measured(_busiest_experts, self, layout.expert_parallel)
            pairs = measured(_busiest_pairs, self, layout.expert_parallel)
        outer = self.routed_width(stream.hidden_size)
        width = self.expert_size / layout.expert_tensor_parallel
        sizes, tokens = BlockSizes(outer, width, 2 + self.is_gated), Tokens(stream, pairs)
        experts = self.num_experts / layout.expert_parallel
        return routed(tokens, layers, sizes, loaded=active, experts=experts, experts_per_token=k)

    def busiest_pairs(self, batch: Batch, routing: Routing, degree: int) -> FloatArray:
        """Return the token-expert pairs of the busiest rank, from moments of an expert's tokens."""
        if layers := routing.layers:
            pairs = [self.busiest_pairs(batch, each, degree) for each in layers]
            return np.asarray(np.mean(pairs, axis=0))
        # The tokens of an expert are a sum over independent sequences. In a sequence of q tokens,
        # each token uses an expert with probability p, and two tokens have the covariance
        # ``c p (1 - p)``. The variance is ``p (1 - p) q (1 + (q - 1) c)``: `clumping` times the
        # variance of independent tokens. Unequal popularity adds the variance of T p between
        # experts; a spread is part of c. The third moment treats clumped tokens as Poisson counts
        # of clumps.
        p, c = np.atleast_1d(self._inclusion(routing)), routing.correlation
        between = p - p.mean(axis=-1, keepdims=True)
        variance, skew = (between**2).mean(axis=-1), (between**3).mean(axis=-1)
        within = (p * (1 - p)).mean(axis=-1)
        if (spread := self._spread(routing)) is not None:
            variance, skew = popularity.moments_of(float(p[0]), spread)
            least, within = variance / np.maximum(within, _TINY), within - variance
            c = np.maximum(c - least, 0.0) / (1 - least)
        T, E, k = batch.num_tokens, self.num_experts, self.mean_experts_per_token
        clumped = batch.mean(lambda group: group.mean(lambda q: q * (1 + (q - 1) * c)))
        clumping = clumped / batch.mean(lambda group: group.mean(lambda q: q))
        within, uneven = T * clumping * within, T * T * variance  # T**2 would round differently
        third = clumping * (within + 3 * uneven) + T * T * T * skew
        return ranks.busiest_tokens(T * k / E, within + uneven, third, E, degree)

    def _exchanged(self, run: Pass, layers: int) -> dict[str, Work]:
        """Return the work of sending tokens to the GPUs of their experts, and back."""
        degree, experts = run.layout.expert_parallel, (self.num_experts, self.experts_per_token)
        groups = self.expert_groups, self.groups_per_token
        visited = ranks.rank_share(*experts, degree, self.num_zero_experts, groups)
        shares = visited, self.mean_experts_per_token / degree
        return messages.exchanged(run, layers, self.routed_width(run.stream.hidden_size), shares)


def active_experts_of(experts: RoutedExperts) -> Measure:
    """Return the measure of distinct experts that a pass loads in each layer [-]."""
    return Measure(_active, (experts,))


def _active(carried: Carried, experts: RoutedExperts) -> FloatArray:
    return experts.active_experts(carried.everything, carried.routing)


def _busiest_experts(carried: Carried, experts: RoutedExperts, degree: int) -> FloatArray:
    """Return the experts that the rank with most experts loads, of `degree` ranks [-]."""
    return ranks.busiest_experts(carried[active_experts_of(experts)], experts.num_experts, degree)


def _busiest_pairs(carried: Carried, experts: RoutedExperts, degree: int) -> FloatArray:
    """Return the token-expert pairs of the rank with most tokens, of `degree` ranks [-]."""
    return experts.busiest_pairs(carried.everything, carried.routing, degree)
