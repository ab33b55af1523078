"""Study a deployment under load: the same requests under several policies."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from specmodel.core.algebra.acceptance import Acceptance, acceptance_from_lengths
from specmodel.core.algebra.money import cost_per_million_tokens
from specmodel.core.base.notes import Note
from specmodel.core.base.units import FloatArray
from specmodel.core.cost.deployment import NO_DRAFTER, Deployment
from specmodel.core.machines.engine import first_token_constants
from specmodel.core.prediction.cautions import beyond_contexts
from specmodel.core.prediction.predicting import predict_deployed
from specmodel.core.prediction.table import seconds
from specmodel.simulate.accepted import over_all_steps
from specmodel.simulate.capacity import Targets
from specmodel.simulate.choices import VERIFICATION
from specmodel.simulate.disaggregated import DisaggregatedPrefill
from specmodel.simulate.drafting import drafting, verifying
from specmodel.simulate.limits import usual_scheduler
from specmodel.simulate.machine_code import is_worth_compiling
from specmodel.simulate.outcome import Run, averages
from specmodel.simulate.requests import Arrivals, Lengths, Requests, draw_requests
from specmodel.simulate.service import Service, prepare
from specmodel.simulate.times import drafting_in_full
from specmodel.simulate.traces import Trace
from specmodel.simulate.traces.statistics import steps_at

Row = dict[str, Any]

_DEPTHS = 32
"""Number of contexts at which acceptance is evaluated, equally spaced by their logarithm [-]."""
_MOST_POSITIONS = 16
"""Number of draft positions at which the mean acceptance of a trace is evaluated [-]."""


class Study(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """A comparison: a deployment with its drafter, and the same one without a drafter.

    Parameters
    ----------
    deployment, acceptance, max_draft_length
        The deployment, its acceptance (None without drafts or with a trace), and the longest draft
        of any policy [token].
    lengths, is_redrawn
        Laws of prompts and outputs, or recorded requests; and whether lengths are drawn from the
        recorded requests, with other arrivals.
    num_requests, seed
        Requests of a run [request], and the random seed [-].
    limits
        Fields of `Scheduler` that replace vLLM's defaults.
    policy_state
        Who keeps the states of policies: "request" or "server"; None as in the source of each.
    trace
        Recorded acceptance, instead of probabilities by position. Schedules use its means.
    acceptance_by_request
        Standard deviation between requests of the logit of acceptance [-].
    prefix_hit_rate, shared_prefix
        Prompt tokens in the prefix cache, as in `Service` [-] [token].
    prefill_servers
        Servers of disaggregated prefill, 0 for none [-].
    """

    deployment: Deployment
    acceptance: Acceptance | None = None
    max_draft_length: int
    lengths: Lengths | Requests
    is_redrawn: bool = False
    num_requests: int = 2000
    seed: int = 0
    limits: tuple[tuple[str, Any], ...] = ()
    policy_state: str | None = None
    trace: Trace | None = None
    acceptance_by_request: float = 0.0
    prefix_hit_rate: float = 0.0
    shared_prefix: int = 0
    prefill_servers: int = 0

    def requests(self, arrivals: Arrivals) -> Requests:
        """Return requests that arrive at a rate or from users; recorded requests are rescaled."""
        if isinstance(self.lengths, Lengths) or self.is_redrawn:
            return draw_requests(arrivals, self.lengths, self.num_requests, self.seed)
        recorded = self.lengths
        if arrivals.users:
            times = np.zeros(recorded.count)
        elif np.isfinite(recorded.rate):
            times = recorded.arrival_time * (recorded.rate / arrivals.request_rate)
        else:  # all arrived at once
            times = np.arange(recorded.count) / arrivals.request_rate
        return replace(recorded, arrival_time=times, users=arrivals.users)

    @cached_property
    def accepted(self) -> Acceptance:
        """Acceptance over all steps, at the mean context; it gives a trace's tokens per step."""
        if self.trace is not None:
            lengths = range(1, min(self.trace.max_draft_length, _MOST_POSITIONS) + 1)
            rates = acceptance_from_lengths([steps_at(self.trace, n)[0] for n in lengths])
            return Acceptance(acceptance_by_position=rates.tolist())
        return self._accepted_at(self.typical.mean_context)

    def _accepted_at(self, context: float) -> Acceptance:
        own = (self.acceptance or Acceptance(acceptance_rate=0.0)).at_context(context)
        return over_all_steps(own, self.deployment.drafter.proposal_rate, self.max_draft_length)

    @cached_property
    def measured_by_context(self) -> Sequence[Sequence[float]]:
        """Contexts and tokens per step at each, empty unless acceptance is by context [token]."""
        return self.acceptance.at_context(0).measured_by_context if self.acceptance else ()

    @cached_property
    def by_context(self) -> dict[float, Acceptance]:
        """Acceptance over all steps by first context, empty unless it is by context [token]."""
        if not self.measured_by_context:
            return {}
        first, last = (max(self.measured_by_context[end][0], 1.0) for end in (0, -1))
        depths = np.geomspace(first, last, _DEPTHS)
        least = [0.0, *np.sqrt(depths[1:] * depths[:-1])]
        return dict(zip(least, map(self._accepted_at, depths), strict=True))

    @property
    def notes(self) -> list[Note]:
        """Notes on a recording, and on contexts beyond the measured acceptance."""
        contexts = np.array([self.typical.prompt_tokens.min(), self.typical.longest])
        of_recording = () if isinstance(self.lengths, Lengths) else self.lengths.notes
        return [*of_recording, *beyond_contexts(self.measured_by_context, contexts)]

    @property
    def num_gpus(self) -> int:
        """GPUs of a server, including those of disaggregated prefill [-]."""
        return self.deployment.layout.num_gpus * (1 + self.prefill_servers)

    @property
    def prefill_told(self) -> str:
        """Effect of disaggregated prefill, as text."""
        apart = DisaggregatedPrefill(servers=self.prefill_servers, deployment=self.deployment)
        sent = seconds(float(apart.transfer_time(self.typical).mean()))
        gpus = self.num_gpus - self.deployment.layout.num_gpus
        return f"{gpus} more GPUs prefill; sending a prompt's KV cache takes {sent} on average"

    @cached_property
    def typical(self) -> Requests:
        """Requests whose lengths decide tables and steady times."""
        return self.requests(Arrivals(request_rate=1.0))

    @property
    def assumed(self) -> dict[str, Any]:
        """Limits of the scheduler that were not given, and the engine's addition to TTFT."""
        usual = asdict(usual_scheduler(self.deployment, self.max_draft_length))
        limits = {name: value for name, value in usual.items() if name not in dict(self.limits)}
        added = f"{seconds(self.first_token_time)} (HTTP and tokenization, from the fit)"
        return limits | ({"first_token_time": added} if self.first_token_time else {})

    @cached_property
    def first_token_time(self) -> float:
        """Time that the engine adds to every TTFT for HTTP, tokenization and scheduling [s]."""
        return first_token_constants().get(self.deployment.stack or "", 0.0)

    @cached_property
    def plain(self) -> Deployment:
        """The deployment without a drafter."""
        return replace(self.deployment, drafter=NO_DRAFTER)

    @cached_property
    def drafting_service(self) -> Service:
        """The server with the drafter loaded."""
        return self._prepared(self.deployment, self.max_draft_length)

    @cached_property
    def plain_service(self) -> Service:
        """The server without a drafter."""
        return self._prepared(self.plain, 0)

    def _prepared(self, deployment: Deployment, longest: int) -> Service:
        scheduler = replace(usual_scheduler(deployment, longest), **dict(self.limits))
        return prepare(deployment, scheduler, self.typical, longest)

    def service(self, policy: str) -> Service:
        """Return the server of a policy, by name. "none" has no drafter loaded.

        With adaptive verification, it drafts all tokens and verifies some, as in `verifying`.
        """
        service = self.plain_service if policy == "none" else self.drafting_service
        times, drafts, context = service.times, service.drafts, self.typical.mean_context
        if policy == VERIFICATION:
            times = drafting_in_full(self.deployment, times, context)
            drafts = verifying(times, self.accepted, self.max_draft_length, context)
        elif policy != "none":
            drafts = drafting(
                policy,
                times=times,
                acceptance=self.accepted,
                max_draft_length=self.max_draft_length,
                context=context,
                state=self.policy_state,
            )
        prefill = None
        if servers := self.prefill_servers:
            loaded = self.deployment if drafts.max_draft_length else self.plain
            prefill = DisaggregatedPrefill(servers=servers, deployment=loaded)
        return replace(
            service,
            times=times,
            drafts=drafts,
            acceptance=self.trace or self.accepted,
            by_context=self.by_context,
            acceptance_by_request=self.acceptance_by_request,
            prefix_hit_rate=self.prefix_hit_rate,
            shared_prefix=self.shared_prefix,
            prefill=prefill,
        )

    def error_factors(self, requests: Any, lengths: Any) -> dict[str, FloatArray]:
        """Return 80 % intervals of TPOT and speedup, divided by the predictions [-].

        The result has low ends and high ends by quantity, for each pair of batch size and draft
        length.
        """
        found = predict_deployed(
            self.deployment if np.any(lengths) else self.plain,
            {},
            batch_size=np.asarray(requests),
            draft_length=np.asarray(lengths),
            acceptance=self.acceptance or self.accepted,
            max_draft_length=max(self.max_draft_length, 1),
            context_length=round(self.typical.mean_context),
            interval=True,
        )
        ends = found.intervals or {}
        return {
            name: np.array([ends[name].low, ends[name].high]) / getattr(found, name)
            for name in ("tpot", "speedup")
        }

    def run(self, policy: str, arrivals: Arrivals, **options: Any) -> Run:
        """Return a run of a policy, with options as in `Service.run`."""
        return self.service(policy).run(self.requests(arrivals), seed=self.seed, **options)


def under_load(
    study: Study,
    arrivals: Sequence[Arrivals],
    policies: Sequence[str],
    targets: tuple[float | None, float | None] = (None, None),
    *,
    gpu_hour_price: float | None = None,
    progress: Callable[[int], object] = lambda done: None,
) -> list[Row]:
    """Simulate, and return a row for each load and policy.

    Parameters
    ----------
    study, arrivals, policies
        The comparison, its loads, and policies by name.
    targets
        Target times to the first token and per output token, None for no target [s].
    gpu_hour_price, progress
        Price of a GPU for an hour, to add costs. Function to call after each run, with 1 [-].
    """
    wanted = Targets(ttft=targets[0], tpot=targets[1]) if targets != (None, None) else None
    rows, runs = [], len(arrivals) * len(policies)
    compiled = is_worth_compiling(runs * float(study.typical.output_tokens.sum()))
    for load in arrivals:
        for name in policies:
            run = study.run(name, load, compiled=compiled)
            tpot, ttft = run.tpot[run.measured], run.ttft[run.measured] + study.first_token_time
            row = {
                "policy": name,
                "request_rate": load.request_rate or None,
                "users": load.users or None,
                **averages([run], run.measured, study.first_token_time),
                "ttft_p50": float(np.median(ttft)),
                "interval_p99": run.interval_quantile(0.99),
                "carried_rate": run.carried_rate,
                "goodput": wanted and float((wanted.slowness(ttft, tpot) <= 1).mean()),
                "preemptions": run.state.preemptions,
                "is_steady": run.is_steady,
            }
            rows.append(row)
            progress(1)
    add_costs(rows, gpu_hour_price, study.num_gpus)
    return rows


def add_costs(rows: Iterable[Row], gpu_hour_price: float | None, num_gpus: int) -> None:
    """Add the cost of a million tokens to rows, and the cost of an hour to rows with GPUs."""
    if gpu_hour_price is None:
        return
    for row in rows:
        made = row["throughput"]
        cost = float(cost_per_million_tokens(gpu_hour_price, num_gpus, made)) if made else None
        row["cost_per_million_tokens"] = cost
        if "gpus" in row:
            row["cost_per_hour"] = None if row["gpus"] is None else row["gpus"] * gpu_hour_price


def not_carried(rows: Sequence[Row]) -> list[float]:
    """Return the rates that no policy sustains [request/s]."""
    steady = {row["request_rate"] for row in rows if row["is_steady"]}
    rates = dict.fromkeys(row["request_rate"] for row in rows)
    return [rate for rate in rates if rate and rate not in steady]
