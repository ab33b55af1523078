"""Compute the time of a prompt's prefill, and the share of it in steps of other requests."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from specmodel.core.base.units import FloatArray, Numeric, check
from specmodel.core.cost.deployment import Deployment
from specmodel.core.cost.latency import KernelErrors, draft_pass, launched, target_pass
from specmodel.core.cost.passes import PassTime
from specmodel.core.drafters.passes import Part
from specmodel.core.layers.batch import SequenceGroup, sequence_group
from specmodel.core.machines.engine import Hiding
from specmodel.core.machines.hardware import HardwareProfile
from specmodel.core.models.architecture import Architecture


def prefill_pass(deployment: Deployment, prompt_length: Numeric) -> PassTime:
    """Return the time of the pass that prefills one whole prompt on each replica.

    The union of experts follows the law of `experts.expert_use`, which measurements support up to
    16 tokens of a sequence. At the typical correlation, 8,192 tokens leave a third of 256 experts
    unused. This is an extrapolation, but it hardly changes the time, which arithmetic limits. If
    experts are spread over GPUs, their load is less even, which adds 10 % to a pass.

    Engines split longer prompts into chunks, usually of 8,192 tokens. Each chunk is a group of
    sequences of `target_pass`, with earlier chunks as context. Two chunks of a prompt of 16,384
    need 1 % more time than one pass (dense), 3 % (MoE) or 6 % (latent attention, which recomputes
    keys and values of the first chunk). Eight chunks of 65,536 need 2, 4 and 14 % more.

    Parameters
    ----------
    deployment, prompt_length
        What runs where, and the tokens of the prompt [token].
    """
    tokens = check("prompt_length", prompt_length, minimum=1)
    return waiting(deployment, read_by_target(deployment, (whole_prompts(deployment, tokens),)))


def read_by_target(
    deployment: Deployment, prompts: tuple[SequenceGroup, ...], beside: Numeric = 0.0
) -> PassTime:
    """Return the target's pass over prompts, launched together with `beside` further tokens.

    vLLM's whole graphs contain only steps in which all requests decode equally many tokens. A pass
    with prompts runs from graphs in pieces up to the same number of tokens, and above it from none.
    SGLang's limit counts requests and does not apply to prompts.
    """
    read = _sustained(deployment, target_pass(deployment, prompts))
    return _launched(deployment, read, deployment.target, prompts, beside)


class Prompt(NamedTuple):
    """Passes that read a prompt on each replica.

    `alone` is the target's pass with its whole host time. `added` is what the prompt adds to a
    decode step. `by_drafter` is the drafter's pass, None if the drafter does not run on the GPU.
    """

    alone: PassTime
    added: PassTime
    by_drafter: PassTime | None


def prompt_read(
    deployment: Deployment, points: Mapping[str, FloatArray], errors: KernelErrors | None
) -> Prompt:
    """Return the passes that read a prompt at points; `errors` are described in `step_times`."""
    prompts = (whole_prompts(deployment, points["prompt_length"]),)
    alone, draft = read_by_target(deployment, prompts), read_by_drafter(deployment, prompts)
    if errors:
        alone = alone.scaled(errors.verify, errors.deployment)
        draft = draft.scaled(errors.draft, errors.deployment) if draft else None
    batch, context = points["batch_size"], points["context_length"]
    decoding = SequenceGroup(batch_size=batch, context_length=context)
    added = added_by_prompts(deployment, prompts, decoding, errors=errors)
    return Prompt(alone, added, draft)


def added_by_prompts(
    deployment: Deployment,
    prompts: tuple[SequenceGroup, ...],
    decoding: SequenceGroup,
    beside: Numeric = 0.0,
    errors: KernelErrors | None = None,
) -> PassTime:
    """Return what prompts add to a pass over sequences that decode.

    Engines process both in one pass and read the weights once. On one H200, 64 requests of
    Qwen3-30B take 3 ms longer with a prompt of 256 tokens, which takes 23 ms by itself (vLLM 0.24,
    ``results/h200_vllm``). SGLang reads prompts in separate passes. Launches are described in
    `read_by_target`, `errors` in `step_times`.
    """
    if deployment.reads_prompts_apart:
        read = read_by_target(deployment, prompts, beside)
        return read.scaled(errors.verify, errors.deployment) if errors else read
    both = _sustained(deployment, target_pass(deployment, (*prompts, decoding)))
    both = _launched(deployment, both, deployment.target, prompts, beside)
    alone = target_pass(deployment, decoding)
    if errors:
        both, alone = (each.scaled(errors.forward, errors.deployment) for each in (both, alone))
    added = both.gpu_time - alone.gpu_time
    return PassTime(beside=added, host_time=both.host_time, launch_time=both.launch_time)


def added_time(added: PassTime, plain_time: FloatArray, hides_host: Hiding) -> FloatArray:
    """Return what a prompt adds to a decode step, including visible launches of both [s]."""
    if hides_host == "none":
        return added.total_time
    both = PassTime(beside=plain_time + added.gpu_time, launch_time=added.launch_time)
    return both.waiting().total_time - plain_time


def _sustained(deployment: Deployment, read: PassTime) -> PassTime:
    """Return a pass over prompts at the clock that the GPU sustains in long arithmetic.

    Kernels were timed one by one, too briefly for the GPU to lower its clock.
    """
    target = deployment.target
    dtype = target.expert_activation_dtype or target.activation_dtype
    kept = deployment.hardware.sustained(dtype)
    if kept == 1:
        return read
    computing = sum((stack.times.compute_time.sum(axis=0) for stack in read.stacks), np.zeros(()))
    return read.scaled({}, 1 + (1 / kept - 1) * np.minimum(computing / read.gpu_time, 1.0))


def read_by_drafter(deployment: Deployment, prompts: tuple[SequenceGroup, ...]) -> PassTime | None:
    """Return the pass in which a drafter reads prompts, None if it does not run on the GPU.

    Heads read prompts to compute keys and values of their own layers. vLLM 0.24 and SGLang run the
    first pass of a head over all tokens of the target's pass; of several modules, the first is
    counted. Block drafters compute their context from all tokens. The host needs no further time,
    as it launches this pass for the draft anyway. ``calibration/under_load.py pairs`` contains the
    evidence.
    """
    drafter = deployment.drafter
    if drafter.is_lookup:
        return None
    model, first = drafter.architectures[0], drafter.idle_pass
    part: Part = "context" if first.part == "context" else "layers"
    read = draft_pass(deployment, model, prompts, part, host_passes=0.0)
    return _launched(deployment, read, model, prompts, 0.0)


def _launched(
    deployment: Deployment,
    read: PassTime,
    model: Architecture,
    prompts: tuple[SequenceGroup, ...],
    beside: Numeric,
) -> PassTime:
    limit = deployment.graph_limit
    if limit is None or limit.unit != "token":
        return read
    tokens = sum((p.batch_size * p.tokens_per_sequence for p in prompts), np.asarray(beside))
    return launched(deployment, read, tokens, tokens, in_pieces=model, is_prompt=True)


def whole_prompts(deployment: Deployment, tokens: Numeric) -> SequenceGroup:
    """Return one prompt of `tokens` tokens for each replica."""
    replicas = deployment.layout.replicas
    return sequence_group(batch_size=replicas, tokens_per_sequence=tokens, logits_per_sequence=1)


def waiting(deployment: Deployment, time: PassTime) -> PassTime:
    """Return a pass with only the host time that the GPU waits for."""
    return time if deployment.engine.hides_host == "none" else time.waiting()


def carried_prefill(
    deployment: Deployment, points: Mapping[str, FloatArray], prefill_time: FloatArray | float
) -> FloatArray:
    """Return the prefill of other requests that a plain step carries, for one token of each [s].

    In steady state, every request of a replica ends once in the time in which any of them makes its
    ``output_length`` tokens, and another takes its place. While it decodes, a request therefore
    sees the prompts of the other ``batch_size - 1`` prefilled once each; its own came before its
    first token. A step with several tokens per request carries that many times as much. Replicas
    with data-parallel attention prefill at the same time. Fitted to published decode times of whole
    engines, the coefficient is 0.90 to 1.03; the model uses 1. It assumes that no prompt waits for
    another. It also assumes that a step with a chunk of a prompt takes as long as both separately.

    In ``lockstep``, equal requests are sent together and end together. Prompts of a batch of B are
    prefilled k at a time. The first k requests see B - k prompts after their own first token, and
    the last k see none: (B - k) / 2 on average. Engines that prefill before they decode, such as
    SGLang, repeat this in each wave. In engines that mix prompts with decoding, it is true of the
    first wave only: k requests then start and end in each step, and see all others but k.
    """
    requests = deployment.layout.requests_of_replica(points["batch_size"])
    at_once = np.maximum(step_tokens(deployment.hardware) / points["prompt_length"], 1.0)
    in_lockstep = np.maximum(requests - at_once, 0.0) / 2
    met = np.where(points.get("lockstep", False), in_lockstep, requests - 1)
    return np.asarray(met / points["output_length"] * prefill_time)


def most_running(hardware: HardwareProfile) -> int:
    """Return the requests of a replica that vLLM runs at most by default on a GPU [request]."""
    return 256 if step_tokens(hardware) == 2048 else 1024


def step_tokens(hardware: HardwareProfile) -> int:
    """Return the tokens that an engine schedules in a step by default on a GPU [token].

    They are vLLM's (``EngineArgs.get_batch_defaults``, the usage OPENAI_API_SERVER). SGLang's
    chunks are as long on GPUs of 70 GiB and more, A100s aside.
    """
    memory, is_small = hardware.memory.capacity_bytes, "a100" in hardware.name.lower()
    if is_small or memory < 70 * 2**30:
        return 2048
    return 8192 if memory < 160 * 2**30 else 16384
