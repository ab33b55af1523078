"""List what a deployment assumes for arguments that were not given."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from specmodel.core.algebra.acceptance import TYPICAL_PROPOSAL_RATE
from specmodel.core.base.naming import LLAMA_CPP
from specmodel.core.base.notes import Note
from specmodel.core.base.units import NORMAL_80
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.kinds import kernels_of, narrows_cache, places_taken
from specmodel.core.drafters.heads import DERIVED
from specmodel.core.drafters.passes import Drafter
from specmodel.core.layers.kinds import FITTED_KINDS, KINDS, MAIN_KINDS
from specmodel.core.layers.states import StateKeeping
from specmodel.core.machines.kernels import TYPICAL
from specmodel.core.machines.versions import named_version, nearest_read

DTYPES = ("weight_dtype", "activation_dtype", "kv_dtype", "expert_dtype", "embedding_dtype")
POPULARITY = ("popularity", "popularity_exponent")
EQUAL = "equal"
"""Name of the popularity at which all experts are used equally often, as with random weights."""


def assumptions(
    deployment: Deployment, given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the assumptions of a deployment, by the name of the argument that was not given.

    Values are defaults, or notes on them. `given` and `defaults` contain arguments by name.
    """
    target, assumed = deployment.target, _defaults_taken(deployment, given, defaults)
    ignored = dict.fromkeys(
        key for model in deployment.models for key in model.ignored_config_keys or ()
    )
    assumed |= {"ignored_config_key": ", ".join(ignored)} if ignored else {}
    named = named_version(given.get("engine"))
    if named and (read := nearest_read(*named)):
        assumed["engine_version"] = f"{deployment.engine.name} with the rules of {read}"
    if target.experts and not given.keys() & set(POPULARITY):
        spread = target.experts.popularity_spread
        unequal = f"unequal, standard deviation {spread:g} times the mean"
        assumed["popularity"] = unequal if spread else EQUAL
    if len(target.kinds_of_experts) > 1:
        most = {"num_experts": target.num_experts}
        assumed["active_experts"] = Note("experts_of_most_layers", most)
    if target.ngram_memory and not target.ngram_memory.is_on_gpu:
        tables = {"bytes": target.ngram_memory.table_bytes}
        assumed["ngram_memory"] = Note("tables_on_host", tables)
    if deployment.has_drafter:
        assumed |= _assumed_of_drafter(deployment.drafter, given)
    dtypes: dict[str, list[Any]] = {}
    of_user = given.get("weight_dtype")
    for field, dtype in target.own_dtypes:
        if dtype not in (given.get(field), of_user):
            dtypes.setdefault(field, [assumed[field]] if field in assumed else []).append(dtype)
    for field, several in dtypes.items():
        is_one = len(several) == 1
        assumed[field] = several[0] if is_one else Note("dtypes", {"dtypes": several})
    for dtype, wider in deployment.wider_dtypes.items():
        assumed["arithmetic"] = Note("wider_arithmetic", {"dtype": wider, "lacking": dtype})
    return assumed | assumed_of_kernels(deployment)


def _defaults_taken(
    deployment: Deployment, given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the defaults of arguments that were not given, including defaults from records."""
    target = deployment.target
    values = {**defaults} | {name: getattr(target, name) for name in DTYPES}
    if deployment.engine.stack == LLAMA_CPP:
        values["engine"] = LLAMA_CPP
    values |= {"stack": deployment.kernels.stack, "state_slots": state_slots(deployment.states)}
    values |= {"routing_correlation": deployment.routing_correlation}
    values |= {"draft_tensor_parallel": deployment.draft_layout.tensor_parallel}
    if deployment.engine.is_of_mean_host:
        note = "mean_host" if deployment.hardware.host_speed == 1 else "usual_host"
        values["host_speed"] = Note(note, {"speed": deployment.engine.host_speed})
    is_recurrent = deployment.recurrent_model is not None
    matters = {
        "routing_correlation": target.is_moe,
        "expert_parallel": target.is_moe,
        "decode_context_parallel": len(target.token_cuts(deployment.tensor_parallel)) > 1,
        "draft_tensor_parallel": not (deployment.drafter.is_lookup or deployment.drafter.is_head),
        "state_rollback": is_recurrent,
        "state_slots": is_recurrent and not deployment.engine.state_slots,
    }
    taken = {n for n in values.keys() - given.keys() if matters.get(n, True)}
    assumed = {n: value for n, value in values.items() if n in taken and value is not None}
    stack = deployment.engine.stack or deployment.kernels.stack
    is_narrow = target.kv_dtype == "fp8" and narrows_cache(target, deployment.hardware, stack)
    if "kv_dtype" in assumed and is_narrow:
        assumed["kv_dtype"] = Note("engine_kv_dtype", {"dtype": target.kv_dtype, "engine": stack})
    elif "kv_dtype" in assumed and target.other_kv_dtype not in (None, target.kv_dtype):
        dtypes = {"dtype": assumed["kv_dtype"], "other": target.other_kv_dtype}
        assumed["kv_dtype"] = Note("other_kv_dtype", dtypes)
    return assumed


def state_slots(states: StateKeeping) -> Note:
    """Return a note on the states that a request reserves with one and with two drafted tokens."""
    reserved = states.states(np.array([2.0, 3.0])).tolist()
    return Note("state_slots", {"states": reserved, "slots": states.slots})


def _assumed_of_drafter(drafter: Drafter, given: Mapping[str, Any]) -> dict[str, Any]:
    if not drafter.is_lookup:
        head, told = drafter.architectures[0], dict(drafter.assumed)
        if head.source == DERIVED and not told:
            told = {"draft_head": "usual sizes"}
        return {"draft_dtype": head.weight_dtype, **told}
    is_record = isinstance(given.get("drafter"), Drafter)
    defaults = {"proposal_rate": 1.0 if is_record else TYPICAL_PROPOSAL_RATE, "lookup_time": 0.0}
    kept = {name for name, value in defaults.items() if getattr(drafter, name) == value}
    return {name: value for name, value in defaults.items() if name in kept - given.keys()}


def assumed_of_kernels(deployment: Deployment) -> dict[str, Any]:
    """Return the assumptions on kernels and links: borrowed or typical fits, and fits at bounds."""
    kernels, run = deployment.kernels, kernels_of(deployment.target)
    if kernels.record is None:
        return {}
    places = {kind: kernels.place(kind, *run[kind]) for kind in FITTED_KINDS if kind in run}
    assumed = dict[str, Any]()
    for kind, place in places.items():
        if place is None:
            continue
        taken = place[0] if place[0] != kind and KINDS[place[0]].assumption else ""
        is_typical = place not in kernels.borrowed and kernels.is_typical(place)
        if taken or (is_typical and kind in MAIN_KINDS):
            assumed[kind] = Note("kernels", {"taken": taken, "is_typical": is_typical})
    assumed |= _assumed_of_link(deployment)
    for place in places_taken(kernels, deployment.target):
        if place in kernels.borrowed:
            assumed["_".join(place)] = Note("borrowed", {"of": kernels.borrowed[place]})
    those = dict.fromkeys(filter(None, places.values()))
    fits = [(kind, kernels.fits[kind][dtype]) for kind, dtype in those]
    bounds = [(kind, name, getattr(fit, name)) for kind, fit in fits for name in fit.at_bound]
    return assumed | ({"fits_at_bound": Note("fits_at_bound", {"fits": bounds})} if bounds else {})


def _assumed_of_link(deployment: Deployment) -> dict[str, Any]:
    """Return the assumptions on messages that nobody timed on this stack."""
    link, layout = deployment.hardware.link, deployment.layout
    if link is None or layout.num_gpus == 1:
        return {}
    assumed: dict[str, Any] = {"link_efficiency": 1.0} if link.efficiency == 1 else {}
    is_whole = layout.replicas > 1 and not layout.gathers_tokens
    if is_whole and deployment.target.is_moe and not deployment.engine.exchange:
        assumed["exchange"] = Note("exchange", {"exchange": deployment.code.exchange})
    stack = deployment.kernels.link_stack
    if layout.tensor_parallel > 1 and link.taken_all_reduce(stack) == TYPICAL:
        factor = math.exp(NORMAL_80 * deployment.message_spread)
        assumed["all_reduce"] = Note("typical_all_reduce", {"factor": factor})
    return assumed
