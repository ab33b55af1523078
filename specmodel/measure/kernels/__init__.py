"""Timings of kernels with torch, on a CUDA GPU or a CPU, and a decoder to close the loop.

Only the modules that run something import torch, once it is known to be there.
"""
