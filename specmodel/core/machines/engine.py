"""Describe the overheads of a serving stack: costs of a pass beyond its FLOPs and bytes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args

import numpy as np
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from specmodel.core.algebra.roofline import Value
from specmodel.core.base import records
from specmodel.core.base.bounds import Day, Finite, Spread
from specmodel.core.base.errors import InputError
from specmodel.core.base.records import Record
from specmodel.core.base.units import FloatArray, check
from specmodel.core.layers.engines import Beside, Exchange
from specmodel.core.layers.states import Slots
from specmodel.core.machines.kernels import Points, check_covariance
from specmodel.core.machines.versions import named_version, of_version

FOLDER = Path(__file__).parent / "data/engines"
FIRST_TOKENS = Path(__file__).parent / "data/first_token.csv"


class Overheads(Struct, frozen=True, kw_only=True, eq=False):
    """Overheads of an engine as `EngineProfile` names them; numbers, or arrays of draws [s] [-]."""

    kernel_time: FloatArray | float = 0.0
    pass_time: FloatArray | float = 0.0
    draft_kernel_time: FloatArray | float = 0.0
    draft_pass_time: FloatArray | float = 0.0
    reject_time: FloatArray | float = 0.0
    reject_time_per_request: FloatArray | float = 0.0
    reject_time_per_token: FloatArray | float = 0.0
    tree_time: FloatArray | float = 0.0
    eager_kernel_time: FloatArray | float = 0.0
    host_speed: FloatArray | float = 1.0
    gpu_time_factor: FloatArray | float = 1.0

    def on_host(self) -> "Overheads":
        """Return the overheads with host times divided by `host_speed`, which becomes 1."""
        if isinstance(self.host_speed, float) and self.host_speed == 1:
            return self
        seconds = {name: getattr(self, name) / self.host_speed for name in ON_HOST}
        return replace(self, **seconds, host_speed=1.0)

    def told_to_wait(self, is_told: np.ndarray | bool = True) -> "Overheads":
        """Return the overheads of runs in which each step is scheduled after the one before."""
        # plain steps wait too: by 2.4 ms at one request, 5.2 at 128 (Qwen3-30B, H200, 0.24)
        waited = is_told * self.reject_time
        left = self.reject_time - waited
        return replace(self, pass_time=self.pass_time + waited, reject_time=left)

    def host_time(self, passes: Value, draft_passes: Value = 0.0) -> Value:
        """Return the host time of passes of the target and of the drafter, launches aside [s]."""
        return self.pass_time * passes + self.draft_pass_time * draft_passes

    def rejection_time(
        self, draft_length: FloatArray, requests: FloatArray, chance: FloatArray | float = 1.0
    ) -> FloatArray:
        """Return the mean host time for the draft of a step, in addition to its passes [s].

        `requests` are the sequences of one replica with a proposal. `chance` is the chance that at
        least one sequence has a proposal.
        """
        by_request = self.reject_time_per_request + self.reject_time_per_token * draft_length
        return np.asarray(chance * self.reject_time + by_request * requests)


FACTORS = ("host_speed", "gpu_time_factor")
"""Factors on times, which are not overheads themselves."""

OVERHEADS = tuple(name for name in Overheads.__struct_fields__ if name not in FACTORS)
"""Overheads, which are seconds."""

ON_HOST = tuple(name for name in OVERHEADS if name != "tree_time")
"""Overheads of the host, and times for which kernels wait for it."""

Hiding = Literal["none", "plain", "drafts", "all"]
"""Steps in which host and GPU work at the same time: none; "plain" ones without a draft; "drafts"
adds the launch of the drafter in the others; or all."""

AttentionBackend = Literal[
    "triton", "triton_attn", "triton_mla", "flash_attn", "flash_attn_mla", "fa3", "fa4",
    "flashinfer", "flashinfer_mla", "flashmla", "cutlass_mla", "trtllm_mha", "trtllm_mla",
    "cutedsl_mla", "aiter", "rocm_attn", "rocm_aiter_fa", "rocm_aiter_mla",
    "rocm_aiter_unified_attn", "intel_xpu",
]  # fmt: skip
"""Names in vLLM 0.33 (there in capitals) and SGLang 0.5.23."""
Drafting = Literal[
    "ngram", "suffix", "head", "block head", "parallel head", "model", "parallel model"
]
"""Ways of drafting that engines distinguish."""

MODELS = ("model", "parallel model")
"""Ways of drafting by models that do not read features of the target."""

_WHOLE_GRAPHS: dict[str, tuple[Drafting, ...]] = {"one_by_one": (), "in_pieces": ()}

Ends = tuple[Points, Points]

Overhead = Annotated[float, Meta(ge=0, le=10)]
"""Seconds; no engine spends ten of them on a pass."""

LARGEST_GRAPH = 1_000_000
Captured = Annotated[int, Meta(ge=0, le=LARGEST_GRAPH)]
"""Tokens or requests of a pass; 0 for none."""

SplitTokens = Annotated[int, Meta(ge=1, le=1024)]
"""Tokens of a sequence in a pass."""

_LEAST_FACTOR, _MOST_FACTOR = 0.01, 100.0

Factor = Annotated[float, Meta(ge=_LEAST_FACTOR, le=_MOST_FACTOR)]
"""Ratio of speeds or times; values outside this range suggest a wrong unit."""


class FittedOn(Record, frozen=True, kw_only=True):
    """What an engine was measured on; elsewhere its overheads are extrapolated.

    Names of GPUs, kinds of drafters, and least and largest batch size and draft length.
    """

    version: str
    hardware: list[str]
    drafters: list[str]
    batch_size: Ends
    draft_length: Ends


class EngineFit(Record, frozen=True, kw_only=True):
    """What an engine's overheads were fitted to, and how well [-].

    Errors are absolute values of predicted / measured - 1. `left_out_error` is the error of rows
    left out of the fit, by the column whose values were left out one after another. `spread` is the
    standard deviation of ln(measured / predicted) of rows left out. For an engine fitted to runs of
    one host, it is at least the deviation of their speedups. `covariance` is the covariance of the
    logarithms of the overheads `varied`; the others are constant. `outside_spread` is ignored; old
    files contain it.
    """

    date: Day
    num_points: Points
    mean_error: Spread
    left_out_error: dict[str, Spread] = field(default_factory=dict)
    spread: Spread
    varied: list[str]
    covariance: list[list[Finite]]
    outside_spread: Spread = 0.0
    fitted_on: FittedOn | None = None


class EngineProfile(Record, frozen=True, kw_only=True):
    """Overheads of one serving stack, in addition to the time of its kernels.

    Parameters
    ----------
    schema_version, name, source
        Version of this schema, 1; name for people; source of the figures [-].
    code_read
        Newest version whose code was read to learn how it drafts, verifies and keeps states.
    stack
        Name of the stack whose kernels it runs, if a hardware profile has fitted ones.
    kernel_time, draft_kernel_time
        Launch overhead of each kernel of a pass, and the addition to it in a draft pass [s].
    pass_time, draft_pass_time
        Host overhead of each pass of the target, and of the drafter [s].
    reject_time, reject_time_per_request, reject_time_per_token
        Rejection sampling and the other host work that a step does once for its drafts: constant,
        per request, and per drafted token of each request [s].
    tree_time
        Additional GPU time of tree drafts, to build and to mask the tree [s].
    eager_kernel_time
        Host time to launch a kernel of a pass without a CUDA graph. It overlaps with the GPU in
        every step [s].
    hides_host
        Steps in which host and GPU overlap (`algebra.overlap`): "all"; "plain" ones, as in SGLang's
        first speculation; "drafts", which adds the launch of a drafter; or "none". In other steps
        the two take turns.
    waits_for
        Drafts that must end before the next step is scheduled. Host and GPU then do not overlap. In
        vLLM's asynchronous scheduling, these are drafts that need tokens on the host.
    in_pieces, one_by_one
        Drafters whose passes run from graphs without their attention, and drafters without graphs.
        Other drafters run from whole graphs.
    host_speed, gpu_time_factor
        Speed of the host relative to the host of these overheads (all but `tree_time`). Time of the
        GPU relative to its fitted kernels [-].
    draft_model_first
        Tokens that a draft model reads first in a step (`drafters.passes.MODEL_RULES`): its last
        token, or all verified tokens, accepted or not. vLLM 0.33 (``v1/spec_decode``, with one more
        token) and SGLang 0.5.23 (``speculative/standalone_worker_v2``) read all verified tokens.
        Heads read the verified tokens in all engines. In llama.cpp, models and heads read them
        again in a separate pass before they draft.
    state_slots
        Recurrent states that it reserves for a running request (`StateKeeping`). If None, as the
        engine whose kernels it runs.
    state_time_factor
        Time of its kernels to move a recurrent state, relative to the fitted ones of SGLang 0.5.14
        and vLLM 0.18 [-]. SGLang before 0.5.10 kept states with values along their rows. It cut
        these into pieces of 8, or 32 bytes of a line of 128
        (``fused_recurrent_gated_delta_rule_update``).
    exchange
        How tokens reach whole experts if attention is data-parallel (`layers.engines`): "gather",
        vLLM's default; "copies", as in DeepEP; or "ranks", one for each GPU. If None, as the engine
        whose kernels it runs.
    shared_beside
        Components that overlap with shared experts on a second stream, up to a number of tokens
        (`layers.engines`); none if they take turns.
    fuses_norms, fuses_all
        Whether one kernel does a small all-reduce and the norm after it (`layers.engines`). Whether
        it fuses or overlaps all that any engine does, at every size.
    all_reduces
        Stack whose all-reduces it runs if a link has them, instead of its own.
    runs_idle_drafter
        Whether a loaded drafter also runs in steps without a draft, which wait for it. vLLM 0.33
        does so under a schedule of draft lengths.
    attention_backend
        Attention kernels selected by the user, None for its own choice
        (`cost.attention.attention_walk`).
    splits_lengths
        Whether a pass needs the same number of tokens from each sequence. A batch in which only
        some have a draft then needs several passes (`cost.latency.split_by_length`).
    splits_layers
        Whether it splits layers over GPUs. Only one GPU then works at a time.
    replays, replays_of
        Drafters and targets, by name, whose accepted tokens run again after a rejection, as their
        recurrent states are not kept after each token (`cost.replays`).
    split_tokens
        Most tokens of a sequence for which its Triton attention spreads keys over blocks of
        threads. With more tokens, one block reads all keys of a head (`cost.attention`). 8 in vLLM
        0.33 (``MAX_3D_QUERY_LEN``), 1 before (``use_3d``), None for no limit [token].
    flash_split_tokens
        The same for its FlashAttention 2: 1 in vLLM up to 0.33. Builds that also split keys for
        drafts have a larger value, such as 64 [token].
    graphs, graph_limit, graph_sizes
        Whose rule captures passes in CUDA graphs (`machines.graphs`), None if unknown. Most tokens
        (vLLM) or requests (SGLang) of a captured pass: 0 for no capture, None for the engine's
        default on the GPU. Sizes listed one by one, empty for the engine's own [token] [request].
    fit
        Measurements to which the figures were fitted; None if they were not.
    stands_for
        Ignored; files older than the llama.cpp engine contain it.
    """

    schema_version: Literal[1]
    name: str
    source: str
    code_read: str = ""
    stack: str | None = None
    kernel_time: Overhead = 0.0
    pass_time: Overhead = 0.0
    draft_kernel_time: Overhead = 0.0
    draft_pass_time: Overhead = 0.0
    reject_time: Overhead = 0.0
    reject_time_per_request: Overhead = 0.0
    reject_time_per_token: Overhead = 0.0
    tree_time: Overhead = 0.0
    eager_kernel_time: Overhead = 0.0
    hides_host: Hiding = "none"
    waits_for: tuple[Drafting, ...] = ()
    in_pieces: tuple[Drafting, ...] = ()
    one_by_one: tuple[Drafting, ...] = ()
    host_speed: Factor = 1.0
    gpu_time_factor: Factor = 1.0
    draft_model_first: Literal["one token", "verified", "verified and next", "read again"] = (
        "one token"
    )
    state_slots: Slots | None = None
    state_time_factor: Factor = 1.0
    exchange: Exchange | None = None
    shared_beside: tuple[Beside, ...] = ()
    fuses_norms: bool = False
    fuses_all: bool = False
    all_reduces: Literal["sglang", "trtllm", "vllm"] | None = None
    runs_idle_drafter: bool = False
    attention_backend: AttentionBackend | None = None
    splits_lengths: bool = False
    splits_layers: bool = False
    replays: tuple[Drafting, ...] = ()
    replays_of: tuple[str, ...] = ()
    split_tokens: SplitTokens | None = None
    flash_split_tokens: SplitTokens | None = None
    graphs: Literal["vllm", "vllm-512", "sglang"] | None = None
    graph_limit: Captured | None = None
    graph_sizes: tuple[Captured, ...] = ()
    fit: EngineFit | None = None
    stands_for: str = ""

    def __post_init__(self) -> None:
        if self.fit:
            check_covariance("fit.", self.fit.varied, self.fit.covariance, (*OVERHEADS, *FACTORS))

    @property
    def overheads(self) -> Overheads:
        """Overheads in seconds, and factors, by name."""
        return Overheads(**{name: getattr(self, name) for name in (*OVERHEADS, *FACTORS)})

    @property
    def is_ideal(self) -> bool:
        """Whether every overhead is zero."""
        return not any(getattr(self, name) for name in OVERHEADS)

    @property
    def is_of_mean_host(self) -> bool:
        """Whether the overheads describe a mean host: the fit left out one host after another."""
        return self.fit is not None and "host" in self.fit.left_out_error

    def on_host(self, speed: float) -> "EngineProfile":
        """Return the engine on a host `speed` times as fast as the host of its overheads [-].

        Intervals then no longer vary the speed. Raise an InputError if `speed` is out of range, or
        if the engine has no host overheads.
        """
        speed = float(check("host_speed", speed, minimum=_LEAST_FACTOR, maximum=_MOST_FACTOR))
        if not any(getattr(self, name) for name in ON_HOST):
            expected = f"an engine with host overheads, such as vllm; {self.name} has none"
            raise InputError("host_speed", speed, expected)
        engine = self.with_changes("engine", {"host_speed": speed})
        if engine.fit is None or "host_speed" not in engine.fit.varied:
            return engine
        varied, covariance = [*engine.fit.varied], np.array(engine.fit.covariance)
        place = varied.index("host_speed")
        varied.remove("host_speed")
        rest = np.delete(np.delete(covariance, place, axis=0), place, axis=1).tolist()
        return engine.with_changes("engine", {"fit.varied": varied, "fit.covariance": rest})

    def told_to(self, switches: Mapping[str, bool]) -> "EngineProfile":
        """Return the engine with features switched on or off, by the names in `naming.SWITCHES`.

        A drafter that is switched to not eager runs from graphs in any engine.
        """
        engine = self.with_graphs_of(0) if switches.get("enforce_eager") else self
        if switches.get("sync_scheduling") and engine.hides_host != "none":
            pass_time = float(engine.overheads.told_to_wait().pass_time)
            engine = replace(engine, hides_host="none", pass_time=pass_time, reject_time=0.0)
        if (is_eager := switches.get("eager_drafter")) is not None:
            captured = {"one_by_one": get_args(Drafting)} if is_eager else _WHOLE_GRAPHS
            engine = replace(engine, **captured)
        return engine

    def with_graphs_of(self, limit: int | Sequence[int]) -> "EngineProfile":
        """Return the engine with CUDA graphs up to `limit`, or of the sizes listed in it.

        Sizes are in tokens or requests, as `graphs` says, in ascending order.
        """
        if self.graphs is None:
            expected = f"an engine with CUDA graphs, such as vllm; {self.name}"
            raise InputError("graph_limit", limit, f"{expected} has none")
        if isinstance(limit, int):
            return replace(self, graph_limit=limit, graph_sizes=())
        sizes = check("graph_limit", limit, minimum=1, maximum=LARGEST_GRAPH, whole=True)
        if sizes.ndim != 1 or not sizes.size or (np.diff(sizes) <= 0).any():
            raise InputError("graph_limit", [*limit], "one size, or rising sizes such as 1,2,4,8")
        captured = tuple(int(size) for size in sizes)
        return replace(self, graph_limit=captured[-1], graph_sizes=captured)


def load_engine(name: str | Path) -> EngineProfile:
    """Return an engine profile by name or path.

    Parameters
    ----------
    name
        A name from `list_engines`, with or without a version (vllm-0.24), or the path of a TOML
        file.

    Examples
    --------
    >>> load_engine("ideal").is_ideal
    True
    """
    if found := named_version(name):
        profile = load_engine(found[0])
        told = {"name": f"{profile.name} {found[1]}"}
        return profile.with_changes("engine", of_version(*found) | told)
    return records.load(EngineProfile, name, FOLDER, "engine")


def list_engines() -> list[str]:
    """Return the names of the engine profiles that ship with the package.

    Examples
    --------
    >>> "ideal" in list_engines()
    True
    """
    return list(records.list_names(FOLDER))


def first_token_constants() -> dict[str, float]:
    """Return what each fitted stack adds to the time to a first token, without passes [s].

    The shipped table contains the number of rows, the models and the source.

    Examples
    --------
    >>> sorted(first_token_constants())
    ['sglang', 'trtllm', 'vllm']
    """
    import csv

    lines = FIRST_TOKENS.read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return {row["stack"]: float(row["constant_time"]) for row in rows}
