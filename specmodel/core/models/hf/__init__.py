"""Readers of the `config.json` that comes with a model."""
