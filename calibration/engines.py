"""Fit profiles of engines together with the hosts of published runs, and judge hosts left out.

From a checkout: ``python calibration/engines.py`` prints errors and writes the shipped profiles.
``--table FILE`` reads other runs of the same form and writes nothing, like ``--dry-run``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, get_args

import pandas as pd
from msgspec.structs import replace

from gpu_engine import RANDOM_HOST, STEPS, read_steps
from published.population import Population, fit_population
from specmodel.calibrate.fit.measured.judge import judge_serving
from specmodel.calibrate.fit.measured.tables import Served, ServingTable, read_serving
from specmodel.calibrate.fit.result import rounded
from specmodel.calibrate.fit.steps import fitted_on, measured_steps
from specmodel.core.base.files import write_text
from specmodel.core.base.records import toml_text
from specmodel.core.layers.engines import Beside
from specmodel.core.machines.engine import FOLDER, EngineProfile, load_engine
from specmodel.core.machines.versions import of_version

TABLE = Path(__file__).parent / "tables" / "engine_pairs.csv"
GRID, EVERY, DIP = "sna-gb200", 4, 2
"""A host with a grid of batch sizes and lengths, whose errors are similar, so that only every
fourth cell is fitted; and the batch size whose steps are longer there than those of twice as many
requests [request]."""

OURS = "vllm"
"""The engine of that grid, and of the steps of random weights."""

ENGINES: dict[str, dict[str, Any]] = {
    "sglang": {
        "name": "SGLang",
        "source": "PR 12128 with spec v2 on H200, and what engines have in common",
        "code_read": "SGLang 0.5.23",
        "stack": "sglang",
        "fuses_norms": True,
        "graphs": "sglang",
        "hides_host": "all",
        "draft_model_first": "verified",
    },
    "sglang-v1": {
        "name": "SGLang spec v1",
        "source": "SpecBundle, SpecForge#339, LMSYS and PR 12128, on H200 and H100",
        "stack": "sglang",
        "all_reduces": "vllm",
        "graphs": "sglang",
        "hides_host": "plain",
        "draft_model_first": "verified",
        "state_time_factor": 3.0,  # from runs of Qwen3.6-35B-A3B on B200: README.md
        "exchange": "ranks",  # of LMSYS's runs on 16 GPUs it is not published
    },
    "tensorrt-llm": {
        "name": "TensorRT-LLM",
        "source": "NVIDIA on the latency of DeepSeek-R1, MTP, 8 B200",
        "stack": "trtllm",
        "fuses_norms": True,
        "hides_host": "all",
    },
    "vllm": {
        "name": "vLLM",
        "source": "vLLM#32628, H100; blog on P-EAGLE, B200; a grid on GB200; random weights, H200",
        "code_read": "vLLM 0.33",
        "stack": "vllm",
        "fuses_norms": True,
        "runs_idle_drafter": True,
        "split_tokens": 8,  # MAX_3D_QUERY_LEN
        "flash_split_tokens": 1,  # seqlenq_ngroups_swapped
        "graphs": "vllm",
        "shared_beside": get_args(Beside),
        "hides_host": "all",
        "waits_for": ["suffix"],
        "in_pieces": ["parallel head", "parallel model"],
        "one_by_one": ["model"],
        "draft_model_first": "verified and next",
    },
}
"""Properties of the fitted engines that runs do not determine."""

VERSIONS = {
    "sglang": "SGLang 0.5.4 (October 2025) with spec v2, the default since 0.5.7",
    "sglang-v1": "SGLang 0.4.9 to 0.5.6 (July to December 2025), speculation without overlap",
    "tensorrt-llm": "TensorRT-LLM 0.19 (May 2025), one CUDA graph per step",
    "vllm": "vLLM 0.14 to 0.24 (January to July 2026)",
}


def main() -> None:
    """Fit, judge by hosts left out, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    table = runs(arguments.table)
    left_out = judge_left_out(table)
    shares = dict.fromkeys(("mean_error", "bias", "coverage"), "{:.1%}".format)
    print(errors_by_host(left_out).to_string(index=False, formatters=shares))
    populations = {name: fit(rows_for(name, table.rows)) for name in ("sglang", OURS)}
    for found in populations.values():
        print(dict(zip(found.hosts, found.host_speed.round(2).tolist(), strict=True)))
    if arguments.dry_run or arguments.table != TABLE:
        return
    for name in ENGINES:
        population = populations[OURS if name == OURS else "sglang"]
        profile = profile_of(population, name, own_rows(table.rows, name), left_out)
        write_text(FOLDER / f"{name}.toml", toml_text(profile) + "\n")


def runs(path: Path) -> ServingTable:
    """Return the rows of a table; of ours a part of its grid, and steps of random weights."""
    table = read_serving(path)
    if path != TABLE:
        return table
    grid = [row for row in table.rows if row.labels["host"] == GRID]
    few = [row for row in grid[::EVERY] if row.points["batch_size"] != DIP]
    others = [row for row in table.rows if row.labels["host"] != GRID]
    engine = {f"engine.{name}": value for name, value in of_version("vllm", "0.24").items()}
    engine |= {"engine": "vllm"}
    steps = [replace(row, deployment={**row.deployment, **engine}) for row in read_steps(STEPS)]
    return replace(table, rows=(*others, *few, *steps))


def rows_for(engine: str, rows: Sequence[Served]) -> list[Served]:
    """Return the rows for the fit of an engine; hosts with very many rows are only for `OURS`."""
    return [row for row in rows if engine == OURS or row.labels["host"] not in (GRID, RANDOM_HOST)]


def fit(rows: Sequence[Served]) -> Population:
    """Fit all engines to their rows in a table."""
    fitted = [row for row in rows if row.deployment["engine"] in ENGINES]
    engines = [str(row.deployment["engine"]) for row in fitted]
    bare = [_with_engine(row, _bare(name)) for row, name in zip(fitted, engines, strict=True)]
    hosts = [row.labels["host"] for row in fitted]
    return fit_population(bare, [*engines, *(n for n in ENGINES if n not in engines)], hosts)


def judge_left_out(table: ServingTable) -> pd.DataFrame:
    """Return rows as predicted by engines that were fitted without any row of their host."""
    found = []
    for host in dict.fromkeys(row.labels["host"] for row in table.rows):
        own = [row for row in table.rows if row.labels["host"] == host]
        others = [row for row in table.rows if row.labels["host"] != host]
        population = fit(rows_for(str(own[0].deployment["engine"]), others))
        rows = [_with_engine(row, engine_of_others(population, row, others)) for row in own]
        judged, refused = judge_serving(replace(table, rows=tuple(rows)))
        assert not refused, refused  # noqa: S101 - a script
        engines = {row.row: row.deployment["engine"] for row in own}
        found.append(judged.assign(profile=[engines[row] for row in judged["row"]]))
    return pd.concat(found, ignore_index=True)


def errors_by_host(judged: pd.DataFrame) -> pd.DataFrame:
    """Return the errors of rows by host, and of all."""
    judged = judged.assign(inside=judged["measured"].between(judged["low"], judged["high"]))
    groups = [*judged.groupby("host", sort=False), ("all", judged)]
    return pd.DataFrame(
        {
            "host": host,
            "rows": len(rows),
            "mean_error": rows["error"].abs().mean(),
            "bias": rows["error"].mean(),
            "coverage": rows["inside"].mean(),
        }
        for host, rows in groups
    )


def own_rows(rows: Sequence[Served], engine: str) -> list[Served]:
    """Return the rows of an engine."""
    return [row for row in rows if row.deployment["engine"] == engine]


def profile_of(
    population: Population, engine: str, rows: Sequence[Served], left_out: pd.DataFrame
) -> EngineProfile:
    """Return the profile of an engine as it ships."""
    own = left_out[left_out["profile"] == engine]
    errors = {
        "mean_error": rounded(population.error_of(engine)),
        "left_out_error": {"host": rounded(own["error"].abs().mean())},
    }
    return _fitted(population, engine, rows, errors)


def engine_of_others(
    population: Population, row: Served, others: Sequence[Served]
) -> EngineProfile | str:
    """Return the engine of a row, fitted to others, whose error on these no one looks at here."""
    name = str(row.deployment["engine"])
    if name not in ENGINES:
        return name
    return _fitted(population, name, own_rows(others, name), {"mean_error": 0.0})


def _fitted(
    population: Population, engine: str, rows: Sequence[Served], errors: dict[str, Any]
) -> EngineProfile:
    """Return an engine on the mean host; an engine without rows is like the others."""
    bare = [_with_engine(row, _bare(engine)) for row in rows]
    record = population.fit_record(engine) | errors
    record |= {"date": date.today().isoformat(), "num_points": max(len(rows), 1)}
    if rows:
        record["fitted_on"] = fitted_on(bare, measured_steps(bare), VERSIONS[engine])
    return _bare(engine).with_changes("engine", {**population.overheads(engine), "fit": record})


def _bare(engine: str) -> EngineProfile:
    """Return an engine without seconds."""
    return load_engine("ideal").with_changes("engine", {"fuses_all": False, **ENGINES[engine]})


def _with_engine(row: Served, engine: EngineProfile | str) -> Served:
    return replace(row, deployment={**row.deployment, "engine": engine})


if __name__ == "__main__":
    main()
