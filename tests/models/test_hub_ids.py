"""Ids of quantised checkpoints on a hub: the model, the dtype of weights, and what they meet."""

import csv
from pathlib import Path

from printed import refused
from rows import each_row, one_case

from specmodel import list_architectures, load_architecture
from specmodel.core.models.checkpoints import checkpoint

TABLE = Path(__file__).parents[1] / "data/hub_ids.csv"
LINES = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
ROWS = [(row["id"], row["model"], row["dtype"]) for row in csv.DictReader(LINES)]
REFUSED = [(name,) for name, model, _ in ROWS if model == "refused"]


@each_row(("name", "model", "dtype"), [row for row in ROWS if row[1] != "refused"])
def test_an_id_tells_the_model_and_the_dtype_of_its_weights(name, model, dtype):
    assert checkpoint(name, list_architectures()) == (model, dtype)
    read, shipped = load_architecture(name), load_architecture(model)
    assert (read.expert_dtype or read.weight_dtype) == dtype
    assert (read.hidden_size, read.num_experts) == (shipped.hidden_size, shipped.num_experts)


@each_row(("name",), REFUSED)
def test_an_id_that_cannot_tell_is_refused(name):
    refused(r"the path of its config\.json", load_architecture, name)


def test_nearly_all_ids_are_told():
    assert sum(model != "refused" for _, model, _ in ROWS[:60]) >= 56
    assert len(REFUSED) <= 0.1 * len(ROWS)


@one_case(
    "name activations",
    ("RedHatAI/Qwen3-8B-NVFP4", "fp4"),
    ("RedHatAI/Qwen3-8B-NVFP4A16", "bf16"),
    ("mlx-community/Qwen3-8B-mxfp8", "bf16"),
    ("Qwen/Qwen3-8B-GPTQ-Int8", "bf16"),
    ("RedHatAI/Qwen3-8B-quantized.w8a8", "int8"),
    ("RedHatAI/Qwen3-8B-quantized.w8a16", "bf16"),
    ("Qwen/Qwen3-8B-FP8", "fp8"),
)
def test_weights_of_an_id_meet_the_activations_that_it_tells(name, activations):
    assert load_architecture(name).activation_dtype == activations


def test_mlx_quantises_the_embedding_too():
    assert load_architecture("mlx-community/Qwen3-8B-4bit").embedding_dtype == "int4_g32"
    assert load_architecture("cyankiwi/Qwen3-8B-AWQ-4bit").embedding_dtype != "int4_g32"
