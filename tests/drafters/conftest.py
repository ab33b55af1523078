"""Drafters as their own ``config.json`` describes them."""

import json

import pytest

from specmodel import load_architecture, load_drafter


@pytest.fixture
def head(tmp_path):
    """A function that reads the drafter of a configuration."""

    def read(config, target="qwen3-30b-a3b", **changes):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config | changes), encoding="utf-8")
        return load_drafter(path, load_architecture(target))

    return read
