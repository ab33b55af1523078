"""What knows nothing of models or GPUs: errors, units, checked numbers, files and texts."""
