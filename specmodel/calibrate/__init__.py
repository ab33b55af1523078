"""Kernels and engines measured, fitted and judged."""
