"""From what people name to a deployment: records, dtypes, degrees, what-ifs of single fields."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack, cast, get_args

import numpy as np

from specmodel.algebra.acceptance import TYPICAL_PROPOSAL_RATE
from specmodel.algebra.experts import MAX_TOKENS_PER_SEQUENCE, TYPICAL_ROUTING_CORRELATION
from specmodel.algebra.routing import zipf_popularity
from specmodel.base.dtypes import check_dtype
from specmodel.base.errors import InputError, nearest
from specmodel.base.records import read_numbers
from specmodel.base.units import NORMAL_80, FloatArray, check
from specmodel.cost.activations import with_usual_activations
from specmodel.cost.arguments import DeploymentArguments
from specmodel.cost.deployment import NO_DRAFTER, TYPICAL_MEMORY_UTILIZATION, Deployment
from specmodel.cost.kinds import kernels_of, places_taken
from specmodel.drafters.by_name import Drafter, load_drafter, model_drafter
from specmodel.layers.kinds import FITTED_KINDS, KINDS, MAIN_KINDS
from specmodel.layers.states import Rollback, StateKeeping
from specmodel.machines.engine import LARGEST_GRAPH, EngineProfile, load_engine
from specmodel.machines.hardware import HardwareProfile, choose_kernels, load_hardware
from specmodel.machines.kernels import TYPICAL, FittedStack
from specmodel.machines.stand_ins import words_of
from specmodel.models.architecture import Architecture, load_architecture

RECORDS = ("hardware", "engine", "target", "drafter")
"""What has fields of its own, which a what-if may replace."""
DEGREES = ("tensor_parallel", "data_parallel", "expert_parallel", "draft_tensor_parallel")
GPU_DEGREES = DEGREES[:3]
"""Those that decide how many GPUs there are."""
DTYPES = ("weight_dtype", "activation_dtype", "kv_dtype", "expert_dtype", "embedding_dtype")
PART_DTYPES = ("attention_dtype", "mtp_dtype")
"""Dtypes of parts that follow the other weights unless told otherwise."""
_ALL_DTYPES = (*DTYPES, *PART_DTYPES)
LOOKUP = ("lookup_time", "proposal_rate")
POPULARITY = ("popularity", "popularity_exponent")
SHARES = ("routing_correlation", "memory_utilization")
ROLLBACKS: tuple[Rollback, ...] = get_args(Rollback)
NAMES = (
    *(*RECORDS, "stack", "host_speed", "graph_limit", "tree_width", "state_rollback"),
    *(*DEGREES, *SHARES),
    *(*_ALL_DTYPES, *LOOKUP, *POPULARITY),
)
"""What `resolve` takes beside fields of records."""

_SLOTS_OF = {"chain": "vLLM without prefix caching", "aligned": "vLLM", "scratch": "SGLang"}
"""Who reserves states in each way."""

_EXCHANGES = {
    "gather": "all tokens to all GPUs",
    "copies": "a copy for each expert, as by DeepEP",
    "ranks": "a copy for each GPU",
}
"""How tokens get to whole experts of other GPUs; ``engine.exchange`` takes another."""

DEFAULT_ENGINE = "vllm"
"""Whose host overheads and kernels are taken where nobody names an engine."""

_DEFAULTS: dict[str, Any] = {
    "engine": DEFAULT_ENGINE,
    "routing_correlation": TYPICAL_ROUTING_CORRELATION,
    "memory_utilization": TYPICAL_MEMORY_UTILIZATION,
    "state_rollback": "native",
    **dict.fromkeys(DEGREES, 1),
    "data_parallel": None,  # as many as expert_parallel needs
}


def deploy(**arguments: Unpack[DeploymentArguments]) -> tuple[Deployment, dict[str, Any]]:
    """Return a deployment from records, names or paths, and what was assumed in making it.

    It has just what is named: without degrees one GPU, without a drafter none. `predict` takes what
    is usual instead.

    Parameters
    ----------
    **arguments
        What runs where: those of `PlainArguments` and `DeploymentArguments`.

    Examples
    --------
    >>> deployment, assumed = deploy(target="mixtral-8x7b", hardware="h100_sxm", drafter="ngram")
    >>> assumed["routing_correlation"]
    0.18
    """
    for name in ("target", "hardware"):
        if arguments.get(name) is None:
            raise InputError(name, None, "a record, a name or a path")
    names = DeploymentArguments.__annotations__
    for name, value in arguments.items():
        if name not in names:
            raise InputError(name, value, f"an argument such as {nearest(name, names)}")
    return resolve(arguments)


def resolve(
    values: Mapping[str, Any],
    prefix: str = "",
    lay_out: Callable[[Deployment], tuple[dict[str, Any], str]] | None = None,
) -> tuple[Deployment, dict[str, Any]]:
    """Return a deployment from values by name, and what was assumed in making it.

    Names are target, hardware and any other of `NAMES`, or, with a dot, fields of the four records
    that are to be replaced, such as hardware.memory.peak_bytes_per_s; values of None and other
    names are passed over. Errors carry `prefix` before the name of a field. `lay_out` returns
    degrees for the deployment on one GPU, and what to say of them.
    """
    changes = _changes(values)
    given = {name: values[name] for name in NAMES if values.get(name) is not None}
    chosen = _DEFAULTS | given
    engine = _record(chosen["engine"], EngineProfile, load_engine)
    engine = engine.with_changes(f"{prefix}engine", changes["engine"])
    if "host_speed" in given:
        engine = engine.on_host(_single("host_speed", given))
    if "graph_limit" in given:
        engine = engine.with_graphs_of(_degree("graph_limit", given, LARGEST_GRAPH))
    hardware = _record(chosen["hardware"], HardwareProfile, load_hardware)
    hardware = hardware.with_changes(f"{prefix}hardware", changes["hardware"])
    if hardware.kind == "cpu":  # its host is the processor that computes, and has no second stream
        engine = replace(engine, hides_host="none", shared_beside=())
    dtypes = {name: check_dtype(name, given[name]) for name in _ALL_DTYPES if name in given}
    load = partial(load_architecture, weight_dtype=dtypes.get("weight_dtype"))
    target = _record(chosen["target"], Architecture, load)
    target = _alike(target, dtypes)
    target = target.with_changes(f"{prefix}target", changes["target"] | dtypes)
    kernels = choose_kernels(hardware, given.get("stack"), engine.stack)
    target = with_usual_activations(target, hardware, engine.stack or kernels.stack, dtypes)
    drafter = _drafter(given, target).run_by(engine.draft_model_first)
    deployment = Deployment(
        target=target,
        drafter=drafter.with_changes(f"{prefix}drafter", changes["drafter"]),
        hardware=hardware,
        engine=engine,
        kernels=kernels,
        popularity=_popularity(given, target),
        state_rollback=_rollback(chosen["state_rollback"]),
        tree_width=_degree("tree_width", {"tree_width": 1} | given, MAX_TOKENS_PER_SEQUENCE),
        **{name: _single(name, chosen) for name in SHARES},
        **{name: _degree(name, chosen) for name in DEGREES if chosen[name] is not None},
    )
    degrees, told = lay_out(deployment) if lay_out else ({}, "")
    return laid_out(deployment, values, degrees, told)


def laid_out(
    deployment: Deployment, values: Mapping[str, Any], degrees: Mapping[str, Any], told: str = ""
) -> tuple[Deployment, dict[str, Any]]:
    """Return a deployment of values by name with these degrees, and what was then assumed.

    `told` says why, where the degrees are assumed too.
    """
    deployment = replace(deployment, **degrees) if degrees else deployment
    known = {name: values[name] for name in NAMES if values.get(name) is not None} | {**degrees}
    known |= dict.fromkeys(GPU_DEGREES) if told else {}
    changed = _changes(values)["engine"]
    known |= {"engine": None} if changed else {}
    known |= {"host_speed": None} if "host_speed" in changed else {}
    return deployment, ({"gpus": told} if told else {}) | _assumed(deployment, known)


def _alike(target: Architecture, dtypes: Mapping[str, str]) -> Architecture:
    """Return the target without dtypes of single layers' mixers, where one for all is given."""
    if "attention_dtype" not in dtypes:
        return target
    layers = (replace(group, mixer_dtype=None, output_dtype=None) for group in target.layers)
    return replace(target, layers=tuple(layers))


def _degree(name: str, values: Mapping[str, Any], most: float = np.inf) -> Any:
    return int(check(name, _single(name, values), minimum=1, maximum=most, whole=True))


def _rollback(value: Any) -> Rollback:
    if value not in ROLLBACKS:
        raise InputError("state_rollback", value, f"one of: {', '.join(ROLLBACKS)}")
    return cast(Rollback, value)


def _single(name: str, values: Mapping[str, Any]) -> Any:
    if np.ndim(np.asarray(values[name], dtype=object)):
        raise InputError(name, values[name], "one number for the deployment")
    return values[name]


def _assumed(deployment: Deployment, given: Mapping[str, Any]) -> dict[str, Any]:
    target, assumed = deployment.target, _defaults_taken(deployment, given)
    models = (target, *deployment.drafter.architectures)
    ignored = dict.fromkeys(key for model in models for key in model.ignored_config_keys or ())
    assumed |= {"ignored_config_key": ", ".join(ignored)} if ignored else {}
    if target.is_moe and deployment.popularity is None:
        assumed["popularity"] = "equal"
    if len(target.kinds_of_experts) > 1:
        assumed["active_experts"] = f"those of layers with {target.num_experts}, which most have"
    if target.ngram_memory and target.ngram_memory.host_bytes:
        size = target.ngram_memory.host_bytes / 1e9
        assumed["ngram_memory"] = f"{size:.0f} GB of tables on the host"
    if deployment.has_drafter:
        assumed |= _assumed_of_drafter(deployment.drafter, given)
    for field, dtype in target.own_dtypes:
        if dtype == given.get(field):
            continue
        assumed[field] = f"{assumed[field]} and {dtype}" if field in assumed else dtype
    for dtype, wider in deployment.wider_dtypes.items():
        assumed["arithmetic"] = f"{wider} (no {dtype} peak)"
    return assumed | assumed_of_kernels(deployment)


def _defaults_taken(deployment: Deployment, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults taken for arguments that were not given, those of records included."""
    target = deployment.target
    values = _DEFAULTS | {name: getattr(target, name) for name in DTYPES}
    values |= {"stack": deployment.kernels.stack, "state_slots": slots_text(deployment.states)}
    if deployment.engine.is_of_mean_host:
        values["host_speed"] = f"{deployment.engine.host_speed:g} (mean of published hosts)"
    told = _without_part(deployment).union(given)
    assumed = {n: value for n, value in values.items() if n not in told and value is not None}
    if "kv_dtype" in assumed and target.other_kv_dtype not in (None, target.kv_dtype):
        assumed["kv_dtype"] += f" ({target.other_kv_dtype} by hf_quant_config.json, not taken)"
    return assumed


def slots_text(states: StateKeeping) -> str:
    """Say how many states a request has reserved by drafted tokens, and which engine does so."""
    one, two = states.states(np.array([2.0, 3.0])).tolist()
    count = f"{one:g}" if one == two else f"draft_length + {one - 1:g}"
    noun = "state" if one == two == 1 else "states"
    return f"{count} {noun} a request, as {_SLOTS_OF[states.slots]}"


def _assumed_of_drafter(drafter: Drafter, given: Mapping[str, Any]) -> dict[str, Any]:
    if not drafter.is_lookup:
        return {"draft_dtype": drafter.architectures[0].weight_dtype, **dict(drafter.assumed)}
    is_record = isinstance(given.get("drafter"), Drafter)
    defaults = {"proposal_rate": 1.0 if is_record else TYPICAL_PROPOSAL_RATE, "lookup_time": 0.0}
    kept = {name for name, value in defaults.items() if getattr(drafter, name) == value}
    return {name: value for name, value in defaults.items() if name in kept - given.keys()}


def assumed_of_kernels(deployment: Deployment) -> dict[str, Any]:
    """Return what no measurement decides: bounds of fits, kernels and links taken for others."""
    record, run = deployment.kernels.record, kernels_of(deployment.target)
    if record is None:
        return {}
    places = {kind: record.place(kind, *run[kind]) for kind in FITTED_KINDS if kind in run}
    typical = deployment.kernels.typical
    said = {kind: _said_of_fit(kind, place, typical) for kind, place in places.items()}
    assumed: dict[str, Any] = {kind: text for kind, text in said.items() if text}
    assumed |= _assumed_of_link(deployment)
    bounds = _fits_at_bound(record, filter(None, places.values()))
    assumed |= _stand_ins(deployment)
    return assumed | ({"fits_at_bound": " and ".join(bounds)} if bounds else {})


def _assumed_of_link(deployment: Deployment) -> dict[str, Any]:
    """Return what is assumed of messages that nobody timed on the stack."""
    link, layout = deployment.hardware.link, deployment.layout
    if link is None or layout.num_gpus == 1:
        return {}
    assumed: dict[str, Any] = {"link_efficiency": 1.0} if link.efficiency == 1 else {}
    is_whole = layout.replicas > 1 and not layout.gathers_tokens
    if is_whole and deployment.target.is_moe and not deployment.engine.exchange:
        assumed["exchange"] = _EXCHANGES[deployment.code.exchange]
    stack = deployment.kernels.link_stack
    if layout.tensor_parallel > 1 and link.taken_all_reduce(stack) == TYPICAL:
        factor = math.exp(NORMAL_80 * deployment.message_spread)
        within = f", 80 % within a factor of {factor:.1f}" if factor > 1 else ""
        assumed["all_reduce"] = f"typical of other stacks or GPUs{within}"
    return assumed


def _stand_ins(deployment: Deployment) -> dict[str, str]:
    """Say whose kernels stand in for each kind and dtype that the stack was not fitted at."""
    kernels = deployment.kernels
    said = kernels.stand_ins
    taken = [place for place in places_taken(kernels, deployment.target) if place in said]
    return {f"{kind}_{dtype}": words_of(said[kind, dtype]) for kind, dtype in taken}


def _said_of_fit(kind: str, place: tuple[str, str] | None, typical: Collection[str]) -> str:
    """Say which kernels a kind takes the fit of, nothing if its own."""
    assumption = KINDS[place[0]].assumption if place and place[0] != kind else ""
    if place and assumption:
        return assumption + (", typical kernels" if place[0] in typical else "")
    return "typical kernels" if kind in typical and kind in MAIN_KINDS else ""


def _fits_at_bound(record: FittedStack, places: Iterable[tuple[str, str]]) -> list[str]:
    """Name the parameters at a bound of each fit that is taken, once."""
    fits = [(kind, record.of_kind(kind)[dtype]) for kind, dtype in dict.fromkeys(places)]
    return [f"{kind} {n} {getattr(fit, n):.3g}" for kind, fit in fits for n in fit.at_bound]


def _without_part(deployment: Deployment) -> set[str]:
    """Return the arguments that decide nothing for these models."""
    names = set() if deployment.target.is_moe else {"routing_correlation", "expert_parallel"}
    is_on_target = deployment.drafter.is_lookup or deployment.drafter.is_head
    names |= {"draft_tensor_parallel"} if is_on_target else set()
    if deployment.recurrent_model is None:
        return names | {"state_rollback", "state_slots"}
    return names | ({"state_slots"} if deployment.engine.state_slots else set())


def _record(value: Any, kind: type, load: Any) -> Any:
    return value if isinstance(value, kind) else load(value)


def _changes(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    changes: dict[str, dict[str, Any]] = {record: {} for record in RECORDS}
    for name, value in values.items():
        record, dot, field = name.partition(".")
        if dot and record in changes:
            changes[record][field] = value
    return changes


def _drafter(given: Mapping[str, Any], target: Architecture) -> Drafter:
    drafter = given.get("drafter", NO_DRAFTER)
    if isinstance(drafter, Architecture):
        drafter = model_drafter(drafter)
    elif not isinstance(drafter, Drafter):
        drafter = load_drafter(drafter, target)
        if drafter.is_lookup:
            drafter = replace(drafter, proposal_rate=TYPICAL_PROPOSAL_RATE)
    lookup: dict[str, Any] = {n: float(check(n, given[n])) for n in LOOKUP if n in given}
    if lookup and (drafter == NO_DRAFTER or not drafter.is_lookup):
        name, value = next(iter(lookup.items()))
        raise InputError(name, value, "the drafter ngram or suffix with it")
    return replace(drafter, **lookup)


def _popularity(given: Mapping[str, Any], target: Architecture) -> FloatArray | None:
    popularity, exponent = (given.get(name) for name in POPULARITY)
    if popularity is None and exponent is None:
        return None
    if popularity is not None and exponent is not None:
        raise InputError("popularity", popularity, "one of popularity and popularity_exponent")
    kinds = len({(own.num_experts, own.experts_per_token) for own in target.kinds_of_experts})
    if kinds != 1:
        name, has = POPULARITY[popularity is None], "several kinds of" if kinds else "no routed"
        raise InputError(name, given[name], f"none, as {target.name} has {has} experts")
    if exponent is not None:
        return zipf_popularity(target.num_experts, target.mean_experts_per_token, float(exponent))
    if isinstance(popularity, str | Path):
        return read_numbers(Path(popularity), "popularity")
    numbers = check("popularity", popularity, minimum=0)
    if numbers.ndim != 1:
        raise InputError("popularity", f"shape {numbers.shape}", "a number for each expert")
    return numbers
