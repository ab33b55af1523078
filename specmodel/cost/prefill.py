"""Seconds of a prompt's prefill, and how much of it steps carry for other requests."""

from specmodel.base.units import FloatArray, Numeric, check
from specmodel.cost.deployment import Deployment
from specmodel.cost.latency import draft_pass, target_pass
from specmodel.cost.passes import PassTime
from specmodel.layers.batch import SequenceGroup, sequence_group


def prefill_pass(deployment: Deployment, prompt_length: Numeric) -> PassTime:
    """Return the time of the pass that prefills one prompt on each replica, all of it at once.

    Parameters
    ----------
    deployment
        What runs where.
    prompt_length
        Tokens of the prompt, none of them cached, any shape [token].

    Returns
    -------
    PassTime
        Time by component; only the last token gives logits.

    Raises
    ------
    InputError
        If a prompt has no token.

    Notes
    -----
    Of a MoE the union of experts follows the law of `experts.expert_use`, which was met at up to
    16 tokens of a sequence: that 8,192 tokens leave a third of 256 experts unused, at the typical
    correlation, is an extrapolation. It hardly moves the time, which is arithmetic by then, but
    for experts that are spread over GPUs, whose load is the less even: 10 % of a pass.

    Engines cut longer prompts into chunks, usually of 8,192 tokens: beside one pass, two chunks of
    a prompt of 16,384 take 1 % longer (dense), 3 % (MoE) or 6 % (latent attention, which makes keys
    and values of the first chunk anew), eight chunks of 65,536 take 2, 4 and 14 %. Each chunk is a
    group of sequences of `target_pass`, with what came before as its context.

    Examples
    --------
    >>> from specmodel.cost.deploying import deploy
    >>> d, _ = deploy(target="llama-3.1-8b", hardware="h100_sxm", stack="datasheet")
    >>> float(prefill_pass(d, 8192).total_time.round(3))
    0.148
    """
    tokens = check("prompt_length", prompt_length, minimum=1)
    return _waiting(deployment, target_pass(deployment, _prompts(deployment, tokens)))


def draft_prefill_pass(deployment: Deployment, prompt_length: Numeric) -> PassTime | None:
    """Return the time of the pass in which a draft model reads a prompt, likewise.

    Parameters
    ----------
    deployment, prompt_length
        As `prefill_pass` takes them.

    Returns
    -------
    PassTime or None
        None for look-ups, and for heads, whose layer beside the target's many is not counted.
    """
    drafter = deployment.drafter
    if drafter.is_head or drafter.is_lookup:
        return None
    prompts = _prompts(deployment, prompt_length)
    return _waiting(deployment, draft_pass(deployment, drafter.architectures[0], prompts))


def _prompts(deployment: Deployment, tokens: Numeric) -> SequenceGroup:
    """Return a prompt of so many tokens on each replica."""
    return sequence_group(
        batch_size=deployment.layout.replicas, tokens_per_sequence=tokens, logits_per_sequence=1
    )


def _waiting(deployment: Deployment, time: PassTime) -> PassTime:
    """Return a pass with what it waits for the host."""
    return time if deployment.engine.hides_host == "none" else time.beside_host()


def carried_prefill(
    prefill_time: FloatArray, batch_size: FloatArray, output_length: FloatArray
) -> FloatArray:
    """Return the prefill that an engine does for other requests while each makes one token.

    Parameters
    ----------
    prefill_time
        Of one prompt [s].
    batch_size
        Requests of one replica of the engine, which ends and admits them in turn [request].
    output_length
        Tokens that each makes [token].

    Returns
    -------
    FloatArray
        ``(batch_size - 1) / output_length * prefill_time`` [s].

    Notes
    -----
    In steady state, every request that the engine holds ends once in the time in which any of
    them makes its ``output_length`` tokens, and another takes its place. A request therefore sees
    the prompts of the ``batch_size - 1`` others prefilled once each while it decodes; its own came
    before its first token, and is part of its time to first token. That time falls on
    ``output_length`` tokens, which are as many steps where decoding is plain: each step carries
    ``(batch_size - 1) / output_length`` prefills. Where a step makes several tokens a request,
    there are fewer steps, and each carries that many times as much. Replicas with data-parallel
    attention prefill side by side, each the prompts of its own requests. Fitted to published decode
    times of whole engines, the coefficient is 0.90 to 1.03; 1 is taken. One prompt is taken to
    wait for no other, and a step with a chunk of a prompt to take as long as both apart.

    Examples
    --------
    >>> import numpy as np
    >>> float(carried_prefill(np.array(0.1), np.array(101.0), np.array(1000.0)).round(3))
    0.01
    """
    return (batch_size - 1) / output_length * prefill_time
