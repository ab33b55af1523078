"""Time kernels with torch on a GPU or a CPU. Only modules that run kernels import torch."""
