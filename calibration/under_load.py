"""Compare the simulator of serving with its step program and with published loads.

Usage: python calibration/under_load.py WHAT [FILE]. WHAT is one of

    table         tabulated step times and those of the program, for logged mixed steps
    speed         request-steps per second with 64 slots, with and without numba, and memory
    open          published open loads (results/open_loads.csv): TPOT and TTFT, nothing fitted
    pairs         published throughput with and without drafts (results/closed_loads.csv)
    closed FILE   a table of measured engines in the form that `specmodel fit check --serving`
                  reads, where each row is a closed loop of its users
"""

import argparse
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct
from msgspec.structs import replace

from first_token import first_token_time
from specmodel.calibrate.fit.measured import judge_serving, read_serving
from specmodel.core.algebra.acceptance import Acceptance
from specmodel.core.base.errors import InputError
from specmodel.core.cost.deploying import deploy, resolve
from specmodel.core.cost.prefill import prefill_pass
from specmodel.core.drafters.acceptance import load_acceptance
from specmodel.core.layers.batch import sequence_group
from specmodel.core.machines.engine import first_token_constants
from specmodel.core.prediction.decoding import decode_deployed
from specmodel.simulate import loop
from specmodel.simulate.drafting import scheduled
from specmodel.simulate.limits import Scheduler, usual_scheduler
from specmodel.simulate.outcome import Run
from specmodel.simulate.requests import WORKLOADS, Arrivals, Lengths, Requests, draw_requests
from specmodel.simulate.service import prepare
from specmodel.simulate.state import Engine
from specmodel.simulate.study import Study
from specmodel.simulate.times import mixed_step_time
from specmodel.simulate.trial import steady_times

RESULTS = Path(__file__).parent / "results"
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "Qwen3-30B-A3B, H100": (
        {"target": "qwen3-30b-a3b", "hardware": "h100", "drafter": "eagle3"},
        "preset",
    ),
    "gpt-oss-120b, H200": (
        {"target": "gpt-oss-120b", "hardware": "h200", "drafter": "eagle3"},
        "preset",
    ),
    "Qwen3.5-397B, 8 x B200": (
        {"target": "qwen3.5-397b-a17b", "hardware": "b200", "drafter": "mtp"}
        | {"tensor_parallel": 8},
        "preset",
    ),
    "DeepSeek-V3.2, 8 x B200 (acceptance of GLM-5.2)": (
        {"target": "deepseek-v3.2", "hardware": "b200", "drafter": "mtp", "tensor_parallel": 8},
        "glm-5.2-mtp",
    ),
}
"""Deployments, and the source of their acceptance."""


def case(name: str, count: int, longest: int = 3, seed: int = 0, work: str = "chat") -> Study:
    """Return a deployment by name under chat lengths."""
    where, preset = CASES[name]
    deployment, _ = deploy(**where)
    acceptance = load_acceptance(where["target"], where["drafter"], preset)
    return Study(
        deployment=deployment,
        acceptance=acceptance,
        max_draft_length=longest,
        lengths=WORKLOADS[work],
        num_requests=count,
        seed=seed,
    )


def table() -> None:
    for name in CASES:
        study = case(name, 3000)
        rate = 0.6 * _carries(study, "fixed:3")
        steps = watched_steps(study, "fixed:3", rate)
        mixed = [step for step in steps if step.chunks and step.contexts]
        picked = np.random.default_rng(0).choice(len(mixed), min(1000, len(mixed)), replace=False)
        begun = time.perf_counter()
        errors = np.abs([table_error(study, mixed[i]) for i in picked])
        taken = (time.perf_counter() - begun) / len(picked)
        print(
            f"{name}, {rate:.2f} requests/s: {len(picked)} of {len(mixed)} mixed steps, median"
            f" {np.median(errors):.2%}, 99 % {np.quantile(errors, 0.99):.2%}, worst"
            f" {errors.max():.2%}; {1e3 * taken:.1f} ms a step by the program"
        )


class Step(Struct, frozen=True):
    """A step as it ran: its time [s], and draft length, contexts and chunks in tokens.

    Contexts are those of requests that decode; a chunk has its tokens and those before it.
    """

    seconds: float
    draft_length: int
    contexts: tuple[int, ...]
    chunks: tuple[tuple[int, int], ...]


def watched_steps(study: Study, policy: str, rate: float) -> list[Step]:
    """Return all steps of a run in plain Python, with their groups as they were."""
    steps, advance = list[Step](), loop.advance

    def watched(tables: Any, server: Any, engine: Engine, step: Any) -> None:
        advance(tables, server, engine, step)
        own = [engine.requests[place] for place in engine.running[: engine.state.running]]
        own = [request for request in own if request.scheduled_tokens > 0]
        contexts = tuple(request.context for request in own if request.prefill_tokens == 0)
        chunks = tuple((r.scheduled_tokens, r.context) for r in own if r.prefill_tokens > 0)
        steps.append(Step(step.step_time, step.draft_length, contexts, chunks))

    vars(loop).update(advance=watched)
    try:
        study.run(policy, Arrivals(request_rate=rate), compiled=False)
    finally:
        vars(loop).update(advance=advance)
    return steps


def table_error(study: Study, step: Step) -> float:
    """Return how far the time of a mixed step is from the program's, of all its groups [-]."""
    groups = tuple(
        sequence_group(
            batch_size=1, tokens_per_sequence=tokens, context_length=before, logits_per_sequence=1
        )
        for tokens, before in step.chunks
    )
    direct = mixed_step_time(
        study.deployment,
        requests=len(step.contexts),
        draft_length=step.draft_length,
        context=float(np.mean(step.contexts)),
        prompts=groups,
    )
    return step.seconds / float(direct) - 1


def speed() -> None:
    deployment, _ = deploy(**CASES["Qwen3-30B-A3B, H100"][0])
    options: dict[str, Any] = {
        "drafts": scheduled([3]),
        "acceptance": Acceptance(acceptance_rate=0.7),
    }
    scheduler = Scheduler(max_running=64, reserved_tokens=3)
    for compiled, count in ((False, 300), (True, 50_000)):
        requests = draw_requests(Arrivals(users=64), WORKLOADS["chat"], count, 1)
        service = replace(prepare(deployment, scheduler, requests, 3), **options)
        paces = []
        for _ in range(7 if compiled else 3):
            begun = time.process_time()
            run = service.run(requests, compiled=compiled)
            paces.append(run.state.request_steps / (time.process_time() - begun) / 1e6)
        how = "numba" if compiled else "plain Python"
        listed = ", ".join(f"{pace:.2f}" for pace in paces)
        print(f"{how}: {listed} million request-steps a second")
    requests = draw_requests(Arrivals(request_rate=9.0), WORKLOADS["code"], 10**6, 1)
    service = prepare(deployment, usual_scheduler(deployment, 3), requests, 3)
    run = replace(service, **options).run(requests)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    told = f"{run.requests.count} requests, {run.state.request_steps} request-steps"
    print(f"{told}: {most:.0f} MB at most")


def open_loads() -> None:
    """Print simulated and published open loads of a table."""
    rows = pd.read_csv(RESULTS / "open_loads.csv", comment="#")
    for row in rows.to_dict("records"):
        where = {k: row[k] for k in ("target", "hardware", "tensor_parallel")}
        where |= {k: int(row[k]) for k in ("data_parallel", "expert_parallel")}
        deployment, _ = deploy(**where, drafter="eagle3" if row["draft_length"] else None)
        run = _open(deployment, row)
        of: Any = np.median if row["stat"] == "p50" else np.mean
        constant = first_token_constants().get(deployment.stack or "", 0.0)
        tpot, ttft = (
            1e3 * float(of(times[run.measured])) for times in (run.tpot, run.ttft + constant)
        )
        print(
            f"{row['table']} {row['arm']} {row['request_rate']:g}/s: TPOT {tpot:.1f} for"
            f" {row['tpot_ms']:.1f} ({tpot / row['tpot_ms'] - 1:+.0%}), TTFT {ttft:.0f} for"
            f" {row['ttft_ms']:.0f} ({ttft / row['ttft_ms'] - 1:+.0%}) ms; running"
            f" {run.running:.1f}{'' if run.is_steady else '; not carried'}"
        )


def _open(deployment: Any, row: Any) -> Run:
    """Return a run of a published load: lengths normal within bounds, arrivals at random."""
    count, length = int(row["requests"]), int(row["draft_length"])
    random = np.random.default_rng(0)
    prompts, outputs = (
        np.clip(np.rint(random.normal(row[f"{n}_mean"], row[f"{n}_sd"], count)),
                row[f"{n}_least"], row[f"{n}_most"]).astype(np.int64)
        for n in ("prompt", "output")
    )  # fmt: skip
    times = Arrivals(request_rate=row["request_rate"]).times(count, 0)
    times *= count / row["request_rate"] / times[-1]  # all of them within the stage
    requests = Requests(arrival_time=times, prompt_tokens=prompts, output_tokens=outputs)
    scheduler = replace(
        usual_scheduler(deployment, length),
        max_running=int(row["max_running"]),
        token_budget=int(row["token_budget"]),
    )
    acceptance = _lengthened(load_acceptance(row["target"], "eagle3")) if length else None
    service = prepare(deployment, scheduler, requests, length)
    return replace(service, drafts=scheduled([length]), acceptance=acceptance).run(requests)


def pairs() -> None:
    """Print simulated and published throughput of steady states, with and without drafts."""
    deployment, _ = deploy(
        target="llama-3.1-8b", hardware="h200", drafter="eagle3", weight_dtype="fp8"
    )
    rows = pd.read_csv(RESULTS / "closed_loads.csv", comment="#")
    for row in rows.to_dict("records"):
        length, users = int(row["draft_length"]), int(row["users"])
        prompt, output = row["prompt_tokens"], row["output_tokens"]
        study = Study(
            deployment=deployment,
            acceptance=Acceptance(
                tokens_per_step=row["tokens_per_step"], measured_draft_length=length
            ),
            max_draft_length=length,
            lengths=Lengths(prompt_tokens=prompt, output_tokens=output),
            num_requests=12 * users,
            limits=(("max_running", users),),
        )
        plain, drafted = (
            study.run(policy, Arrivals(users=users), compiled=True).throughput
            for policy in ("none", f"fixed:{length}")
        )
        print(
            f"{prompt} and {output} tokens, {users} users: plain {plain:.0f} for"
            f" {row['throughput']} tokens/s, with drafts {drafted / plain:.3f} for {row['ratio']}"
        )


def _lengthened(acceptance: Acceptance) -> Acceptance:
    """Return an acceptance whose last published rate is also used for later positions."""
    rates = list(np.asarray(acceptance.acceptance_by_position))
    return Acceptance(acceptance_by_position=rates + [rates[-1]] * 3)


def closed(path: str) -> None:
    """Print errors of simulated closed loops and of the closed form, on the rows of a table."""
    rows = read_serving(path)
    judged = judge_serving(rows)[0].set_index("row")
    found = pd.DataFrame(_closed_rows(rows.rows)).set_index("row")
    both = judged.join(found, how="inner")
    errors = {"closed form": both["error"], "simulated": both["tpot_run"] / both["measured"] - 1}
    for name, error in errors.items():
        sizes = error.abs()
        print(
            f"TPOT, {name}: {len(both)} rows, mean {sizes.mean():.1%}, median {sizes.median():.1%},"
            f" bias {error.mean():+.1%}"
        )
    has_ttft = both[both["ttft"].notna()]
    for name, column in {"closed form": "ttft_form", "simulated": "ttft_run"}.items():
        error = has_ttft[column] / has_ttft["ttft"] - 1
        print(
            f"TTFT, {name}: {len(error)} rows, mean {error.abs().mean():.1%}, median"
            f" {error.abs().median():.1%}, bias {error.mean():+.1%}"
        )


def _closed_rows(rows: Any) -> Iterator[dict[str, Any]]:
    """Yield TPOT and TTFT of a closed loop at each row's concurrency.

    As benchmarks count: ten prompts a user, who all begin at once, and means over all of them.
    """
    for row in rows:
        users = int(row.points["batch_size"])
        count = 10 * users
        random = np.random.default_rng(users)
        drawn = random.uniform(0.8, 1.0, (2, count)) / 0.9
        lengths = [
            np.maximum(np.rint(row.points[n] * share), 1).astype(np.int64)
            for n, share in zip(("prompt_length", "output_length"), drawn, strict=True)
        ]
        requests = Requests(
            arrival_time=np.zeros(count),
            prompt_tokens=lengths[0],
            output_tokens=lengths[1],
            users=users,
        )
        try:
            deployment, _ = resolve(row.deployment)
            service = prepare(deployment, usual_scheduler(deployment, 0), requests, 0)
            run = service.run(requests, compiled=True)
        except InputError:
            continue
        constant = first_token_constants().get(deployment.stack or "", 0.0)
        points: dict[str, Any] = {n: np.asarray(float(v)) for n, v in row.points.items()}
        form = first_token_time(
            prefill_pass(deployment, points["prompt_length"]).total_time,
            decode_deployed(deployment, {}, **points).tpot,
            points["batch_size"],
            points["output_length"],
            constant,
        )
        yield {
            "row": row.row,
            "tpot_run": float(run.tpot.mean()),
            "ttft_run": float(run.ttft.mean()) + constant,
            "ttft_form": float(form),
            "ttft": row.first_token,
        }


def _carries(study: Study, policy: str) -> float:
    """Return about the largest rate that a policy carries [request/s]."""
    stays = steady_times(study.service(policy), study.typical, study.accepted)[2]
    return float((np.arange(1, len(stays) + 1) / stays).max())


def main() -> None:
    commands: dict[str, Callable[..., None]] = {
        "table": table, "speed": speed, "open": open_loads, "pairs": pairs, "closed": closed,
    }  # fmt: skip
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=commands)
    parser.add_argument("file", nargs="?", help="of closed")
    options = parser.parse_args()
    if (options.file is None) == (options.what == "closed"):
        parser.error(f"{options.what} takes {'no file' if options.file else 'a file'}")
    commands[options.what](*([options.file] if options.file else []))


if __name__ == "__main__":
    main()
