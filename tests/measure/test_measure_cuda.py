"""What only a GPU can show (skipped without one)."""

import pytest

from specmodel.core.base import build

torch = pytest.importorskip("torch")
pytest.importorskip("filelock")

if not torch.cuda.is_available():  # elsewhere test_measure_on_standin runs the same lines
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

from shapes import plain_shape

from decoder import Decoder, Pass
from specmodel import Architecture
from specmodel.calibrate.measure.kernels import layers
from specmodel.calibrate.measure.kernels.bench import FLASH_TOLERANCE
from specmodel.calibrate.measure.kernels.device import gpu_state
from specmodel.cli import main

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # torch warns of its own
GPU = torch.device("cuda")
HEADS = {"kind": "attention", "num_heads": 4, "num_kv_heads": 2, "head_dim": 64}
EXPERTS = {"num_experts": 8, "experts_per_token": 2, "expert_size": 128}
SIZES = {"hidden_size": 256, "num_layers": 2, "vocabulary_size": 512}
MOE = build(Architecture, plain_shape(name="moe", mixer=HEADS, experts=EXPERTS, **SIZES), "model")


@pytest.mark.parametrize("tokens", [1, 2, 4, 16])
@pytest.mark.parametrize("dim", [64, 128])
def test_flash_attention_is_attention(tokens, dim):
    assert layers.flash_error(GPU, tokens, dim) < FLASH_TOLERANCE


def test_nothing_waits_for_the_host():
    if not layers.has_grouped_kernel(GPU):  # before Hopper a loop over experts waits for the host
        pytest.skip("no grouped kernel")
    decoder = Decoder(MOE, GPU)
    cache = decoder.new_cache(2, 64)
    tokens, first = torch.zeros((2, 3), dtype=torch.int64, device=GPU), torch.tensor([4, 9]).to(GPU)
    with torch.inference_mode():
        decoder.forward(tokens, first, cache)
        torch.cuda.set_sync_debug_mode("error")
        try:
            decoder.forward(tokens, first, cache)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_a_replayed_pass_is_the_pass():
    decoder = Decoder(MOE, GPU)
    with torch.inference_mode():
        caches = [decoder.new_cache(2, 64) for _ in range(2)]
        for one, other in zip(*caches, strict=True):
            one.copy_(other)
        replayed = Pass(decoder, caches[0], 3)
        for start in (5, 20):
            tokens = torch.randint(0, 512, (2, 3), device=GPU)
            first = torch.full((2,), start, device=GPU)
            assert (
                replayed(tokens, first).tolist()
                == decoder.forward(tokens, first, caches[1]).tolist()
            )


def test_a_tiny_suite_makes_a_profile(tmp_path):
    path = tmp_path / "mine.toml"
    assert main(["calibrate", "--device", "cuda", "--tiny", "--output", str(path)]) == 0
    assert "[fitted.torch" in path.read_text()
    assert {"driver_version", "reasons"} <= gpu_state().keys()
