"""Describe hardware: data-sheet peaks of one GPU (or CPU), each with its source."""

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from msgspec import Meta, field
from msgspec.structs import replace

from specmodel.core.algebra.collectives import AllReduceParameters
from specmodel.core.base import records
from specmodel.core.base.bounds import LEAST, Portion
from specmodel.core.base.dtypes import NEXT_WIDER, Dtype
from specmodel.core.base.errors import InputError
from specmodel.core.base.files import toml_tables
from specmodel.core.base.naming import letters_of, own_folder, spellings
from specmodel.core.base.records import Record
from specmodel.core.base.units import LARGEST_NUMBER, LARGEST_RATE
from specmodel.core.machines.kernels import TYPICAL, FittedStack

_PACKAGED = Path(__file__).parent / "data/hardware"
FOLDER = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[3] / "hw_profiles"
"""Folder of the profiles: in the package if installed, next to it in a checkout."""

_WORDS: dict[str, str] = toml_tables(Path(__file__).parent / "data/short_names.toml")
SHORT = {letters_of(word): name for name, words in _WORDS.items() for word in words.split()}
"""Full names of GPUs by short name, which contains letters and digits only."""

LINKS: dict[str, dict[str, Any]] = toml_tables(Path(__file__).parent / "data/links.toml")
"""Links between boxes: fields of `Link` by name, and other names."""

OWN = "mine"
"""Name of the profile that a calibration writes unless another file is named."""

RIDGE_POINT_RANGE = (1.0, 2500.0)
"""Ridge points of GPUs outside this range [FLOP/B] mean a wrong unit."""

LEAST_CPU_RIDGE_POINT = 0.01
"""The same on a CPU, which may have to emulate a dtype [FLOP/B]."""

FP4_CAPABILITY = 10.0
"""Compute capability from which NVIDIA's GPUs compute in FP4. On older ones weights of NVFP4 meet
activations of 16 bits, as in vLLM 0.33 (its Marlin kernels refuse NVFP4 with FP8)."""

Source = Annotated[str, Meta(min_length=3)]
Number = Annotated[int, Meta(ge=1, le=10**6)]
Latency = Annotated[float, Meta(ge=0, le=1)]
Efficiency = Annotated[float, Meta(ge=LEAST, le=2)]
Error = Annotated[float, Meta(ge=0, le=10)]
Rate = Annotated[float, Meta(ge=LEAST, le=LARGEST_RATE)]
Capacity = Annotated[float, Meta(ge=LEAST, le=LARGEST_NUMBER)]


class DtypePeak(Record, frozen=True, kw_only=True):
    """Dense peak arithmetic rate of one dtype [FLOP/s], and where the figure comes from.

    `sustained` is the share of this rate in long passes, whose power lowers the clock, relative to
    kernels that were timed one by one [-].
    """

    peak_flops_per_s: Rate
    source: Source
    sustained: Annotated[float, Meta(ge=0.2, le=1)] = 1.0


class Memory(Record, frozen=True, kw_only=True):
    """Device memory: capacity [B], peak bandwidth [B/s], last-level cache [B] and technology.

    Accelerators of data centres have HBM, other cards GDDR; LPDDR is shared with the CPU; None if
    unknown.
    """

    capacity_bytes: Capacity
    peak_bytes_per_s: Rate
    l2_bytes: Capacity
    technology: Literal["HBM", "GDDR", "LPDDR"] | None = None
    source: Source


class AllReduceFit(Record, frozen=True, kw_only=True):
    """All-reduces of a stack inside a node, as `algebra.collectives` describes their numbers.

    `version` contains several stacks if their rows are fitted together. Small messages run in one
    shot, large ones in two. The efficiency of two-shot exceeds 1 if a switch adds up and saves
    bytes. Errors are absolute values of predicted / measured - 1, on sizes left out one after
    another [-]. `spread` is the standard deviation of ln(measured / predicted) of stacks or GPUs
    left out, 0 for a stack's own rows [-].
    """

    version: str
    source: Source
    one_shot_latency: Latency
    one_shot_hop_latency: Latency
    one_shot_efficiency: Efficiency
    two_shot_latency: Latency
    two_shot_hop_latency: Latency
    two_shot_efficiency: Efficiency
    contention: Annotated[float, Meta(ge=0, le=4)] = 0.0
    num_points: Annotated[int, Meta(ge=0, le=10**9)]
    mean_error: Error
    median_error: Error
    spread: Error = 0.0

    @property
    def parameters(self) -> AllReduceParameters:
        """Parameters of this fit for `all_reduce_time`."""
        names = AllReduceParameters.__struct_fields__
        return AllReduceParameters(**{name: getattr(self, name) for name in names})


class Link(Record, frozen=True, kw_only=True):
    """Link between GPUs: one direction of a GPU [B/s], and what a message takes at least [s].

    The time of a message is `collective_latency`, `hop_latency` for each hop, and the time of its
    bytes at `efficiency` of the peak [-]. All-reduces use the fit in `all_reduce` for the serving
    stack, or "typical". Without either fit, they are rings of messages.
    """

    kind: Literal["nvlink", "pcie", "infinity_fabric", "network"]
    num_gpus: Number
    peak_bytes_per_s: Rate
    efficiency: Portion = 1.0
    collective_latency: Latency
    hop_latency: Latency
    source: Source
    latency_source: Source
    efficiency_source: Source = "assumed"
    all_reduce: dict[str, AllReduceFit] = field(default_factory=dict)

    def taken_all_reduce(self, stack: str | None) -> str | None:
        """Return the key of the fit for a stack: its own, else "typical", else None."""
        return next((name for name in (stack, TYPICAL) if name in self.all_reduce), None)

    def spread_of_all_reduces(self, stack: str | None) -> float:
        """Return the spread of the all-reduce fit for a stack, 0 without a fit [-]."""
        name = self.taken_all_reduce(stack)
        return self.all_reduce[name].spread if name else 0.0

    def all_reduce_parameters(self, stack: str | None) -> AllReduceParameters:
        """Return the parameters of a stack's all-reduces: fitted ones, or those of rings.

        A ring of n GPUs sends ``2 (n - 1) / n`` of the bytes, as two-shot does, and waits for
        ``2 (n - 1)`` hops. One-shot sends more bytes at the same speed, and is never faster.
        """
        name = self.taken_all_reduce(stack)
        if name is not None:
            return self.all_reduce[name].parameters
        ring = {"latency": self.collective_latency, "efficiency": self.efficiency}
        ring["hop_latency"] = 2 * self.hop_latency
        shots = ("one_shot", "two_shot")
        fields = {f"{shot}_{name}": value for shot in shots for name, value in ring.items()}
        return AllReduceParameters(**fields)


class Network(Record, frozen=True, kw_only=True):
    """Network between nodes: share of one GPU in one direction [B/s], and time of a hop [s]."""

    peak_bytes_per_s: Rate
    hop_latency: Latency
    source: Source


class HardwareProfile(Record, frozen=True, kw_only=True):
    """One accelerator, as its data sheet describes it.

    Parameters
    ----------
    schema_version, name, kind
        Version of this schema, 1; name for people; "gpu" or "cpu" [-].
    num_multiprocessors
        Streaming multiprocessors, compute units or cores [-].
    compute_capability
        NVIDIA's version of the architecture, which decides the kernels: 9.0 is Hopper; None for
        other vendors. From https://developer.nvidia.com/cuda-gpus [-].
    reported_names
        Names that CUDA reports for the device, without "NVIDIA". `measure` uses them to find the
        profile. Copies of a profile do not contain them.
    runs_gguf
        Whether llama.cpp is the usual engine there. Dtypes with sizes of GGUF are then read as its.
    llama_cpp_backend, generation
        Back end with which llama.cpp usually runs there, if neither CUDA nor a CPU. AMD's name of
        the architecture, which decides its kernels.
    host_speed
        Usual speed of its hosts relative to the hosts on which engines were fitted. A GeForce is
        usually in a desktop computer. Its CPU reaches 4,400 of PassMark's single-thread points (a
        Core i9-13900HX, notebookcheck 2023), and a server's CPU 2,900. On two hosts with an RTX
        5090, draft models suggest 1 and 3 to 4 [-].
    host_bytes_per_s, host_cores
        Peak bandwidth of the host's memory, None for `usual_host_bytes_per_s`, and its cores, None
        for eight. Experts that run on the host need both [B/s] [-].
    memory, link, network
        Device memory, and links to GPUs of the node and of other nodes; None for no link.
    dtype
        Peak rate by dtype.
    fitted
        Kernels fitted to measurements, by serving stack. One of several stacks is the default.
    """

    hidden = ("reported_names",)

    schema_version: Literal[1]
    name: str
    kind: Literal["gpu", "cpu"]
    num_multiprocessors: Number
    compute_capability: Annotated[float, Meta(ge=5, lt=100)] | None = None
    reported_names: list[str] = field(default_factory=list)
    runs_gguf: bool = False
    llama_cpp_backend: Literal["hip", "vulkan", "metal"] | None = None
    generation: str | None = None
    host_speed: Annotated[float, Meta(ge=0.1, le=10)] = 1.0
    host_bytes_per_s: Rate | None = None
    host_cores: Number | None = None
    memory: Memory
    link: Link | None = None
    network: Network | None = None
    dtype: dict[Dtype, DtypePeak]
    fitted: dict[str, FittedStack] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.dtype:
            raise InputError("dtype", {}, "a peak for at least one dtype")
        sizes = {"memory.capacity_bytes": (self.memory.capacity_bytes, "B, not GB")}
        for name, link in (("link", self.link), ("network", self.network)):
            if link:
                sizes[f"{name}.peak_bytes_per_s"] = (link.peak_bytes_per_s, "B/s, not GB/s")
        for name, (value, expected) in sizes.items():
            if value < 1e8:
                raise InputError(name, value, expected)
        defaults = [name for name, stack in self.fitted.items() if stack.is_default]
        if len(defaults) > 1:
            raise InputError("fitted", defaults, "one stack with is_default")
        low, high = RIDGE_POINT_RANGE
        low = LEAST_CPU_RIDGE_POINT if self.kind == "cpu" else low
        for dtype, peak in self.dtype.items():
            ridge = peak.peak_flops_per_s / self.memory.peak_bytes_per_s
            if not low <= ridge <= high:
                raise InputError(
                    "memory.peak_bytes_per_s",
                    self.memory.peak_bytes_per_s,
                    f"B/s, not GB/s, and dtype.{dtype}.peak_flops_per_s in FLOP/s, not TFLOP/s: "
                    f"their ratio {ridge:.3g} FLOP/B is outside {low:g} to {high:g}",
                )

    def joined_by(self, name: str) -> Self:
        """Return the GPU in a box that a named link joins to others; links inside the box stay.

        >>> load_hardware("strix_halo").joined_by("USB4").link.num_gpus
        3
        """
        typed = letters_of(name)
        found = {n: {n, *row["others"].split()} for n, row in LINKS.items()}
        known = next((n for n, names in found.items() if typed in map(letters_of, names)), None)
        if known is None:
            raise InputError("link", name, f"one of: {', '.join(LINKS)}")
        fields = {key: value for key, value in LINKS[known].items() if key != "others"}
        link = Link(kind="network", **fields)
        if self.link is None or self.link.kind == "network":
            return replace(self, link=link)
        rate = link.efficiency * link.peak_bytes_per_s
        between = Network(peak_bytes_per_s=rate, hop_latency=link.hop_latency, source=link.source)
        return replace(self, network=between)

    @property
    def usual_host_bytes_per_s(self) -> float:
        """Bandwidth of the host's memory; by default, the usual bandwidth of its kind [B/s].

        A desktop has two channels of DDR5-5600, a server twelve of DDR5-4800. Memory that GPU and
        CPU share has its own bandwidth.
        """
        usual = {"GDDR": 8.96e10, "HBM": 4.6e11, "LPDDR": self.memory.peak_bytes_per_s}
        return self.host_bytes_per_s or usual.get(self.memory.technology or "GDDR", 8.96e10)

    @property
    def default_stack(self) -> str | None:
        """The fitted stack to use if you name none; None if nothing was fitted."""
        chosen = [name for name, stack in self.fitted.items() if stack.is_default]
        return chosen[0] if chosen else next(iter(self.fitted), None)

    @property
    def measured_stack(self) -> str | None:
        """The stack that was measured on this device, which replaces an engine's stack."""
        return next((name for name, s in self.fitted.items() if s.is_measured_here), None)

    @property
    def computes_in_fp4(self) -> bool:
        """Whether the GPU multiplies 4-bit activations."""
        return "fp4" in self.dtype or (self.compute_capability or 0.0) >= FP4_CAPABILITY

    def compute_dtype(self, dtype: str) -> str:
        """Return the dtype in which arithmetic on `dtype` runs: itself, or the next wider one.

        Raise an InputError if the profile has no suitable peak.
        """
        is_nvidia = self.compute_capability is not None
        passed_over = "fp8" if dtype == "fp4" and is_nvidia and not self.computes_in_fp4 else None
        for candidate in [dtype, *NEXT_WIDER.get(dtype, [])]:
            if candidate in self.dtype and candidate != passed_over:
                return candidate
        expected = f"a dtype with a peak on {self.name}: {', '.join(self.dtype)}"
        raise InputError("activation_dtype", dtype, expected)

    def peak_flops_per_s(self, dtype: str) -> float:
        """Return the peak rate at which arithmetic on `dtype` runs [FLOP/s]."""
        peaks: Mapping[str, DtypePeak] = self.dtype  # type: ignore[assignment]  # keys are strings
        return peaks[self.compute_dtype(dtype)].peak_flops_per_s

    def sustained(self, dtype: str) -> float:
        """Return the share of the peak rate that long passes sustain [-]."""
        peaks: Mapping[str, DtypePeak] = self.dtype  # type: ignore[assignment]  # keys are strings
        return peaks[self.compute_dtype(dtype)].sustained

    def ridge_point(self, dtype: str) -> float:
        """Return peak arithmetic over peak bandwidth for `dtype` [FLOP/B]."""
        return self.peak_flops_per_s(dtype) / self.memory.peak_bytes_per_s


def load_hardware(name: str | Path, argument: str = "hardware") -> HardwareProfile:
    """Return a hardware profile by name or path.

    Parameters
    ----------
    name
        A name from `known_hardware`, or the path of a TOML file.
    argument
        Name of the argument in errors.

    Examples
    --------
    >>> load_hardware("h200_sxm").memory.peak_bytes_per_s
    4800000000000.0
    """
    return records.load(HardwareProfile, own_or_shipped(name, argument), FOLDER, argument)


@cache
def profiles_by_reported_name() -> dict[str, str]:
    """Return the shipped profiles by the names that CUDA reports for their devices."""
    profiles = {name: load_hardware(name) for name in list_hardware()}
    return {told: name for name, profile in profiles.items() for told in profile.reported_names}


def list_hardware() -> list[str]:
    """Return the names of the hardware profiles that ship with the package.

    Examples
    --------
    >>> "a800_sxm_80gb" in list_hardware()
    True
    """
    return list(records.list_names(FOLDER))


def known_hardware() -> list[str]:
    """Return `list_hardware` and the names of the user's own profiles."""
    return [*list_hardware(), *sorted(path.stem for path in own_folder().glob("*.toml"))]


def full_name(typed: str, known: Collection[str]) -> str:
    """Return the known name for a short name, else what was typed.

    >>> full_name("H100", ["h100_pcie", "h100_sxm"])
    'h100_sxm'
    """
    found = SHORT.get(letters_of(typed), typed)
    return found if found in known and not {*spellings(typed)} & {*known} else typed


def own_or_shipped(name: str | Path, argument: str = "hardware") -> str | Path:
    """Return the path of one of the user's own profiles by its name, else the name itself."""
    if name in list_hardware() or not isinstance(name, str):
        return name
    name = full_name(name, known_hardware())
    if name in list_hardware() or not (name == OWN or name in known_hardware()):
        return name
    path = own_folder() / f"{name}.toml"
    if not path.exists():
        expected = f"This GPU is not calibrated yet: {path} is missing."
        raise InputError(argument, name, expected)
    return path
