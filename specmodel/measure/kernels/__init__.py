"""Timings of kernels with torch, on a CUDA GPU or a CPU.

Only modules that run something import torch, and only after a check that it is installed.
"""
