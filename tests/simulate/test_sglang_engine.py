"""SGLang's adaptive rule against the class of its release, decision by decision.

The decisions of that class are kept in tests/data/sglang_adaptive.json, with the hash of the file
that they came from. To write them anew, with the wheel in a folder (`engine_modules`):
SPECMODEL_ENGINE_WHEELS=FOLDER PYTHONPATH=tests python tests/simulate/test_sglang_engine.py
"""

import base64
import hashlib
import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from engine_modules import own_module, own_source
from engine_rules import AdaptiveServer
from rows import slow

from specmodel.simulate.policies.sglang import first_steps, read_slots

PATH = "sglang/srt/speculative/adaptive_spec_params.py"
RELEASE = "0.5.23"
KEPT = Path(__file__).parents[1] / "data/sglang_adaptive.json"
SEQUENCES, BATCHES = 10_000, 60
SIZES = (1, 2, 8, 32, 64)


def slot(generator):
    """A slot with candidates, and some of the settings that it may have."""
    count = int(generator.integers(1, 5))
    found = {"candidate_steps": sorted(generator.choice(9, count, replace=False).tolist())}
    drawn = {
        "ema_alpha": round(float(generator.uniform(0.05, 1)), 2),
        "update_interval": int(generator.integers(1, 7)),
        "warmup_batches": int(generator.integers(0, 12)),
        "up_hysteresis": round(float(generator.uniform(-0.5, 0.5)), 2),
        "down_hysteresis": round(float(generator.uniform(-0.5, 0.5)), 2),
        "ceiling_coeff": round(float(generator.uniform(0, 2)), 1),
    }
    kept = generator.random(len(drawn)) < 0.3
    return found | {name: drawn[name] for name, is_kept in zip(drawn, kept, strict=True) if is_kept}


def configuration(generator):
    """Slots by batch size, with settings for all; or none, for those of the release."""
    if generator.random() < 0.3:
        return None
    sizes = generator.choice(SIZES, int(generator.integers(1, 4)), replace=False)
    shared = {name: value for name, value in slot(generator).items() if name != "candidate_steps"}
    return shared | {str(size): slot(generator) for size in sorted(sizes.tolist())}


def sequences(count):
    """Yield configurations, first lengths, sizes of graphs, and batches: size and acceptance."""
    for seed in range(count):
        generator = np.random.default_rng(seed)
        config = configuration(generator)
        slots = read_slots(config)
        union = sorted({k for each in slots.values() for k in each.candidate_steps})
        is_told = generator.random() < 0.5
        first = int(generator.choice(union)) if is_told else first_steps(slots)
        graphs = [1, 2, 4, 8, 16, 32, 64] if generator.random() < 0.5 else []
        usual = int(generator.integers(1, 80))
        batches = (
            (usual if generator.random() < 0.8 else int(generator.integers(1, 80)), rate)
            for rate in np.clip(np.cumsum(generator.normal(0, 0.15, BATCHES)) + 0.5, 0, 1)
        )
        yield config, first, graphs, batches


def accepted(length, size, rate, generator):
    """Tokens accepted of a draft by each request of a batch; of a few, as means are taken."""
    held = generator.random((min(size, 5), length)) < rate
    return np.cumprod(held, axis=1).sum(axis=1).tolist()


def ours(config, first, graphs):
    server = AdaptiveServer(config, first, graphs)
    return server.propose, server.observe


def decisions(make, count):
    """The draft length of every batch of every sequence."""
    found = bytearray()
    for seed, (config, first, graphs, batches) in enumerate(sequences(count)):
        propose, observe = make(config, first, graphs)
        generator = np.random.default_rng([seed, 1])
        for size, rate in batches:
            length = propose(size)
            found.append(length)
            observe(accepted(length, size, rate, generator), size)
    return bytes(found)


def own_class(folder):
    """The release's own rule, made from a configuration in a file."""
    module = own_module("sglang", PATH)

    def make(config, first, graphs):
        path = None
        if config is not None:
            path = folder / "slots.json"
            path.write_text(json.dumps(config), encoding="utf-8")
        params = module.AdaptiveSpeculativeParams(first, path)
        params.set_cuda_graph_bs(graphs or None)
        return params.get_steps_for_batch, params.on_verify_complete

    return make


def read_kept():
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    return kept, zlib.decompress(base64.b64decode(kept["decisions"]))


@pytest.mark.parametrize("count", [1000, *slow(SEQUENCES)])
def test_all_decisions_are_those_of_the_release(count):
    kept, expected = read_kept()
    assert (kept["sequences"], len(expected)) == (SEQUENCES, SEQUENCES * BATCHES)
    found = decisions(ours, count)
    same = [
        found[i : i + BATCHES] == expected[i : i + BATCHES] for i in range(0, len(found), BATCHES)
    ]
    assert sum(same) == count
    assert len(set(expected)) == 9  # all candidates are decided for
    changes = np.diff(np.frombuffer(expected, np.uint8).reshape(SEQUENCES, BATCHES).astype(int))
    assert (changes != 0).any(axis=1).mean() > 0.5


@pytest.mark.engine
def test_the_kept_decisions_are_those_of_the_release(tmp_path):
    kept, expected = read_kept()
    digest = hashlib.sha256(own_source("sglang", PATH).encode()).hexdigest()
    if digest != kept["sha256_of_source"]:  # another release may decide otherwise
        pytest.skip(f"needs {PATH} of sglang {RELEASE}")
    assert decisions(own_class(tmp_path), SEQUENCES) == expected


def write_kept(folder):
    """Keep the decisions of the wheel in the folder that engine_modules reads."""
    import os

    (wheel,) = Path(os.environ["SPECMODEL_ENGINE_WHEELS"]).glob(f"sglang-{RELEASE}-*.whl")
    found = decisions(own_class(folder), SEQUENCES)
    kept = {
        "wheel": wheel.name,
        "sha256_of_wheel": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "source": PATH,
        "sha256_of_source": hashlib.sha256(own_source("sglang", PATH).encode()).hexdigest(),
        "sequences": SEQUENCES,
        "batches": BATCHES,
        "decisions": base64.b64encode(zlib.compress(found, 9)).decode(),
    }
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        write_kept(Path(name))
