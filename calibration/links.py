"""Fit links and all-reduces to published tables, and write them into the profiles.

Usage: python calibration/links.py. Prints errors of all-reduces that were left out of the fits.
`all_published.py` runs this script first.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from msgspec.structs import asdict, replace
from scipy.optimize import least_squares

from published.all_reduces import COLUMNS, LinkFitting, errors_of, fit_all_reduces
from published.datasets import list_tables, read_timings, source_name
from specmodel.calibrate.fit.result import ROBUST_SCALE, rounded
from specmodel.core.base.errors import InputError
from specmodel.core.base.files import write_text
from specmodel.core.base.records import build, toml_text
from specmodel.core.machines.hardware import (
    AllReduceFit,
    HardwareProfile,
    Link,
    list_hardware,
    load_hardware,
)
from specmodel.core.machines.kernels import TYPICAL
from specmodel.core.machines.profiles import without_table

PROFILES = Path(__file__).parents[1] / "hw_profiles"
SIZES = (2**11, 2**28)
"""Messages that all-reduces are fitted to: of one token, and of long prompts [B]."""
PASSES = (2**11, 2**25)
"""Messages that the efficiency of a link is fitted to [B]."""
NODE = (2, 8)
"""Number of GPUs in an all-reduce [-]."""
LARGEST_NODE = {"gb300": 4}
"""GPUs of a node on devices where several nodes were timed, which SGLang joins with NCCL [-]."""
LIKE = {
    "a100_sxm_40gb": ("a100_sxm_80gb",),
    "a800_sxm_80gb": ("a100_sxm_80gb",),
    "v100_sxm_32gb": ("a100_sxm_80gb",),
    **dict.fromkeys(("rtx_a6000", "a40"), ("a100_sxm_80gb",)),
    **dict.fromkeys(
        (
            *("h100_nvl", "h200_nvl", "gh200", "h20", "h20_141gb", "h800_sxm"),
            *("mi300x", "mi325x", "mi350x", "mi355x"),
        ),
        ("h100_sxm", "h200_sxm"),
    ),
}
"""Devices without tables, and the devices whose rows they use. Others use all rows of their kind of
link."""


_LINK = re.compile(r"^\[link\][^\n]*\n(?:[^\[\s][^\n]*\n)*", re.MULTILINE)


class AllReduces(NamedTuple):
    """Published all-reduces of a stack on a device."""

    hardware: str
    stack: str
    version: str
    table: pd.DataFrame

    @property
    def name(self) -> str:
        return f"{self.stack} {self.version}"


def published_all_reduces(links: dict[str, Link], sizes: tuple[int, int]) -> list[AllReduces]:
    """Return the tables of the latest version of each stack on each device with a link."""
    listed = list_tables().query("operation == 'comm'")
    found = []
    for names, tables in listed.groupby(["hardware", "framework"]):
        hardware, stack = map(str, names)
        if hardware in links:
            version = max(tables["version"], key=release)
            rows = read_timings("comm", hardware, stack, version)
            least, most = NODE[0], LARGEST_NODE.get(hardware, NODE[1])
            is_inside = rows["num_gpus"].between(least, most)
            rows = rows[is_inside & rows["message_bytes"].between(*sizes)]
            found.append(AllReduces(hardware, stack, version, rows.reset_index(drop=True)))
    return found


def release(version: str) -> list[int]:
    """Return the numbers of a version, which order it: 0.5.14 comes after 0.5.9."""
    return [int(number) for number in re.findall(r"\d+", version)]


def link_efficiency(link: Link, rows: pd.DataFrame) -> float:
    """Return the share of a link's peak at which rings move bytes; latencies are kept."""
    ring = replace(link, all_reduce={}, efficiency=1.0)

    def missed(log_efficiency: np.ndarray) -> np.ndarray:
        trial = replace(ring, efficiency=float(np.exp(log_efficiency[0])))
        return np.log1p(errors_of(rows, link.peak_bytes_per_s, trial.all_reduce_parameters(None)))

    start = {"x0": np.log([0.5]), "bounds": (np.log(0.05), 0.0)}
    best = least_squares(missed, **start, loss="soft_l1", f_scale=ROBUST_SCALE)
    return rounded(np.exp(best.x[0]), 2)


def write_link(hardware: str, efficiency: float, source: str) -> None:
    """Write the efficiency of a link into a profile, behind its peak and after its latencies."""
    path = PROFILES / f"{hardware}.toml"
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith(("efficiency =", "efficiency_source"))]
    start = kept.index("[link]")
    peak = next(i for i, line in enumerate(kept) if i > start and line.startswith("peak_bytes"))
    kept.insert(peak + 1, f"efficiency = {efficiency}")
    last = next(i for i, line in enumerate(kept) if i > start and line.startswith("latency_source"))
    kept.insert(last + 1, f'efficiency_source = "{source}"')
    write_text(path, "\n".join(kept) + "\n")


def fit_efficiencies(links: dict[str, Link]) -> None:
    """Fit efficiencies of links to TensorRT-LLM's tables; other devices get means of a kind."""
    tables = published_all_reduces(links, PASSES)
    fitted = {
        entry.hardware: link_efficiency(links[entry.hardware], entry.table)
        for entry in tables
        if entry.stack == "trtllm"
    }
    source = f"TensorRT-LLM custom all-reduce of 2 KB to 32 MB on 2 to 8 GPUs, {source_name()}"
    for name, link in links.items():
        alike = [fitted[other] for other in fitted if links[other].kind == link.kind]
        mean = rounded(np.exp(np.log(alike or list(fitted.values())).mean()), 2)
        if name in fitted:
            write_link(name, fitted[name], f"fitted to {source}")
        else:
            write_link(name, mean, f"mean of GPUs with such a link, {source}; unsure for this GPU")


def record(fitting: LinkFitting, version: str, measured_on: str) -> AllReduceFit:
    """Return what a profile keeps of a fit."""
    error = np.abs(fitting.left_out)
    return AllReduceFit(
        version=version,
        source=f"all-reduces of 2 KB to 256 MB on 2 to 8 GPUs, {source_name()}, {measured_on}",
        **asdict(fitting.parameters),
        num_points=fitting.result.residuals.size,
        mean_error=rounded(error.mean(), 3),
        median_error=rounded(np.median(error), 3),
    )


def fit_together(links: dict[str, Link], tables: list[AllReduces]) -> LinkFitting:
    """Fit what all tables have in common: the rows of each at the peak of its link."""
    peaks = [np.full(len(one.table), links[one.hardware].peak_bytes_per_s) for one in tables]
    rows = pd.concat([one.table for one in tables], ignore_index=True)
    return fit_all_reduces(rows[list(COLUMNS)], np.concatenate(peaks))


def relatives(name: str, links: dict[str, Link], measured: list[str]) -> list[str]:
    """Return the measured devices whose rows a device uses: itself, or similar devices."""
    if name in measured:
        return [name]
    kind = links[name].kind
    return list(LIKE.get(name, [other for other in measured if links[other].kind == kind]))


def shipped_links() -> dict[str, Link]:
    """Return the links that profiles have at this moment, by device."""
    profiles = {name: load_hardware(PROFILES / f"{name}.toml") for name in list_hardware()}
    return {name: profile.link for name, profile in profiles.items() if profile.link}


def fit_links() -> pd.DataFrame:
    """Fit all links, write them into the profiles, and return how far off they are."""
    fit_efficiencies(shipped_links())
    links = shipped_links()
    tables = published_all_reduces(links, SIZES)
    measured = sorted({one.hardware for one in tables})
    judged = []
    together: dict[tuple[str, ...], AllReduceFit] = {}
    spreads = spreads_left_out(links, tables)
    for name in links:
        path = PROFILES / f"{name}.toml"
        fits, errors = own_fits(name, links, tables)
        judged += errors
        others = tuple(relatives(name, links, measured))
        if others not in together:
            together[others] = typical_fit(others, links, tables)
        spread = spreads["timed" if name in measured else links[name].kind]
        fits[TYPICAL] = replace(together[others], spread=spread)
        write_text(path, with_all_reduces(path.read_text(encoding="utf-8"), fits))
    return pd.DataFrame(judged)


def with_all_reduces(text: str, fits: Mapping[str, AllReduceFit]) -> str:
    """Return the TOML of a hardware profile after replacing its fitted all-reduces, by stack.

    Raise an InputError if the profile has no link, or if the result is invalid.
    """
    kept = without_table(text, "link.all_reduce")
    link = _LINK.search(kept)
    if link is None:
        raise InputError("hardware", "no link", "a header [link], without quotes or blanks")
    tables = [toml_text(fit, f"link.all_reduce.{name}") for name, fit in fits.items()]
    merged = kept[: link.end()] + "".join(f"{table}\n" for table in tables) + kept[link.end() :]
    build(HardwareProfile, tomllib.loads(merged), "hardware")
    return merged


def own_fits(
    name: str, links: dict[str, Link], tables: list[AllReduces]
) -> tuple[dict[str, AllReduceFit], list[dict[str, object]]]:
    """Return the fits of the stacks that were timed on a device, and how far off they are."""
    fits, judged = {}, []
    for one in (one for one in tables if one.hardware == name):
        fitting = fit_together(links, [one])
        fits[one.stack] = record(fitting, one.version, f"measured on {name}")
        judged.append(judge(links[name], one, fitting))
    return fits, judged


def spreads_left_out(links: dict[str, Link], tables: list[AllReduces]) -> dict[str, float]:
    """Return how far off all-reduces are where others stand in, each table left out in turn [-].

    The root mean square of the median of ln(measured / predicted) of a table: "timed" by the other
    stacks of its GPU, else, by kind of link, by other GPUs with such a link. A link of a kind that
    was timed nowhere takes the largest.
    """
    found: dict[str, list[float]] = {}
    for one in tables:
        kind = links[one.hardware].kind
        alike = [other for other in tables if links[other.hardware].kind == kind]
        of_gpu = [t for t in alike if t.hardware == one.hardware and t.stack != one.stack]
        of_kind = [t for t in alike if t.hardware != one.hardware]
        peak = links[one.hardware].peak_bytes_per_s
        for name, others in (("timed", of_gpu), (kind, of_kind)):
            error = errors_of(one.table, peak, fit_together(links, others).parameters)
            found.setdefault(name, []).append(float(np.median(np.log1p(error))))
    spreads = {name: rounded(np.sqrt(np.mean(np.square(of))), 2) for name, of in found.items()}
    return {link.kind: max(spreads.values()) for link in links.values()} | spreads


def typical_fit(
    devices: tuple[str, ...], links: dict[str, Link], tables: list[AllReduces]
) -> AllReduceFit:
    """Return one fit to all stacks of some devices."""
    own = [one for one in tables if one.hardware in devices]
    versions = ", ".join(sorted({one.name for one in own}))
    return record(fit_together(links, own), versions, f"measured on {', '.join(devices)}")


def judge(link: Link, one: AllReduces, fitting: LinkFitting) -> dict[str, object]:
    """Return the errors of a stack: as rings, on sizes left out, and on 4 GPUs left out."""
    peak = link.peak_bytes_per_s
    ring = replace(link, all_reduce={}).all_reduce_parameters(None)
    is_four = one.table["num_gpus"] == 4
    errors = {"as rings": errors_of(one.table, peak, ring), "sizes left out": fitting.left_out}
    if one.table["num_gpus"].max() > 4:
        kept = fit_all_reduces(one.table[~is_four], peak)
        errors["4 GPUs left out"] = errors_of(one.table[is_four], peak, kept.parameters)
    found: dict[str, object] = {"hardware": one.hardware, "stack": one.name}
    for name, error in errors.items():
        size = np.abs(error)
        found[name] = f"{size.mean():.1%} / {np.median(size):.1%}"
    return found


if __name__ == "__main__":
    print(fit_links().to_string(index=False))
