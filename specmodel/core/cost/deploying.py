"""Make a deployment from names: records, dtypes, degrees, and changes of single fields."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack, cast, get_args

import numpy as np
from msgspec.structs import replace

from specmodel.core.algebra.acceptance import TYPICAL_PROPOSAL_RATE
from specmodel.core.algebra.experts import MAX_TOKENS_PER_SEQUENCE, TYPICAL_ROUTING_CORRELATION
from specmodel.core.algebra.routing import zipf_popularity
from specmodel.core.base.dtypes import check_dtype, is_of_gguf
from specmodel.core.base.errors import InputError, refuse_unknown
from specmodel.core.base.naming import LLAMA_CPP, SWITCHES
from specmodel.core.base.notes import Note
from specmodel.core.base.records import read_numbers
from specmodel.core.base.units import check
from specmodel.core.cost.arguments import DeploymentArguments, NamedArguments
from specmodel.core.cost.assumptions import DTYPES, EQUAL, POPULARITY, assumptions
from specmodel.core.cost.deployment import NO_DRAFTER, TYPICAL_MEMORY_UTILIZATION, Deployment
from specmodel.core.cost.kinds import with_usual_activations, with_usual_cache
from specmodel.core.cost.where import NAMES, NO_DRAFTER as UNNAMED, Where, by_record
from specmodel.core.drafters.by_name import load_drafter
from specmodel.core.drafters.kinds.models import model_drafter
from specmodel.core.drafters.passes import Drafter
from specmodel.core.drafters.published import is_named, rows_of
from specmodel.core.layers.states import Rollback
from specmodel.core.machines.engine import (
    LARGEST_GRAPH,
    AttentionBackend,
    EngineProfile,
    load_engine,
)
from specmodel.core.machines.fallbacks import choose_kernels
from specmodel.core.machines.hardware import HardwareProfile, load_hardware
from specmodel.core.machines.llama_cpp import llama_cpp_kernels
from specmodel.core.models.architecture import Architecture, load_architecture
from specmodel.core.models.gguf import gguf_name

DEGREES = ("tensor_parallel", "data_parallel", "expert_parallel", "draft_tensor_parallel")
GPU_DEGREES = DEGREES[:3]
"""Degrees that decide the number of GPUs."""
PART_DTYPES = ("attention_dtype", "mtp_dtype")
"""Dtypes of parts of a model; a part has the dtype of the other weights unless it is given."""
_ALL_DTYPES = (*DTYPES, *PART_DTYPES)
_OF_FILE = ("embedding_dtype", "head_dtype", "mtp_dtype")
"""Dtypes that follow the other weights in a GGUF file."""
LOOKUP = ("lookup_time", "proposal_rate")
OF_LOOKUPS = "Only the drafters ngram and suffix use this. Remove it."
ROLLBACKS: tuple[Rollback, ...] = get_args(Rollback)
BACKENDS: tuple[AttentionBackend, ...] = get_args(AttentionBackend)
SPLIT_MODES = ("layer", "row", "tensor")
"""Ways of llama.cpp to split a model over GPUs."""

DEFAULT_ENGINE = "vllm"
"""Engine whose host overheads and kernels are used if you name no engine."""

_DATA = Path(__file__).parent / "data"
_ROUTING_OF_MODEL, _ROUTING_OF_MODELS = 0.04, 0.09
"""Standard deviations of the routing correlation: of one model between texts and sources, such as
0.15 to 0.25 for Qwen3.6 or 0.13 to 0.16 for Laguna; and between the nine measured models [-]."""

_DEFAULTS: dict[str, Any] = {
    "engine": DEFAULT_ENGINE,
    "memory_utilization": TYPICAL_MEMORY_UTILIZATION,
    "state_rollback": "native",
    **dict.fromkeys(DEGREES, 1),
    "decode_context_parallel": 1,
    "data_parallel": None,  # as many as expert_parallel needs
    "draft_tensor_parallel": None,  # as many as the target has
}


def deploy(**arguments: Unpack[DeploymentArguments]) -> tuple[Deployment, dict[str, Any]]:
    """Return a deployment made from records, names or paths, and the assumptions behind it.

    It contains only what you name: one GPU without degrees, no drafter by default. `predict` fills
    in what is usual instead.

    Parameters
    ----------
    **arguments
        What runs where: the arguments of `RunArguments` and `DeploymentArguments`.

    Examples
    --------
    >>> deployment, assumed = deploy(target="mixtral-8x7b", hardware="h100_sxm", drafter="ngram")
    >>> assumed["routing_correlation"]
    0.08
    """
    for name in ("target", "hardware"):
        if arguments.get(name) is None:
            raise InputError(name, None, "a record, a name or a path")
    refuse_unknown(arguments, DeploymentArguments.__annotations__)
    return resolve(arguments)


def resolve(values: Mapping[str, Any]) -> tuple[Deployment, dict[str, Any]]:
    """Return a deployment made from values by name, and the assumptions behind it.

    Parameters
    ----------
    values
        Values by name: target, hardware and others of `NAMES`. A name with a dot replaces a field
        of one of the four records, such as hardware.memory.peak_bytes_per_s. Values of None and
        other names are ignored.
    """
    plain, what_ifs = by_record(values)
    named = {name: value for name, value in plain.items() if name in NAMES and value is not None}
    where = Where(named=cast(NamedArguments, named), what_ifs=what_ifs)
    return laid_out(deployed_as_named(where), where, {})


def deployed_as_named(where: Where) -> Deployment:
    """Return the deployment with the degrees that were named; on one GPU if none was named."""
    what_ifs = where.what_ifs
    given: Mapping[str, Any] = where.named
    place = "changes " if where.changes else ""
    hardware = _record(given.get("hardware"), HardwareProfile, load_hardware)
    hardware = hardware.joined_by(str(given["link"])) if "link" in given else hardware
    hardware = hardware.with_changes(f"{place}hardware", what_ifs["hardware"])
    dtypes = {name: check_dtype(name, given[name]) for name in _ALL_DTYPES if name in given}
    load = partial(load_architecture, weight_dtype=dtypes.get("weight_dtype"))
    target = _record(given.get("target"), Architecture, load)
    is_llama = _is_gguf(given, target, hardware) or hardware.llama_cpp_backend == "metal"
    default = LLAMA_CPP if is_llama else DEFAULT_ENGINE
    engine = _record(given.get("engine", default), EngineProfile, load_engine)
    engine = engine.with_changes(f"{place}engine", what_ifs["engine"])
    engine = _told(engine, given)
    if engine.is_of_mean_host and "host_speed" not in given:
        engine = replace(engine, host_speed=engine.host_speed * hardware.host_speed)
    if hardware.kind == "cpu":  # the host computes: no second stream, no graphs
        engine = replace(engine, hides_host="none", shared_beside=(), graphs=None)
    if (
        engine.stack == LLAMA_CPP and "weight_dtype" in dtypes
    ):  # one dtype for all matrices of a file
        dtypes = dict.fromkeys(_OF_FILE, dtypes["weight_dtype"]) | dtypes
    if "attention_dtype" in dtypes:  # one for all layers
        layers = (replace(group, mixer_dtype=None, output_dtype=None) for group in target.layers)
        target = replace(target, layers=tuple(layers))
    target = target.with_changes(f"{place}target", {**what_ifs["target"], **dtypes})
    named = given.get("stack", engine.stack if engine.stack == LLAMA_CPP else None)
    kernels = (
        llama_cpp_kernels(hardware)
        if named == LLAMA_CPP
        else choose_kernels(hardware, named, hardware.measured_stack or engine.stack)
    )
    stack = engine.stack or kernels.stack
    timed = hardware.link.all_reduce if hardware.link else {}
    if {engine.all_reduces, kernels.link_stack} <= timed.keys():
        kernels = replace(kernels, all_reduces=engine.all_reduces)
    target = with_usual_activations(target, hardware, stack, dtypes)
    target = with_usual_cache(target, hardware, stack, {**what_ifs["target"], **dtypes})
    drafter = _drafter(given, target).run_by(engine.draft_model_first)
    if given.get("host_expert_layers") == "all":
        given = {**given, "host_expert_layers": target.expert_layers}
    settings = {name: _SETTINGS[name](name, given) for name in _SETTINGS.keys() & given.keys()}
    settings |= {} if "routing_correlation" in given else assumed_routing(target)
    return Deployment(
        target=target,
        drafter=drafter.with_changes(f"{place}drafter", what_ifs["drafter"]),
        hardware=hardware,
        engine=engine,
        kernels=kernels,
        **_popularity(given, target),
        **settings,
    )


def laid_out(
    deployment: Deployment, where: Where, degrees: Mapping[str, Any], told: Note | None = None
) -> tuple[Deployment, dict[str, Any]]:
    """Return the deployment with other parallel degrees, and the assumptions made.

    `told` is the note on the reason for the degrees, if they are assumed.
    """
    if "decode_context_parallel" in where.named:  # checked once the number of GPUs is known
        shared = _degree("decode_context_parallel", where.named)
        degrees = {**degrees, "decode_context_parallel": shared}
    deployment = replace(deployment, **degrees) if degrees else deployment
    known = {**where.named, **degrees} | (dict.fromkeys(GPU_DEGREES) if told else {})
    known |= {"engine": None} if where.what_ifs["engine"] else {}
    known |= where.what_ifs["target"]
    known |= {"host_speed": None} if "host_speed" in where.what_ifs["engine"] else {}
    return deployment, ({"gpus": told} if told else {}) | assumptions(deployment, known, _DEFAULTS)


def assumed_routing(target: Architecture) -> dict[str, float]:
    """Return the routing correlation of a target and its standard deviation, by field [-].

    ``data/routing.csv`` contains the correlations of models that were measured, or that their
    training suggests. Other targets have the typical correlation.

    >>> assumed_routing(load_architecture("gpt-oss-120b"))
    {'routing_correlation': 0.21, 'routing_deviation': 0.04}
    """
    for row in rows_of("routing.csv", _DATA):
        if is_named(target.name, row["target"]):
            correlation, deviation = float(row["routing_correlation"]), _ROUTING_OF_MODEL
            break
    else:
        correlation, deviation = TYPICAL_ROUTING_CORRELATION, _ROUTING_OF_MODELS
    return {"routing_correlation": correlation, "routing_deviation": deviation}


def _degree(name: str, values: Mapping[str, Any], most: float = np.inf, least: int = 1) -> Any:
    return int(check(name, _single(name, values), minimum=least, maximum=most, whole=True))


def _one_of(name: str, values: Mapping[str, Any], known: Sequence[str]) -> Any:
    value = str(values[name]).lower()
    if value not in known:
        raise InputError(name, values[name], f"one of: {', '.join(known)}")
    return value


def _is_on(name: str, values: Mapping[str, Any]) -> bool:
    if not isinstance(value := values.get(name, False), bool):
        raise InputError(name, value, "true or false")
    return value


def _single(name: str, values: Mapping[str, Any]) -> Any:
    if np.ndim(np.asarray(values[name], dtype=object)):
        raise InputError(name, values[name], "a single number, not a list")
    return values[name]


_SETTINGS: dict[str, Callable[[str, Mapping[str, Any]], Any]] = {
    **dict.fromkeys(("routing_correlation", "memory_utilization", "temperature"), _single),
    **dict.fromkeys(DEGREES, _degree),
    "tree_width": partial(_degree, most=MAX_TOKENS_PER_SEQUENCE),
    "host_expert_layers": partial(_degree, least=0),
    "state_rollback": partial(_one_of, known=ROLLBACKS),
}
"""Functions that check settings of a deployment, by name."""


def _told(engine: EngineProfile, given: Mapping[str, Any]) -> EngineProfile:
    """Return an engine with the settings that were given for it."""
    if "host_speed" in given:
        engine = engine.on_host(_single("host_speed", given))
    if "attention_backend" in given:
        engine = replace(engine, attention_backend=_one_of("attention_backend", given, BACKENDS))
    if "split_mode" in given:
        mode = _one_of("split_mode", given, SPLIT_MODES)
        if engine.stack != LLAMA_CPP:
            expected = f"Only llama.cpp has split modes. Add `engine='{LLAMA_CPP}'`."
            raise InputError("split_mode", mode, expected)
        engine = replace(engine, splits_layers=mode == SPLIT_MODES[0])
    if "graph_limit" in given:
        sizes = given["graph_limit"]
        is_list = isinstance(sizes, list | tuple | np.ndarray)
        one = () if is_list else _degree("graph_limit", given, LARGEST_GRAPH, least=0)
        engine = engine.with_graphs_of(sizes if is_list else one)
    return engine.told_to({name: _is_on(name, given) for name in SWITCHES if name in given})


def _record(value: Any, kind: type, load: Any) -> Any:
    return value if isinstance(value, kind) else load(value)


def _is_gguf(given: Mapping[str, Any], target: Architecture, hardware: HardwareProfile) -> bool:
    """Return whether a target is a GGUF, by its name or by a dtype of llama.cpp."""
    typed = given.get("target")
    is_named = isinstance(typed, str | Path) and gguf_name(Path(typed).name) is not None
    dtypes = (*map(given.get, _ALL_DTYPES), target.weight_dtype)
    return is_named or any(is_of_gguf(each, by_size=hardware.runs_gguf) for each in dtypes)


def _drafter(given: Mapping[str, Any], target: Architecture) -> Drafter:
    drafter = given.get("drafter", NO_DRAFTER)
    drafter = NO_DRAFTER if drafter == UNNAMED else drafter
    if isinstance(drafter, Architecture):
        drafter = model_drafter(drafter)
    elif not isinstance(drafter, Drafter):
        drafter = load_drafter(drafter, target)
        if drafter.is_lookup:
            drafter = replace(drafter, proposal_rate=TYPICAL_PROPOSAL_RATE)
    lookup: dict[str, Any] = {n: float(check(n, _single(n, given))) for n in LOOKUP if n in given}
    is_any = lookup == {"proposal_rate": 1.0}  # each step has a draft, as with all other drafters
    if lookup and (drafter == NO_DRAFTER or not (drafter.is_lookup or is_any)):
        name, value = next(iter(lookup.items()))
        raise InputError(name, value, OF_LOOKUPS)
    return replace(drafter, **lookup)


def _popularity(given: Mapping[str, Any], target: Architecture) -> dict[str, Any]:
    """Return the deployment's fields on the popularity of experts; {} if none was given."""
    popularity, exponent = (given.get(name) for name in POPULARITY)
    if popularity is None and exponent is None:
        return {}
    if popularity is not None and exponent is not None:
        raise InputError("popularity", popularity, "popularity or popularity_exponent, not both")
    kinds = len({(own.num_experts, own.experts_per_token) for own in target.kinds_of_experts})
    if kinds != 1:
        name, has = POPULARITY[popularity is None], "several kinds of" if kinds else "no routed"
        expected = f"This has no effect, as {target.name} has {has} experts."
        raise InputError(name, given[name], expected)
    if exponent == 0 or (isinstance(popularity, str) and popularity == EQUAL):
        return {"popularity_spread": 0.0}
    if exponent is not None:
        shape = target.num_experts, target.mean_experts_per_token
        return {"popularity": zipf_popularity(*shape, _single("popularity_exponent", given))}
    if isinstance(popularity, str | Path):
        numbers, E = read_numbers(Path(popularity), "popularity"), target.num_experts
        is_by_layer = numbers.size > E and numbers.size % E == 0
        return {"popularity": numbers.reshape(-1, E) if is_by_layer else numbers}
    return {"popularity": check("popularity", popularity, minimum=0)}
