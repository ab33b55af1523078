"""Timings of kernels with torch, on a CUDA GPU or a CPU; only what runs something imports torch."""
