"""Kinds of layers: each knows its weights, its work in a pass, and what a sequence keeps of it."""
