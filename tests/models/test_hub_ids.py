"""Ids of quantised checkpoints on a hub: the model, the dtype of weights, and what they meet."""

from printed import refused
from published_tables import read_table
from rows import each_row, listed

from specmodel import list_architectures, load_architecture
from specmodel.core.models.checkpoints import checkpoint

ROWS = [(row["id"], row["model"], row["dtype"]) for row in read_table("hub_ids.csv")]
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


@listed
def test_weights_of_an_id_meet_the_activations_that_it_tells(name, activations):
    assert load_architecture(name).activation_dtype == activations


def test_mlx_quantises_the_embedding_too():
    assert load_architecture("mlx-community/Qwen3-8B-4bit").embedding_dtype == "int4_g32"
    assert load_architecture("cyankiwi/Qwen3-8B-AWQ-4bit").embedding_dtype != "int4_g32"
