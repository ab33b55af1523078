"""Synthetic traces against closed forms and measured processes; statistics against brute force."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from made_traces import iid_process, position_process
from msgspec.structs import replace
from printed import refused
from published_tables import read_table
from rows import cases, each_listed, each_row, slow

from copy_runs import expected_statistics
from specmodel.core.algebra import acceptance
from specmodel.simulate.traces import (
    AcceptanceProcess,
    CopyProcess,
    CopyRuns,
    list_presets,
    load_preset,
    sample_trace,
    synthetic,
    trace_statistics,
)
from specmodel.simulate.traces.statistics import DRAFT_LENGTHS

TABLE = Path(__file__).parents[2] / "calibration/tables/acceptance.csv"
SURVIVAL = [0.6, 0.45, 0.3, 0.2, 0.2, 0.05]
LOCAL = AcceptanceProcess(
    name="local", survival=SURVIVAL, proposal_share=0.7, request_share=0.3, regime_share=0.4,
    regime_tokens=12.0,
)  # fmt: skip


def draw(process, num_requests, output_tokens, seed):
    return sample_trace(process, num_requests, output_tokens, np.random.default_rng(seed))


# closed forms


def accepted_pmf(rates):
    """Chance of 0, 1, ... accepted: each token before was accepted, the next one was not."""
    reached = np.cumprod([1.0, *rates])
    return reached * (1 - np.array([*rates, 0.0]))


def check_against_formula(trace, length, expected, pmf):
    """Compare within four standard errors; outputs are so long that where they are cut is not."""
    statistics = trace_statistics(trace, [length])
    emitted = np.arange(1, length + 2)
    variance = pmf @ emitted**2 - (pmf @ emitted) ** 2
    steps = trace.output_tokens.sum() / expected
    assert statistics.tokens_per_step[0] == pytest.approx(
        expected, abs=4 * np.sqrt(variance / steps) + 1e-12
    )


PUBLISHED = [0.74, 0.54, 0.41, 0.30, 0.22, 0.16, 0.12, 0.08, 0.05, 0.02]


@cases(
    "rates",
    acceptance.conditional_acceptance(PUBLISHED).tolist(),
    *slow(*([alpha] * 7 for alpha in (0.0, 0.3, 0.8, 1.0))),
)
def test_rates_by_position_give_the_formula_at_every_draft_length(rates):
    trace = draw(position_process(rates), 60, 5040, seed=2)
    for length in range(len(rates) + 1):
        expected = float(acceptance.expected_tokens_per_step_by_position(rates, length))
        check_against_formula(trace, length, expected, accepted_pmf(rates[:length]))


def test_acceptance_over_positions_is_the_survival_whatever_clusters():
    shape = {"request_share": 0.0, "regime_share": 0.0}
    for process in (LOCAL, LOCAL.with_changes("process", shape)):
        trace = draw(process, 20_000, 60, seed=3)
        for i, share in enumerate(SURVIVAL, start=1):
            by_request = (trace.accepted_tokens >= i).reshape(20_000, 60).mean(axis=1)
            error = by_request.std() / np.sqrt(20_000)
            assert by_request.mean() == pytest.approx(share, abs=4 * error)


@pytest.mark.parametrize("distance", [1, 6])
@pytest.mark.parametrize("chunk", [1000, synthetic.CHUNK])
def test_correlation_of_positions_is_that_of_the_latent(distance, chunk, monkeypatch):
    """Signs of two normals of correlation ρ correlate by 2 asin(ρ) / π."""
    monkeypatch.setattr(synthetic, "CHUNK", chunk)
    process = LOCAL.with_changes("process", {"survival": [0.5]})
    sign = draw(process, 2000, 300, seed=5).accepted_tokens.reshape(2000, 300) * 2.0 - 1
    products = (sign[:, :-distance] * sign[:, distance:]).mean(axis=1)
    same = (1 - 1 / 12) ** distance
    expected = 2 / np.pi * (same * np.arcsin(0.7) + (1 - same) * np.arcsin(0.3))
    error = products.std() / np.sqrt(len(products))
    assert products.mean() == pytest.approx(expected, abs=4 * error)


@pytest.mark.parametrize("share", ["request_share", "regime_share"])
@pytest.mark.parametrize("chunk", [1, 50, 10**6])
def test_what_is_shared_ends_with_the_request_and_not_with_the_chunk(share, chunk, monkeypatch):
    monkeypatch.setattr(synthetic, "CHUNK", chunk)
    process = AcceptanceProcess(
        name="flat", survival=[0.8, 0.6, 0.4, 0.2], regime_tokens=1e5, **{share: 1.0}
    )
    lengths = [1, 50, 7, 50, 3, 64, 1, 50] * 10
    trace = sample_trace(process, len(lengths), lengths, np.random.default_rng(6))
    parts = [trace.part(i, i + 1).accepted_tokens for i in range(len(lengths))]
    assert all(len(set(part.tolist())) == 1 for part in parts)
    levels = np.array([part[0] for part in parts], dtype=float)
    assert set(levels) == {0, 1, 2, 3, 4}
    assert abs(np.corrcoef(levels[1:], levels[:-1])[0, 1]) < 4 / np.sqrt(len(levels))


# copy runs

COPIES = CopyRuns(
    start_chance=0.12, short_share=0.6, short_stop=0.4, long_stop=0.05, wrong_in_gaps=0.06,
    wrong_at_end=0.9,
)  # fmt: skip


def copies(**changes):
    return CopyProcess(name="copies", runs=replace(COPIES, **changes))


def test_a_copied_run_goes_on_and_ends_as_often_wrong_as_told():
    trace = draw(copies(), 2000, 300, seed=10)
    accepted = trace.accepted_tokens.reshape(2000, 300).astype(int)
    later, before = accepted[:, 1:], accepted[:, :-1]
    assert (later >= before - 1).all()
    assert (accepted <= trace.proposed_tokens.reshape(2000, 300)).all()
    assert set(trace.proposed_tokens.tolist()) == {0, 20}
    ends = 2000 * 300 * 0.05
    found = trace_statistics(trace).wrong_endings
    assert found == pytest.approx(0.9, abs=4 * np.sqrt(0.9 * 0.1 / ends))


@pytest.mark.slow
@each_listed
def test_copy_runs_have_the_figures_of_their_closed_forms(changes):
    """Outputs so long that how they begin and end is not seen; four standard errors."""
    process = copies(**changes)
    trace = draw(process, 1500, 4000, seed=11)
    found, expected = trace_statistics(trace), expected_statistics(process.runs, 4000)
    assert found.tokens_per_step == pytest.approx(expected["tokens_per_step"], rel=0.01)
    assert found.proposing_steps == pytest.approx(expected["proposing_steps"], rel=0.01)
    assert found.proposal_share == pytest.approx(expected["proposal_share"], rel=0.01)
    assert found.request_spread == pytest.approx(expected["request_spread"], rel=0.1)
    wanted = expected["pooled_autocorrelation"]
    assert found.pooled_autocorrelation == pytest.approx(wanted, abs=0.01)


# what a trace holds


def test_the_longest_draft_is_proposed_where_acceptance_is_likeliest():
    trace = draw(LOCAL, 2000, 100, seed=7)
    assert set(trace.proposed_tokens.tolist()) == {0, 6}
    assert (trace.accepted_tokens <= trace.proposed_tokens).all()
    by_request = (trace.proposed_tokens > 0).reshape(2000, 100).mean(axis=1)
    assert by_request.mean() == pytest.approx(0.7, abs=4 * by_request.std() / np.sqrt(2000))
    always = draw(iid_process(0.5), 20, 100, seed=7)
    assert (always.proposed_tokens == 20).all()
    assert always.metadata == {"source": "synthetic: acceptance rate 0.5"}


# presets


@pytest.mark.parametrize("name", list_presets())
def test_a_preset_holds_what_was_measured(name):
    (row,) = (row for row in read_table(TABLE) if row["name"] == name)
    measured = load_preset(name).measured
    assert measured.draft_lengths == list(DRAFT_LENGTHS)
    assert measured.tokens_per_step == [float(row[str(length)]) for length in DRAFT_LENGTHS]
    for column in row.keys() - {"name", "data", "drafter", *map(str, DRAFT_LENGTHS)}:
        expected = float(row[column]) if row[column] else None
        assert getattr(measured, column) == expected


TWO_KINDS = ["math-ngram", "summaries-eagle"]


@pytest.mark.parametrize("name", [*TWO_KINDS, *slow(*sorted({*list_presets()} - {*TWO_KINDS}))])
def test_a_preset_behaves_as_measured(name):
    """Seeds that the fit did not use; tokens per step also at other lengths than it was fitted to.

    At its own lengths they are within 1.5 %, everything else within 5 %.
    """
    process = load_preset(name)
    measured = process.measured
    size = 8 * measured.num_requests
    for output_tokens in (256, 384, 1024):
        found = trace_statistics(draw(process, size, output_tokens, seed=20_000))
        within = 0.015 if output_tokens == 384 else 0.03
        assert found.tokens_per_step == pytest.approx(measured.tokens_per_step, rel=within)
        assert found.proposing_steps == pytest.approx(measured.proposing_steps, rel=0.03)
        assert found.proposal_share == pytest.approx(measured.proposal_share, rel=0.03)
    found = trace_statistics(draw(process, size, 384, seed=20_001))
    for figure in ("request_spread", "pooled_autocorrelation", "wrong_endings"):
        if getattr(measured, figure) is not None:
            expected = pytest.approx(getattr(measured, figure), rel=0.05)
            assert getattr(found, figure) == expected, figure
    # never fitted, and lower in shorter outputs, whose lengths are not published
    assert found.autocorrelation_within == pytest.approx(measured.autocorrelation_within, abs=0.12)


# statistics


def by_hand(trace, draft_length):
    """Accepted tokens of each step of each request, position by position."""
    walks = []
    for start, length in zip(trace.starts, trace.output_tokens, strict=True):
        walk, p = [], 0
        while p < length:
            left = int(length) - p - 1
            walk.append(min(draft_length, int(trace.accepted_tokens[start + p]), left))
            p += walk[-1] + 1
        walks.append(walk)
    return walks


def proposing(trace, draft_length):
    """Share of steps with a proposal."""
    found = []
    for start, walk in zip(trace.starts, by_hand(trace, draft_length), strict=True):
        positions = start + np.cumsum([0, *(held + 1 for held in walk[:-1])])
        found += (trace.proposed_tokens[positions] > 0).tolist()
    return float(np.mean(found))


def wrong_endings(trace):
    """Share of positions behind a run that have a proposal."""
    found = []
    for start, length in zip(trace.starts, trace.output_tokens, strict=True):
        accepted = trace.accepted_tokens[start : start + length].tolist()
        pairs = enumerate(itertools.pairwise(accepted))
        found += [trace.proposed_tokens[start + i + 1] > 0 for i, (a, b) in pairs if a > 0 == b]
    return float(np.mean(found))


def pooled(walks):
    pairs = [pair for walk in walks for pair in itertools.pairwise(walk)]
    return float(np.corrcoef(np.array(pairs).T)[0, 1])


@pytest.mark.parametrize("seed", range(5))
def test_statistics_are_those_of_a_walk_by_hand(seed):
    generator = np.random.default_rng(seed)
    lengths = [*generator.integers(1, 400, 12).tolist(), 1, 2, 16]
    trace = sample_trace(LOCAL, len(lengths), lengths, generator)
    found = trace_statistics(trace, [0, 1, 2, 3, 5, 6, 7, 20])
    assert found.draft_lengths == [0, 1, 2, 3, 5, 6]
    for length, tokens in zip(found.draft_lengths, found.tokens_per_step, strict=True):
        walks = by_hand(trace, length)
        assert sum(map(len, walks)) * tokens == pytest.approx(sum(lengths), rel=1e-12)
    walks = by_hand(trace, 3)
    means = [1 + np.mean(walk) for walk in walks]
    assert found.num_requests == 15
    assert found.pooled_autocorrelation == pytest.approx(pooled(walks), rel=1e-9)
    alone = [pooled([walk]) for walk in walks if len(walk) > 2 and len(set(walk[1:])) > 1]
    assert found.autocorrelation_within == pytest.approx(np.mean(alone), rel=1e-9)
    assert found.request_spread == pytest.approx(np.std(means), rel=1e-12)
    assert found.proposing_steps == pytest.approx(proposing(trace, 3), rel=1e-12)
    assert found.wrong_endings == pytest.approx(wrong_endings(trace), rel=1e-12)
    assert found.proposal_share == (trace.proposed_tokens > 0).mean()


def test_what_a_trace_does_not_have_is_none():
    short = trace_statistics(draw(iid_process(0.5, 2), 10, 50, seed=1))
    assert short.draft_lengths == [1, 2]
    assert short.pooled_autocorrelation is short.request_spread is short.proposing_steps is None
    constant = trace_statistics(draw(iid_process(0.0), 10, 50, seed=1))
    assert constant.pooled_autocorrelation is constant.autocorrelation_within is None
    assert constant.request_spread == 0
    assert constant.wrong_endings is None
    single = trace_statistics(draw(iid_process(0.5), 5, 1, seed=1))
    assert single.pooled_autocorrelation is single.autocorrelation_within is None
    assert single.tokens_per_step == [1] * 7


# bad input


@cases(
    "text longest wrong message",
    ("survival = [0.5, 0.2]\n", 2, "regime = 0.2\n", r"mine.toml.regime: .*regime_share"),
    (
        "max_draft_length = 5\n[runs]\nstart_chance = 0.1\nshort_stop = 0.5\n",
        *(5, "stop = 1\n", r"mine.toml.runs.stop: .*short_stop"),
    ),
)
def test_a_process_of_ones_own(text, longest, wrong, message, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "mine"\n{text}', encoding="utf-8")
    assert draw(load_preset(path), 3, 100, 1).max_draft_length == longest
    path.write_text(f'name = "mine"\n{text}{wrong}', encoding="utf-8")
    refused(f"preset .*{message}", load_preset, path)


FAULTS = [
    ("preset.*code-ngram", lambda: load_preset("code-ngrams")),
    ("process.survival", lambda: LOCAL.with_changes("process", {"survival": [0.5, 0.6]})),
    ("process.proposal_share", lambda: LOCAL.with_changes("process", {"proposal_share": 0.5})),
    ("process.regime_tokens", lambda: LOCAL.with_changes("process", {"regime_tokens": 0.5})),
    ("num_requests", lambda: draw(LOCAL, 0, 10, 1)),
    ("output_tokens", lambda: draw(LOCAL, 3, 2.5, 1)),
    ("output_tokens: got '2 numbers'.*3 requests", lambda: draw(LOCAL, 3, [1, 2], 1)),
    ("output_tokens.*at most 1000 ", lambda: draw(LOCAL, 10**6, 1001, 1)),
    ("generator", lambda: sample_trace(LOCAL, 3, 10, 1)),
    ("draft_length", lambda: trace_statistics(draw(LOCAL, 3, 10, 1), [-1])),
]


@each_row(("message", "call"), FAULTS)
def test_a_fault_is_named(message, call):
    refused(message, call)
