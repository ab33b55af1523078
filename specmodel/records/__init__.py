"""What things are: models, drafters, GPUs, kernels and engines, read from files."""
