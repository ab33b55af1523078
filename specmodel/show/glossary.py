"""Words of answers, each told once: in help, on pages, in the README and the docs.

Imports nothing, as commands import it before they know whether only their help is wanted.
"""

LIMITS = {
    "bandwidth": "reading weights other than experts'",
    "compute": "arithmetic",
    "experts": "weights of the experts that more tokens load",
    "KV": "reading the KV cache",
    "state": "writing and reading states of recurrent layers",
    "index": "choosing what sparse attention reads",
    "communication": "messages between GPUs",
    "overhead": "launching kernels and the engine's host",
    "prefill": "prompts of other requests, where steps carry them",
    "drafting": "the drafter's own passes",
    "memory": "a draft would gain, but none fits",
    "none": "nothing: no draft",
}
"""What ``limited by`` may say, and what it means: what lengthens a step most."""

WORDS = {
    "acceptance rate": "chance that a drafted token is accepted, all before it having been",
    "tokens a step": "tokens that a step emits for a request: those accepted and one more",
    "draft length": "tokens drafted for each request in a step; 0 or none is plain decoding",
    "batch size": "requests that are decoded together",
    "context": "tokens of a request in the KV cache before a step",
    "TPOT": "time per output token of a request, after the first; the mean under load counts each"
    " token once, so that long outputs weigh more",
    "TTFT": "time to the first token of a request, from its arrival",
    "speedup": "TPOT without speculation over TPOT with it",
    "80 % interval": "fitted to hold eight of ten published runs; it held 63 to 68 % of others'",
    "chance of a gain": "how likely the true speedup is above 1",
    "decode step": "a step of the target without a draft: one token a request",
    "verify time": "of the target's pass over a draft and the token before it",
    "reject time": "what the engine's host takes to keep and drop drafted tokens",
    "target efficiency": "a decode step over the pass that verifies a draft; 1: verifying is free",
    "break-even": "the acceptance rate, or tokens a step, from which speculation pays",
    "step efficiency": "tokens a step over the most that a step could emit, draft length + 1",
    "accepted fraction": "accepted over drafted tokens; engines' draft acceptance rate",
    "proposal rate": "share of steps for which a look-up finds a draft",
    "utility": "Cascade's word for tokens a step over what a step costs in decode steps",
    "experts loaded": "distinct experts of a layer whose weights a pass reads",
    "head": "a small drafter on top of the target: EAGLE, EAGLE-3, MTP, DFlash, DSpark",
    "pard, suffix, p-eagle": "drafters; specmodel list drafters says what each is",
    "look-up": "a drafter without weights: it finds the last tokens in what was said before",
    "draft_time": "all drafting of a step, with its part of the host's time that the step waits"
    " for: less, the longer the target's pass beside which the host works",
    "chain, tree": "a draft of one token after another; one with several after each",
    "engine": "what serves: its host's time for each step, by a fit to published measurements",
    "host": "the processor beside the GPU, which launches passes and samples tokens",
    "host_speed": "how many times as fast a host is as the mean of those published",
    "gpu_time_factor": "how many times as long the GPU takes as its kernels were fitted to take",
    "pass_time": "what the host takes for each pass of the target",
    "draft_pass_time": "what the host takes for each pass of the drafter",
    "tree_time": "what drafts that are trees take more on the GPU, to build and to mask",
    "group_time": "what a kernel takes more for each expert, or other group, that it works on",
    "memory_efficiency": "bandwidth that a kernel reaches over the GPU's peak",
    "compute_efficiency": "arithmetic a second that a kernel reaches over the GPU's peak",
    "activation_efficiency": "bandwidth that activations reach over the GPU's peak",
    "rejection": "what of the speedup is lost as not all drafted tokens are accepted",
    "active": "parameters that one token uses, of all that a model has",
    "spec v2": "SGLang's speculation in which the host works beside the GPU; default since 0.5.7",
    "GB": "10^9 bytes; memory that a data sheet calls 80 GB is 80 GiB, 85.9 GB",
    "stack": "whose kernels: those of an engine, fitted on a GPU, or typical of GPUs",
    "data sheet": "peaks of a GPU, which no kernel reaches",
    "routing_correlation": "how alike tokens of one request choose experts; 0: independently",
    "popularity": "how often each expert is used",
    "popularity_spread": "how unequal that is: standard deviation over mean, 0 for equal",
    "memory_utilization": "share of a GPU's memory that an engine fills",
    "tensor parallel": "GPUs that each matrix is cut over",
    "data parallel": "replicas of all but the experts, which share the batch",
    "expert parallel": "groups of GPUs that whole experts are spread over",
    "decode context parallel": "GPUs that share a sequence's tokens where each would cache all",
    "recurrence": "kernels of recurrent layers (linear attention), which keep a state, not KV",
    "state_rollback": "native: a state is kept for each token; replay: accepted ones run again",
    "state_slots": "states of recurrent layers that an engine reserves for each request",
    "tile_rows, tile_growth": "fewer tokens than this take a kernel's arithmetic no less time; how"
    " that grows with them",
    "at a bound, fits_at_bound": "a fit ended at the least or most that it was allowed, so that"
    " less is known",
    "near_peak_first, _last": "peak range: first and last of the batch sizes around the best one"
    " with at least 0.71 (1/sqrt 2) of its speedup; no interval",
    "peak_batch_size_low, _high": "80 % interval of the best batch size: errors of kernels and host"
    " are drawn, alike at all batch sizes, of which each keeps its draft length",
    "capacity": "the largest rate of requests of which enough are within the targets",
    "running": "requests that a server decodes or prefills at once, in the mean",
    "by formula": "in the steady state by queueing theory, beside what was simulated",
    "attainment": "the share of requests that should be within both targets",
    "lost": "what a schedule gains less than the best length at each batch size",
    "over oracle, regret": "how much more time a policy takes than the oracle",
    "steps testing": "share of steps in which Cascade tries how a length does",
    "slower by, slowdown": "how much longer a workload takes than without drafts; 0 where it gains",
    "drafter_upkeep": "what a loaded drafter adds to a step that has no draft",
    "1 % more of, elasticity": "per cent that a figure moves for an input 1 % higher",
    "first-order, total": "Sobol' indices: the share of the variance that an input decides alone;"
    " and together with others too",
    "bias": "mean of signed errors, of kernels their median",
    "within 80 %, coverage": "share of measured rows within the 80 % interval; 80 % is right",
}
"""What other words mean."""


def policy_words() -> dict[str, str]:
    """Return a description of each policy of ``simulate`` and ``load``, by name."""
    from specmodel.replay.policies.known import KNOWN

    learning = {name: kind.words for name, kind in KNOWN.items()}
    return {
        "none": "never drafts",
        "fixed:K": "drafts K tokens in each step; sweeps of K are fixed:1,fixed:2,...",
        "best-fixed": "the best fixed length in hindsight, a bound",
        "table:FILE": "the length that a schedule has for a batch of one (specmodel schedule)",
        "below:B:K": "K tokens where at most B requests run, none where more do",
        **learning,
        "schedule": "load: the best length for the requests that run",
        "adaptive-verification": "load: vLLM's rule, which drafts in full and verifies by"
        " batch what gives most",
        "oracle": "the best lengths of the whole request in hindsight, a bound",
        "MODULE:CLASS": "yours, of mine.py in this folder: class MyPolicy with propose(self) ->"
        " int, the next draft length, and observe(self, emitted_tokens, step_time), told the tokens"
        " accepted + 1, the target's own, and seconds; its __init__ may take step_time,"
        " max_draft_length, draft_lengths and generator, which are given, and settings after"
        " colons: mine:MyPolicy:window=20",
    }


def limits_told(names: set[str], opening: str = "Limited by") -> str:
    """Return a sentence that explains the limits in `names`; "" if there is none."""
    known = [f"{name}: {words}" for name, words in LIMITS.items() if name in names - {"none"}]
    return f"{opening} {'; '.join(known)}." if known else ""
