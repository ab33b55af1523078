"""Settings of `closed_loop.py`: MoE models by dtype of weights, points, and numbers of repeats."""

from collections.abc import Sequence

import torch
from msgspec import Struct
from msgspec.structs import replace

from decoder import operators
from specmodel.calibrate.measure.kernels.operators import BASE
from specmodel.core.base.dtypes import check_dtype
from specmodel.core.base.records import build
from specmodel.core.models.architecture import Architecture


class Setting(Struct, frozen=True, kw_only=True):
    """What is decoded, at which points, and how often."""

    targets: tuple[Architecture, ...]
    quantised: tuple[Architecture, ...]  # of widths that groups of 128 divide
    drafter: Architecture
    batch_sizes: tuple[int, ...]
    draft_lengths: tuple[int, ...]
    contexts: tuple[int, ...]
    repeats: int
    end_to_end_repeats: int
    steps: int
    acceptance_rate: float = 0.8


def model(
    name: str, hidden_size: int, layers: int, block: dict[str, object], **sizes: int
) -> Architecture:
    mixer = {"kind": "attention", "head_dim": 64, "num_heads": hidden_size // 64} | sizes
    fields = {
        "schema_version": 2,
        "name": name,
        "source": "closed loop",
        "hidden_size": hidden_size,
        "vocabulary_size": mixer.pop("vocabulary_size", 8192),
        "layers": [{"count": layers, "mixer": mixer, "feed_forward": block}],
    }
    return build(Architecture, fields, "model")


def moe(h: int, w: int, experts: int, k: int, layers: int, **sizes: int) -> Architecture:
    block = {"kind": "experts", "num_experts": experts, "experts_per_token": k, "expert_size": w}
    return model(f"MoE {h}x{w}, {k} of {experts}", h, layers, block, **{"num_kv_heads": 4} | sizes)


def dense(h: int, w: int, layers: int, **sizes: int) -> Architecture:
    block = {"kind": "dense", "ffn_size": w}
    return model(f"dense {h}x{w}", h, layers, block, **{"num_kv_heads": 2} | sizes)


LARGE = {"head_dim": 128, "vocabulary_size": 151_936}
_LARGE_MODELS = (
    moe(2048, 896, 64, 8, 16, num_heads=32, num_kv_heads=4, **LARGE),
    moe(4096, 1280, 32, 4, 12, num_heads=32, num_kv_heads=8, **LARGE),
)
SETTINGS = {
    "cpu": Setting(
        targets=(moe(1024, 448, 32, 4, 6), moe(768, 640, 48, 6, 5)), drafter=dense(512, 1536, 3),
        quantised=(moe(1024, 512, 32, 4, 6), moe(768, 640, 48, 6, 5)),
        batch_sizes=(1, 3, 8), draft_lengths=(1, 4), contexts=(256, 2048),
        repeats=36, end_to_end_repeats=4, steps=4,
    ),
    "cuda": Setting(
        targets=_LARGE_MODELS, quantised=_LARGE_MODELS,
        drafter=dense(896, 4864, 12, num_heads=14, num_kv_heads=2, vocabulary_size=151_936),
        batch_sizes=(1, 4, 16, 64), draft_lengths=(1, 3, 5), contexts=(512, 4096),
        repeats=15, end_to_end_repeats=5, steps=16,
    ),
    "tiny": Setting(
        targets=(moe(128, 64, 16, 2, 2, num_heads=2, num_kv_heads=1, vocabulary_size=256),),
        quantised=(moe(128, 128, 16, 2, 2, num_heads=2, num_kv_heads=1, vocabulary_size=256),),
        drafter=dense(64, 128, 1, num_kv_heads=1, vocabulary_size=256),
        batch_sizes=(1, 8), draft_lengths=(3,), contexts=(32,),
        repeats=2, end_to_end_repeats=2, steps=2,
    ),
}  # fmt: skip


def stored_in(setting: Setting, dtypes: Sequence[str], device: torch.device) -> Setting:
    """Return a setting with the targets in each dtype of weights."""
    found = list[Architecture]()
    for dtype in dtypes:
        known = check_dtype("weight_dtype", dtype)
        for target in setting.targets if dtype == "bf16" else setting.quantised:
            changes = {"name": f"{target.name}, {dtype}", "weight_dtype": known}
            stored = target if dtype == "bf16" else target.with_changes("target", changes)
            for row in operators(stored, device, dtype).values():
                met = "bf16" if row["activation_dtype"] == BASE else row["activation_dtype"]
                stored = stored.with_changes("target", {"activation_dtype": met})
            found.append(stored)
    return replace(setting, targets=tuple(found))
