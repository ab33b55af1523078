"""Define what runs where: a target, its drafter, GPUs and an engine."""

from collections.abc import Hashable
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from specmodel.core.algebra.routing import check_popularity
from specmodel.core.base.errors import InputError
from specmodel.core.base.naming import LLAMA_CPP
from specmodel.core.base.notes import Note
from specmodel.core.base.records import unchecked
from specmodel.core.base.units import FloatArray, check
from specmodel.core.drafters.passes import Drafter
from specmodel.core.drafters.published import is_named
from specmodel.core.layers.batch import Layout
from specmodel.core.layers.engines import NO_ENGINE, UNBOUNDED, EngineCode, engine_code, has_code
from specmodel.core.layers.states import Rollback, Slots, StateKeeping
from specmodel.core.machines.engine import MODELS, EngineProfile, Hiding, Overheads
from specmodel.core.machines.graphs import GraphLimit, graph_limit
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.machines.kernels import DATA_SHEET_KERNELS, Kernels
from specmodel.core.models.architecture import Architecture

PREFILLS_FIRST = "sglang"
"""Stack of engines that prefill all prompts before they decode."""

_STATE_SLOTS: dict[str, Slots] = {"sglang": "scratch"}
"""How engines reserve recurrent states, by stack; other stacks are assumed to do it as vLLM."""

NO_DRAFTER = Drafter(name="none")
"""Nothing drafts: every step is a decode step."""

TYPICAL_MEMORY_UTILIZATION = 0.9
"""Share of a GPU's memory that vLLM uses by default [-]."""


class Deployment(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """A target and its drafter on some GPUs under an engine: everything that decides the times.

    Parameters
    ----------
    target, drafter, hardware, engine
        The served model, its drafter (`NO_DRAFTER` for none), the kind of GPU, and the serving
        stack.
    kernels, overheads
        How the stack's kernels use the GPU, by default as on its data sheet. Overheads of the
        engine, or draws of them, by default the overheads in its profile.
    tensor_parallel, data_parallel
        GPUs that share the target's matrices, and replicas of this group; as few as needed if None
        [-].
    expert_parallel
        Groups of GPUs that share the experts; the GPUs of a group split each of its experts
        (`Layout`). As in engines, a draft model's experts are split over its GPUs in all replicas
        [-].
    decode_context_parallel
        GPUs of a tensor-parallel group that share the cached tokens of each sequence. If layers of
        a drafter cannot share tokens, each GPU keeps all of them [-].
    draft_tensor_parallel
        GPUs that share a draft model. If None, all GPUs of the target share it, as in engines, or
        as many of them as split it evenly. A head follows the target [-].
    routing_correlation, popularity, memory_utilization, tree_width, state_rollback, temperature
        As in `specmodel.predict`. The correlation may be draws that broadcast with the points [-].
    host_expert_layers
        Number of first layers with routed experts in the host's memory [-].
    layer_split
        GPUs that each keep some of the layers, as llama.cpp splits models by default [-].
    routing_deviation
        Standard deviation of an assumed correlation, 0 if the correlation is known [-].
    popularity_spread
        How unequally experts are used if `popularity` is not given: 0 for equal use, None for the
        spread of each model. It may be an array of draws [-].
    """

    target: Architecture
    drafter: Drafter = NO_DRAFTER
    hardware: HardwareProfile
    engine: EngineProfile
    tensor_parallel: int = 1
    data_parallel: int | None = None
    expert_parallel: int = 1
    decode_context_parallel: int = 1
    draft_tensor_parallel: int | None = None
    routing_correlation: FloatArray | float = 0.0
    routing_deviation: float = 0.0
    popularity: FloatArray | None = None
    popularity_spread: FloatArray | float | None = None
    memory_utilization: float = TYPICAL_MEMORY_UTILIZATION
    kernels: Kernels = DATA_SHEET_KERNELS
    overheads: Overheads | None = None
    tree_width: int = 1
    state_rollback: Rollback = "native"
    temperature: float = 0.0
    host_expert_layers: int = 0
    layer_split: int = 1

    def __post_init__(self) -> None:
        if self.data_parallel is not None:
            check("data_parallel", self.data_parallel, minimum=1, whole=True)
        self.target.check_layout(self.layout)
        if self.expert_parallel > 1 and not self.target.is_moe:
            expected = f"1, as {self.target.name} has no routed experts"
            raise InputError("expert_parallel", self.expert_parallel, expected)
        check("routing_correlation", self.routing_correlation, minimum=0, maximum=1)
        check("memory_utilization", self.memory_utilization, minimum=0.01, maximum=1)
        check("temperature", self.temperature, minimum=0, maximum=100)
        if self.popularity is not None:
            experts, chosen = self.target.num_experts, self.target.mean_experts_per_token
            check_popularity(self.popularity, experts, chosen)
        self._check_links()
        self._check_drafter()
        self._check_host()
        _ = self.wider_dtypes, self.graph_limit  # both raise an InputError if invalid

    @cached_property
    def wider_dtypes(self) -> dict[str, str]:
        """Dtypes without a peak on the GPU, and the wider dtypes in which it computes them."""
        wider = {}
        for model in self.models:
            for group, stored, dtype in model.arithmetic_dtypes:
                try:
                    computed = self.hardware.compute_dtype(dtype)
                except InputError as error:
                    raise InputError(group, stored, error.expected) from None
                if computed != dtype:
                    wider[dtype] = computed
        return wider

    @cached_property
    def programs(self) -> dict[Hashable, Any]:
        """Cache of objects that are built once: programs of passes, and memory as forms."""
        return {}

    def with_draws(self, **changes: Any) -> "Deployment":
        """Return the deployment with fields replaced by random draws; keep valid programs.

        Programs depend on kernels and GPU alone. Models and layout do not change, so they are not
        checked again.
        """
        changed = unchecked(self, changes)
        if changed.kernels is self.kernels and changed.hardware is self.hardware:
            vars(changed)["programs"] = self.programs
        return changed

    @cached_property
    def has_drafter(self) -> bool:
        """Whether anything drafts, on the GPU or on the host."""
        return self.drafter != NO_DRAFTER

    @property
    def engine_overheads(self) -> Overheads:
        """Overheads of the engine, before its host's speed is applied."""
        return self.overheads or self.engine.overheads

    @cached_property
    def engine_seconds(self) -> Overheads:
        """Seconds that the engine adds on its host."""
        return self.engine_overheads.on_host()

    @property
    def reads_prompts_apart(self) -> bool:
        """Whether prompts run in passes of their own, apart from decoding sequences.

        SGLang does so. On a CPU, one mixed pass took as long as two separate ones when measured.
        """
        is_first = PREFILLS_FIRST in (self.engine.stack, self.kernels.stack)
        return is_first or self.hardware.kind == "cpu"

    @property
    def stack(self) -> str | None:
        """Name of the engine's stack, or the stack of the kernels if the engine has none."""
        return self.engine.stack or self.kernels.stack

    @cached_property
    def code(self) -> EngineCode:
        """What the engine's code decides about passes."""
        kernels = self.kernels.stack
        code = engine_code(kernels if has_code(kernels) else self.stack)
        beside = self.engine.shared_beside if code.beside_tokens else ()
        exchange = self.engine.exchange or code.exchange
        limits = code.norm_limits if self.engine.fuses_norms else NO_ENGINE.norm_limits
        code = replace(code, beside=beside, exchange=exchange, norm_limits=limits)
        return replace(code, **UNBOUNDED) if self.engine.fuses_all else code

    @cached_property
    def runs_idle_drafter(self) -> bool:
        """Whether the GPU runs the drafter even in steps without drafts."""
        return self.engine.runs_idle_drafter and not self.drafter.is_lookup

    @cached_property
    def hides_host(self) -> Hiding:
        """Steps in which host work overlaps with the GPU, given the drafter."""
        hides = self.engine.hides_host
        if hides != "all" or self.drafter.drafting not in self.engine.waits_for:
            return hides
        # a model drafts from tokens on the GPU, before they are on the host: vLLM's `use_gpu_toks`
        return "drafts" if self.drafter.drafting in MODELS else "plain"

    @cached_property
    def graph_limit(self) -> GraphLimit | None:
        """The largest pass of a replica that the engine runs from a CUDA graph, if known.

        Raise an InputError for a list of sizes if the logits of the last exceed a GPU's memory.
        """
        limit = graph_limit(self.engine, self.hardware, self.tensor_parallel)
        of_token = 4 * self.target.vocabulary_size / self.tensor_parallel
        most = int(self.hardware.memory.capacity_bytes / of_token)
        if limit and limit.sizes and limit.count > most:
            expected = f"sizes up to {most}, above which logits exceed the GPU's memory"
            raise InputError("graph_limit", limit.count, expected)
        return limit

    @cached_property
    def states(self) -> StateKeeping:
        """How the engine keeps recurrent states."""
        slots = self.engine.state_slots or state_slots_of(self.stack)
        slots = "single" if self.replays else slots
        return StateKeeping(
            self.state_rollback,
            slots,
            is_tree=self.tree_width > 1,
            time_factor=self.engine.state_time_factor,
        )

    @cached_property
    def replays(self) -> bool:
        """Whether accepted tokens of recurrent targets run again after a rejection."""
        engine, target = self.engine, self.target
        if not (engine.replays and self.has_drafter):
            return False
        is_told = any(is_named(target.name, name) for name in engine.replays_of)
        is_so = self.drafter.drafting in engine.replays or is_told
        return is_so and any(mixer.is_recurrent for mixer in target.mixers)

    @cached_property
    def recurrent_model(self) -> Architecture | None:
        """The first of target and draft models with recurrent layers, if any."""
        return next((m for m in self.models if any(mix.is_recurrent for mix in m.mixers)), None)

    @cached_property
    def keeps_pages(self) -> bool:
        """Whether recurrent states lie in pages of a cache that attention shares, as in vLLM."""
        mixers = self.target.mixers
        is_hybrid = len({mixer.is_recurrent for mixer in mixers}) > 1
        is_paged = self.stack == "vllm" and self.states.rollback == "native"
        return is_hybrid and is_paged

    @cached_property
    def compressed_model(self) -> Architecture | None:
        """The first of target and draft models that combines several tokens in a cache entry."""
        return next((m for m in self.models if any(mix.pools_tokens for mix in m.mixers)), None)

    @cached_property
    def layout(self) -> Layout:
        """How the target is spread over GPUs."""
        degrees = self.tensor_parallel, self.expert_parallel
        multiples = self.code.padded_to(self.hardware.compute_capability)
        shared = self.decode_context_parallel
        in_node = self.hardware.link.num_gpus if self.hardware.link else 1
        on_host = self.host_expert_layers and self.host_expert_layers / self.target.expert_layers
        layout = Layout(*degrees, in_node, self.data_parallel, multiples, shared, on_host)
        return replace(layout, layer_split=self.layer_split)

    @cached_property
    def draft_layout(self) -> Layout:
        """How the drafter is spread over GPUs."""
        layout, shared = replace(self.layout, host_share=0.0), self.decode_context_parallel
        if not self.drafter.is_head:
            degree = self.draft_tensor_parallel or self._draft_cut
            own = Layout(degree, 1, layout.gpus_per_node, layout.replicas)
            layout = replace(own, decode_context_parallel=shared)
        cuts = (m.token_cuts(layout.tensor_parallel) for m in self.drafter.architectures)
        if all(shared in of_model for of_model in cuts):
            return layout
        return replace(layout, decode_context_parallel=1)

    @property
    def _draft_cut(self) -> int:
        """GPUs of the target that split a draft model: vLLM 0.33 requires all of them [-].

        ``DraftModelProposer._raise_if_draft_tp_mismatch``; SGLang 0.5.23 has no other layout
        (``standalone_worker_v2.py``).
        """
        n, mixers = self.tensor_parallel, [m for a in self.drafter.architectures for m in a.mixers]
        return next(i for i in range(n, 0, -1) if not n % i and all(m.cuts(i) for m in mixers))

    @property
    def message_spread(self) -> float:
        """Standard deviation of the log time of messages, 0 if measured on the stack itself [-]."""
        link = self.hardware.link if self.layout.tensor_parallel > 1 else None
        return link.spread_of_all_reduces(self.kernels.link_stack) if link else 0.0

    def graph_warnings(self, batch_size: FloatArray, verify_tokens: FloatArray) -> tuple[Note, ...]:
        """Return a note if some steps are larger than every captured graph, else ()."""
        if self.graph_limit is None:
            return ()
        return self.graph_limit.warnings(batch_size, verify_tokens, *self._outside_graphs)

    def graph_note(self, batch_size: FloatArray, verify_tokens: FloatArray) -> Note | None:
        """Return a note if longer drafts would need a larger graph in some steps, else None."""
        if self.graph_limit is None:
            return None
        return self.graph_limit.held(batch_size, verify_tokens, *self._outside_graphs)

    @property
    def _outside_graphs(self) -> tuple[int, float]:
        """Number of replicas [-], and host time to launch a kernel outside graphs [s]."""
        return self.layout.replicas, float(np.mean(self.engine_seconds.eager_kernel_time))

    @property
    def models(self) -> tuple[Architecture, ...]:
        """Models that run on the GPUs: the target, and those of its drafter."""
        return self.target, *self.drafter.architectures

    def _check_drafter(self) -> None:
        self.drafter.check_target(self.target)
        if self.drafter.is_chain and self.tree_width > 1:
            expected = f"1 (a chain), as the {self.drafter.name} drafts no trees"
            raise InputError("tree_width", self.tree_width, expected)
        if self.drafter.is_lookup or self.drafter.is_head:
            return
        for model in self.drafter.architectures:
            model.check_layout(self.draft_layout, "draft_")
            size, needed = model.vocabulary_size, self.target.vocabulary_size
            if size != needed:
                value = f"{model.name}, vocabulary_size {size}"
                expected = f"a model with the same vocabulary_size as {self.target.name}, {needed}"
                raise InputError("drafter", value, expected)
        if (self.draft_tensor_parallel or 1) > self.tensor_parallel:
            expected = f"at most tensor_parallel = {self.tensor_parallel}"
            raise InputError("draft_tensor_parallel", self.draft_tensor_parallel, expected)

    def _check_host(self) -> None:
        """Refuse experts on the host if the model or the engine does not allow them."""
        layers = self.host_expert_layers
        if layers and self.stack != LLAMA_CPP:
            expected = f"0, or the engine {LLAMA_CPP}: only it keeps experts on the host"
            raise InputError("host_expert_layers", layers, expected)
        if layers > self.target.expert_layers:
            expected = f"at most {self.target.expert_layers}, the layers with routed experts"
            raise InputError("host_expert_layers", layers, f"{expected} of {self.target.name}")

    def _check_links(self) -> None:
        """Refuse degrees for which the GPUs need a link or a network that they lack."""
        layout, gpu, most = self.layout, self.hardware, self.layout.gpus_per_node
        names = ("tensor_parallel", "expert_parallel", "draft_tensor_parallel")
        degrees = {name: (getattr(self, name) or 1,) * 2 for name in names}
        if self.target.is_moe:
            degrees["data_parallel"] = layout.replicas, layout.num_gpus
        for name, (degree, gpus) in degrees.items():
            if degree > 1 and gpu.link is None:
                raise InputError(name, degree, f"1, as {gpu.name} has no link; {_LINKED}")
            if gpus > most and gpu.network is None:
                expected = f"at most {most * degree // gpus}, as more GPUs need a network, which"
                raise InputError(name, degree, f"{expected} {gpu.name} lacks; {_LINKED}")


_LINKED = "to use several, name a network such as `link=roce-200g`"


def state_slots_of(stack: str | None) -> Slots:
    """Return how an engine reserves recurrent states, by the name of its stack."""
    return _STATE_SLOTS.get(stack or "", "aligned")
